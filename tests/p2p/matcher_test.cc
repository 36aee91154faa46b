#include "ring/engine/p2p/matcher.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <vector>

#include "tests/support/random.h"

namespace rondo::testing {
namespace {

struct Receive : P2pRequest {
  Receive(int from, int tag_in) { kind = MessageKind::kReceive, peer = from, tag = tag_in; }
  void complete(const Error*) override {}
};

// The rule in its plainest form: one list of receives, one of messages, both in the order of time. Receives from any
// source are checked against the set of peers only, since whose turn it is is the matcher's choice.
struct Model {
  std::vector<Receive*> receives;
  std::vector<P2pMessage*> messages;

  static bool takes(const P2pRequest& receive, const P2pMessage& message) {
    return (receive.peer == kAnySource || receive.peer == message.peer) &&
           (receive.tag == kAnyTag || static_cast<uint32_t>(receive.tag) == message.envelope.tag);
  }
};

TEST_CASE("random receives and messages meet as in a list in the order of time") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    P2pMatcher matcher(4);
    P2pPool pool;
    Model model;
    std::deque<Receive> receives;
    for (int i = 0; i < 300; ++i) {
      const int peer = static_cast<int>(random.below(4));
      const int tag = static_cast<int>(random.below(3));
      if (random.chance(50)) {
        P2pEnvelope envelope;
        envelope.kind = P2pKind::kRequest;
        envelope.tag = static_cast<uint32_t>(tag);
        P2pMessage* message = pool.take(envelope, peer);
        const auto expected = std::find_if(model.receives.begin(), model.receives.end(),
                                           [&](Receive* receive) { return Model::takes(*receive, *message); });
        P2pRequest* found = matcher.take_receive(peer, envelope.tag);
        if (expected == model.receives.end()) {
          REQUIRE_EQ(found, nullptr);
          matcher.add(*message);
          model.messages.push_back(message);
        } else {
          REQUIRE_EQ(found, *expected);
          model.receives.erase(expected);
          pool.give(message);
        }
      } else {
        Receive& receive =
            receives.emplace_back(random.chance(30) ? kAnySource : peer, random.chance(30) ? kAnyTag : tag);
        P2pMessage* found = matcher.take_message(receive);
        // The first of its peer that the receive takes; of some peer, for any source.
        const auto expected = std::find_if(model.messages.begin(), model.messages.end(), [&](P2pMessage* message) {
          return Model::takes(receive, *message) && (!found || found->peer == message->peer);
        });
        if (expected == model.messages.end()) {
          REQUIRE_EQ(found, nullptr);
          matcher.post(receive);
          model.receives.push_back(&receive);
        } else {
          REQUIRE_EQ(found, *expected);
          model.messages.erase(expected);
          pool.give(found);
        }
      }
      REQUIRE_EQ(pool.messages(), model.messages.size());
      REQUIRE_EQ(matcher.posted(), !model.receives.empty());
    }
  }
}

TEST_CASE("receives from any source go round the peers") {
  P2pMatcher matcher(3);
  P2pPool pool;
  P2pEnvelope envelope;
  envelope.kind = P2pKind::kRequest;
  for (int i = 0; i < 3; ++i) {
    for (int peer : {0, 1, 2}) matcher.add(*pool.take(envelope, peer));
  }
  std::vector<int> order;
  Receive any(kAnySource, kAnyTag);
  while (P2pMessage* message = matcher.take_message(any)) order.push_back(message->peer);
  CHECK_EQ(order, std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1, 2});
}

TEST_CASE("the pool counts what is out, reuses it, and keeps no more than its bound") {
  P2pPool pool;
  P2pEnvelope envelope;
  std::vector<P2pMessage*> out;
  uint64_t charged = 0;
  for (uint64_t bytes : {0u, 1u, 64u, 65u, 1000u, 65536u}) {
    envelope.bytes = bytes;
    out.push_back(pool.take(envelope, 0));
    charged += p2p_charge(bytes);
    CHECK_EQ(pool.used_bytes(), charged);
    CHECK_EQ(out.back()->data == nullptr, bytes == 0);
  }
  CHECK_EQ(charged, 0 + 64 + 64 + 128 + 1024 + 65536);
  std::byte* last = out.back()->data;
  for (P2pMessage* message : out) pool.give(message);
  CHECK_EQ(pool.used_bytes(), 0);
  CHECK_EQ(pool.kept_bytes(), charged);
  CHECK_EQ(pool.take(envelope, 0)->data, last);
  out.clear();
  for (int i = 0; i < 100; ++i) out.push_back(pool.take(envelope, 0));
  for (P2pMessage* message : out) pool.give(message);
  CHECK_LE(pool.kept_bytes(), 1 << 20);
}

}  // namespace
}  // namespace rondo::testing
