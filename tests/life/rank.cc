#include "tests/life/rank.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace rondo::life {

std::string said(const Error& error) {
  std::string ranks;
  for (int rank : error.ranks) ranks += " " + std::to_string(rank);
  return std::string(error_code_name(error.code)) + " [" + (ranks.empty() ? "" : ranks.substr(1)) + "] " +
         error.message;
}

bool blames(const Error& error, int rank) {
  return std::find(error.ranks.begin(), error.ranks.end(), rank) != error.ranks.end();
}

Thread::Thread(const Life& life, int process, int thread, Report& report, Group* job)
    : life_(life), process_(process), thread_(thread), report_(report), memory_(job) {}

Thread::~Thread() = default;

void Thread::fail(const std::string& what) {
  std::string text = what;
  if (now_ != nullptr) {
    text = "line " + std::to_string(now_->line) + ", time " + std::to_string(reached_[now_->line]) + " (" +
           print(*now_) + "): " + what;
  }
  throw Over(text);
}

void Thread::must(const Error& error, const std::string& what) {
  if (!error.ok()) fail(what + said(error));
}

void Thread::play(Group* group, std::unique_ptr<Group> owned) {
  try {
    Member& first = groups_[0];
    first.group = group;
    first.owned = std::move(owned);
    first.me = group->rank();
    first.ranks.resize(static_cast<size_t>(group->size()));
    std::iota(first.ranks.begin(), first.ranks.end(), 0);
    const std::vector<Step>& steps = life_.threads[static_cast<size_t>(thread_)];
    const size_t begin = life_.first_step(process_);
    if (begin > 0) welcome(first);
    for (size_t i = begin; i < steps.size(); ++i) play(steps[i]);
    finish_all();
    while (!groups_.empty()) drop(groups_.rbegin()->first);
  } catch (const std::exception& error) {
    // What another rank found is in that one's report.
    if (std::strstr(error.what(), kOurAbort) != nullptr) {
      report_.fault_of_another();
    } else if (error.what()[0] != 0) {
      report_.fault(error.what());
    }
    for (auto& [number, member] : groups_) member.group->abort(kOurAbort);
    group->abort(kOurAbort);
    // Operations under way end before their memory does.
    for (auto& [number, slot] : slots_) {
      if (slot.handle) slot.handle->wait();
    }
    for (auto& [number, member] : groups_) member.await_sends();
    slots_.clear();
    groups_.clear();
  }
}

void Thread::play(const std::vector<Step>& steps) {
  for (const Step& step : steps) play(step);
}

void Thread::play(const Step& step) {
  using Play = void (Thread::*)(const Step&, Member&);
  static const std::map<std::string, Play, std::less<>> kVerbs = {
      {"split", &Thread::make_split},
      {"new_group", &Thread::make_new_group},
      {"drop", &Thread::drop_group},
      {"floats", &Thread::set_floats},
      {"free", &Thread::free_memory},
      {"wait", &Thread::end_work},
      {"poll", &Thread::end_work},
      {"drop_work", &Thread::end_work},
      {"batch", &Thread::batch},
      {"exchange", &Thread::exchange},
      {"collect", &Thread::collect_named},
      {"crowd", &Thread::crowd},
      {"shift", &Thread::shift},
      {"sparse", &Thread::sparse},
      {"distopt", &Thread::distopt},
      {"bad", &Thread::bad},
      {"disagree", &Thread::disagree},
      {"abort", &Thread::departure},
      {"leave", &Thread::departure},
      {"kill", &Thread::departure},
      {"hostile", &Thread::hostile},
      {"lose", &Thread::lose},
      {"grow", &Thread::grow},
      {"commit", &Thread::commit},
  };
  if (step.verb == "repeat") {
    for (int64_t i = 0; i < step.number("times"); ++i) play(step.inner);
    return;
  }
  now_ = &step;
  ++reached_[step.line];
  report_.at(thread_, step.line);
  const auto member = groups_.find(static_cast<int>(step.number("group")));
  if (member == groups_.end()) return;
  if (is_collective(step.verb)) return collective(step, member->second);
  const auto verb = kVerbs.find(step.verb);
  if (verb == kVerbs.end()) fail("no step has this name");
  (this->*verb->second)(step, member->second);
}

void Thread::set_floats(const Step& step, Member& member) {
  floats_ = std::stoi(step.of_member("mode", member.me, "0")) % testing::kFloatModes;
}

Seat Thread::seat(const Step& step, const Member& member) {
  const bool random = step.word("data") == "random";
  const auto salt = static_cast<uint64_t>(step.number("salt"));
  return {member.size(), member.me, random ? salt : salt + reached_[step.line] - 1};
}

void Thread::free_memory(const Step&, Member&) {
  finish_all();
  memory_.free_registered(kDeferredSlot);
}

// --- Groups

void Thread::Member::await_sends() {
  for (auto& [name, traffic] : deferred) {
    for (auto& send : traffic.sending) send->wait();
  }
}

// ranks: of the parent, in the order of the new group.
void Thread::keep_group(const Step& step, const Member& parent, const std::vector<int>& ranks,
                        std::unique_ptr<Group> owned) {
  Member made;
  made.group = owned.get();
  made.owned = std::move(owned);
  for (const int rank : ranks) {
    if (rank == parent.me) made.me = made.size();
    made.ranks.push_back(parent.ranks[static_cast<size_t>(rank)]);
  }
  groups_[static_cast<int>(step.number("as"))] = std::move(made);
}

void Thread::make_split(const Step& step, Member& parent) {
  drop_old(step);
  const auto color_of = [&](int m) { return std::stoi(step.of_member("color", m, "0")); };
  const auto key_of = [&](int m) { return std::stoi(step.of_member("key", m, "0")); };
  const int mine = color_of(parent.me);
  std::vector<int> ranks;
  for (int m = 0; m < parent.size(); ++m) {
    if (color_of(m) == mine) ranks.push_back(m);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return key_of(a) < key_of(b); });
  std::unique_ptr<Group> made;
  must(parent.group->split(mine, key_of(parent.me), &made), "");
  if ((mine >= 0) != (made != nullptr)) fail("gave a group where the color is none, or none");
  if (mine >= 0) keep_group(step, parent, ranks, std::move(made));
}

void Thread::make_new_group(const Step& step, Member& parent) {
  drop_old(step);
  std::vector<int> ranks;
  for (uint64_t r : step.numbers("ranks")) {
    const int rank = static_cast<int>(r) % parent.size();
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.push_back(rank);
  }
  if (std::find(ranks.begin(), ranks.end(), parent.me) == ranks.end()) return;
  std::unique_ptr<Group> made;
  must(parent.group->new_group(ranks, &made), "");
  keep_group(step, parent, ranks, std::move(made));
}

// The group that had the number of the new one.
void Thread::drop_old(const Step& step) {
  const auto as = static_cast<int>(step.number("as"));
  if (as != 0 && groups_.count(as) != 0) drop(as);
}

void Thread::drop_group(const Step& step, Member&) {
  if (step.number("group") != 0) drop(static_cast<int>(step.number("group")));
}

void Thread::drop(int number) {
  Member& member = groups_.at(number);
  for (int slot = 1; slot < kSlots; ++slot) {
    const auto found = slots_.find(slot);
    if (found != slots_.end() && found->second.member == &member) finish(slot);
  }
  if (member.owned == nullptr) {
    collect_all(member);
  } else {  // nobody receives what is deferred: it ends, well or in words
    must(member.group->destroy(), "destroy: ");
    member.await_sends();
  }
  groups_.erase(number);
}

void Thread::settle(Member& member) {
  collect_all(member);
  finish_all();
}

void Thread::leave(const Step& step) {
  const auto number = static_cast<int>(step.number("group"));
  if (number == 0) throw Over("");
  drop(number);
}

}  // namespace rondo::life
