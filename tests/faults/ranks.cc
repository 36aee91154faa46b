#include "tests/faults/ranks.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

namespace rondo::testing {

using Clock = std::chrono::steady_clock;

Config fault_config(const std::string& transport) {
  Config config;
  config.transport = transport;
  config.start_timeout_ms = 20'000;
  config.handshake_timeout_ms = 2'000;
  config.destroy_timeout_ms = 3'000;
  config.timeout_ms = 25'000;
  config.debug = "off";
  return config;
}

std::string describe(const Error& error) {
  return fmt::format("{} [{}] {}", error_code_name(error.code), fmt::join(error.ranks, ","), error.message);
}

std::string outcome(const std::function<void()>& call) {
  try {
    call();
    return "ok";
  } catch (const Exception& failure) {
    return describe(failure.error());
  }
}

int64_t ms_since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}

void check_within(int row, int64_t took_ms, int64_t limit_ms) {
  std::printf("fault %d: %lld ms\n", row, static_cast<long long>(took_ms));
  CHECK(took_ms < limit_ms);
}

void sum_ones(Communicator& group, uint64_t count) {
  std::vector<float> values(count, 1);
  group.all_reduce(values.data(), values.data(), count, DType::kFloat32);
  const auto right = static_cast<float>(group.size());
  if (std::any_of(values.begin(), values.end(), [right](float sum) { return sum != right; })) {
    throw Exception(ErrorCode::kInternal, "a wrong sum");
  }
}

std::string sums_until(Communicator& group, int64_t ms) {
  std::vector<float> values(50'000), sums(50'000);
  return outcome([&] {
    const auto start = Clock::now();
    do {
      values.assign(values.size(), 1);
      group.all_reduce(values.data(), sums.data(), sums.size(), DType::kFloat32);
      const auto right = static_cast<float>(group.size());
      if (std::any_of(sums.begin(), sums.end(), [right](float sum) { return sum != right; })) {
        throw Exception(ErrorCode::kInternal, "a wrong sum");
      }
      values[0] = ms_since(start) >= ms ? 1 : 0;
      group.all_reduce(values.data(), sums.data(), 1, DType::kFloat32, Op::kMax);
    } while (sums[0] == 0);
  });
}

std::string Here::timed(const std::function<void()>& call) const {
  const auto start = Clock::now();
  const std::string result = outcome(call);
  return fmt::format("{} {}", ms_since(start), result);
}

RankProcess::RankProcess(const JoinOptions& options, const Body& body, unsigned lifetime_seconds)
    : Child(
          [&](Parent& test) {
            Here here(options, test);
            const std::string trouble = outcome([&] { body(here); });
            if (trouble != "ok") here.say("exception: " + trouble);
            return trouble == "ok" ? 0 : 2;
          },
          lifetime_seconds) {}

JoinOptions Job::options(int rank, int world, const Config& config) const {
  JoinOptions join;
  join.rank = rank;
  join.world = world;
  join.rendezvous = "file://" + folder_.path("meeting");
  join.job_id = "fault test";
  join.config = config;
  join.config.socket_interface = "lo";
  return join;
}

void Job::start(int world, const RankProcess::Body& body, const Config& config) {
  for (int rank = 0; rank < world; ++rank) ranks.emplace_back(options(rank, world, config), body);
}

void Job::expect_all(const std::string& line) {
  for (RankProcess& rank : ranks) REQUIRE(rank.hear() == line);
}

void Job::tell_all(const std::string& line) const {
  for (const RankProcess& rank : ranks) rank.tell(line);
}

Timed timed_line(const std::string& line) {
  char* end = nullptr;
  const long long elapsed = std::strtoll(line.c_str(), &end, 10);
  if (end == line.c_str() || *end != ' ') return {-1, line};
  return {elapsed, end + 1};
}

Guarded::Guarded(size_t bytes, unsigned char fill, std::pmr::memory_resource* of)
    : bytes_(bytes), fill_(std::byte{fill}), memory_(bytes + 2 * kGuardBytes, kGuard, of) {
  std::fill_n(data(), bytes, fill_);
}

bool Guarded::intact() const {
  const auto guard = [](std::byte value) { return value == kGuard; };
  const auto inside = memory_.begin() + kGuardBytes;
  return std::all_of(memory_.begin(), inside, guard) &&
         std::all_of(inside + static_cast<std::ptrdiff_t>(bytes_), memory_.end(), guard);
}

bool Guarded::untouched() const {
  const auto inside = memory_.begin() + kGuardBytes;
  return intact() && std::all_of(inside, inside + static_cast<std::ptrdiff_t>(bytes_),
                                 [this](std::byte value) { return value == fill_; });
}

}  // namespace rondo::testing
