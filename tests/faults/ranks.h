#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/communicator.h"
#include "tests/support/child.h"
#include "tests/support/eventually.h"
#include "tests/support/resources.h"
#include "tests/support/temp_folder.h"

namespace rondo::testing {

// Deadlines short enough that a broken test ends soon. The operation deadline is far beyond what any fault may take.
Config fault_config(const std::string& transport = "auto");

// What a call did: "ok", or "MISMATCH [1,2] ranks disagree ..." where it threw.
std::string outcome(const std::function<void()>& call);
std::string describe(const Error& error);
int64_t ms_since(std::chrono::steady_clock::time_point start);

// Checks a bound of docs/faults.md, and prints what it took, for that page: "fault 12: 1003 ms".
void check_within(int row, int64_t took_ms, int64_t limit_ms);

// Sums so many ones of each rank. Throws what the call does, and where a sum is wrong.
void sum_ones(Communicator& group, uint64_t count);

// Sums 50,000 floats for so long, and looks at each sum: its outcome. All ranks stop after the same call.
std::string sums_until(Communicator& group, int64_t ms);

// What the body of a rank sees: itself, and the test that started it.
class Here : public Parent {
 public:
  Here(JoinOptions how, const Parent& test) : Parent(test), options(std::move(how)) {}
  JoinOptions options;
  int rank() const { return options.rank; }
  int world() const { return options.world; }
  // "<ms> <outcome>"
  std::string timed(const std::function<void()>& call) const;
};

// A rank in a process of its own. Not joined yet when the body begins.
class RankProcess : public Child {
 public:
  using Body = std::function<void(Here& here)>;
  RankProcess(const JoinOptions& options, const Body& body, unsigned lifetime_seconds = 60);
};

// `world` ranks that meet at a file of their own.
class Job {
 public:
  JoinOptions options(int rank, int world, const Config& config = fault_config()) const;
  void start(int world, const RankProcess::Body& body, const Config& config = fault_config());

  std::vector<RankProcess> ranks;
  RankProcess& operator[](int rank) { return ranks[static_cast<size_t>(rank)]; }
  int world() const { return static_cast<int>(ranks.size()); }
  // All of them say this next.
  void expect_all(const std::string& line);
  void tell_all(const std::string& line) const;

 private:
  TempFolder folder_;
};

// "123 PEER_LOST [2] ..." taken apart; elapsed_ms is -1 if the line is nothing of the kind.
struct Timed {
  int64_t elapsed_ms = -1;
  std::string outcome;
  bool begins(std::string_view start) const { return outcome.compare(0, start.size(), start) == 0; }
  bool has(std::string_view part) const { return outcome.find(part) != std::string::npos; }
};
Timed timed_line(const std::string& line);

// Memory between two guards.
class Guarded {
 public:
  Guarded(size_t bytes, unsigned char fill, std::pmr::memory_resource* of = std::pmr::get_default_resource());
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
  std::pmr::vector<std::byte> memory_;
};

}  // namespace rondo::testing
