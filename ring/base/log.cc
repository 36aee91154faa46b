#include "ring/base/log.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <new>

#include "rondo/log.h"

namespace rondo {
namespace {

// Config::check() has refused other words, so the last line is "warn".
LogLevel parse_level(std::string_view level) {
  if (level == "off") return LogLevel::kOff;
  if (level == "info") return LogLevel::kInfo;
  if (level == "trace") return LogLevel::kTrace;
  return LogLevel::kWarn;
}

// The program's function, one for the process. It is constant-initialized and never destroyed: threads may log
// while the process exits.
struct Program {
  std::atomic<std::mutex*> mutex;              // held during a call
  std::atomic<LogFunction> function{nullptr};  // changed under the mutex; without one, lines are written without it
  void* context = nullptr;
};
constinit std::mutex first_mutex;
constinit Program program{&first_mutex};

thread_local bool in_function = false;
struct InFunction {
  InFunction() { in_function = true; }
  ~InFunction() { in_function = false; }  // a program's function may throw
};

// In a child of fork(): the mutex may be held by a thread that only the parent has. A thread that forks inside
// the function keeps the old mutex, which it holds itself.
void renew_mutex() {
  if (in_function) return;
  if (auto* const unlocked = new (std::nothrow) std::mutex) program.mutex.store(unlocked);
}

// Calls the program's function. False: there is none.
bool give_to_program(LogLevel level, int rank, const std::string& text) {
  if (program.function.load(std::memory_order_relaxed) == nullptr) return false;
  std::lock_guard lock(*program.mutex.load());
  const LogFunction function = program.function.load(std::memory_order_relaxed);
  if (function == nullptr) return false;
  const InFunction inside;
  function(program.context, static_cast<int>(level), rank, text.c_str());
  return true;
}

// For as long as it lives, a write to a closed pipe raises no SIGPIPE on this thread. Standard error may be a
// pipe whose reader has ended, and the program's handler must not hear of the library's log.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    waited_before_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;
  ~NoPipeSignal() {
    const timespec at_once{0, 0};
    if (raised_ && !waited_before_) {  // the write's own, taken away
      while (sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  void raised() { raised_ = true; }

 private:
  sigset_t pipe_, before_;
  bool waited_before_ = false;
  bool raised_ = false;
};

// Writes a line by one system call, so that lines of several ranks on one terminal do not mix. Errors are
// ignored: a closed standard error is no failure of a call.
void write_line(int rank, const std::string& text) {
  const std::string line = rank < 0 ? fmt::format("rondo: {}\n", text) : fmt::format("rondo[{}]: {}\n", rank, text);
  NoPipeSignal guard;
  while (::write(STDERR_FILENO, line.data(), line.size()) < 0) {
    if (errno == EPIPE) guard.raised();
    if (errno != EINTR) return;
  }
}

}  // namespace

void set_log_function(LogFunction function, void* context) {
  static const int failed = pthread_atfork(nullptr, nullptr, renew_mutex);
  if (failed != 0) throw std::bad_alloc();
  std::lock_guard lock(*program.mutex.load());
  program.context = context;
  program.function.store(function, std::memory_order_relaxed);
}

Logger::Logger(std::string_view level, int rank) : level_(parse_level(level)), rank_(rank) {}

void Logger::write(LogLevel level, std::string_view text) const {
  if (level == LogLevel::kOff || !shows(level)) return;
  // The text may hold bytes of a peer: a line end in it would forge a line of the log.
  std::string safe(text);
  for (char& c : safe) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (!give_to_program(level, rank_, safe)) write_line(rank_, safe);
}

// Several threads may be at the end of an interval: one wins the exchange and shows its event, the others are
// counted.
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
