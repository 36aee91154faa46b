#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace rondo {

enum class LogLevel : int { kOff = 0, kWarn = 1, kInfo = 2, kTrace = 3 };

// Writes this rank's messages to the program's function, or to standard error: one write a line, "rondo[3]:
// ...". A value: copy it freely. Callers build the text themselves, after asking shows(), so this header needs
// no formatting package.
class Logger {
 public:
  Logger() = default;  // warnings, no rank
  // level: a value of Config::debug. rank -1: not known yet ("rondo: ...").
  explicit Logger(std::string_view level, int rank = -1);

  bool shows(LogLevel level) const { return level <= level_; }
  // One line; control characters in it (a stranger's bytes) are replaced by '?'. Any thread.
  void write(LogLevel level, std::string_view text) const;
  void warn(std::string_view text) const { write(LogLevel::kWarn, text); }
  void info(std::string_view text) const { write(LogLevel::kInfo, text); }
  void trace(std::string_view text) const { write(LogLevel::kTrace, text); }

 private:
  LogLevel level_ = LogLevel::kWarn;
  int rank_ = -1;
};

// Lets one event through in each interval, and counts the others: for messages that strangers can trigger. Any
// thread.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;
  explicit RateLimit(Clock::duration interval) : interval_(interval) {}

  // True: show the event. `suppressed` is then the number of events since the last one that was shown.
  bool allow(Clock::time_point now, uint64_t* suppressed);

 private:
  Clock::duration interval_;
  // Ticks of Clock, from which on the next event is shown; the first one is shown at once.
  std::atomic<Clock::rep> next_{Clock::duration::min().count()};
  std::atomic<uint64_t> suppressed_{0};
};

}  // namespace rondo
