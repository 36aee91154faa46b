// A window's lock over messages: one rank alone or several that share it, first come, first served, so that ranks that
// share it in turns keep nobody waiting who wants it alone.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "mpi/core/window_service.h"

namespace rondo_mpi {
namespace {

constexpr int kTarget = 0, kRanks = 4;

// Rank 0 has the window, the others ask. All are moved by this thread and the engine's.
class Scene {
 public:
  Scene() {
    std::vector<rondo::Communicator> all = rondo::Communicator::inproc(kRanks);
    for (rondo::Communicator& one : all) engines_.push_back(std::make_shared<rondo::Communicator>(std::move(one)));
    auto comm = std::make_shared<Comm>();
    comm->engine = engines_[kTarget];
    service_ = std::make_shared<WindowService>(comm);
    service_->start();
  }
  ~Scene() {
    service_->close();
    std::vector<std::jthread> leave;  // each waits for the others
    for (const auto& engine : engines_) leave.emplace_back([&engine] { engine->destroy(); });
  }
  Scene(const Scene&) = delete;

  void ask(int rank, WindowAction action) {
    WindowRequest request{action};
    request.answer = kAnswers + asked_++;
    if (action != WindowAction::kUnlock) waits_[rank] = request.answer;
    send(rank, request);
    settle(rank);
  }
  void lock(int rank) { ask(rank, WindowAction::kLockExclusive); }
  void share(int rank) { ask(rank, WindowAction::kLockShared); }
  void unlock(int rank) { ask(rank, WindowAction::kUnlock); }
  // What the rank has asked for last is its own.
  bool has(int rank) {
    settle(rank);
    return engine(rank).iprobe(kTarget, waits_.at(rank)).has_value();
  }

 private:
  rondo::Communicator& engine(int rank) { return *engines_[static_cast<size_t>(rank)]; }
  void send(int rank, const WindowRequest& request) {
    engine(rank).send(&request, sizeof request, rondo::DType::kUint8, kTarget, kRequests);
  }
  // Requests are served in their order: what the rank was to be told before the answer to this one is there then.
  void settle(int rank) {
    WindowRequest nothing{WindowAction::kGet};
    nothing.answer = kAnswers + asked_++;
    send(rank, nothing);
    engine(rank).recv(nullptr, 0, rondo::DType::kUint8, kTarget, nothing.answer);
  }

  std::vector<std::shared_ptr<rondo::Communicator>> engines_;
  std::shared_ptr<WindowService> service_;
  std::map<int, int32_t> waits_;  // the tag of the answer, by rank
  int32_t asked_ = 0;
};

}  // namespace

TEST_CASE("one rank has a lock alone, and others follow in the order in which they asked") {
  Scene scene;
  scene.lock(1);
  CHECK(scene.has(1));
  scene.lock(3);
  scene.share(2);
  CHECK_FALSE(scene.has(3));
  CHECK_FALSE(scene.has(2));
  scene.unlock(1);
  CHECK(scene.has(3));
  CHECK_FALSE(scene.has(2));
  scene.unlock(3);
  CHECK(scene.has(2));
}

TEST_CASE("ranks share a lock, and the last of them gives it to one that wants it alone") {
  Scene scene;
  scene.share(1);
  scene.share(2);
  CHECK(scene.has(1));
  CHECK(scene.has(2));
  scene.lock(3);
  scene.unlock(1);
  CHECK_FALSE(scene.has(3));
  scene.unlock(2);
  CHECK(scene.has(3));
}

TEST_CASE("ranks that share a lock in turns keep nobody waiting who wants it alone") {
  Scene scene;
  scene.share(1);
  scene.lock(3);
  scene.share(2);  // behind rank 3, though rank 1 shares it
  CHECK_FALSE(scene.has(2));
  scene.unlock(1);
  scene.share(1);
  CHECK(scene.has(3));
  CHECK_FALSE(scene.has(1));
  scene.unlock(3);
  CHECK(scene.has(2));
  CHECK(scene.has(1));
}

}  // namespace rondo_mpi
