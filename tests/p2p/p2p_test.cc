#include "ring/engine/p2p/p2p.h"

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <string>

#include "tests/p2p/both_streams.h"
#include "tests/p2p/world.h"

namespace rondo::testing {
namespace {

bool mentions(const Error& error, const std::string& text) { return error.message.find(text) != std::string::npos; }

TEST_CASE("a message that is read is received after its sender has said that it lay still, or not at all") {
  const auto steps = [](SimWorld& world, int rank) {
    for (int tick = 0; tick < 100; ++tick) {
      world.at(rank).progress();
      world.network().advance();
    }
  };
  for (const bool gives_up : {false, true}) {
    CAPTURE(gives_up);
    SimWorld world(
        {.shape = {.refuse_percent = 0, .crumb_percent = 0, .part_percent = 0}, .connect_ticks = 0, .reads = true});
    TestRequest& send = world.send(0, 1, 7, 5000);
    steps(world, 0);
    if (gives_up) world.at(0).finish({ErrorCode::kClosed, "destroyed", {}});
    TestRequest& receive = world.recv(1, 0, 7, 5000);
    steps(world, 1);
    CHECK_EQ(world.pieces_read(), 1);
    CHECK_FALSE(receive.complete_called);
    CHECK_EQ(send.complete_called, gives_up);
    steps(world, 0);
    steps(world, 1);
    if (gives_up) world.at(1).peer_left(0);
    world.settle();
    REQUIRE(send.complete_called);
    REQUIRE(receive.complete_called);
    CHECK_EQ(receive.failed.code, gives_up ? ErrorCode::kPeerLeft : ErrorCode::kOk);
    if (!gives_up) CHECK(SimWorld::intact(receive, 1));
  }
}

TEST_CASE("what cannot be read is sent, and so is all that follows") {
  for (const uint64_t pieces : {1u, 3u}) {  // of the second message, of three pieces
    CAPTURE(pieces);
    SimWorld world({.reads = true, .unreadable = pieces});
    for (const uint64_t bytes : {2000u, 2'500'000u, 3000u, 2'500'000u}) {
      TestRequest& receive = world.recv(1, 0, 7, bytes);
      TestRequest& send = world.send(0, 1, 7, bytes);
      world.settle();
      REQUIRE(send.complete_called);
      REQUIRE(receive.complete_called);
      CHECK(SimWorld::intact(receive, 1));
    }
    CHECK_EQ(world.pieces_read(), pieces);
  }
}

TEST_CASE("of a message that is read, a receive that takes its beginning reads no more") {
  SimWorld world({.reads = true});
  for (const uint64_t room : {0u, 1u, 1500u}) {
    CAPTURE(room);
    TestRequest& send = world.send(0, 1, 7, 4000);
    TestRequest& receive = world.recv(1, 0, 7, room, DType::kUint8, true);
    world.settle();
    REQUIRE(send.complete_called);
    REQUIRE(receive.complete_called);
    CHECK(send.failed.ok());
    CHECK_EQ(receive.failed.code, ErrorCode::kTruncated);
    CHECK(SimWorld::intact(receive, 1));
  }
  CHECK_EQ(world.pieces_read(), 2);
}

// A world whose streams move all that is there, with two ranks that know each other.
struct CalmPair {
  explicit CalmPair(bool checked = false)
      : world({.shape = {.refuse_percent = 0, .crumb_percent = 0, .part_percent = 0},
               .connect_ticks = 0,
               .checked = checked}) {
    world.send(0, 1, 0, 8);
    world.recv(1, 0, 0, 8);
    world.settle();
  }
  // A message that rank 1 has not looked at.
  void send(int tag, uint64_t bytes) {
    world.send(0, 1, tag, bytes);
    world.at(0).progress();
    world.network().advance(20);
  }
  bool send_now(std::byte* data, uint64_t bytes, int tag) {
    return world.at(0).at_once({MessageKind::kSend, data, bytes, DType::kUint8, 1, tag}, came) == P2pAtOnce::kOver;
  }
  P2pAtOnce recv_now(int from, int tag, uint64_t bytes) {
    memory.assign(bytes, kUntouched);
    return world.at(1).at_once({MessageKind::kReceive, memory.data(), bytes, DType::kUint8, from, tag}, came);
  }
  // The memory holds message `index` of rank 0, and is untouched behind it.
  bool intact(uint64_t index) const {
    for (uint64_t i = 0; i < memory.size(); ++i) {
      if (memory[i] != (i < came.bytes ? message_byte(0, 1, index, i) : kUntouched)) return false;
    }
    return true;
  }
  SimWorld world;
  std::vector<std::byte> memory;
  Message came;
};

TEST_CASE("a receive at once takes the message that is next, from memory that the stream lends") {
  for (const int from : {0, kAnySource}) {
    CAPTURE(from);
    CalmPair pair;
    const P2pAtOnce none = streams_lend ? P2pAtOnce::kNothingYet : P2pAtOnce::kNot;
    CHECK_EQ(pair.recv_now(from, 7, 100), none);
    int taken = 0;
    for (uint64_t i = 1; i <= 3000; ++i) {  // more than the credit for 8 KiB: it goes back
      const uint64_t bytes = i % 101;
      pair.send(7, bytes);
      const P2pAtOnce found = pair.recv_now(from, i % 2 == 0 ? 7 : kAnyTag, 100);
      // Every so often the long way must look for streams of other ranks.
      if (found == P2pAtOnce::kNot) {
        TestRequest& receive = pair.world.recv(1, from, 7, 100);
        pair.world.settle();
        REQUIRE(SimWorld::intact(receive, 1));
        continue;
      }
      ++taken;
      REQUIRE_EQ(found, P2pAtOnce::kOver);
      REQUIRE_EQ(pair.came.peer, 0);
      REQUIRE_EQ(pair.came.tag, 7);
      REQUIRE_EQ(pair.came.bytes, bytes);
      REQUIRE(pair.intact(i));
    }
    CHECK_EQ(taken > 2900, streams_lend);
    CHECK_FALSE(pair.world.at(1).failure().has_value());
  }
}

TEST_CASE("a receive at once leaves what takes a longer way as it is") {
  const auto next = [](CalmPair& pair, int tag, uint64_t bytes) {
    TestRequest& receive = pair.world.recv(1, 0, tag, bytes);
    pair.world.settle();
    REQUIRE(receive.complete_called);
    REQUIRE(receive.failed.ok());
    CHECK(SimWorld::intact(receive, 1));
    return receive.message;
  };
  SUBCASE("another tag") {
    CalmPair pair;
    pair.send(1, 10);
    CHECK_EQ(pair.recv_now(0, 2, 10), P2pAtOnce::kNot);
    CHECK_EQ(next(pair, 1, 10).bytes, 10);
  }
  SUBCASE("a message that must be asked for") {
    CalmPair pair;
    pair.send(1, 5000);
    CHECK_EQ(pair.recv_now(0, 1, 5000), P2pAtOnce::kNot);
    CHECK_EQ(next(pair, 1, 5000).bytes, 5000);
  }
  SUBCASE("a message that has come before") {
    CalmPair pair;
    pair.send(1, 10);
    pair.world.settle();
    pair.send(1, 20);
    CHECK_EQ(pair.recv_now(0, 1, 100), P2pAtOnce::kNot);
    CHECK_EQ(next(pair, 1, 100).bytes, 10);
    CHECK_EQ(next(pair, 1, 100).bytes, 20);
  }
  SUBCASE("a receive that waits already") {
    for (const int waits_for : {0, kAnySource}) {
      CalmPair pair;
      TestRequest& waits = pair.world.recv(1, waits_for, kAnyTag, 100);
      pair.send(1, 10);
      CHECK_EQ(pair.recv_now(0, 1, 100), P2pAtOnce::kNot);
      pair.world.settle();
      CHECK_EQ(waits.message.bytes, 10);
    }
  }
  SUBCASE("a receive that is too short, or of another type") {
    CalmPair pair;
    pair.send(1, 11);
    CHECK_EQ(pair.recv_now(0, 1, 10), P2pAtOnce::kNot);
    TestRequest& receive = pair.world.recv(1, 0, 1, 10);
    pair.world.settle();
    CHECK_EQ(receive.failed.code, ErrorCode::kMismatch);
  }
  SUBCASE("after the end") {
    CalmPair pair;
    pair.send(1, 10);
    pair.world.at(1).fail({ErrorCode::kAborted, "enough", {}});
    CHECK_EQ(pair.recv_now(0, 1, 10), P2pAtOnce::kNot);
  }
}

TEST_CASE("a send at once sends a message that none waits before, and else does nothing") {
  CalmPair pair;
  std::vector<std::byte> memory(2000);
  const auto send_now = [&](uint64_t index, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; ++i) memory[i] = message_byte(0, 1, index, i);
    const bool sent = pair.send_now(memory.data(), bytes, 3);
    std::fill(memory.begin(), memory.end(), std::byte{0xee});  // it is the caller's again
    return sent;
  };
  if (!streams_lend) {
    CHECK_FALSE(send_now(1, 8));
    return;
  }
  for (uint64_t i = 1; i <= 3000; ++i) {  // more than the credit, which comes back
    CAPTURE(i);
    REQUIRE(send_now(i, i % 1025));
    TestRequest& receive = pair.world.recv(1, 0, 3, 1024);
    pair.world.settle();
    REQUIRE(receive.complete_called);
    REQUIRE_EQ(receive.message.bytes, i % 1025);
    REQUIRE_EQ(receive.sequence, i);
    REQUIRE(SimWorld::intact(receive, 1));
  }
  CHECK_FALSE(send_now(3001, 1025));  // must be requested
  uint64_t sent = 0;
  while (send_now(3001 + sent, 1000)) ++sent;
  CHECK_GE(sent, 4);  // what is left of the credit: less than half is owed
  CHECK_LE(sent, 8);
  for (uint64_t i = 0; i < sent; ++i) pair.world.recv(1, 0, 3, 1000);
  pair.world.settle();
  pair.world.at(0).fail({ErrorCode::kAborted, "enough", {}});
  CHECK_FALSE(send_now(0, 8));
}

TEST_CASE("messages with checksums take the longer way, by which they are made and looked at") {
  CalmPair pair(true);
  std::byte byte{};
  CHECK_FALSE(pair.send_now(&byte, 1, 1));
  pair.send(1, 10);
  CHECK_EQ(pair.recv_now(0, 1, 10), P2pAtOnce::kNot);
  TestRequest& receive = pair.world.recv(1, 0, 1, 10);
  pair.world.settle();
  REQUIRE(receive.complete_called);
  CHECK(SimWorld::intact(receive, 1));
}

TEST_CASE("a send at once overtakes no message that waits") {
  CalmPair pair;
  const auto send_now = [&pair] {
    std::byte byte = message_byte(0, 1, 10, 0);
    return pair.send_now(&byte, 1, 9);
  };
  for (int i = 0; i < 9; ++i) pair.world.send(0, 1, i, 1000);  // the last ones have no credit
  CHECK_FALSE(send_now());                                     // none has been written
  pair.world.settle();
  REQUIRE_EQ(send_now(), streams_lend);  // all have been sent, or requested
  for (int i = 0; i < (streams_lend ? 10 : 9); ++i) {
    TestRequest& receive = pair.world.recv(1, 0, kAnyTag, 1000);
    pair.world.settle();
    REQUIRE(receive.complete_called);
    CHECK_EQ(receive.message.tag, i);
    CHECK(SimWorld::intact(receive, 1));
  }
}

TEST_CASE("messages of the eager limit are not requested while their receives keep up") {
  CalmPair pair;
  for (int i = 0; i < 100; ++i) {  // the credit is 8 of them
    pair.world.recv(1, 0, 1, 1024);
    TestRequest& send = pair.world.send(0, 1, 1, 1024);
    pair.world.at(0).progress(P2pSweep::kAwaited);
    REQUIRE(send.complete_called);  // not before an answer, if it is requested
    pair.world.network().advance(20);
    pair.world.at(1).progress(P2pSweep::kAwaited);
    pair.world.network().advance(20);
  }
}

TEST_CASE("a long message that nobody receives stays pending and holds up nothing else") {
  SimWorld world({.world = 3});
  TestRequest& pending = world.send(0, 1, 9, 500'000);
  for (int round = 0; round < 20; ++round) {
    TestRequest& send = world.send(0, 1, 1, round % 2 ? 64 : 5000);
    TestRequest& receive = world.recv(1, 0, 1, 5000);
    world.send(1, 0, 1, 64);
    TestRequest& back = world.recv(0, 1, 1, 64);
    world.settle();
    REQUIRE(send.complete_called);
    REQUIRE(receive.complete_called);
    REQUIRE(back.complete_called);
    REQUIRE(SimWorld::intact(receive, 1));
  }
  CHECK_FALSE(pending.complete_called);
  CHECK_FALSE(world.at(0).idle());
  CHECK_EQ(world.at(1).pooled_bytes(), 0);
}

TEST_CASE("a flood of unexpected messages is bounded by credit, and received in order when asked for") {
  SimWorld::Settings settings{.world = 3, .eager_bytes = 1024, .pool_bytes = 8192};
  SimWorld world(settings);
  const uint32_t slots = P2pOptions{.eager_bytes = 1024, .pool_bytes = 8192}.slots();
  CHECK_EQ(slots, 128);
  std::vector<TestRequest*> sends;
  for (uint64_t i = 0; i < 1000; ++i) sends.push_back(&world.send(0, 1, 4, i % 1000));
  for (int tick = 0; tick < 3000; ++tick) {
    world.step();
    REQUIRE_LE(world.at(1).pooled_bytes(), 8192);
    REQUIRE_LE(world.at(1).pooled_messages(), slots);
  }
  CHECK_EQ(world.at(1).pooled_messages(), slots);
  CHECK_FALSE(sends.back()->complete_called);

  // Another peer has credit of its own.
  world.send(2, 1, 4, 1000);
  TestRequest& other = world.recv(1, 2, 4, 1000);
  world.settle();
  CHECK(other.complete_called);

  for (uint64_t i = 0; i < 1000; ++i) {
    TestRequest& receive = world.recv(1, 0, 4, 1000);
    world.settle();
    REQUIRE(receive.complete_called);
    REQUIRE_EQ(receive.sequence, i);
    REQUIRE_EQ(receive.message.bytes, i % 1000);
    REQUIRE(SimWorld::intact(receive, 1));
  }
  CHECK(sends.back()->complete_called);
  CHECK_EQ(world.at(1).pooled_bytes(), 0);
}

TEST_CASE("a message whose credit is used up by others can still be received before them") {
  SimWorld world({.eager_bytes = 1024, .pool_bytes = 2048});
  for (int i = 0; i < 10; ++i) world.send(0, 1, 1, 1000);
  world.send(0, 1, 2, 1000);
  TestRequest& wanted = world.recv(1, 0, 2, 1000);
  world.settle();
  REQUIRE(wanted.complete_called);
  CHECK(SimWorld::intact(wanted, 1));
}

TEST_CASE("messages that stay unreceived do not starve those that are, however little credit they leave") {
  SimWorld world({.eager_bytes = 1024, .pool_bytes = 8192});  // 128 slots
  for (int i = 0; i < 120; ++i) world.send(0, 1, 9, 60);
  world.settle();
  REQUIRE_EQ(world.at(1).pooled_messages(), 120);
  for (int i = 0; i < 200; ++i) {
    TestRequest& receive = world.recv(1, 0, 1, 60);
    world.send(0, 1, 1, 60);
    world.settle();
    REQUIRE(receive.complete_called);
    REQUIRE(SimWorld::intact(receive, 1));
  }
}

TEST_CASE("a rank sends to itself by the same rules") {
  SimWorld world({.world = 1, .eager_bytes = 1024, .pool_bytes = 2048});
  for (uint64_t bytes : {0u, 1u, 1024u, 1025u, 100'000u}) {
    CAPTURE(bytes);
    TestRequest& send = world.send(0, 0, 3, bytes);
    CHECK_EQ(send.complete_called, bytes <= 1024);
    TestRequest& receive = world.recv(0, kAnySource, 3, bytes + 1);
    CHECK(send.complete_called);
    REQUIRE(receive.complete_called);
    CHECK_EQ(receive.message.peer, 0);
    CHECK_EQ(receive.message.bytes, bytes);
    CHECK(SimWorld::intact(receive, 0));
    TestRequest& early = world.recv(0, 0, 3, bytes);
    CHECK_FALSE(early.complete_called);
    CHECK(world.send(0, 0, 3, bytes).complete_called);
    REQUIRE(early.complete_called);
    CHECK(SimWorld::intact(early, 0));
  }
  TestRequest* sends[3] = {};
  for (TestRequest*& send : sends) send = &world.send(0, 0, 1, 1000);
  CHECK(sends[1]->complete_called);
  CHECK_FALSE(sends[2]->complete_called);  // the pool is full
  for (TestRequest* send : sends) {
    TestRequest& receive = world.recv(0, 0, 1, 1000);
    REQUIRE(receive.complete_called);
    CHECK(send->complete_called);
    CHECK(SimWorld::intact(receive, 0));
  }
  CHECK(world.at(0).idle());
}

struct Misfit {
  const char* what;
  uint64_t sent, room;
  DType sent_dtype, room_dtype;
};

TEST_CASE("a message that does not fit its receive is a mismatch on both sides, in the same words, and lands nowhere") {
  const Misfit misfits[] = {{"too long, eager", 100, 99, DType::kUint8, DType::kUint8},
                            {"too long, requested", 5000, 4999, DType::kUint8, DType::kUint8},
                            {"too long for nothing", 1, 0, DType::kUint8, DType::kUint8},
                            {"another dtype, eager", 100, 100, DType::kFloat32, DType::kInt32},
                            {"another dtype, requested", 5000, 5000, DType::kFloat32, DType::kInt32},
                            {"another dtype, empty", 0, 0, DType::kFloat32, DType::kInt32}};
  for (const Misfit& misfit : misfits) {
    for (int order : {0, 1, 2}) {  // of send and receive; 2: together
      CAPTURE(misfit.what);
      CAPTURE(order);
      SimWorld world({.seed = static_cast<uint64_t>(order) + 1});
      TestRequest* receive = nullptr;
      if (order == 0) receive = &world.recv(1, 0, 6, misfit.room, misfit.room_dtype);
      if (order == 0) world.settle();
      TestRequest& send = world.send(0, 1, 6, misfit.sent, misfit.sent_dtype);
      if (order == 1) world.settle();
      if (order != 0) receive = &world.recv(1, 0, 6, misfit.room, misfit.room_dtype);
      world.settle();
      REQUIRE(receive->complete_called);
      REQUIRE(send.complete_called);
      CHECK_EQ(receive->failed.code, ErrorCode::kMismatch);
      CHECK_EQ(send.failed.ok(), misfit.sent <= 1024);  // an eager one had gone
      for (int rank : {0, 1}) {
        REQUIRE(world.at(rank).failure());
        const Error& failure = *world.at(rank).failure();
        CHECK_EQ(failure.code, ErrorCode::kMismatch);
        CHECK_EQ(failure.message, receive->failed.message);
        CHECK_EQ(failure.ranks, std::vector<int>{0, 1});
        CHECK(mentions(failure, "rank 0 sent " + std::to_string(misfit.sent) + " bytes"));
        CHECK(mentions(failure, "tag 6 to rank 1"));
        CHECK(mentions(failure, "at most " + std::to_string(misfit.room) + " bytes"));
        CHECK(mentions(failure, dtype_name(misfit.sent_dtype)));
        CHECK(mentions(failure, dtype_name(misfit.room_dtype)));
      }
      for (std::byte byte : receive->memory) REQUIRE_EQ(byte, kUntouched);
    }
  }
}

TEST_CASE("a message that ends with its peer while a receive takes its beginning fails that receive") {
  SimWorld world({.shape = {.capacity_bytes = 60}});
  TestRequest& receive = world.recv(1, 0, 6, 10, DType::kUint8, true);
  world.send(0, 1, 6, 1000);
  world.settle(60);
  REQUIRE_FALSE(receive.complete_called);
  SUBCASE("its stream breaks") {
    world.destroy(0);
    world.settle();
    CHECK_FALSE(receive.complete_called);  // the reason is for others to find
    CHECK_FALSE(world.at(1).idle());
    CHECK(world.at(1).take_link_failure());
    world.at(1).fail({ErrorCode::kPeerLost, "gone", {0}});
  }
  SUBCASE("this rank leaves") { world.at(1).finish({ErrorCode::kPeerLost, "gone", {0}}); }
  REQUIRE(receive.complete_called);
  CHECK_EQ(receive.failed.message, "gone");
  CHECK_EQ(world.at(1).pooled_messages(), 0);
}

TEST_CASE("a synchronous send of no bytes is over by an answer that is unread when its peer says goodbye") {
  SimWorld world({.shape = {.delay_ticks = 0}, .connect_ticks = 0});
  TestRequest& send = world.send(0, 1, 3, 0, DType::kUint8, true);
  world.settle();
  const TestRequest& receive = world.recv(1, 0, 3, 0);
  while (world.at(1).progress()) {
  }
  REQUIRE(receive.complete_called);
  REQUIRE_FALSE(send.complete_called);
  world.at(0).peer_left(1);
  REQUIRE(send.complete_called);
  CHECK_EQ(send.failed.message, "");
  TestRequest& late = world.send(0, 1, 3, 0, DType::kUint8, true);
  CHECK_EQ(late.failed.code, ErrorCode::kPeerLeft);
}

TEST_CASE("a synchronous send is over when its receive has met it, and not before") {
  for (const int from : {0, 1}) {
    for (const uint64_t bytes : {0u, 8u, 1024u, 5000u}) {
      CAPTURE(from);
      CAPTURE(bytes);
      SimWorld world({});
      TestRequest& send = world.send(from, 1, 3, bytes, DType::kUint8, true);
      world.settle();
      CHECK_FALSE(send.complete_called);
      TestRequest& other = world.send(from, 1, 4, 8);  // is not held up
      world.settle();
      CHECK(other.complete_called);
      TestRequest& probe = world.probe(1, kAnySource, 3);
      CHECK_EQ(probe.message.bytes, bytes);
      world.settle();
      CHECK_FALSE(send.complete_called);
      TestRequest& receive = world.recv(1, from, 3, bytes);
      world.settle();
      CHECK((send.complete_called && send.failed.ok()));
      REQUIRE((receive.complete_called && receive.failed.ok()));
      CHECK(SimWorld::intact(receive, 1));
      world.recv(1, from, 4, 8);
      world.settle();
      CHECK(world.at(1).idle());
      CHECK(world.at(from).idle());
    }
  }
}

TEST_CASE("a probe finds the message that a receive would take, and leaves it") {
  for (const bool first : {true, false}) {  // the probe
    for (const uint64_t bytes : {0u, 100u, 5000u}) {
      for (const int from : {0, kAnySource}) {
        CAPTURE(first);
        CAPTURE(bytes);
        SimWorld world({.world = 3});
        TestRequest* probe = nullptr;
        if (first) probe = &world.probe(1, from, 7);
        world.send(0, 1, 6, 11);
        world.send(0, 1, 7, bytes);
        world.send(0, 1, 7, bytes + 1);
        world.settle();
        if (!first) probe = &world.probe(1, from, 7);
        REQUIRE((probe->complete_called && probe->failed.ok()));
        CHECK_EQ(probe->message.peer, 0);
        CHECK_EQ(probe->message.tag, 7);
        CHECK_EQ(probe->message.bytes, bytes);
        CHECK_EQ(probe->message.matched, 0);
        for (const uint64_t length : {bytes, bytes + 1}) {
          TestRequest& receive = world.recv(1, 0, 7, length);
          world.settle();
          REQUIRE((receive.complete_called && receive.failed.ok()));
          CHECK_EQ(receive.message.bytes, length);
        }
      }
    }
  }
}

TEST_CASE("a receive that was posted before a probe takes the message; one posted behind it lets the probe see it") {
  SimWorld world({});
  TestRequest& before = world.recv(1, 0, 7, 10);
  TestRequest& probe = world.probe(1, 0, 7);
  TestRequest& behind = world.recv(1, 0, 7, 10);
  world.send(0, 1, 7, 3);
  world.settle();
  CHECK(before.complete_called);
  CHECK_FALSE(probe.complete_called);
  world.send(0, 1, 7, 4);
  world.settle();
  CHECK_EQ(probe.message.bytes, 4);
  CHECK((probe.complete_called && behind.complete_called));
}

TEST_CASE("a receive or probe that no message has met can be taken back, and another not") {
  const Error enough{ErrorCode::kCancelled, "enough", {}};
  SimWorld world({});
  TestRequest& receive = world.recv(1, 0, 7, 10);
  TestRequest& probe = world.probe(1, kAnySource, 7, MessageKind::kMatchedProbe);
  CHECK(world.at(1).take_back(receive, enough));
  CHECK(world.at(1).take_back(probe, enough));
  CHECK_EQ(receive.failed.message, "enough");
  CHECK_EQ(probe.failed.message, "enough");
  TestRequest& send = world.send(0, 1, 7, 5000);
  CHECK_FALSE(world.at(0).take_back(send, enough));
  world.settle();
  TestRequest& late = world.recv(1, 0, 7, 5000);  // the message is coming
  CHECK_FALSE(world.at(1).take_back(late, enough));
  world.settle();
  CHECK((late.complete_called && late.failed.ok() && send.complete_called));
}

TEST_CASE("to oneself, a message that does not fit is a mismatch too") {
  SimWorld world({.world = 1});
  TestRequest& send = world.send(0, 0, 6, 5000);
  TestRequest& receive = world.recv(0, 0, 6, 10);
  CHECK_EQ(send.failed.code, ErrorCode::kMismatch);
  CHECK_EQ(receive.failed.code, ErrorCode::kMismatch);
  CHECK(world.at(0).failure());
}

TEST_CASE("fail() ends everything pending and everything later with its error") {
  SimWorld world({});
  TestRequest* sends[2] = {&world.send(0, 1, 0, 100'000), &world.send(0, 0, 0, 100'000)};
  TestRequest* receives[2] = {&world.recv(0, 1, 0, 10), &world.recv(0, kAnySource, 7, 10)};
  for (int i = 0; i < 50; ++i) world.step();
  world.at(0).fail({ErrorCode::kAborted, "enough", {1}});
  TestRequest& late_send = world.send(0, 1, 0, 1);
  TestRequest& late_receive = world.recv(0, 1, 0, 1);
  for (const TestRequest* send : {sends[0], sends[1], &late_send}) CHECK_EQ(send->failed.message, "enough");
  for (const TestRequest* receive : {receives[0], receives[1], &late_receive})
    CHECK_EQ(receive->failed.message, "enough");
  CHECK(world.at(0).idle());
}

// Completes by posting the next of a chain: complete() may call back, and the finished request may go.
struct Chain : P2pRequest {
  P2p* p2p = nullptr;
  int* left = nullptr;
  std::byte memory[8];
  void complete(const Error* why) override {
    CHECK_FALSE(why);
    if (--*left > 0) {
      auto* following = new Chain;
      following->p2p = p2p;
      following->left = left;
      following->start();
    }
    delete this;
  }
  void start() {
    kind = MessageKind::kReceive;
    data = memory;
    bytes = sizeof memory;
    peer = 0;
    tag = 0;
    dtype = DType::kUint8;
    p2p->submit(*this);
  }
};

TEST_CASE("complete() may post the next receive and destroy its own") {
  SimWorld world({});
  for (int i = 0; i < 50; ++i) world.send(0, 1, 0, 8);
  world.settle();
  int left = 50;
  auto* first = new Chain;
  first->p2p = &world.at(1);
  first->left = &left;
  first->start();
  world.settle();
  CHECK_EQ(left, 0);
}

TEST_CASE("an 8 byte ping-pong costs one write and one read for each message") {
  SimShape exact{
      .capacity_bytes = 1 << 20, .delay_ticks = 0, .refuse_percent = 0, .crumb_percent = 0, .part_percent = 0};
  SimWorld world({.eager_bytes = 64 * 1024, .pool_bytes = 1 << 20, .shape = exact, .connect_ticks = 0});
  constexpr int kRounds = 1000;
  for (int i = 0; i < kRounds; ++i) {
    for (int from : {0, 1}) {
      TestRequest& receive = world.recv(1 - from, from, 0, 8);
      TestRequest& send = world.send(from, 1 - from, 0, 8);
      world.at(from).progress(P2pSweep::kAwaited);
      REQUIRE(send.complete_called);
      world.at(1 - from).progress(P2pSweep::kAwaited);
      REQUIRE(receive.complete_called);
    }
  }
  for (int from : {0, 1}) {
    const int id = world.connection(from, 1 - from);
    CHECK_EQ(world.network().transfers(id, 0), kRounds);
    CHECK_EQ(world.network().transfers(id, 1), kRounds);
  }
}

TEST_CASE("short messages are batched: many to a write, many to a read") {
  SimShape exact{
      .capacity_bytes = 1 << 20, .delay_ticks = 0, .refuse_percent = 0, .crumb_percent = 0, .part_percent = 0};
  SimWorld world({.eager_bytes = 64 * 1024, .pool_bytes = 1 << 20, .shape = exact, .connect_ticks = 0});
  for (int i = 0; i < 2000; ++i) world.send(0, 1, 0, 8);
  world.at(0).progress();
  world.at(1).progress();
  CHECK_EQ(world.at(1).pooled_messages(), 2000);
  CHECK_LE(world.network().transfers(world.connection(0, 1), 0), 12);
  CHECK_LE(world.network().transfers(world.connection(0, 1), 1), 4);
}

}  // namespace
}  // namespace rondo::testing

int main(int argc, char** argv) { return rondo::testing::run_over_both_streams(argc, argv); }
