#include <algorithm>
#include <utility>

#include "tests/life/rank.h"

namespace rondo::life {

// Batches under way may have messages whose tags a later line uses, too.
void Thread::finish_messages() {
  for (int slot = 1; slot < kSlots; ++slot) {
    const auto found = slots_.find(slot);
    if (found != slots_.end() && found->second.is_batch) finish(slot);
  }
}

void Thread::arrive(MessageList& list, Flight& flight, const rondo::Message& got, Member& member) {
  if (const std::string wrong = list.arrived(flight, got); !wrong.empty()) fail(wrong);
  check(flight, member);
}

void Thread::probe(Call& receive, Member& member) {
  Call probe = receive;
  probe.verb = Verb::kMatchedProbe;
  rondo::Message found;
  must(member.group->run(probe, &found), "mprobe: ");
  receive.matched = found.matched;
}

void Thread::send_all(Traffic& traffic, int slot, Member& member) {
  for (size_t k = 0; k < traffic.list.size(); ++k) {
    if (!traffic.list.sends(k)) continue;
    traffic.sends.push_back(traffic.list.send(k, slot, memory_));
    traffic.sending.emplace_back();
    must(member.group->start(traffic.sends.back().call, &traffic.sending.back()), "send: ");
  }
}

void Thread::receive_all(Traffic& traffic, const std::string& how, Member& member) {
  std::vector<size_t> mine;
  for (size_t k = 0; k < traffic.list.size(); ++k) {
    if (traffic.list.receives(k)) mine.push_back(k);
  }
  // Messages of one pair and tag stay in order: the kth posted of them gets the kth sent.
  if (how == "reverse") std::reverse(mine.begin(), mine.end());
  for (const size_t k : mine) {
    traffic.receives.push_back(traffic.list.receive(k, kMessageSlot, memory_));
    Call& call = traffic.receives.back().call;
    if (how == "any" || how == "tag") call.root = kAnySource;
    if (how == "any" || how == "source") call.tag = kAnyTag;
    if (traffic.probes) probe(call, member);
    traffic.receiving.emplace_back();
    must(member.group->start(call, &traffic.receiving.back()), "recv: ");
  }
}

void Thread::wait_for(Traffic& traffic, Member& member) {
  for (size_t i = 0; i < traffic.receiving.size(); ++i) {
    must(traffic.receiving[i]->wait(), "recv: ");
    arrive(traffic.list, traffic.receives[i], traffic.receiving[i]->message(), member);
  }
  for (size_t i = 0; i < traffic.sending.size(); ++i) {
    must(traffic.sending[i]->wait(), "send: ");
    check(traffic.sends[i], member);
  }
}

void Thread::exchange_blocking(Traffic traffic, Member& member) {
  MessageList& list = traffic.list;
  for (size_t k = 0; k < list.size(); ++k) {
    const std::string which = " of message " + std::to_string(k) + ": ";
    if (list.sends(k)) {
      Flight flight = list.send(k, kMessageSlot, memory_);
      must(member.group->run(flight.call), "send" + which);
      check(flight, member);
    } else if (list.receives(k)) {
      Flight flight = list.receive(k, kMessageSlot, memory_);
      rondo::Message got;
      if (traffic.probes) probe(flight.call, member);
      must(member.group->run(flight.call, &got), "recv" + which);
      arrive(list, flight, got, member);
    }
  }
}

void Thread::exchange(const Step& step, Member& member) {
  finish_messages();
  const std::string mode = step.word("mode", "async"), name = step.word("name");
  if (mode == "defer") collect(name, member);  // a name in use
  Traffic traffic{MessageList(step, seat(step, member)), step.number("probe") != 0 && mode != "async"};
  if (mode == "blocking") return exchange_blocking(std::move(traffic), member);
  if (mode == "defer") {
    // Memory of its own for each name of each group.
    send_all(traffic, kDeferredSlot + static_cast<int>(10 * step.number("group")) + name_number(step), member);
    member.deferred.emplace(name, std::move(traffic));
    return;
  }
  std::string how = step.word("recv", "exact");
  if (how != "reverse" && !member.deferred.empty()) how = "exact";
  const bool apart = how == "any" || how == "source" || how == "tag";
  const auto barrier = [&](bool wanted) {
    if (wanted) must(member.group->run(Call{}), "barrier: ");
  };
  barrier(apart);
  if (mode == "async") receive_all(traffic, how, member);
  send_all(traffic, kMessageSlot, member);
  barrier(mode == "late");
  if (mode == "late") receive_all(traffic, how, member);
  wait_for(traffic, member);
  barrier(apart);
}

void Thread::collect_named(const Step& step, Member& member) { collect(step.word("name"), member); }

void Thread::collect_all(Member& member) {
  while (!member.deferred.empty()) collect(member.deferred.begin()->first, member);
}

void Thread::collect(const std::string& name, Member& member) {
  const auto found = member.deferred.find(name);
  if (found == member.deferred.end()) return;
  receive_all(found->second, "exact", member);
  wait_for(found->second, member);
  member.deferred.erase(found);
}

void Thread::shift(const Step& step, Member& member) {
  finish_messages();
  pass_on(step, seat(step, member), static_cast<int>(step.number("tag")), memory_, member);
}

// May run on any thread, each with its own memory.
void Thread::pass_on(const Step& step, const Seat& here, int tag, Memory& memory, Member& member) {
  const int n = member.size(), by = static_cast<int>(step.number("by", 1)) % n;
  if (by == 0) return;
  const auto count = static_cast<uint64_t>(step.number("count"));
  MessageList to(step, here, {{member.me, (member.me + by) % n, tag, count}});
  MessageList from(step, here, {{(member.me + n - by) % n, member.me, tag, count}});
  Flight out = to.send(0, kMessageSlot, memory), in = from.receive(0, kMessageSlot, memory);
  Call call = in.call;
  call.verb = Verb::kSendRecv;
  call.in = out.call.in;
  call.to = to[0].dst;
  rondo::Message got;
  must(member.group->run(call, &got), "");
  std::string wrong = from.arrived(in, got);
  if (wrong.empty()) wrong = in.check() + out.check();
  if (!wrong.empty()) fail(wrong);
}

}  // namespace rondo::life
