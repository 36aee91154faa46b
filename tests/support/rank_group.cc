#include "tests/support/rank_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

#include "ring/base/hash.h"
#include "tests/support/child.h"
#include "tests/support/temp_folder.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;

std::string run_body(const std::function<void()>& body) {
  try {
    body();
    return "";
  } catch (const Exception& failure) {
    return fmt::format("{}: {}", error_code_name(failure.code()), failure.what());
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

// Runs the body and takes the others down with it if it fails: they would wait for this rank until their deadline.
void run_member(Communicator& group, const RankBody& body) {
  try {
    body(group);
  } catch (const std::exception& failure) {
    group.abort(failure.what());
    throw;
  }
}

// "" or why it did not end well.
std::string trouble_of(int rank, Child& child, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  const std::string report = child.hear(static_cast<int>(std::max<int64_t>(0, left)));
  if (report.empty() && Clock::now() >= deadline) return fmt::format("rank {} did not end before the deadline\n", rank);
  const int code = child.wait();
  if (code < 0) return fmt::format("rank {} died of signal {}\n", rank, -code);
  return code == 0 ? "" : fmt::format("rank {}: {}\n", rank, report);
}

}  // namespace

Config RankGroup::quiet_config() {
  Config config;
  config.start_timeout_ms = 60'000;
  config.handshake_timeout_ms = 30'000;
  config.timeout_ms = 60'000;
  config.destroy_timeout_ms = 30'000;
  config.debug = "off";
  return config;
}

RankGroup ranks_over(const std::string& transport, int world) {
  RankGroup group{.world = world};
  group.config.transport = transport;
  return group;
}

std::string run_bare_processes(int world, std::chrono::seconds deadline, const std::function<void(int)>& body) {
  const auto until = Clock::now() + deadline;
  // The deadline ends children here; their own lifetime is for a test that is gone.
  const auto lifetime = static_cast<unsigned>(deadline.count()) + 60;
  std::vector<Child> children;
  for (int rank = 0; rank < world; ++rank) {
    const auto run = [&](Parent& test) {
      const std::string trouble = run_body([&] { body(rank); });
      test.say(trouble.empty() ? "ok" : trouble);
      return trouble.empty() ? 0 : 1;
    };
    children.emplace_back(run, lifetime);
  }
  std::string troubles;
  for (int rank = 0; rank < world; ++rank) troubles += trouble_of(rank, children[static_cast<size_t>(rank)], until);
  return troubles;
}

std::string run_processes(const RankGroup& group, const RankBody& body) {
  const TempFolder folder;
  return run_bare_processes(group.world, group.deadline, [&](int rank) {
    group.before(rank);
    JoinOptions options;
    options.rank = rank;
    options.world = group.world;
    options.rendezvous = "unix://" + folder.path("store");
    options.job_id = "test";
    options.config = group.config;
    Communicator communicator = Communicator::join(options);
    run_member(communicator, body);
  });
}

std::string run_threads(const RankGroup& group, const RankBody& body) {
  std::vector<Communicator> ranks = Communicator::inproc(group.world, group.config);
  std::vector<std::string> troubles(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      Communicator own = std::move(ranks[r]);
      troubles[r] = run_body([&] { run_member(own, body); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (size_t r = 0; r < troubles.size(); ++r) {
    if (!troubles[r].empty()) all += fmt::format("rank {}: {}\n", r, troubles[r]);
  }
  return all;
}

std::string run_over_both(RankGroup group, const RankBody& body) {
  std::string troubles;
  for (const char* transport : {"shm", "tcp"}) {
    group.config.transport = transport;
    const std::string trouble = run_processes(group, body);
    if (!trouble.empty()) troubles += fmt::format("over {}: {}", transport, trouble);
  }
  return troubles;
}

std::string run_everywhere(int world, const RankBody& body) {
  const RankGroup group{.world = world};
  return run_over_both(group, body) + run_threads(group, body);
}

void run_in_threads(int threads, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> failures(static_cast<size_t>(threads));
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      try {
        body(i);
      } catch (...) {
        failures[static_cast<size_t>(i)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

void expect_same_everywhere(Communicator& group, std::span<const std::byte> bytes, const std::string& what) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const uint64_t own = Hash64().add(text).value();
  std::vector<uint64_t> all(static_cast<size_t>(group.size()));
  group.all_gather(&own, all.data(), 1, DType::kUint64);
  for (size_t r = 0; r < all.size(); ++r) {
    expect(all[r] == all[0], [&] { return fmt::format("{}: rank {} has other bits than rank 0", what, r); });
  }
}

void expect(bool condition, const std::string& otherwise) {
  if (!condition) throw std::runtime_error(otherwise);
}

}  // namespace rondo::testing
