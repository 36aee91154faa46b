#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "bench/entrant.h"
#include "bench/row.h"

namespace rondo::bench {

// What libraries answered to one question, run by run.
class RunAnswers {
 public:
  virtual ~RunAnswers() = default;

  virtual const Question& question() const = 0;
  virtual size_t runs() const = 0;
  // The fastest right answer of a library in a run.
  virtual std::optional<Row> best(size_t run, const std::string& library, uint64_t bytes) const = 0;
  // Why a library has no answer; "" if it has one.
  virtual std::string why_missing(const std::string& library) const = 0;
};

}  // namespace rondo::bench
