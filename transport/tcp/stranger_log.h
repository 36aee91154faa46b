#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "ring/base/log.h"

namespace rondo {

// Warnings that strangers can cause at any rate: one in kInterval is written, with the number of the others.
class StrangerLog {
 public:
  static constexpr std::chrono::seconds kInterval{10};
  explicit StrangerLog(Logger logger) : logger_(std::move(logger)) {}

  void warn(const std::string& text) {
    uint64_t suppressed = 0;
    if (!limit_.allow(RateLimit::Clock::now(), &suppressed)) return;
    logger_.warn(suppressed == 0 ? text : text + " (" + std::to_string(suppressed) + " more like it)");
  }

 private:
  const Logger logger_;
  RateLimit limit_{kInterval};
};

}  // namespace rondo
