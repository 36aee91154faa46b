// A frame for which no memory is left, and those after it. This binary has its own operator new.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <future>
#include <new>
#include <string>

#include "tests/support/eventually.h"
#include "transport/island/island_connection.h"
#include "transport/tcp/io_thread.h"

namespace {

thread_local bool refuses = false;

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = refuses ? nullptr : std::malloc(bytes);
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

}  // namespace
}  // namespace rondo::testing
