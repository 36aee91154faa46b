#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/communicator.h"

namespace rondo::testing {

// Deadlines short enough that a broken test ends soon. The operation deadline is far beyond what any fault may take.
Config fault_config();

// What a call did: "ok", or "MISMATCH [1,2] ranks disagree ..." where it threw.
std::string outcome(const std::function<void()>& call);
std::string describe(const Error& error);
int64_t ms_since(std::chrono::steady_clock::time_point start);
// Polls until the condition holds; false at the deadline.
bool eventually(const std::function<bool()>& condition, int ms = 10'000);

// What the body of a rank sees: itself, and the test that started it.
class Here {
 public:
  Here(JoinOptions how, int to_test, int from_test)
      : options(std::move(how)), to_test_(to_test), from_test_(from_test) {}
  JoinOptions options;
  int rank() const { return options.rank; }
  int world() const { return options.world; }
  void say(const std::string& line) const;
  // The next line that the test says; ends the process if the test has ended.
  std::string await();
  // "<ms> <outcome>"
  std::string timed(const std::function<void()>& call) const;

 private:
  int to_test_;
  int from_test_;
  std::string heard_;
};

// A rank in a process of its own, made by fork: the test has no other thread. It dies with the test, and after a minute
// in any case. Not joined yet when the body begins; it ends without destructors when the body returns.
class RankProcess {
 public:
  using Body = std::function<void(Here& here)>;

  RankProcess(const JoinOptions& options, const Body& body);
  ~RankProcess();  // kills it if it still runs
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  pid_t pid() const { return pid_; }
  // The next line that it says; "" at its end or after `ms`.
  std::string hear(int ms = 20'000);
  void tell(const std::string& line) const;
  void signal(int number) const;
  // Its exit code, or minus the signal that ended it.
  int wait();

 private:
  pid_t pid_ = -1;
  int from_rank_ = -1;
  int to_rank_ = -1;
  std::string heard_;
};

// `world` ranks that meet at a file of their own.
class Job {
 public:
  Job();
  ~Job();
  Job(const Job&) = delete;
  JoinOptions options(int rank, int world, const Config& config = fault_config()) const;
  void start(int world, const RankProcess::Body& body, const Config& config = fault_config());

  std::vector<RankProcess> ranks;
  RankProcess& operator[](int rank) { return ranks[static_cast<size_t>(rank)]; }
  int world() const { return static_cast<int>(ranks.size()); }
  // All of them say this next.
  void expect_all(const std::string& line);
  void tell_all(const std::string& line) const;

 private:
  std::string folder_;
};

// "123 PEER_LOST [2] ..." taken apart; elapsed_ms is -1 if the line is nothing of the kind.
struct Timed {
  int64_t elapsed_ms = -1;
  std::string outcome;
  bool begins(std::string_view start) const { return outcome.compare(0, start.size(), start) == 0; }
  bool has(std::string_view part) const { return outcome.find(part) != std::string::npos; }
};
Timed timed_line(const std::string& line);

// Every descriptor, thread and mapping of this process, counted.
struct Resources {
  size_t descriptors = 0;
  size_t threads = 0;
  size_t mappings = 0;
  static Resources now();
};

// Memory between two guards.
class Guarded {
 public:
  Guarded(size_t bytes, unsigned char fill);
  std::byte* data() { return memory_.data() + kGuardBytes; }
  // Nothing was written outside.
  bool intact() const;
  // Nothing was written at all.
  bool untouched() const;

 private:
  static constexpr size_t kGuardBytes = 64 * 1024;
  static constexpr std::byte kGuard{0xa5};
  size_t bytes_;
  std::byte fill_;
  std::vector<std::byte> memory_;
};

}  // namespace rondo::testing
