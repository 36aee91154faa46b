#include "tests/fabric/cluster.h"

#include <doctest/doctest.h>

#include <numeric>
#include <thread>

#include "transport/fabrics/process_fabric.h"
#include "transport/store/memory_store.h"

namespace rondo::testing {
void FakeEvents::on_failure(const Error& error, Stage) {
  std::lock_guard lock(mutex_);
  failure_ = error;
  ++failures_;
}

void FakeEvents::on_peer_left(int peer, uint64_t last_sequence) {
  std::lock_guard lock(mutex_);
  left_.emplace_back(peer, last_sequence);
}

CallState FakeEvents::call_state(uint64_t) {
  std::lock_guard lock(mutex_);
  return state_;
}

void FakeEvents::set_state(CallState state) {
  std::lock_guard lock(mutex_);
  state_ = std::move(state);
}

std::optional<Error> FakeEvents::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

int FakeEvents::failures() const {
  std::lock_guard lock(mutex_);
  return failures_;
}

std::vector<std::pair<int, uint64_t>> FakeEvents::left() const {
  std::lock_guard lock(mutex_);
  return left_;
}

Error FakeEvents::wait_failure(int ms) const {
  REQUIRE(eventually([&] { return failure().has_value(); }, ms));
  return *failure();
}

Launch launch_of(int rank, int world, const std::string& job) {
  Launch launch;
  launch.place = {rank, world, -1, -1, -1, -1};
  launch.job_id = job;
  launch.launcher = "program";
  launch.one_host = true;
  return launch;
}

Config test_config(const std::string& transport) {
  Config config;
  config.start_timeout_ms = 10'000;
  config.handshake_timeout_ms = 2'000;
  config.destroy_timeout_ms = 3'000;
  config.debug = "off";
  config.transport = transport;
  return config;
}

std::vector<Joined> join_all(const std::vector<Launch>& launches, const std::shared_ptr<Store>& store,
                             const std::vector<Config>& configs, int ms) {
  std::vector<Joined> joined(launches.size());
  in_parallel(static_cast<int>(launches.size()), [&](int index) {
    const auto i = static_cast<size_t>(index);
    try {
      joined[i].fabric = join_processes(launches[i], store, configs[configs.size() == 1 ? 0 : i], in(ms));
    } catch (const Exception& failure) {
      joined[i].error = failure.error();
    }
  });
  return joined;
}

std::vector<std::shared_ptr<Fabric>> join_world(int world, const Config& config) {
  std::vector<Launch> launches;
  for (int rank = 0; rank < world; ++rank) launches.push_back(launch_of(rank, world));
  std::vector<std::shared_ptr<Fabric>> fabrics;
  for (Joined& joined : join_all(launches, std::make_shared<MemoryStore>(), {config})) {
    INFO((joined.error ? joined.error->message : ""));
    REQUIRE(joined.fabric);
    fabrics.push_back(std::move(joined.fabric));
  }
  return fabrics;
}

Member open_of(std::shared_ptr<Fabric> fabric, uint64_t id, const std::vector<int>& ranks) {
  Member member;
  member.fabric = std::move(fabric);
  member.doorbell = std::make_shared<Doorbell>(member.fabric->sleepers());
  member.p2p_doorbell = std::make_shared<Doorbell>(member.fabric->sleepers());
  member.fabric->open(id, ranks, member.events.get(), member.doorbell, member.p2p_doorbell);
  return member;
}

Member open_all(std::shared_ptr<Fabric> fabric, uint64_t id) {
  std::vector<int> ranks(static_cast<size_t>(fabric->place().world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return open_of(std::move(fabric), id, ranks);
}

std::vector<Member> open_world(int world, uint64_t id, const Config& config) {
  std::vector<Member> members;
  for (auto& fabric : join_world(world, config)) members.push_back(open_all(std::move(fabric), id));
  return members;
}

void destroy_world(std::vector<Member>& members, uint64_t id) {
  in_parallel(static_cast<int>(members.size()), [&](int index) {
    Member& member = members[static_cast<size_t>(index)];
    if (!member.fabric) return;
    member.fabric->close(id, 0, in(3'000));
    member.fabric.reset();
  });
}

void in_parallel(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int index = 0; index < count; ++index) threads.emplace_back(body, index);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace rondo::testing
