#include <cmath>
#include <functional>

#include "tests/life/rank.h"

namespace rondo::life {
namespace {

constexpr int kCallsToKnow = 10'000;  // of ranks that disagree, before all know

}  // namespace

Error Thread::attempt(const Step& step, Member& member, bool* got) {
  *got = false;
  if (step.verb == "split") {
    std::unique_ptr<Group> made;
    const Error error = member.group->split(static_cast<int>(step.number("color")), 0, &made);
    *got = error.ok();
    return error;
  }
  if (step.verb == "attach") return member.group->attach_device();
  if (step.verb == "sparse") {
    std::vector<float> values(static_cast<size_t>(step.number("count")), 1.0f + static_cast<float>(member.me));
    const Error error = member.group->sparse(values.data(), values.data(), values.size(), {});
    *got = error.ok();
    return error;
  }
  ++reached_[step.line];
  Flight flight = make_flight(step, seat(step, member), 0, 0, memory_);
  const Error error = member.group->run(flight.call);
  // What those give that made this call, a root for example, is right; data of another call is not.
  *got = error.ok() && flight.gets_data && !flight.check().empty();
  return error;
}

void Thread::disagree(const Step& step, Member& member) {
  if (member.size() < 2 || step.inner.size() != 2) return;
  settle(member);
  const int odd = static_cast<int>(step.number("odd")) % member.size();
  bool got = false;
  const Step& mine = step.inner[member.me == odd ? 1 : 0];
  Error error = attempt(mine, member, &got);
  if (got) fail("'" + print(mine) + "' succeeded, although not all made this call");
  // Some calls end at once on ranks that get no data; the others' failure may reach this rank behind a barrier, too.
  // What was sent to a rank that did not make the call is found when its link is used next, which a barrier by posts
  // does not: every second call uses all links.
  const auto world = static_cast<size_t>(member.size());
  std::vector<std::byte> sent(world), received(world);
  Call everywhere;
  everywhere.verb = Verb::kAllToAllV;
  everywhere.in = sent.data();
  everywhere.out = received.data();
  everywhere.dtype = DType::kUint8;
  everywhere.counts = everywhere.out_counts = std::vector<uint64_t>(world, 1);
  for (size_t i = 0; i < world; ++i) everywhere.displacements.push_back(i);
  everywhere.out_displacements = everywhere.displacements;
  for (int i = 0; i < kCallsToKnow && (error.ok() || error.code == ErrorCode::kUnsupported); ++i) {
    error = member.group->run(i % 2 == 0 ? Call{} : everywhere);
  }
  if (error.code != ErrorCode::kMismatch) fail("after '" + print(mine) + "' not MISMATCH but " + said(error));
  leave(step);
}

void Thread::bad(const Step& step, Member& member) {
  if (step.of_member("by", member.me, "1") != "1") return;
  const std::string what = step.word("what");
  Group& group = *member.group;
  if (!group.can_say(what)) return;
  std::vector<float> values(1000, 1.5f), residual(1000, 0.5f);
  const std::vector<float> before = values, residual_before = residual;
  const std::vector<uint64_t> wrapping = {UINT64_MAX - 9, values.size() + 10};
  std::unique_ptr<Group> made;
  SparseOptions options;
  options.residual = residual.data();
  Call call;
  call.verb = Verb::kAllReduce;
  call.in = call.out = values.data();
  call.count = 4;
  const auto in_batch = [&](const auto& function) {
    must(group.batch_begin(), "batch_begin: ");
    const Error error = function();
    must(group.batch_end(nullptr), "batch_end after " + what + ": ");
    return error;
  };
  const auto sparse = [&] { return group.sparse(values.data(), values.data(), values.size(), options); };
  const auto with = [&](auto Call::*field, auto value) { return call.*field = value, group.run(call); };
  const auto as = [&](Verb verb, auto Call::*field, auto value) { return call.verb = verb, with(field, value); };
  const std::map<std::string, std::function<Error()>> mistakes = {
      {"sparse_in_batch", [&] { return in_batch(sparse); }},
      {"split_in_batch", [&] { return in_batch([&] { return group.split(0, 0, &made); }); }},
      {"new_group_in_batch", [&] { return in_batch([&] { return group.new_group({member.me}, &made); }); }},
      {"begin_in_batch", [&] { return in_batch([&] { return group.batch_begin(); }); }},
      {"end", [&] { return group.batch_end(nullptr); }},
      {"spars", [&] { return options.spars = 0, sparse(); }},
      {"sparse_timeout", [&] { return options.timeout = std::chrono::milliseconds(-1), sparse(); }},
      {"threshold", [&] { return options.select = Select::kThreshold, options.spars = -1, sparse(); }},
      {"not_a_number", [&] { return options.spars = std::nan(""), sparse(); }},
      {"overlap_residual", [&] { return options.residual = values.data() + 1, sparse(); }},
      {"tensors", [&] { return options.tensors = wrapping, sparse(); }},
      {"null", [&] { return call.in = nullptr, with(&Call::out, nullptr); }},
      {"op", [&] { return with(&Call::op, Op::kBitAnd); }},
      {"timeout", [&] { return call.options.timeout = std::chrono::milliseconds(-1), group.run(call); }},
      {"user", [&] { return with(&Call::op, Op::kUser); }},
      {"user_bytes",
       [&] {
         return call.options.user = {[](const void*, void*, size_t, void*) {}, nullptr, 0}, with(&Call::op, Op::kUser);
       }},
      {"wire", [&] { return call.options.wire.format = WireFormat::kInt8, with(&Call::dtype, DType::kInt32); }},
      {"overlap", [&] { return with(&Call::out, values.data() + 1); }},
      {"root", [&] { return as(Verb::kBroadcast, &Call::root, member.size()); }},
      {"peer", [&] { return as(Verb::kSend, &Call::root, member.size()); }},
      {"tag", [&] { return as(Verb::kSend, &Call::tag, -5); }},
      {"counts",
       [&] { return as(Verb::kAllGatherV, &Call::counts, std::vector<uint64_t>(member.ranks.size() + 1, 1)); }},
      {"length", [&] { return with(&Call::count, UINT64_MAX / 2); }},
  };
  const Error error = mistakes.at(what)();
  if (error.code != ErrorCode::kInvalid) fail("must be INVALID, is " + said(error));
  if (values != before || residual != residual_before) fail("INVALID changed memory");
  if (!group.error().ok()) fail("the group has failed: " + said(group.error()));
}

}  // namespace rondo::life
