// A socket that sends from the caller's memory says for how long, and memory that it has given back may change.
#include "transport/zerocopy_socket.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/support/tcp_pair.h"
#include "transport/doorbell.h"
#include "transport/socket_options.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr ZerocopyUse kAlways{1, true};

struct Pair {
  std::unique_ptr<ZerocopySocket> writer;
  std::unique_ptr<SocketStream> reader;
};

Pair pair_of(const ZerocopyUse& use, int receive_bytes = 0) {
  auto [one, other] = tcp_pair(receive_bytes);
  REQUIRE(enable_zerocopy(one.get(), {1, true}, Logger(), "rank 1"));
  return {std::make_unique<ZerocopySocket>(std::move(one), "rank 1", use, Logger()),
          std::make_unique<SocketStream>(std::move(other), "rank 0")};
}

long write(ByteStream& stream, std::string& bytes) {
  const iovec part{bytes.data(), bytes.size()};
  return stream.write(&part, 1);
}

// Reads what there is.
std::string read(ByteStream& stream) {
  std::string all, some(1 << 16, '\0');
  const iovec part{some.data(), some.size()};
  for (long got = 0; (got = stream.read(&part, 1)) > 0;) all.append(some, 0, static_cast<size_t>(got));
  return all;
}

bool eventually(const std::function<bool()>& condition) {
  for (const auto deadline = Clock::now() + std::chrono::seconds(10); Clock::now() < deadline;) {
    if (condition()) return true;
    std::this_thread::yield();
  }
  return false;
}

bool all_given_back(ByteStream& stream) {
  return eventually([&] {
    stream.reap();
    return stream.held() == 0;
  });
}

// Writes until the kernel takes no more, reading nothing: what it has not sent yet, it will read from memory later.
size_t fill(ByteStream& stream, std::string& bytes) {
  size_t filled = 0;
  for (long took = 0; filled < bytes.size(); filled += static_cast<size_t>(took)) {
    const iovec part{bytes.data() + filled, std::min<size_t>(bytes.size() - filled, 50'000)};
    if ((took = stream.write(&part, 1)) <= 0) break;
  }
  return filled;
}

}  // namespace

TEST_CASE("what is not acknowledged is held; once given back it may change, and the peer has what was written") {
  Pair pair = pair_of(kAlways, 4096);
  std::string bytes(8 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  const std::string before = bytes;
  const size_t wrote = fill(*pair.writer, bytes);
  REQUIRE(wrote > 100'000);
  pair.writer->reap();
  CHECK(pair.writer->held() > 50'000);
  CHECK(pair.writer->held() <= wrote);
  std::string got;
  size_t given_back = 0;
  REQUIRE(eventually([&] {
    got += read(*pair.reader);
    pair.writer->reap();
    const size_t now = wrote - pair.writer->held();
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(given_back), bytes.begin() + static_cast<std::ptrdiff_t>(now),
              'X');
    given_back = now;
    return got.size() == wrote && given_back == wrote;
  }));
  CHECK((got == before.substr(0, wrote)));
}

TEST_CASE("writes below the least size are copied, and behind one that is pending they count as held") {
  Pair pair = pair_of({1000, true}, 4096);
  std::string small(999, 's'), large(30'000, 'l');  // the latter: more than the peer's window
  CHECK(write(*pair.writer, small) == 999);
  CHECK(pair.writer->held() == 0);
  REQUIRE(write(*pair.writer, large) == 30'000);
  pair.writer->reap();
  REQUIRE(pair.writer->held() > 0);
  REQUIRE(write(*pair.writer, small) == 999);
  CHECK(pair.writer->held() > 999);
  CHECK(eventually([&] {
    read(*pair.reader);
    pair.writer->reap();
    return pair.writer->held() == 0;
  }));
}

TEST_CASE("a connection on which the kernel copies all the same goes back to copying by itself") {
  Pair pair = pair_of({1, false});
  std::string bytes(400'000, 'b');  // loopback has segments of 64 KiB, and the tail of a write is copied
  int from_memory = 0;
  for (int i = 0; i < 30; ++i) {
    std::string got;
    std::string rest = bytes;
    while (got.size() < bytes.size()) {
      const long took = write(*pair.writer, rest);
      REQUIRE(took >= 0);
      from_memory += pair.writer->held() != 0;
      got += read(*pair.reader);
      REQUIRE(all_given_back(*pair.writer));  // before `rest` moves
      rest.erase(0, static_cast<size_t>(took));
    }
    CHECK((got == bytes));
  }
  CHECK(from_memory >= 8);
  CHECK(from_memory <= 9);
}

TEST_CASE("within a host, and where the kernel does not know it, it is not enabled") {
  auto [one, other] = tcp_pair();
  CHECK(stays_on_host(one.get()));
  CHECK(!enable_zerocopy(one.get(), {1, false}, Logger(), "rank 1"));
  CHECK(!enable_zerocopy(one.get(), {0, true}, Logger(), "rank 1"));
  CHECK(enable_zerocopy(one.get(), {1, true}, Logger(), "rank 1"));
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const Descriptor first(ends[0]), second(ends[1]);
  CHECK(stays_on_host(first.get()) == false);
  CHECK(!enable_zerocopy(first.get(), {1, true}, Logger("off"), "rank 1"));
}

TEST_CASE("stop() gives everything back, and what the peer still gets is what was written") {
  for (const int reads : {0, 1}) {
    CAPTURE(reads);
    Pair pair = pair_of(kAlways, 4096);
    std::string bytes(8 << 20, 'a');
    fill(*pair.writer, bytes);
    std::string got;
    for (int i = 0; i < reads; ++i) {
      char some[1000];
      const iovec part{some, sizeof some};
      const long count = pair.reader->read(&part, 1);
      if (count > 0) got.append(some, static_cast<size_t>(count));
    }
    pair.writer->reap();
    REQUIRE(pair.writer->held() > 0);
    const auto start = Clock::now();
    pair.writer->stop();
    CHECK(Clock::now() - start < std::chrono::seconds(1));
    CHECK(pair.writer->held() == 0);
    std::fill(bytes.begin(), bytes.end(), 'X');
    REQUIRE(eventually([&] {
      got += read(*pair.reader);
      return !pair.reader->error().ok();
    }));
    CHECK(pair.reader->error().code == ErrorCode::kPeerLost);
    CHECK(std::count(got.begin(), got.end(), 'a') == static_cast<std::ptrdiff_t>(got.size()));
    CHECK(write(*pair.writer, bytes) == -1);
  }
}

TEST_CASE("a peer that resets the connection gives everything back") {
  Pair pair = pair_of(kAlways, 4096);
  std::string bytes(8 << 20, 'a');
  fill(*pair.writer, bytes);
  REQUIRE(pair.writer->held() > 0);
  pair.reader.reset();  // with unread input
  CHECK(all_given_back(*pair.writer));
  CHECK(write(*pair.writer, bytes) == -1);
}

TEST_CASE("a doorbell wakes for notifications") {
  // Proves: a driver that only waits for memory to be given back need not poll. Its longest sleep here is the deadline.
  Doorbell bell;
  Pair pair = pair_of(kAlways, 4096);
  std::string bytes(2 << 20, 'a');
  const size_t wrote = fill(*pair.writer, bytes);
  const auto watched = bell.watch(pair.writer->descriptor());
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  std::thread peer([&] {
    for (size_t got = 0; got < wrote && Clock::now() < deadline; std::this_thread::yield())
      got += read(*pair.reader).size();
  });
  while (true) {
    bell.arm();
    pair.writer->reap();
    if (pair.writer->held() == 0 || Clock::now() >= deadline) break;
    bell.wait(deadline);
  }
  bell.disarm();
  peer.join();
  CHECK(Clock::now() < deadline);
}

TEST_CASE("where the kernel refuses a send from memory, the call copies") {
  // Notifications that nobody takes use up the socket's option memory: write by write the tail of the queue changes
  // between memory and copies, so that each needs a notification of its own.
  Pair pair = pair_of({100, true}, 4096);
  const int room = 16 << 20;
  if (::setsockopt(pair.writer->descriptor(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0) {
    MESSAGE("not tested: a send buffer of 16 MiB needs CAP_NET_ADMIN");
    return;
  }
  std::string first(200'000, 'f'), small(10, 's'), large(100, 'l');  // the first: far more than the peer's window
  REQUIRE(write(*pair.writer, first) == 200'000);
  std::string expected = first;
  for (int i = 0; i < 1'000; ++i) {
    std::string& bytes = i % 2 == 0 ? large : small;
    const long took = write(*pair.writer, bytes);
    REQUIRE(took == static_cast<long>(bytes.size()));
    expected += bytes;
  }
  std::string got;
  REQUIRE(eventually([&] {
    got += read(*pair.reader);
    return got.size() == expected.size();
  }));
  CHECK((got == expected));
  CHECK(all_given_back(*pair.writer));
}

}  // namespace rondo::testing
