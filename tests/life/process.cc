#include <algorithm>
#include <thread>

#include "tests/life/leaks.h"
#include "tests/life/rank.h"

namespace rondo::life {
namespace {

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
  const bool newcomer = rank >= life.world;
  const Error error = (life.door(rank) == "c" ? join_c : join_cpp)(newcomer ? -1 : rank, life.world, meeting, &job);
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
  if (const std::string grown = leaks.found(); !grown.empty()) reports[0]->fault(grown);
  return all_are(&Report::clean) ? 0 : 1;
}

}  // namespace rondo::life
