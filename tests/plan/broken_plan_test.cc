#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "ring/plan/plan_builder.h"
#include "ring/plan/verify.h"
#include "tests/plan/plans.h"

// Each test breaks sound plans in one way and expects the verifier to refuse them, saying where and why.
namespace rondo {
namespace {

using Plans = std::vector<Plan>;

Plans sound(Collective collective, Algorithm algorithm, int world, int root = 0) {
  Plans plans = plans_of_all_ranks(request_of(collective, algorithm, one_island_of(world), root));
  const Verdict verdict = verify(plans);
  REQUIRE_EQ(verdict.failure, "");
  return plans;
}

Step& step(Plans& plans, size_t rank, uint32_t s) { return plans[rank].steps[s]; }
Ref& source(Plans& plans, size_t rank, uint32_t s, uint32_t i) {
  return plans[rank].refs[step(plans, rank, s).first + i];
}
Ref& target(Plans& plans, size_t rank, uint32_t s, uint32_t i) {
  const Step& at = step(plans, rank, s);
  return plans[rank].refs[at.first + at.sources + i];
}

void append(Plan& plan, const std::vector<Ref>& sources, const std::vector<Ref>& targets, uint16_t flags = 0) {
  Step added;
  added.first = static_cast<uint32_t>(plan.refs.size());
  added.sources = static_cast<uint8_t>(sources.size());
  added.targets = static_cast<uint8_t>(targets.size());
  added.flags = flags;
  plan.refs.insert(plan.refs.end(), sources.begin(), sources.end());
  plan.refs.insert(plan.refs.end(), targets.begin(), targets.end());
  plan.steps.push_back(added);
}

void refused(const Plans& plans, const std::string& why, Scaling scaling = Scaling::kAtFold) {
  const Verdict verdict = verify(plans, scaling);
  CHECK_FALSE(verdict.ok);
  INFO("it says: " << verdict.failure);
  CHECK_NE(verdict.failure.find(why), std::string::npos);
}

// Plans made by hand, one function a rank.
Plans by_hand(Collective collective, int world, uint32_t blocks, uint32_t max_peers,
              const std::function<void(PlanBuilder&)>& write) {
  Plans plans;
  PlanRequest request = request_of(collective, Algorithm::kRing, one_host(world));
  for (request.rank = 0; request.rank < world; ++request.rank) {
    PlanBuilder b(request, blocks, max_peers);
    write(b);
    plans.push_back(b.take());
  }
  return plans;
}

Plans ring4() { return sound(Collective::kAllReduce, Algorithm::kRing, 4); }

}  // namespace

TEST_CASE("a block stored in another's place is refused") {
  Plans plans = ring4();
  target(plans, 1, 6, 0).block = 2;
  source(plans, 1, 6, 0).block = 2;
  step(plans, 1, 6).after = 3;
  refused(plans, "rank 1, step 6 (mailbox 0 -> output 2): expects another block than rank 0 sends");
}

TEST_CASE("a step that mixes two blocks is refused") {
  Plans plans = ring4();
  source(plans, 1, 1, 1).block = 3;
  refused(plans, "mixes blocks 0 and 3");
}

TEST_CASE("an overwriting step that waits for nothing is refused") {
  Plans plans = ring4();
  step(plans, 1, 4).after = kNoStep;
  refused(plans,
          "rank 1, step 4 (mailbox 0 -> output 1, mailbox 2): overwrites output 1, which step 0 may still "
          "be sending; it waits for nothing");
}

TEST_CASE("an overwriting step that waits for an earlier reader than the last is refused") {
  Plans plans = sound(Collective::kAllReduce, Algorithm::kRecursiveDoubling, 16);
  REQUIRE_EQ(step(plans, 0, 3).after, 1);  // slot 0 again, sent from by step 1
  step(plans, 0, 3).after = 0;
  refused(plans, "overwrites scratch 0/0, which step 1 may still be sending; it waits for step 0 only");
}

TEST_CASE("a slice that may land before an earlier fold reads the memory is refused") {
  Plans plans = ring4();
  step(plans, 1, 5).after = 0;
  refused(plans, "overwrites output 0, which step 1 may yet have to use");
}

TEST_CASE("a step that waits for itself is refused") {
  Plans plans = ring4();
  step(plans, 1, 4).after = 4;
  refused(plans, "waits for itself or a later step");
}

TEST_CASE("a step that waits for a step on other memory is refused: the other block may be shorter or empty") {
  Plans plans = ring4();
  REQUIRE_EQ(step(plans, 1, 6).after, 2);
  step(plans, 1, 6).after = 5;
  refused(plans, "rank 1, step 6 (mailbox 0 -> output 3): waits for step 5, which does not use the memory");
  plans = ring4();
  step(plans, 1, 1).after = 0;
  refused(plans, "rank 1, step 1 (mailbox 0* + input 0* -> mailbox 2): waits for step 0, which does not use");
}

TEST_CASE("a missing wait, a second finish, a missing scale and another barrier are refused") {
  Plans plans = ring4();
  step(plans, 1, 4).after = kNoStep;
  refused(plans, "rank 1, step 4 (");
  plans = ring4();
  step(plans, 1, 4).flags = kFinish;
  refused(plans, "folds a value that is finished already");
  plans = ring4();
  source(plans, 1, 1, 0).flags = 0;
  refused(plans, "rank 1, step 1 (");
  plans = sound(Collective::kAllReduce, Algorithm::kStaged, 3);
  REQUIRE_EQ(step(plans, 1, 3).barrier, 1);
  step(plans, 1, 3).barrier = 2;
  refused(plans, "waits at barrier 2, and rank 2 signals at 1");
}

TEST_CASE("ranks that wait at a barrier before they arrive at it are refused") {
  Plans plans = sound(Collective::kAllGather, Algorithm::kStaged, 3);
  for (size_t r = 0; r < plans.size(); ++r) std::swap(step(plans, r, 1), step(plans, r, 2));
  refused(plans, "waits for ever for a slice from rank 1");
  const Verdict verdict = verify_progress(plans, 2, 3);
  CHECK_NE(verdict.failure.find("waits for ever for the arrival at a barrier of rank 1"), std::string::npos);
  INFO("it says: " << verdict.failure);
}

TEST_CASE("a barrier at which no rank arrives is refused") {
  Plans plans = sound(Collective::kAllGather, Algorithm::kStaged, 3);
  for (size_t r = 0; r < plans.size(); ++r) {  // the second barrier: only waits are left
    const uint32_t last = static_cast<uint32_t>(plans[r].steps.size()) - 1;
    REQUIRE_EQ(step(plans, r, last - 1).barrier, 2);
    step(plans, r, last - 1) = step(plans, r, last);
    plans[r].steps.pop_back();
  }
  refused(plans, "waits for ever for a slice from rank");
  CHECK_NE(verify_progress(plans, 1, 2).failure.find("arrival at a barrier"), std::string::npos);
}

TEST_CASE("a rank that arrives at one barrier twice is refused: all who wait see one number") {
  Plans plans = sound(Collective::kAllGather, Algorithm::kStaged, 3);
  // To each of the others by a step of its own.
  Step& all = step(plans, 0, 1);
  REQUIRE_EQ(all.targets, 2);
  Step second = all;
  all.targets = second.targets = 1;
  ++second.first;
  plans[0].steps.insert(plans[0].steps.begin() + 2, second);
  refused(plans, "rank 0, step 2 (signal mailbox 2 [each round] [barrier 1]): arrives at one barrier twice");
}

TEST_CASE("signals outside of barriers over windows, and barriers without windows, are refused") {
  Plans plans = sound(Collective::kAllGather, Algorithm::kStaged, 3);
  step(plans, 1, 1).barrier = 0;
  refused(plans, "rank 1, step 1 (signal mailbox 2, mailbox 0 [each round]): a signal outside of a barrier");
  plans = sound(Collective::kBarrier, Algorithm::kRing, 3);
  step(plans, 1, 0).barrier = 1;
  refused(plans, "a barrier in a collective without windows");
}

TEST_CASE("a scan out of the order of the ranks, or of other ranks, is refused") {
  Plans plans = sound(Collective::kScan, Algorithm::kDirect, 3);
  std::swap(source(plans, 2, 0, 0), source(plans, 2, 0, 1));
  refused(plans, "rank 2: output 0 is not folded in the order of the ranks: (r1[0]* + r0[0]* + r2[0]*)");
  plans = sound(Collective::kScan, Algorithm::kRing, 3);
  std::swap(source(plans, 1, 0, 0), source(plans, 1, 0, 1));
  refused(plans, "is not folded in the order of the ranks");
  plans = sound(Collective::kExscan, Algorithm::kDirect, 3);
  plans[2].collective = plans[1].collective = plans[0].collective = Collective::kScan;
  refused(plans, "is never written");
  plans = sound(Collective::kScan, Algorithm::kRing, 3);
  for (Plan& plan : plans) plan.collective = Collective::kExscan;
  refused(plans, "rank 0, step 0");
}

TEST_CASE("one rank with another root is refused, by its call and by what it does") {
  Plans plans = sound(Collective::kBroadcast, Algorithm::kTree, 4, 0);
  Plans other = sound(Collective::kBroadcast, Algorithm::kTree, 4, 1);
  plans[2] = other[2];
  refused(plans, "plan 2 is of another call");
  plans[2].root = 0;
  CHECK_FALSE(verify(plans).ok);
}

TEST_CASE("data from another rank than the root is refused") {
  Plans plans = sound(Collective::kBroadcast, Algorithm::kDirect, 2, 0);
  Plans other = sound(Collective::kBroadcast, Algorithm::kDirect, 2, 1);
  std::swap(plans, other);
  for (Plan& plan : plans) plan.root = 0;
  refused(plans, "rank 1, step 0 (input 0 -> mailbox 0, output 0): reads input 0, which this rank does not have");
}

TEST_CASE("a contribution folded twice is refused") {
  const Plans plans = by_hand(Collective::kAllReduce, 2, 1, 1, [](PlanBuilder& b) {
    const int peer = 1 - b.rank();
    b.send(0, peer);
    const Ref parts[3] = {b.rank() == 0 ? b.own(0) : b.from_input(0, 0), b.rank() == 0 ? b.from_input(1, 0) : b.own(0),
                          b.own(0)};
    const Ref output = b.output(0);
    b.step(parts, {&output, 1}, kFinish);
  });
  refused(plans, "has the contribution of rank 0 2 times");
}

TEST_CASE("a contribution left out is refused") {
  Plans plans = sound(Collective::kReduce, Algorithm::kRing, 3, 0);
  Step& middle = step(plans, 2, 0);  // passes rank 1's contribution on to the root
  REQUIRE_EQ(middle.sources, 2);
  source(plans, 2, 0, 0).flags = 0;
  plans[2].refs[middle.first + 1] = {Space::kOutput, 0, 0, 0};
  refused(plans, "touches output 0, which is not this rank's");
  plans[2].refs[middle.first + 1] = {Space::kScratch, 0, 0, 0};
  plans[2].scratch_slots = 1;
  refused(plans, "reads scratch 0/0 before it is written");
}

TEST_CASE("a result that is not finished is refused, and so is one finished twice") {
  Plans plans = ring4();
  step(plans, 1, 3).flags = 0;
  refused(plans, "output 2 is not finished");
  plans = ring4();
  step(plans, 2, 4).flags = kFinish;
  refused(plans, "folds a value that is finished already");
}

TEST_CASE("an order of folding that differs on one rank is refused") {
  Plans plans = sound(Collective::kAllReduce, Algorithm::kDirect, 3);
  std::swap(source(plans, 2, 1, 0), source(plans, 2, 1, 1));
  refused(plans,
          "output 0 is folded as finish(r1[0]* + r0[0]* + r2[0]*), on rank 0 as finish(r0[0]* + r1[0]* + r2[0]*)");
}

TEST_CASE("the same operands under other brackets are refused") {
  Plans plans = sound(Collective::kAllReduce, Algorithm::kDirect, 3);
  const std::vector<Ref> parts = {source(plans, 2, 1, 0), source(plans, 2, 1, 1), source(plans, 2, 1, 2)};
  plans[2].steps.pop_back();
  plans[2].scratch_slots = 1;
  const Ref scratch{Space::kScratch, 0, 0, 0};
  append(plans[2], {parts[0], parts[1]}, {scratch});
  append(plans[2], {scratch, parts[2]}, {{Space::kOutput, 0, 0, 0}}, kFinish);
  plans[2].steps.back().after = 0;
  refused(plans, "is folded as finish((r0[0]* + r1[0]*) + r2[0]*)");
}

TEST_CASE("ranks that all wait first are refused") {
  const Plans plans = by_hand(Collective::kAllToAll, 2, 2, 1, [](PlanBuilder& b) {
    const uint32_t peer = static_cast<uint32_t>(1 - b.rank());
    b.recv_copy(peer, 1 - b.rank());
    b.send(peer, 1 - b.rank());
    b.copy(static_cast<uint32_t>(b.rank()), static_cast<uint32_t>(b.rank()));
  });
  refused(plans, "waits for ever for a slice from rank 1");
}

TEST_CASE("ranks that send more than the links hold before they receive are refused") {
  const Plans plans = by_hand(Collective::kAllReduce, 2, 3, 1, [](PlanBuilder& b) {
    const int peer = 1 - b.rank();
    for (uint32_t c = 0; c < 3; ++c) b.send(c, peer);
    for (uint32_t c = 0; c < 3; ++c) {
      if (b.rank() == 0) b.step({b.own(c), b.from_input(peer, c)}, {b.output(c)}, kFinish);
      if (b.rank() == 1) b.step({b.from_input(peer, c), b.own(c)}, {b.output(c)}, kFinish);
    }
  });
  CHECK(verify_values(plans).ok);
  CHECK(verify_progress(plans, 1, 3).ok);
  refused(plans, "with 1 slices a chunk and depth 2, rank 0, step 2 (input 2 -> mailbox 1)");
}

TEST_CASE("a send that nobody receives is refused") {
  Plans plans = ring4();
  append(plans[0], {{Space::kInput, 0, 0, 0}}, {{Space::kMailbox, 0, 1, 0}});
  refused(plans, "rank 1: 1 blocks from rank 0 are never received");
}

TEST_CASE("an output that is never written is refused") {
  Plans plans = ring4();
  plans[1].scratch_slots = 1;
  target(plans, 1, 5, 0).space = Space::kScratch;
  step(plans, 1, 5).after = kNoStep;
  refused(plans, "rank 1: output 0 is never written");
}

TEST_CASE("a receive that nobody sends is refused") {
  Plans plans = ring4();
  append(plans[0], {{Space::kMailbox, 0, 3, 1}}, {{Space::kOutput, 0, 0, 1}});
  plans[0].steps.back().after = 3;
  refused(plans, "waits for ever for a slice from rank 3");
}

TEST_CASE("mailboxes of ranks that are no peers are refused") {
  Plans plans = ring4();
  target(plans, 1, 0, 0).peer = 3;
  refused(plans, "mailbox 3, which is not among its peers");
  target(plans, 1, 0, 0).peer = 1;
  refused(plans, "mailbox 1, which is no peer");
  target(plans, 1, 0, 0).peer = 9;
  refused(plans, "mailbox 9, which is no peer");
}

TEST_CASE("peers that do not fit are refused") {
  Plans plans = ring4();
  plans[1].peers = {0, 2, 3};
  refused(plans, "rank 1 has peer 3, which does not have it");
  plans = ring4();
  plans[1].peers.push_back(3);
  plans[3].peers.insert(plans[3].peers.begin() + 1, 1);
  refused(plans, "a peer without a mailbox");
  plans = ring4();
  for (Plan& plan : plans) plan.max_peers = 3;
  refused(plans, "max_peers is 3, but a rank has 2 peers");
}

TEST_CASE("one mailbox twice in a step is refused") {
  Plans plans = sound(Collective::kAllReduce, Algorithm::kDirect, 3);
  target(plans, 1, 0, 1) = target(plans, 1, 0, 0);
  refused(plans, "uses one mailbox twice");
}

TEST_CASE("a contribution that is not scaled, or scaled twice, is refused") {
  Plans plans = ring4();
  source(plans, 1, 1, 0).flags = 0;
  refused(plans, "folds a contribution that was not scaled: r0[0]");
  plans = ring4();
  source(plans, 1, 2, 0).flags = kScale;
  refused(plans, "scales mailbox 0*, which is no raw contribution");
  plans = ring4();
  source(plans, 1, 0, 0).flags = kScale;
  refused(plans, "scales a contribution that it does not fold");
}

TEST_CASE("a contribution scaled by another rank's factor is refused where each has its own") {
  refused(ring4(), "scales mailbox 3* by its own factor, though it is of rank 3", Scaling::kAtSource);
}

TEST_CASE("a step that writes the caller's input is refused") {
  Plans plans = ring4();
  target(plans, 1, 6, 0).space = Space::kInput;
  refused(plans, "writes the caller's input 3");
}

TEST_CASE("an output written on a rank that has none is refused") {
  Plans plans = sound(Collective::kReduce, Algorithm::kDirect, 3, 0);
  append(plans[1], {{Space::kInput, 0, 0, 0}}, {{Space::kOutput, 0, 0, 0}});
  refused(plans, "rank 1, step 1 (input 0 -> output 0): touches output 0, which is not this rank's");
}

TEST_CASE("an input that a rank does not have is refused") {
  Plans plans = sound(Collective::kScatter, Algorithm::kRing, 3, 0);
  append(plans[1], {{Space::kInput, 0, 0, 1}}, {{Space::kOutput, 0, 0, 1}});
  refused(plans, "reads input 1, which this rank does not have");
}

TEST_CASE("scratch past the end, and scratch read before it is written, are refused") {
  Plans plans = sound(Collective::kAllReduce, Algorithm::kRecursiveDoubling, 4);
  target(plans, 0, 1, 0).block = 7;
  refused(plans, "uses scratch 7/0 past the scratch memory");
  plans = sound(Collective::kAllReduce, Algorithm::kRecursiveDoubling, 4);
  plans[0].scratch_slots = 3;
  source(plans, 0, 2, 0).block = 2;
  refused(plans, "reads scratch 2/0 before it is written");
}

TEST_CASE("an input that is read after its place in the output was written is refused in place only") {
  const Plans plans = by_hand(Collective::kAllReduce, 2, 1, 1, [](PlanBuilder& b) {
    if (b.rank() == 0) {
      b.send(0, 1);
      b.step({b.own(0), b.from_input(1, 0)}, {b.output(0)}, kFinish);
    } else {
      b.step({b.from_input(0, 0), b.own(0)}, {b.output(0)}, kFinish);
      b.send(0, 0);
    }
  });
  refused(plans, "in place: rank 0, step 1");
}

TEST_CASE("a step whose length nobody can tell is refused") {
  Plans plans = sound(Collective::kBroadcast, Algorithm::kRing, 3, 0);
  target(plans, 1, 0, 0) = {Space::kMailbox, 0, 0, 0};
  refused(plans, "has no memory that says how long it is");
}

TEST_CASE("a barrier that a rank can leave early is refused") {
  const Plans plans = by_hand(Collective::kBarrier, 4, 1, 2, [](PlanBuilder& b) {
    b.signal((b.rank() + 1) % 4);
    b.wait((b.rank() + 3) % 4);
  });
  refused(plans, "rank 0 leaves the barrier without having heard from rank 1");
}

TEST_CASE("a step that moves slices and uses windows at once is refused") {
  Plans plans = ring4();
  source(plans, 1, 1, 1) = {Space::kWindow, kStaging, 2, 0};
  refused(plans, "uses windows and mailboxes at once");
}

TEST_CASE("a collective that moves data over links beside windows is refused: signals do not order what a link reads") {
  const Plans plans = by_hand(Collective::kAllReduce, 2, 1, 1, [](PlanBuilder& b) {
    const int peer = 1 - b.rank();
    if (b.rank() == 1) b.step({b.input(0)}, {b.staging(1, 0)});
    b.send(0, peer);
    const Ref parts[2] = {b.rank() == 0 ? b.own(0) : b.from_input(0, 0), b.rank() == 0 ? b.from_input(1, 0) : b.own(0)};
    const Ref output = b.output(0);
    b.step(parts, {&output, 1}, kFinish);
  });
  refused(plans, "moves data over a link in a collective that uses windows");
}

}  // namespace rondo
