#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "tests/life/door_asked.h"
#include "tests/life/doors.h"
#include "tests/life/rank.h"
#include "tests/support/resources.h"

namespace rondo::life {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnMappings = false;  // the sanitizer's own grow
#else
constexpr bool kOwnMappings = true;
#endif

// What this process has between the rounds of a life. What the allocator keeps for threads would look like a leak: the
// player turns that off.
class Leaks {
 public:
  explicit Leaks(int rounds) { counted_.reserve(static_cast<size_t>(rounds)); }
  void count() { counted_.push_back(testing::Resources::settled()); }
  // "" or what has grown in each round but the first, which makes what the C library and statics keep; needs five.
  // interpreted: by a program that keeps memory of its own.
  std::string found(bool interpreted) const;

 private:
  std::vector<testing::Resources> counted_;
};

std::string Leaks::found(bool interpreted) const {
  using testing::Resources;
  struct Kind {
    const char* name;
    size_t Resources::*count;
    size_t least;  // by which each round of a leak adds to it
  };
  constexpr Kind kKinds[] = {{"descriptors", &Resources::descriptors, 1},
                             {"threads", &Resources::threads, 1},
                             {"mappings", &Resources::mappings, 1},
                             {"bytes of memory", &Resources::allocated_bytes, 64}};  // less: how blocks were rounded
  constexpr size_t kFewestRounds = 5;
  if (counted_.size() < kFewestRounds) return "";
  for (const auto& [name, count, least] : kKinds) {
    if (count == &Resources::mappings && (interpreted || !kOwnMappings)) continue;
    if (count == &Resources::allocated_bytes && interpreted) continue;
    std::string each;
    for (const Resources& counted : counted_) each += " " + std::to_string(counted.*count);
    const auto stays = [count = count, least = least](const Resources& a, const Resources& b) {
      return a.*count + least > b.*count;
    };
    if (std::adjacent_find(counted_.begin(), counted_.end(), stays) != counted_.end()) continue;
    return std::string("the rounds leave more and more ") + name + ":" + each;
  }
  return "";
}

// All of one rank: its job, then its threads.
void play_round(const Life& life, int rank, Report& report, std::unique_ptr<Group> job) {
  try {
    std::vector<std::unique_ptr<Thread>> threads;
    std::vector<std::unique_ptr<Group>> owned(life.threads.size());
    for (size_t t = 0; t < life.threads.size(); ++t) {
      threads.push_back(std::make_unique<Thread>(life, rank, static_cast<int>(t), report, job.get()));
      if (t == 0) continue;
      const Error error = job->split(0, rank, &owned[t]);
      if (!error.ok()) throw Over("the split for thread " + std::to_string(t) + ": " + said(error));
    }
    std::vector<std::thread> running;
    for (size_t t = 1; t < threads.size(); ++t) {
      Group* group = owned[t].get();
      running.emplace_back([&, t, group] { threads[t]->play(group, std::move(owned[t])); });
    }
    if (!threads.empty()) threads[0]->play(job.get(), nullptr);
    for (std::thread& thread : running) thread.join();
    if (life.seed % 2 == 0) threads.clear();  // registered memory before the job, else after
    const Error error = job->destroy();
    if (!error.ok() && report.clean()) throw Over("destroy: " + said(error));
  } catch (const std::exception& error) {
    report.fault(error.what());
    job->abort(kOurAbort);
  }
}

using Reports = std::vector<std::unique_ptr<Report>>;

void play_threads(const Life& life, const Reports& reports) {
  std::vector<std::unique_ptr<Group>> groups = (life.door(0) == "c" ? threads_c : threads_cpp)(life.world);
  std::vector<std::thread> ranks;
  for (int r = 0; r < life.world; ++r) {
    ranks.emplace_back(
        [&, r] { play_round(life, r, *reports[static_cast<size_t>(r)], std::move(groups[static_cast<size_t>(r)])); });
  }
  for (std::thread& thread : ranks) thread.join();
}

void play_rank(const Life& life, int rank, const std::string& meeting, Report& report) {
  std::unique_ptr<Group> job;
  const std::string& door = life.door(rank);
  const int known = rank < life.world ? rank : -1;
  const Error error = door == "cpp" ? join_cpp(known, life.world, meeting, &job)
                      : door == "c" ? join_c(known, life.world, meeting, &job)
                                    : join_asked(life, rank, meeting, &job);
  if (!error.ok()) return report.fault("join: " + said(error));
  play_round(life, rank, report, std::move(job));
}

}  // namespace

int play_life(const Life& life, int rank, const std::string& meeting, const std::string& folder) {
  const bool all = life.ranks == Ranks::kThreads;
  Reports reports;
  for (int r = all ? 0 : rank; r < (all ? life.world : rank + 1); ++r) {
    reports.push_back(std::make_unique<Report>(folder, r));
  }
  const auto all_are = [&](bool (Report::*what)()) {
    return std::all_of(reports.begin(), reports.end(), [what](const auto& report) { return (*report.*what)(); });
  };
  Leaks leaks(life.rounds);
  for (int round = 0; round < life.rounds && all_are(&Report::goes_on); ++round) {
    if (all) {
      play_threads(life, reports);
    } else {
      play_rank(life, rank, meeting + "-" + std::to_string(round), *reports[0]);
    }
    if (life.rounds > 1) leaks.count();
  }
  if (const std::string grown = leaks.found(is_of_python(life.door(rank))); !grown.empty()) reports[0]->fault(grown);
  return all_are(&Report::clean) ? 0 : 1;
}

}  // namespace rondo::life
