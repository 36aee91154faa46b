// Random traffic against a model. As a test 300 seeds; `traffic_test FIRST COUNT` runs others.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/p2p/both_streams.h"
#include "tests/p2p/world.h"

namespace rondo::testing {
namespace {

struct Traffic {
  explicit Traffic(uint64_t seed_in) : seed(seed_in), plan(seed_in + 7777), world(settings(seed_in)) {
    received.resize(static_cast<size_t>(world.size()));
    expected.assign(static_cast<size_t>(world.size()), 0);
  }

  static SimWorld::Settings settings(uint64_t seed) {
    Random random(seed + 999);
    SimWorld::Settings settings;
    settings.world = static_cast<int>(random.between(2, 5));
    settings.seed = seed;
    settings.eager_bytes = random.between(0, 3) * 500;
    settings.pool_bytes = random.chance(20) ? 64 : random.between(1, 8) * 1024;
    settings.shape.capacity_bytes = random.chance(20) ? random.between(1, 64) : random.between(1, 64) * 1024;
    settings.shape.delay_ticks = static_cast<uint32_t>(random.below(30));
    settings.reads = random.chance(40);
    settings.unreadable = random.chance(30) ? random.between(1, 10) : 0;
    return settings;
  }

  uint64_t random_bytes() {
    const uint64_t eager = settings(seed).eager_bytes;
    switch (plan.below(8)) {
      case 0:
        return 0;
      case 1:
        return 4;
      case 2:
        return eager;
      case 3:
        return eager + 4;
      case 4:
        return large ? 1024 * 1024 + 4 : 4000;
      default:
        return plan.below(600) * 4;
    }
  }

  uint64_t buffer_bytes() const { return large ? 1024 * 1024 + 8 : 6000; }

  void post_send(int from, int to, int tag, uint64_t bytes) {
    sends.push_back(&world.send(from, to, tag, bytes, DType::kInt32, plan.chance(20)));
    tags[{from, to}].push_back(tag);
    lengths[{from, to}].push_back(bytes);
    ++expected[to];
  }
  // Also a matched probe, whose receive comes some time later, and receives that take the beginning of a message.
  void post_recv(int at, int from, int tag) {
    if (plan.chance(20)) {
      received[at].push_back({&world.probe(at, from, tag, MessageKind::kMatchedProbe)});
      return;
    }
    const bool truncate = plan.chance(20);
    TestRequest& receive =
        world.recv(at, from, tag, truncate ? 4 * plan.below(200) : buffer_bytes(), DType::kInt32, truncate);
    received[at].push_back({&receive, &receive});
  }
  void receive_matched(bool all) {
    for (int rank = 0; rank < world.size(); ++rank) {
      for (Taken& taken : received[rank]) {
        if (taken.receive || !taken.asked->complete_called || !(all || plan.chance(30))) continue;
        taken.receive = &world.mrecv(rank, *taken.asked, buffer_bytes(), DType::kInt32);
      }
    }
  }

  // One random call: a send, a probe, or a receive that may or may not ever be met.
  void call() {
    const int rank = static_cast<int>(plan.below(static_cast<uint64_t>(world.size())));
    const int peer = static_cast<int>(plan.below(static_cast<uint64_t>(world.size())));
    const int tag = static_cast<int>(plan.below(4));
    if (plan.chance(50)) return post_send(rank, peer, tag, random_bytes());
    const int from = plan.chance(25) ? kAnySource : peer, asked = plan.chance(25) ? kAnyTag : tag;
    if (plan.chance(80)) return post_recv(rank, from, asked);
    probes.emplace_back(rank, &world.probe(rank, from, asked));
  }

  // What was asked for first, and the receive that got it: the same, but where it was a matched probe.
  struct Taken {
    TestRequest* asked;
    TestRequest* receive = nullptr;
    bool done() const { return receive != nullptr && receive->complete_called; }
  };

  static size_t done(const std::vector<Taken>& receives) {
    return static_cast<size_t>(
        std::count_if(receives.begin(), receives.end(), [](const Taken& taken) { return taken.done(); }));
  }

  // Gives every receive that still waits a message, and every message that still waits a receive. Where messages that
  // nobody asked for have all the credit, those that are wanted queue behind them: so some are taken now and then.
  void meet_all() {
    while (true) {
      world.settle();
      receive_matched(true);
      world.settle();
      bool more = false;
      for (int rank = 0; rank < world.size(); ++rank) {
        const size_t got = done(received[rank]);
        if (got < received[rank].size()) {
          for (const Taken& taken : received[rank]) {
            if (taken.done()) continue;
            const TestRequest& asked = *taken.asked;
            const int from = asked.peer == kAnySource ? static_cast<int>(plan.below(world.size())) : asked.peer;
            post_send(from, rank, asked.tag == kAnyTag ? 2 : asked.tag, random_bytes());
            more = true;
            break;
          }
          if (rounds % 4 == 3) post_recv(rank, kAnySource, kAnyTag);
        } else if (got < expected[rank]) {
          for (size_t i = got; i < expected[rank]; ++i) post_recv(rank, kAnySource, kAnyTag);
          more = true;
        }
      }
      if (!more) return;
      REQUIRE_LT(++rounds, 2000);
    }
  }

  // Messages of one pair are taken in order by the receives that could take either.
  void check_order(const std::vector<Taken>& receives) {
    for (size_t i = 0; i < receives.size(); ++i) {
      for (size_t j = i + 1; j < receives.size(); ++j) {
        const TestRequest& early = *receives[i].receive;
        const TestRequest& late = *receives[j].receive;
        if (early.message.peer != late.message.peer || early.sequence < late.sequence) continue;
        REQUIRE_NE(early.sequence, late.sequence);
        const int asked = receives[i].asked->tag;
        const bool could = asked == kAnyTag || asked == late.message.tag;
        REQUIRE_FALSE(could);
      }
    }
  }

  // A probe has found a message that was sent, or can be taken back.
  void check_probes() {
    for (const auto& [rank, probe] : probes) {
      if (!probe->complete_called) {
        REQUIRE(world.at(rank).take_back(*probe, {ErrorCode::kCancelled, "enough", {}}));
        REQUIRE_EQ(probe->failed.code, ErrorCode::kCancelled);
        continue;
      }
      REQUIRE(probe->failed.ok());
      REQUIRE((probe->peer == kAnySource || probe->peer == probe->message.peer));
      REQUIRE((probe->tag == kAnyTag || probe->tag == probe->message.tag));
      const auto& sent = tags[{probe->message.peer, rank}];
      REQUIRE(std::find(sent.begin(), sent.end(), probe->message.tag) != sent.end());
    }
  }

  // The error says both lengths, and whose message it was.
  static void check_cut(const TestRequest& receive) {
    const std::string &text = receive.failed.message, sent = std::to_string(receive.message.bytes),
                      tag = std::to_string(receive.message.tag), room = std::to_string(receive.bytes);
    REQUIRE_NE(text.find("sent " + sent + " bytes with tag " + tag), std::string::npos);
    REQUIRE_NE(text.find("takes " + room + ":"), std::string::npos);
    REQUIRE_EQ(receive.failed.ranks, std::vector<int>{receive.message.peer});
  }

  void check(int rank) {
    for (const Taken& taken : received[rank]) {
      const TestRequest *receive = taken.receive, *asked = taken.asked;
      const bool cut = receive->message.bytes > receive->bytes;
      REQUIRE_EQ(receive->failed.code, cut ? ErrorCode::kTruncated : ErrorCode::kOk);
      if (cut) check_cut(*receive);
      if (asked != receive) {
        REQUIRE_EQ(asked->message.bytes, receive->message.bytes);
        REQUIRE_EQ(asked->message.peer, receive->message.peer);
        REQUIRE_EQ(asked->message.tag, receive->message.tag);
      }
      const auto& sent = tags[{receive->message.peer, rank}];
      REQUIRE_LT(receive->sequence, sent.size());
      REQUIRE_EQ(receive->message.tag, sent[receive->sequence]);
      REQUIRE_EQ(receive->message.bytes, lengths[{receive->message.peer, rank}][receive->sequence]);
      REQUIRE((asked->peer == kAnySource || asked->peer == receive->message.peer));
      REQUIRE((asked->tag == kAnyTag || asked->tag == receive->message.tag));
      REQUIRE(SimWorld::intact(*receive, rank));
    }
    check_order(received[rank]);
    REQUIRE(world.at(rank).idle());
    REQUIRE_EQ(world.at(rank).pooled_bytes(), 0);
    REQUIRE_EQ(world.at(rank).pooled_messages(), 0);
    REQUIRE_FALSE(world.at(rank).failure());
    REQUIRE_FALSE(world.at(rank).take_link_failure());
  }

  void run() {
    large = seed % 10 == 0 && settings(seed).shape.capacity_bytes >= 1024;
    const uint64_t calls = plan.between(10, large ? 40 : 200);
    for (uint64_t i = 0; i < calls; ++i) {
      call();
      receive_matched(false);
      while (plan.chance(60)) world.step();
      for (int rank = 0; rank < world.size(); ++rank) {
        REQUIRE_LE(world.at(rank).pooled_bytes(), world.at(rank).pool_limit_bytes());
      }
    }
    meet_all();
    check_probes();
    for (TestRequest* send : sends) REQUIRE((send->complete_called && send->failed.ok()));
    for (int rank = 0; rank < world.size(); ++rank) check(rank);
  }

  uint64_t seed;
  Random plan;
  SimWorld world;
  bool large = false;
  std::vector<TestRequest*> sends;
  std::vector<std::vector<Taken>> received;              // by rank, in the order of posting
  std::vector<std::pair<int, TestRequest*>> probes;      // by rank
  std::vector<size_t> expected;                          // messages to each rank
  std::map<std::pair<int, int>, std::vector<int>> tags;  // of each pair's messages, in order
  std::map<std::pair<int, int>, std::vector<uint64_t>> lengths;
  int rounds = 0;
};

TEST_CASE("random sends and receives: every byte arrives once, in order, where it belongs") {
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    CAPTURE(seed);
    Traffic traffic(seed);
    traffic.run();
  }
}

}  // namespace
}  // namespace rondo::testing

int main(int argc, char** argv) { return rondo::testing::run_seeds_over_both_streams(argc, argv); }
