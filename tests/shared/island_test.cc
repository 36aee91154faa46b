// Ranks as threads that share memory: windows, pulls, links, streams and doorbells of their fabrics.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <thread>

#include "ring/base/cores.h"
#include "rondo/error.h"
#include "tests/fabric/cluster.h"
#include "tests/support/child.h"
#include "transport/armed_sleep.h"
#include "transport/fabrics/inproc_fabric.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kId = 5;

// On one host, whose cores all ranks may use.
Topology topology_of(std::vector<int> host, std::vector<int> island) {
  const cpu_set_t cores = allowed_cores();
  const std::vector<int> between(host.size(), CPU_COUNT(&cores));
  return {std::move(host), std::move(island), between};
}

// Binds this thread, and those that it starts, to one core.
class OnOneCore {
 public:
  OnOneCore() : before_(allowed_cores()) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(std::max(0, sched_getcpu()), &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  }
  ~OnOneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;

 private:
  cpu_set_t before_;
};

// Takes the link, as the engine does: asks, sleeps on the doorbell, asks again.
std::unique_ptr<Link> take(Member& member, int peer, const LinkShape& shape = {3, 4096}) {
  const auto deadline = in(5'000);
  while (Clock::now() < deadline && !member.events->failure()) {
    ArmedSleep sleep(*member.doorbell, *member.fabric->sleepers());
    if (auto link = member.fabric->take_link({kId, peer}, shape)) return link;
    CHECK(sleep.wait(deadline).ok());
  }
  return nullptr;
}

std::shared_ptr<Window> found(SharedMemory& memory, int peer, uint64_t id) {
  std::shared_ptr<Window> window;
  eventually([&] { return (window = memory.find(peer, id)) != nullptr; });
  return window;
}

TEST_CASE("ranks that are bound to one core know that they share it") {
  const OnOneCore bound;
  for (auto& fabric : join_world(3, test_config("auto"))) {
    CHECK(fabric->topology().cores == std::vector<int>{1, 1, 1});
    CHECK(crowded(fabric->topology(), 0, 3));
  }
}

TEST_CASE("RONDO_TRANSPORT: auto and shm share memory on one host, tcp does not") {
  for (const char* transport : {"auto", "shm"}) {
    for (auto& fabric : join_world(3, test_config(transport))) {
      CHECK(fabric->topology() == topology_of({0, 0, 0}, {0, 0, 0}));
      REQUIRE(fabric->shared_memory() != nullptr);
      CHECK(fabric->shared_memory()->can_pull());
    }
  }
  for (auto& fabric : join_world(2, test_config("tcp"))) {
    CHECK(fabric->topology() == topology_of({0, 0}, {}));
    CHECK(fabric->shared_memory() == nullptr);
  }
  CHECK(join_world(1, test_config("shm")).front()->shared_memory() == nullptr);
}

TEST_CASE("a window is the same zeroed memory for its maker and every other rank, found by its place") {
  auto fabrics = join_world(3, test_config("auto"));
  std::vector<std::shared_ptr<Window>> windows;
  for (size_t rank = 0; rank < 3; ++rank) windows.push_back(fabrics[rank]->shared_memory()->make(100'001 + rank));
  for (int maker = 0; maker < 3; ++maker) {
    const Window& own = *windows[static_cast<size_t>(maker)];
    CHECK(reinterpret_cast<uintptr_t>(own.data()) % 4096 == 0);
    const WindowPlace place = fabrics[static_cast<size_t>(maker)]->shared_memory()->locate(own.data() + 77, 1000);
    CHECK(place.id == own.id());
    CHECK(place.offset == 77);
    for (int other = 0; other < 3; ++other) {
      if (other == maker) continue;
      CAPTURE(maker);
      CAPTURE(other);
      const auto theirs = found(*fabrics[static_cast<size_t>(other)]->shared_memory(), maker, place.id);
      REQUIRE(theirs);
      REQUIRE(theirs->bytes() == own.bytes());
      REQUIRE(theirs->data() != own.data());
      CHECK(theirs->data()[own.bytes() - 1 - static_cast<size_t>(other)] == std::byte{0});
      theirs->data()[place.offset] = std::byte{42};
      CHECK(own.data()[77] == std::byte{42});
      own.data()[own.bytes() - 1] = std::byte{43};
      CHECK(theirs->data()[own.bytes() - 1] == std::byte{43});
      own.data()[own.bytes() - 1] = std::byte{0};
    }
  }
}

TEST_CASE("descriptors that are offered: each rank that it is for takes its own once, and no other does") {
  std::vector<std::vector<std::shared_ptr<Fabric>>> worlds{join_world(3, test_config("auto"))};
  worlds.push_back(make_inproc_fabrics(3, test_config("auto")));
  for (auto& fabrics : worlds) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    const Descriptor reader(ends[0]);
    const std::vector<int> takers{0, 2};
    fabrics[1]->shared_memory()->offer(takers, 77, Descriptor(ends[1]));
    for (const int rank : takers) {
      SharedMemory& memory = *fabrics[static_cast<size_t>(rank)]->shared_memory();
      Descriptor taken;
      CHECK(eventually([&] { return (taken = memory.take_offer(1, 77)).valid(); }));
      CHECK_FALSE(memory.take_offer(1, 77).valid());
      CHECK_FALSE(memory.take_offer(1, 78).valid());
      const char sent = static_cast<char>('a' + rank);
      char got = 0;
      REQUIRE(::write(taken.get(), &sent, 1) == 1);
      REQUIRE(::read(reader.get(), &got, 1) == 1);
      CHECK(got == sent);
    }
    char got = 0;  // nobody has kept the writing end
    CHECK(eventually([&] { return ::read(reader.get(), &got, 1) == 0; }));
  }
}

TEST_CASE("an offer between threads takes one descriptor, however many ranks it is for") {
  constexpr int kTakers = 20;
  auto fabrics = make_inproc_fabrics(kTakers + 1, test_config("auto"));
  std::vector<int> takers;
  for (int rank = 1; rank <= kTakers; ++rank) takers.push_back(rank);
  const size_t before = open_descriptors();
  fabrics[0]->shared_memory()->offer(takers, 77, Descriptor([] { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }));
  CHECK(open_descriptors() == before + 1);
  for (const int rank : takers) CHECK(fabrics[static_cast<size_t>(rank)]->shared_memory()->take_offer(0, 77).valid());
  CHECK(open_descriptors() == before);
}

TEST_CASE("locate: all of it in one own window, or nowhere") {
  auto fabrics = join_world(2, test_config("auto"));
  SharedMemory& memory = *fabrics[0]->shared_memory();
  const auto window = memory.make(5'000);
  const auto second = memory.make(64);
  CHECK(second->id() != window->id());
  CHECK(memory.locate(window->data(), 5'000).id == window->id());
  CHECK(memory.locate(window->data() + 5'000, 0).offset == 5'000);
  CHECK(memory.locate(window->data(), 5'001).id == 0);
  CHECK(memory.locate(window->data() + 4'999, 2).id == 0);
  CHECK(memory.locate(window->data() - 1, 1).id == 0);
  CHECK(memory.locate(window->data() + 10, SIZE_MAX).id == 0);
  CHECK(memory.locate(&memory, 1).id == 0);
  CHECK(fabrics[1]->shared_memory()->locate(window->data(), 1).id == 0);
  CHECK_THROWS_AS(memory.make(0), Exception);
  CHECK_THROWS_AS(memory.make(size_t{1} << 60), Exception);
}

TEST_CASE("a window that its maker let go is found no more, and those who hold it keep it") {
  auto fabrics = join_world(2, test_config("auto"));
  SharedMemory& maker = *fabrics[0]->shared_memory();
  SharedMemory& other = *fabrics[1]->shared_memory();
  auto window = maker.make(8'192);
  const uint64_t id = window->id();
  const std::byte* address = window->data();
  window->data()[0] = std::byte{7};
  const auto held = found(other, 0, id);
  REQUIRE(held);
  window.reset();
  CHECK(maker.locate(address, 1).id == 0);
  CHECK(eventually([&] { return other.find(0, id) == nullptr; }));
  CHECK(held->data()[0] == std::byte{7});
  held->data()[8'191] = std::byte{8};
  // It may also outlive its fabric.
  auto late = other.make(100);
  fabrics.clear();
  late->data()[0] = std::byte{1};
}

TEST_CASE("many windows made and let go: descriptors are back where they were, and none is lost") {
  auto fabrics = join_world(2, test_config("auto"));
  for (const int rank : {0, 1}) {  // each has the other's sleeper, which came before
    const auto window = fabrics[static_cast<size_t>(rank)]->shared_memory()->make(1);
    REQUIRE(found(*fabrics[static_cast<size_t>(1 - rank)]->shared_memory(), rank, window->id()));
  }
  const size_t descriptors = open_descriptors();
  for (int round = 0; round < 20; ++round) {
    std::vector<std::shared_ptr<Window>> windows;
    for (int i = 0; i < 100; ++i) windows.push_back(fabrics[0]->shared_memory()->make(4'096));
    for (const auto& window : windows) REQUIRE(found(*fabrics[1]->shared_memory(), 0, window->id()));
    const uint64_t last = windows.back()->id();
    windows.clear();
    REQUIRE(eventually([&] { return fabrics[1]->shared_memory()->find(0, last) == nullptr; }));
  }
  CHECK(eventually([&] { return open_descriptors() == descriptors; }));
}

// One that has let go is not made an heir again by a rank that comes later.
TEST_CASE(
    "what a thread leaves to a communicator's members goes with the last, whether that one opens or declines it") {
  for (const bool declines : {true, false}) {
    CAPTURE(declines);
    auto fabrics = make_inproc_fabrics(2, test_config("auto"));
    auto window = fabrics[0]->shared_memory()->make(100);
    const uint64_t id = window->id();
    Member early = open_all(fabrics[0], kId);
    early.fabric->keep(kId, std::move(window));
    early.fabric->close(kId, 0, in(1'000));
    CHECK(fabrics[1]->shared_memory()->find(0, id) != nullptr);
    if (declines) {
      fabrics[1]->decline(kId, {0, 1}, {ErrorCode::kSystem, "no memory", {1}});
    } else {
      Member late = open_all(fabrics[1], kId);
      CHECK(late.fabric->page_of(kId, 0).memory != nullptr);
      late.fabric->close(kId, 0, in(1'000));
    }
    CHECK(fabrics[1]->shared_memory()->find(0, id) == nullptr);
    CHECK(fabrics[1]->page_of(kId, 0).memory == nullptr);
  }
}

TEST_CASE("pull copies from a peer's process, and says when it cannot") {
  auto fabrics = join_world(2, test_config("auto"));
  std::vector<char> there(3'000'000, 'x');
  std::vector<std::byte> here(there.size());
  SharedMemory& memory = *fabrics[1]->shared_memory();
  CHECK(memory.pull(0, reinterpret_cast<uint64_t>(there.data()), here.data(), here.size()));
  CHECK(std::memcmp(here.data(), there.data(), there.size()) == 0);
  CHECK_FALSE(memory.pull(0, 8, here.data(), 100));
  CHECK_FALSE(memory.pull(5, reinterpret_cast<uint64_t>(there.data()), here.data(), 1));
}

TEST_CASE(
    "links come whichever rank asks first, also before the other opens the communicator; each is handed out once") {
  for (const int first : {0, 1}) {
    CAPTURE(first);
    auto fabrics = join_world(2, test_config("auto"));
    std::vector<Member> members(2);
    const auto one = static_cast<size_t>(first);
    members[one] = open_all(fabrics[one], kId);
    auto link = take(members[one], 1 - first);
    REQUIRE(link);
    members[1 - one] = open_all(fabrics[1 - one], kId);
    auto other = take(members[1 - one], first);
    REQUIRE(other);
    CHECK(members[0].fabric->take_link({kId, 1}, {3, 4096}) == nullptr);
    CHECK(members[1].fabric->take_link({kId, 0}, {3, 4096}) == nullptr);
    const char text[] = "to the other end";
    const SliceTag tag{1, 2, sizeof text};
    other->post(tag, nullptr);
    link->send(tag, reinterpret_cast<const std::byte*>(text));
    REQUIRE(eventually([&] { return other->arrived() != nullptr; }));
    CHECK(std::strcmp(reinterpret_cast<const char*>(other->arrived()), text) == 0);
    link.reset();
    other.reset();
    fabrics.clear();
    destroy_world(members, kId);
    for (const Member& member : members) CHECK(!member.events->failure());
  }
}

TEST_CASE("a sleeper on its doorbell is woken by a slice, by a freed slot, by bytes and by the end of its peer") {
  std::vector<Member> members = open_world(2, kId, test_config("auto"));
  auto low = take(members[0], 1, {2, 4096});
  auto high = take(members[1], 0, {2, 4096});
  REQUIRE(low);
  REQUIRE(high);
  const std::vector<std::byte> payload(4096);
  const SliceTag tag{1, 2, 4096};
  // Sleeps until `condition`; false if it took longer than a wake-up does.
  const auto sleep_until = [](const Member& member, Doorbell& bell, const std::function<bool()>& condition) {
    const auto begin = Clock::now();
    for (int wakes = 0; wakes < 50; ++wakes) {
      ArmedSleep sleep(bell, *member.fabric->sleepers());
      if (condition()) return Clock::now() - begin < std::chrono::seconds(5);
      CHECK(sleep.wait(in(10'000)).ok());
    }
    return false;
  };
  for (int i = 0; i < 200; ++i) {
    high->post(tag, nullptr);
    std::thread sleeper(
        [&] { CHECK(sleep_until(members[1], *members[1].doorbell, [&] { return high->arrived() != nullptr; })); });
    low->send(tag, payload.data());
    sleeper.join();
    high->release();
  }
  for (int i = 0; i < 2; ++i) {
    high->post(tag, nullptr);
    low->send(tag, payload.data());
  }
  REQUIRE(high->arrived() != nullptr);
  std::thread sender([&] { CHECK(sleep_until(members[0], *members[0].doorbell, [&] { return low->can_send(); })); });
  high->release();
  sender.join();

  auto to = members[0].fabric->take_stream_to(kId, 1);
  REQUIRE(to);
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> from;
  CHECK(sleep_until(members[1], *members[1].p2p_doorbell, [&] {
    from = members[1].fabric->take_stream_from(kId);
    return from.has_value();
  }));
  REQUIRE(from);
  CHECK(from->first == 0);
  char byte = 'b';
  iovec part{&byte, 1};
  std::thread reader([&] {
    char got = 0;
    iovec into{&got, 1};
    CHECK(sleep_until(members[1], *members[1].p2p_doorbell, [&] { return from->second->read(&into, 1) == 1; }));
    CHECK(got == 'b');
  });
  CHECK(to->write(&part, 1) == 1);
  reader.join();
  std::thread mourner([&] {
    CHECK(sleep_until(members[1], *members[1].p2p_doorbell, [&] { return from->second->read(&part, 1) == -1; }));
    CHECK(from->second->error().code == ErrorCode::kPeerLost);
  });
  to.reset();
  mourner.join();
  low.reset();
  high.reset();
  from.reset();
  destroy_world(members, kId);
}

// Does something more when a peer has left, on the I/O thread.
class Leaving : public FakeEvents {
 public:
  explicit Leaving(std::function<void()> action) : action_(std::move(action)) {}
  void on_peer_left(int peer, uint64_t last_sequence) override {
    action_();
    FakeEvents::on_peer_left(peer, last_sequence);
  }

 private:
  const std::function<void()> action_;
};

TEST_CASE("a goodbye that overtakes the announcement of a stream is told when the stream is there") {
  constexpr uint64_t kOther = 6;
  auto fabrics = join_world(2, test_config("auto"));
  std::promise<void> held, go_on;
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> from;
  FakeEvents events;
  Leaving holds([&] {
    held.set_value();
    go_on.get_future().wait();
  });
  Leaving takes([&] { from = fabrics[1]->take_stream_from(kId); });
  const auto open = [&](size_t rank, uint64_t id, CommunicatorEvents& hears) {
    const auto bell = [&] { return std::make_shared<Doorbell>(fabrics[rank]->sleepers()); };
    fabrics[rank]->open(id, {0, 1}, &hears, bell(), bell());
  };
  open(0, kId, events);
  open(1, kId, takes);
  open(0, kOther, events);
  open(1, kOther, holds);
  fabrics[0]->close(kOther, 0, in(0));
  held.get_future().wait();  // now rank 1 reads nothing
  // Two frames each; some 200 fit the socket, and the rest waits in this process.
  for (int i = 0; i < 400; ++i) fabrics[0]->shared_memory()->make(1);
  auto to = fabrics[0]->take_stream_to(kId, 1);
  REQUIRE(to);
  CHECK_FALSE(fabrics[0]->close(kId, 5, in(200)));
  go_on.set_value();
  CHECK(eventually([&] { return !takes.left().empty(); }));
  CHECK(from);
  CHECK(fabrics[1]->close(kOther, 0, in(3'000)));
  CHECK(fabrics[1]->close(kId, 0, in(3'000)));
  from.reset();
  to.reset();
  in_parallel(2, [&](int rank) { fabrics[static_cast<size_t>(rank)].reset(); });
}

TEST_CASE("a forked child that drops its copies disturbs neither its parent nor the peers") {
  std::vector<Member> members = open_world(2, kId, test_config("auto"));
  auto low = take(members[0], 1);
  auto high = take(members[1], 0);
  auto to = members[0].fabric->take_stream_to(kId, 1);
  auto window = members[0].fabric->shared_memory()->make(4'096);
  const uint64_t id = window->id();
  REQUIRE(found(*members[1].fabric->shared_memory(), 0, id));
  CHECK(in_child([&] {
          bool refused = false;
          try {
            members[0].fabric->take_link({kId, 1}, {3, 4096});
          } catch (const Exception& failure) {
            refused = failure.code() == ErrorCode::kInvalid;
          }
          low.reset();
          high.reset();
          to.reset();
          window.reset();
          members.clear();
          return refused ? 0 : 1;
        }) == 0);
  const SliceTag tag{1, 2, 0};
  high->post(tag, nullptr);
  low->send(tag, nullptr);
  CHECK(eventually([&] { return high->arrived() != nullptr; }));
  CHECK(high->error() == nullptr);
  CHECK(members[1].fabric->shared_memory()->find(0, id) != nullptr);
  low.reset();
  high.reset();
  to.reset();
  window.reset();
  destroy_world(members, kId);
  for (const Member& member : members) CHECK(!member.events->failure());
}

}  // namespace
}  // namespace rondo::testing
