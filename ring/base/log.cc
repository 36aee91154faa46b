#include "ring/base/log.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

namespace rondo {
namespace {

LogLevel parse_level(std::string_view level) {
  if (level == "off") return LogLevel::kOff;
  if (level == "info") return LogLevel::kInfo;
  if (level == "trace") return LogLevel::kTrace;
  return LogLevel::kWarn;
}

}  // namespace

Logger::Logger(std::string_view level, int rank) : level_(parse_level(level)), rank_(rank) {}

void Logger::write(LogLevel level, std::string_view text) const {
  if (level == LogLevel::kOff || !shows(level)) return;
  std::string line = rank_ < 0 ? std::string("rondo: ") : fmt::format("rondo[{}]: ", rank_);
  for (char c : text) line.push_back(static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c);
  line.push_back('\n');
  // One write, so that the lines of several ranks on one terminal do not mix. A closed standard error is not our
  // caller's concern.
  while (::write(STDERR_FILENO, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

bool RateLimit::allow(Clock::time_point now, uint64_t* suppressed) {
  Clock::rep tick = now.time_since_epoch().count();
  Clock::rep next = next_.load(std::memory_order_relaxed);
  if (tick < next || !next_.compare_exchange_strong(next, tick + interval_.count(), std::memory_order_relaxed)) {
    suppressed_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  *suppressed = suppressed_.exchange(0, std::memory_order_relaxed);
  return true;
}

}  // namespace rondo
