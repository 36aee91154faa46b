// Frames and connections for which no memory is left, and those after them. This binary has its own operator new.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/eventually.h"
#include "transport/island/island.h"
#include "transport/island/island_connection.h"
#include "transport/island/island_socket.h"
#include "transport/tcp/io_thread.h"

namespace {

thread_local bool refuses = false;
thread_local int granted = 0;  // before the first that is refused

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = refuses && granted-- <= 0 ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace rondo::testing {
namespace {

IslandFrame frame_of(uint64_t id) {
  IslandFrame frame;
  frame.topic = IslandTopic::kDrop;
  frame.id = id;
  return frame;
}

// False: it has no memory for it.
bool send(IslandConnection& connection, uint64_t id) {
  try {
    connection.send(frame_of(id));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

TEST_CASE("send() throws where no memory is left to wait for a full socket, and what is sent afterwards arrives") {
  IoThread thread([](const Error& error) { FAIL(error.message); });
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const Descriptor reader(ends[0]);
  uint64_t sent = 0;
  for (IslandFrame frame = frame_of(1); ::send(ends[1], &frame, sizeof frame, 0) > 0; ++frame.id) sent = frame.id;
  Descriptor writer(ends[1]);
  IslandConnection connection(
      thread.context(), [&] { return IslandConnection::Dialed{std::move(writer)}; },
      [](const IslandFrame&, std::vector<Descriptor>) {},
      [](IslandConnection::End, const std::string& why) { FAIL(why); });
  connection.start();
  std::promise<void> connected;
  thread.post([&] { connected.set_value(); });
  connected.get_future().wait();
  refuses = true;
  int taken = 0;
  constexpr int kPastABlockOfTheQueue = 16;  // which takes memory, too
  for (int i = 0; i < kPastABlockOfTheQueue; ++i) taken += send(connection, 0);
  refuses = false;
  CHECK(taken == 0);
  REQUIRE(send(connection, ++sent));
  for (uint64_t id = 1; id <= sent; ++id) {
    IslandFrame frame;
    REQUIRE(eventually([&] { return ::recv(reader.get(), &frame, sizeof frame, 0) == sizeof frame; }));
    REQUIRE(frame.id == id);
  }
  thread.stop();
}

// False: it has no memory for the connection that this needs.
bool find(Island& island, int peer, int allocations) {
  granted = allocations;
  refuses = true;
  bool made = true;
  try {
    static_cast<void>(island.find(peer, 1));
  } catch (const std::bad_alloc&) {
    made = false;
  }
  refuses = false;
  return made;
}

// Rank 0 of two; rank 1 is what the test makes of its listener. Its I/O thread stands still from the start until
// go_on().
struct Rank {
  Rank() {
    thread.post([this] { held.get_future().wait(); });
  }
  ~Rank() { thread.stop(); }
  void go_on() { held.set_value(); }
  static Island::Settings settings() {
    Island::Settings settings;
    settings.link_failed = [](uint64_t, int, const Error&) {};
    settings.streamed = [](uint64_t, int) {};
    return settings;
  }
  std::promise<void> held;
  IoThread thread{[](const Error& error) { FAIL(error.message); }};
  const std::string own = random_socket_name(), others = random_socket_name();
  const Descriptor peer = listen_abstract(others, 8);
  Island island{thread.context(), listen_abstract(own, 8), {{1, ::getpid(), "rank 1", others}}, settings()};
};

// The next frame of this topic has so many descriptors.
bool hears(const Descriptor& socket, IslandTopic topic, size_t descriptors) {
  return eventually([&] {
    IslandFrame frame;
    std::vector<Descriptor> files;
    std::string why;
    const Received received = receive_message(socket.get(), &frame, sizeof frame, files, why);
    return received == Received::kYes && frame.topic == topic && files.size() == descriptors;
  });
}

TEST_CASE("a connection for which no memory was left, wherever it ended, is made later, and tells of all windows") {
  Rank rank;
  const auto window = rank.island.make(4096);
  int allocations = 0;
  while (!find(rank.island, 1, allocations)) ++allocations;
  CHECK(allocations > 0);
  rank.go_on();
  Descriptor socket;
  REQUIRE(eventually([&] { return (socket = accept_abstract(rank.peer.get())).valid(); }));
  CHECK(hears(socket, IslandTopic::kWindow, 1));
}

TEST_CASE("windows end though no memory is left to tell the others, which keep theirs") {
  constexpr int kPastABlockOfTheQueue = 16;  // which takes memory
  Rank rank;
  std::vector<std::shared_ptr<Window>> windows;
  for (int i = 0; i < kPastABlockOfTheQueue; ++i) windows.push_back(rank.island.make(4096));
  static_cast<void>(rank.island.find(1, 1));
  granted = 0;
  refuses = true;
  windows.clear();
  refuses = false;
  const auto last = rank.island.make(4096);
  rank.go_on();
  Descriptor socket;
  REQUIRE(eventually([&] { return (socket = accept_abstract(rank.peer.get())).valid(); }));
  int told = 0;
  while (told <= kPastABlockOfTheQueue && hears(socket, IslandTopic::kWindow, 1)) ++told;
  CHECK(told == kPastABlockOfTheQueue + 1);
}

}  // namespace
}  // namespace rondo::testing
