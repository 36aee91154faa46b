// What the world can do to a P2p: cut streams, flipped bits, ranks that leave, bytes that no P2p would send.
// The test runs 300 seeds; `fault_test FIRST COUNT` runs others.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/p2p/both_streams.h"
#include "tests/p2p/world.h"

namespace rondo::testing {
namespace {

const Error kLost{ErrorCode::kPeerLost, "the peer died", {}};

// Two ranks that exchange messages in both directions; all of them would arrive.
struct Exchange {
  explicit Exchange(uint64_t seed, uint64_t messages = 30, bool checked = false)
      : random(seed + 31), world(settings(seed, checked)) {
    // One message each way first, so that the connections exist and have an id.
    for (int from : {0, 1}) message(from, 1);
    while (world.connection(0, 1) < 0 || world.connection(1, 0) < 0) world.step();
    for (uint64_t i = 0; i < messages; ++i) {
      message(random.chance(50) ? 0 : 1, random.chance(20) ? 20'000 : random.below(2000));
      while (random.chance(50)) world.step();
    }
  }

  static SimWorld::Settings settings(uint64_t seed, bool checked) {
    SimWorld::Settings settings;
    settings.checked = checked;
    settings.seed = seed;
    settings.shape.capacity_bytes = 1 + seed % 5000;
    return settings;
  }

  void message(int from, uint64_t bytes) {
    const bool early = random.chance(50);
    if (early) recvs[1 - from].push_back(&world.recv(1 - from, from, 0, bytes));
    sends[from].push_back(&world.send(from, 1 - from, 0, bytes));
    if (!early) recvs[1 - from].push_back(&world.recv(1 - from, from, 0, bytes));
  }

  bool pending(int rank) const {
    auto waits = [](const auto* request) { return !request->complete_called; };
    return std::any_of(sends[rank].begin(), sends[rank].end(), waits) ||
           std::any_of(recvs[rank].begin(), recvs[rank].end(), waits);
  }

  // Completed receives hold their messages; after fail() everything is complete and no memory is touched any more.
  void fail_and_check() {
    for (int rank : {0, 1}) {
      for (TestRequest* receive : recvs[rank]) {
        if (receive->complete_called && receive->failed.ok()) REQUIRE(SimWorld::intact(*receive, rank));
      }
      world.at(rank).fail(kLost);
      REQUIRE_FALSE(pending(rank));
      REQUIRE(world.at(rank).idle());
      REQUIRE_EQ(world.at(rank).pooled_bytes(), 0);
      for (TestRequest* send : sends[rank]) std::vector<std::byte>().swap(send->memory);  // for the address sanitizer
      for (TestRequest* receive : recvs[rank]) std::vector<std::byte>().swap(receive->memory);
    }
    world.settle();
  }

  Random random;
  SimWorld world;
  std::vector<TestRequest*> sends[2];
  std::vector<TestRequest*> recvs[2];
};

TEST_CASE("a stream that is cut anywhere is reported by every rank that depends on it; fail() ends the rest") {
  int cuts_that_mattered = 0;
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    CAPTURE(seed);
    Exchange exchange(seed);
    SimWorld& world = exchange.world;
    const SimCut how = seed % 2 ? SimCut::kClose : SimCut::kReset;
    world.network().cut_after(world.connection(0, 1), exchange.random.below(20'000), how);
    world.settle();
    for (int rank : {0, 1}) {
      const bool pending = exchange.pending(rank);
      const auto failure = world.at(rank).take_link_failure();
      if (pending) {
        REQUIRE(failure);
        REQUIRE_EQ(failure->first, 1 - rank);
        REQUIRE_EQ(failure->second.code, ErrorCode::kPeerLost);
        ++cuts_that_mattered;
      }
      REQUIRE_FALSE(world.at(rank).failure());
    }
    exchange.fail_and_check();
  }
  CHECK_GT(cuts_that_mattered, static_cast<int>(seeds / 2));
}

TEST_CASE("fault 28: a message cut after each of its bytes is never received") {
  for (uint64_t bytes : {50u, 2000u}) {
    for (uint64_t cut = 0; cut<kP2pEnvelopeBytes + bytes; cut += bytes> 1024 ? 13 : 1) {
      CAPTURE(bytes);
      CAPTURE(cut);
      SimWorld world({.seed = cut + 1, .connect_ticks = 0});
      TestRequest& receive = world.recv(1, 0, 0, bytes);
      world.recv(0, 1, 0, 0);
      world.send(0, 1, 1, 0);  // opens the connection
      world.settle();
      const int id = world.connection(0, 1);
      // 2000 bytes are requested, cleared, and sent in one frame.
      const uint64_t before = bytes > 1024 ? 2 * kP2pEnvelopeBytes : 0;
      world.network().cut_after(id, before + cut, SimCut::kClose);
      world.send(0, 1, 0, bytes);
      world.settle();
      REQUIRE_FALSE(receive.complete_called);
      const auto failure = world.at(1).take_link_failure();
      REQUIRE(failure);
      REQUIRE_EQ(failure->first, 0);
      world.at(1).peer_left(0);
      REQUIRE(receive.complete_called);
      REQUIRE_EQ(receive.failed.code, ErrorCode::kPeerLeft);
    }
  }
}

TEST_CASE("an unexpected message that was cut is forgotten: a later receive does not get it") {
  SimWorld world({.connect_ticks = 0});
  world.send(0, 1, 1, 0);  // opens the connection
  world.settle();
  world.network().cut_after(world.connection(0, 1), 100, SimCut::kClose);
  world.send(0, 1, 0, 50);
  world.settle();
  CHECK(world.at(1).take_link_failure());
  CHECK_EQ(world.at(1).pooled_messages(), 1);  // the empty one
  world.at(1).peer_left(0);
  TestRequest& receive = world.recv(1, 0, 0, 50);
  REQUIRE(receive.complete_called);
  CHECK_EQ(receive.failed.code, ErrorCode::kPeerLeft);
  CHECK(world.recv(1, 0, 1, 0).failed.ok());
}

TEST_CASE("the receive of a matched message that was cut fails with the reason of the cut") {
  SimWorld world({.connect_ticks = 0});
  world.send(0, 1, 1, 0);  // opens the connection
  world.settle();
  world.network().cut_after(world.connection(0, 1), 100, SimCut::kClose);
  TestRequest& probe = world.probe(1, 0, 0, MessageKind::kMatchedProbe);
  world.send(0, 1, 0, 50);
  world.settle();
  REQUIRE(probe.complete_called);
  REQUIRE(probe.failed.ok());
  CHECK(world.at(1).take_link_failure());
  TestRequest& receive = world.mrecv(1, probe, 50);
  CHECK_FALSE(receive.complete_called);        // nobody has found the reason yet
  CHECK_EQ(world.at(1).pooled_messages(), 1);  // the empty one
  world.at(1).peer_left(0);
  REQUIRE(receive.complete_called);
  CHECK_EQ(receive.failed.code, ErrorCode::kPeerLeft);
}

// Proves: with checksums no message with a flipped bit is received, and the error names the peer and says what it is.
// Without them: tests/fuzz/p2p.cc.
TEST_CASE("fault 20: with checksums a flipped bit is CORRUPT, and what was received is right") {
  int failed = 0;
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    CAPTURE(seed);
    Exchange exchange(seed, 10, true);
    SimWorld& world = exchange.world;
    world.network().flip_after(world.connection(0, 1), static_cast<int>(seed % 2), exchange.random.below(2000));
    for (uint64_t i = 0; i < 10; ++i) exchange.message(static_cast<int>(i % 2), exchange.random.below(3000));
    world.settle(20'000);
    for (int rank : {0, 1}) {
      const auto& failure = world.at(rank).failure();
      if (!failure) continue;
      ++failed;
      REQUIRE_EQ(failure->code, ErrorCode::kCorrupt);
      REQUIRE_EQ(failure->ranks, std::vector<int>{1 - rank});
      REQUIRE_NE(failure->message.find("arrived damaged"), std::string::npos);
    }
    exchange.fail_and_check();
  }
  CHECK_GT(failed, static_cast<int>(seeds / 4));
}

TEST_CASE("a rank that leaves while its stream to a peer is made ends that stream when it is there") {
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    CAPTURE(seed);
    SimWorld world({.seed = seed});
    TestRequest& receive = world.recv(1, 0, 0, 10);
    world.send(0, 1, 0, 10);
    world.at(0).progress();  // asks for it
    world.at(0).finish({ErrorCode::kClosed, "destroyed", {}});
    world.settle();
    CHECK(world.at(0).idle());
    world.at(1).peer_left(0);
    REQUIRE(receive.complete_called);
    if (receive.failed.ok()) {  // the stream was there at once
      CHECK(SimWorld::intact(receive, 1));
    } else {
      CHECK_EQ(receive.failed.code, ErrorCode::kPeerLeft);
    }
  }
}

TEST_CASE("what a rank sent before it left is received; what it did not send fails with kPeerLeft") {
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    CAPTURE(seed);
    const int size = seed % 2 ? 2 : 3;
    SimWorld world({.world = size, .seed = seed, .reads = seed % 3 == 0});
    Random random(seed);
    const uint64_t messages = random.below(20);
    std::vector<TestRequest*> receives;
    for (uint64_t i = 0; i < messages; ++i) {
      const bool early = random.chance(30);
      if (early) receives.push_back(&world.recv(1, 0, 0, 1000));
      world.send(0, 1, 0, random.below(400));
      if (!early && random.chance(50)) receives.push_back(&world.recv(1, 0, 0, 1000));
    }
    TestRequest& other_tag = world.recv(1, 0, 1, 10);
    for (uint64_t i = 0; i < 1000 && !world.at(0).idle(); ++i) world.step();
    TestRequest& never = world.send(0, 1, 0, 5000);  // nobody clears it
    if (random.chance(50)) world.settle();
    world.at(0).finish({ErrorCode::kClosed, "destroyed", {}});
    CHECK_EQ(never.failed.code, ErrorCode::kClosed);
    for (uint64_t i = random.below(20); i > 0; --i) world.step();
    const bool early_goodbye = random.chance(50);
    if (early_goodbye) world.at(1).peer_left(0);
    TestRequest& to_left = world.send(1, 0, 0, 10);
    if (random.chance(50)) {
      for (int i = 0; i < 1000 && !world.at(0).idle(); ++i) world.step();
      REQUIRE(world.at(0).idle());
      world.destroy(0);
    }
    world.settle();
    if (!early_goodbye) {
      CHECK_FALSE(other_tag.complete_called);
      world.at(1).peer_left(0);
    }
    world.settle();
    REQUIRE(other_tag.complete_called);
    CHECK_EQ(other_tag.failed.code, ErrorCode::kPeerLeft);
    CHECK_EQ(other_tag.failed.ranks, std::vector<int>{0});
    REQUIRE(to_left.complete_called);
    if (early_goodbye) CHECK_EQ(to_left.failed.code, ErrorCode::kPeerLeft);

    while (receives.size() < messages) receives.push_back(&world.recv(1, 0, 0, 1000));
    for (uint64_t i = 0; i < messages; ++i) {
      REQUIRE(receives[i]->complete_called);
      if (!receives[i]->failed.ok()) continue;  // its message waited for credit when the rank left
      REQUIRE(SimWorld::intact(*receives[i], 1));
    }
    if (messages > 0) CHECK(receives[0]->failed.ok());
    CHECK_EQ(world.recv(1, 0, 0, 10000).failed.code, ErrorCode::kPeerLeft);
    CHECK_EQ(world.send(1, 0, 0, 1).failed.code, ErrorCode::kPeerLeft);
    TestRequest& any = world.recv(1, kAnySource, 0, 10);
    CHECK_EQ(any.complete_called, size == 2);
    if (size == 3) world.at(1).peer_left(2);
    CHECK_EQ(any.failed.code, ErrorCode::kPeerLeft);
    CHECK_EQ(any.failed.ranks, size == 2 ? std::vector<int>{0} : std::vector<int>{0, 2});
    CHECK_FALSE(world.at(1).failure());
  }
}

// A requested message was read before its sender left; nobody looks at streams that no receive waits for.
TEST_CASE("a receive of a message that its sender has not sent before it left fails while its rank polls") {
  SimWorld world({.connect_ticks = 0});
  world.send(0, 1, 1, 5000);
  world.send(0, 1, 2, 10);
  TestRequest& behind = world.recv(1, 0, 2, 10);
  world.settle();
  REQUIRE(behind.complete_called);
  world.at(0).finish({ErrorCode::kClosed, "destroyed", {}});
  for (int tick = 0; tick < 1000 && !world.at(0).idle(); ++tick) {
    world.at(0).progress();
    world.network().advance();
  }
  REQUIRE(world.at(0).idle());
  world.at(1).peer_left(0);
  TestRequest& late = world.recv(1, 0, 1, 5000);
  CHECK_FALSE(late.complete_called);
  for (int tick = 0; tick < 1000 && !late.complete_called; ++tick) {
    world.at(1).progress(P2pSweep::kAwaited);
    world.network().advance();
  }
  REQUIRE(late.complete_called);
  CHECK_EQ(late.failed.code, ErrorCode::kPeerLeft);
}

// Rank 1 of 2 whose peer is the test itself.
struct Victim : P2pStreams {
  explicit Victim(uint64_t seed)
      : network(seed), from(network.connect({.lends = streams_lend})), to(network.connect()) {
    P2pOptions options;
    options.communicator = 0x1234;
    options.eager_bytes = 1024;
    options.pool_bytes = 8192;
    p2p.emplace(1, 2, options, *this);
  }
  std::unique_ptr<ByteStream> take_stream_to(int) override { return std::move(to.side[0]); }
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from() override {
    if (!from.side[0]) return std::nullopt;
    return std::pair(0, std::move(from.side[0]));
  }

  // Sends the bytes on the stream, with the victim at work. False: the victim closed it.
  bool feed(ByteStream& stream, const std::vector<std::byte>& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const iovec part{const_cast<std::byte*>(bytes.data()) + at, bytes.size() - at};
      const long moved = stream.write(&part, 1);
      if (moved < 0) return false;
      at += static_cast<size_t>(moved);
      step();
    }
    return true;
  }
  void step() {
    p2p->progress();
    network.advance();
    REQUIRE_LE(p2p->pooled_bytes(), 8192);
    REQUIRE_LE(p2p->pooled_messages(), 128);
  }

  SimNetwork network;
  SimNetwork::Connection from, to;
  std::optional<P2p> p2p;
};

P2pEnvelope frame(P2pKind kind, uint64_t sequence, uint64_t bytes, uint64_t offset = 0, uint32_t slots = 0) {
  P2pEnvelope envelope;
  envelope.kind = kind;
  envelope.communicator = 0x1234;
  envelope.sequence = sequence;
  envelope.bytes = bytes;
  envelope.offset = offset;
  envelope.slots = slots;
  return envelope;
}

struct Breach {
  const char* named;
  bool backward;  // on the stream of the victim's own message, number 0, of 5000 bytes and requested
  std::vector<P2pEnvelope> frames;
};

std::vector<Breach> breaches() {
  using enum P2pKind;
  std::vector<Breach> list = {
      {"a message out of order", false, {frame(kEager, 1, 8)}},
      {"a message out of order", false, {frame(kEager, 0, 8), frame(kEager, 0, 8)}},
      {"an eager message above the limit", false, {frame(kEager, 0, 1025)}},
      {"not cleared", false, {frame(kRequest, 0, 5000), frame(kData, 0, 5000)}},
      {"a frame after its end", false, {frame(kEnd, 0, 0), frame(kEager, 0, 8)}},
      {"only receivers send", false, {frame(kCredit, 0, 0)}},
      {"more credit than there is", true, {frame(kCredit, 0, 1)}},
      {"credit for more messages", true, {frame(kCredit, 0, 0, 0, 2)}},
      {"was not requested", true, {frame(kClear, 1, 0)}},
      {"more than was requested", true, {frame(kClear, 0, 1 << 20)}},
      {"the reading of what it may not read", true, {frame(kClear, 0, 5000, 5000)}},
      {"was not requested", true, {frame(kClear, 0, 0), frame(kClear, 0, 0)}},
      {"was not sent", true, {frame(kRefuse, 1, 0)}},
      {"only senders send", true, {frame(kEager, 0, 0)}},
      {"an unknown kind of frame", false, {frame(P2pKind{8}, 0, 0)}},
      {"an unknown kind of frame", true, {frame(P2pKind{8}, 0, 0)}},
  };
  list.push_back({"more bytes than it has credit for", false, {}});
  for (uint64_t i = 0; i < 9; ++i) list.back().frames.push_back(frame(kEager, i, 1024));
  list.push_back({"more messages than it has credit for", false, {}});
  for (uint64_t i = 0; i < 129; ++i) list.back().frames.push_back(frame(kRequest, i, 1));
  return list;
}

TEST_CASE("each breach of the protocol is refused for what it is, not a frame earlier") {
  for (const Breach& breach : breaches()) {
    CAPTURE(breach.named);
    Victim victim(1);
    TestRequest send;
    send.memory.resize(5000);
    send.data = send.memory.data();
    send.bytes = send.memory.size();
    victim.p2p->submit(send);
    ByteStream& stream = breach.backward ? *victim.to.side[1] : *victim.from.side[1];
    for (size_t i = 0; i < breach.frames.size(); ++i) {
      for (int tick = 0; tick < 50; ++tick) victim.step();
      REQUIRE_FALSE(victim.p2p->failure());
      std::vector<std::byte> bytes(kP2pEnvelopeBytes);
      p2p_encode(breach.frames[i], bytes.data());
      if (breach.frames[i].kind == P2pKind::kEager) bytes.resize(bytes.size() + breach.frames[i].bytes);
      victim.feed(stream, bytes);
    }
    for (int tick = 0; tick < 50; ++tick) victim.step();
    REQUIRE(victim.p2p->failure());
    CHECK_EQ(victim.p2p->failure()->code, ErrorCode::kProtocol);
    CHECK_EQ(victim.p2p->failure()->ranks, std::vector<int>{0});
    CHECK_NE(victim.p2p->failure()->message.find(breach.named), std::string::npos);
    victim.p2p->fail(kLost);
  }
}

TEST_CASE("a payload that does not go on where it stopped is refused before it lands") {
  for (int wrong : {0, 1, 2}) {
    CAPTURE(wrong);
    Victim victim(static_cast<uint64_t>(wrong) + 1);
    TestRequest receive;
    receive.kind = MessageKind::kReceive;
    receive.memory.assign(200, kUntouched);
    receive.data = receive.memory.data();
    receive.bytes = 200;
    receive.peer = 0;
    victim.p2p->submit(receive);
    const P2pEnvelope data[] = {frame(P2pKind::kData, 0, 50, 100), frame(P2pKind::kData, 0, 101, 0),
                                frame(P2pKind::kData, 0, 0, 0)};
    for (const P2pEnvelope& envelope : {frame(P2pKind::kRequest, 0, 100), data[wrong]}) {
      std::vector<std::byte> bytes(kP2pEnvelopeBytes + (envelope.kind == P2pKind::kData ? 101 : 0));
      p2p_encode(envelope, bytes.data());
      victim.feed(*victim.from.side[1], bytes);
      for (int tick = 0; tick < 50; ++tick) victim.step();
    }
    REQUIRE(victim.p2p->failure());
    CHECK_NE(victim.p2p->failure()->message.find("a payload"), std::string::npos);
    for (std::byte byte : receive.memory) REQUIRE_EQ(byte, kUntouched);
    victim.p2p->fail(kLost);
    CHECK_EQ(receive.failed.message, kLost.message);
  }
}

}  // namespace
}  // namespace rondo::testing

int main(int argc, char** argv) { return rondo::testing::run_seeds_over_both_streams(argc, argv); }
