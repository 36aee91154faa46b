#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rondo/config.h"
#include "rondo/store.h"
#include "tests/support/eventually.h"
#include "tests/support/resources.h"
#include "transport/fabric.h"
#include "transport/rendezvous/launch.h"

namespace rondo::testing {

using Clock = std::chrono::steady_clock;

inline Clock::time_point in(int ms) { return Clock::now() + std::chrono::milliseconds(ms); }

// A communicator's ear that remembers what it heard and answers what it was told to.
class FakeEvents : public CommunicatorEvents {
 public:
  void on_failure(const Error& error, Stage stage) override;
  void on_peer_left(int peer, uint64_t last_sequence) override;
  CallState call_state(uint64_t sequence) override;

  void set_state(CallState state);
  std::optional<Error> failure() const;
  int failures() const;
  std::vector<std::pair<int, uint64_t>> left() const;
  // The failure, once it has come. Fails the test after `ms`.
  Error wait_failure(int ms = 5'000) const;

 private:
  mutable std::mutex mutex_;
  std::optional<Error> failure_;
  int failures_ = 0;
  std::vector<std::pair<int, uint64_t>> left_;
  CallState state_;
};

Launch launch_of(int rank, int world, const std::string& job = "test job");
// Short deadlines, so that a broken test ends soon.
Config test_config(const std::string& transport = "tcp");

struct Joined {
  std::shared_ptr<Fabric> fabric;
  std::optional<Error> error;
};
// One thread a launch; configs: one for all, or one for each.
std::vector<Joined> join_all(const std::vector<Launch>& launches, const std::shared_ptr<Store>& store,
                             const std::vector<Config>& configs, int ms = 10'000);
// World `world` over a new store; fails the test if any rank fails.
std::vector<std::shared_ptr<Fabric>> join_world(int world, const Config& config = test_config());

// A rank with one communicator over all ranks open.
struct Member {
  // Before the fabric, which is destroyed first: events must live as long as it may deliver them.
  std::unique_ptr<FakeEvents> events = std::make_unique<FakeEvents>();
  std::shared_ptr<Doorbell> doorbell, p2p_doorbell;
  std::shared_ptr<Fabric> fabric;
};
Member open_of(std::shared_ptr<Fabric> fabric, uint64_t id, const std::vector<int>& ranks);
Member open_all(std::shared_ptr<Fabric> fabric, uint64_t id);
std::vector<Member> open_world(int world, uint64_t id, const Config& config = test_config());
// Closes and destroys on all ranks at once, as programs do.
void destroy_world(std::vector<Member>& members, uint64_t id);

// Runs `body(index)` on as many threads and joins them.
void in_parallel(int count, const std::function<void(int)>& body);

}  // namespace rondo::testing
