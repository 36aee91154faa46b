// Proves: a session opens between two ends with one key and no other, gives back what was sealed, over changes of the
// key, and nothing that was changed, repeated or left out; and who records it and learns the key later opens nothing.
#include "transport/auth/tls_session.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/tls_pair.h"
#include "transport/auth/text_seal.h"

namespace rondo {
namespace {

using testing::new_sessions;
using testing::open_sessions;
using testing::TlsPair;
using testing::TlsPipes;

std::string pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 31 + size);
  return text;
}

// Two ends of a connection of text.
struct Talk {
  explicit Talk(uint64_t key_bytes = TlsSession::kKeyBytes) {
    TlsPair pair = open_sessions(key_bytes);
    end[0].use(std::move(pair.first));
    end[1].use(std::move(pair.second));
  }
  std::string sealed(int from, const std::string& plain) {
    std::string out;
    end[from].seal(plain, out);
    return out;
  }
  bool opens(int to, const std::string& bytes, const std::string& expected) {
    std::string plain;
    return end[to].open(bytes, plain) && plain == expected;
  }
  TextSeal end[2];
};

TEST_CASE("texts of every size come back in both directions, also where the key changes every few bytes") {
  for (const uint64_t key_bytes : {uint64_t{1}, uint64_t{1000}, TlsSession::kKeyBytes}) {
    CAPTURE(key_bytes);
    Talk talk(key_bytes);
    for (const size_t size : {1, 2, 15, 16, 17, 63, 1000, 16'383, 16'384, 16'385, 65'537, 200'000}) {
      for (const int from : {0, 1}) {
        const std::string plain = pattern(size), bytes = talk.sealed(from, plain);
        CHECK(bytes.size() > size);
        if (size > 15) CHECK(bytes.find(plain.substr(0, 32)) == std::string::npos);
        CHECK(talk.opens(1 - from, bytes, plain));
      }
    }
  }
}

TEST_CASE("a part of a record waits for its rest") {
  Talk talk;
  std::string bytes = talk.sealed(0, "some words"), got;
  bytes += talk.sealed(0, " and more");
  for (const char& byte : bytes) REQUIRE(talk.end[1].open({&byte, 1}, got));
  CHECK(got == "some words and more");
}

TEST_CASE("a bit changed anywhere, a record left out, repeated, swapped, or of another session is refused") {
  const size_t bits = 8 * Talk().sealed(0, "first record").size();
  for (size_t bit = 0; bit < bits; ++bit) {
    CAPTURE(bit);
    Talk talk;
    std::string bytes = talk.sealed(0, "first record");
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    std::string plain;
    // A longer length waits for bytes that never come.
    const bool sound = talk.end[1].open(bytes, plain);
    CHECK(plain.empty());
    if (sound) CHECK_FALSE(talk.end[1].open(std::string(20'000, 'x'), plain));
    CHECK(plain.empty());
    CHECK_FALSE(talk.opens(1, talk.sealed(0, "second record"), "second record"));
  }
  enum class Wrong { kLeftOut, kRepeated, kSwapped, kReflected, kOther };
  for (const Wrong wrong : {Wrong::kLeftOut, Wrong::kRepeated, Wrong::kSwapped, Wrong::kReflected, Wrong::kOther}) {
    Talk talk, other;
    const std::string first = talk.sealed(0, "first"), second = talk.sealed(0, "second");
    std::string plain;
    switch (wrong) {
      case Wrong::kLeftOut:
        CHECK_FALSE(talk.end[1].open(second, plain));
        break;
      case Wrong::kRepeated:
        CHECK_FALSE(talk.end[1].open(first + first, plain));
        CHECK(plain == "first");
        break;
      case Wrong::kSwapped:
        CHECK_FALSE(talk.end[1].open(second + first, plain));
        break;
      case Wrong::kReflected:
        CHECK_FALSE(talk.end[0].open(first, plain));
        break;
      case Wrong::kOther:  // the same key, and another handshake: what was recorded of one says nothing of the next
        CHECK_FALSE(talk.end[1].open(other.sealed(0, "first"), plain));
        break;
    }
  }
}

TEST_CASE("another key, another protocol, or a byte changed in the handshake: it fails, and gives out nothing") {
  {
    TlsPipes pipes;
    TlsSession dialer(TlsSession::End::kDialer, Key{1}), acceptor(TlsSession::End::kAcceptor, Key{2});
    CHECK(dialer.shake_hands(pipes.side(0)) == 0);
    CHECK(acceptor.shake_hands(pipes.side(1)) == -1);
    CHECK(acceptor.forged());
  }
  {
    TlsPipes pipes;
    TlsSession acceptor(TlsSession::End::kAcceptor, Key{1});
    pipes.from(0) = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
    CHECK(acceptor.shake_hands(pipes.side(1)) == -1);
    CHECK(acceptor.forged());
  }
  size_t bytes[3] = {1, 1, 1};  // of the dialer's first message, the acceptor's, the dialer's last
  for (int message = 0; message < 3; ++message) {
    for (size_t at = 0; at < bytes[message]; ++at) {
      // The minor version of a record that is not encrypted, which RFC 8446 has ignored.
      if (message < 2 && at == 2) continue;
      CAPTURE(message);
      CAPTURE(at);
      TlsPipes pipes;
      auto [dialer, acceptor] = new_sessions();
      TlsSession* const end[2] = {dialer.get(), acceptor.get()};
      long done[2] = {0, 0};
      for (int step = 0; step < 4; ++step) {
        const int side = step % 2;
        done[side] = end[side]->shake_hands(pipes.side(side));
        if (done[side] < 0) break;
        if (step == message) {
          std::string& said = pipes.from(side);
          bytes[message] = said.size();
          said[at] = static_cast<char>(said[at] ^ 1);
        }
      }
      CHECK(done[1] != 1);  // the acceptor, last of both, never takes it for open
      if (message < 2) CHECK(done[0] != 1);
    }
  }
}

TEST_CASE("the handshake takes no byte of what follows, and the carrier's end is no forgery") {
  TlsPipes pipes;
  auto [dialer, acceptor] = new_sessions();
  CHECK(dialer->shake_hands(pipes.side(0)) == 0);
  CHECK(acceptor->shake_hands(pipes.side(1)) == 0);
  CHECK(dialer->shake_hands(pipes.side(0)) == 1);
  CHECK(dialer->write(pipes.side(0), "hello", 5) == 5);
  const size_t all = pipes.from(0).size();
  CHECK(acceptor->shake_hands(pipes.side(1)) == 1);
  CHECK(pipes.from(0).size() == 5 + 5 + 1 + 16);  // header, text, type, tag
  CHECK(pipes.from(0).size() < all);
  CHECK(acceptor->between_records());
  struct Over final : TlsSession::Carrier {
    long read(void*, size_t) override { return -1; }
    long write(const void*, size_t) override { return -1; }
  } over;
  char buffer[16];
  CHECK(acceptor->read(over, buffer, sizeof buffer) == -1);
  CHECK_FALSE(acceptor->forged());
  CHECK(acceptor->read(pipes.side(1), buffer, sizeof buffer) == 5);
  CHECK(acceptor->write(over, "hello", 5) == -1);
  CHECK_FALSE(acceptor->forged());
}

// Takes some bytes, and nothing more until it is told.
struct Narrow final : TlsSession::Carrier {
  long read(void*, size_t) override { return 0; }
  long write(const void* bytes, size_t size) override {
    const size_t moved = std::min(size, room);
    taken.append(static_cast<const char*>(bytes), moved);
    room -= moved;
    return static_cast<long>(moved);
  }
  size_t room = 0;
  std::string taken;
};

TEST_CASE("a change of the key that finds no room stops no reading: two ends that change at once do not wait") {
  auto [dialer, acceptor] = open_sessions(1);
  TlsSession* const end[2] = {dialer.get(), acceptor.get()};
  Narrow narrow[2];
  TlsPipes pipes;
  for (const int side : {0, 1}) {
    CHECK(end[side]->write(pipes.side(side), "first", 5) == 5);
    CHECK(end[side]->write(narrow[side], "later", 5) == 0);  // its new key has no room, nor has what follows
    narrow[side].room = 3;
    CHECK(end[side]->write(narrow[side], "later", 5) == 0);
  }
  char buffer[16];
  for (const int side : {0, 1}) {
    CHECK(end[side]->read(pipes.side(side), buffer, sizeof buffer) == 5);
    CHECK(end[side]->read(pipes.side(side), buffer, sizeof buffer) == 0);
    CHECK_FALSE(end[side]->forged());
  }
  for (const int side : {0, 1}) {
    narrow[side].room = 1000;
    CHECK(end[side]->write(narrow[side], "later", 5) == 5);
    pipes.from(side) = narrow[side].taken;
  }
  for (const int side : {0, 1}) CHECK(end[side]->read(pipes.side(side), buffer, sizeof buffer) == 5);
}

}  // namespace
}  // namespace rondo
