#include "tests/life/rank.h"

#include <signal.h>
#include <unistd.h>

namespace rondo::life {

Error Thread::sum_until_failure(Member& member) {
  std::vector<float> values(5000, 1);
  Call call;
  call.verb = Verb::kAllReduce;
  call.in = call.out = values.data();
  call.count = values.size();
  for (;;) {
    if (Error error = member.group->run(call); !error.ok()) return error;
  }
}

void Thread::departure(const Step& step, Member& member) {
  if (member.size() < 2) return;
  settle(member);
  const int by = static_cast<int>(step.number("by")) % member.size();
  const ErrorCode code = step.verb == "leave"  ? ErrorCode::kPeerLeft
                         : step.verb == "kill" ? ErrorCode::kPeerLost
                                               : ErrorCode::kAborted;
  // Nobody dies while others are in the lines before; in the barrier it may.
  Error error;
  if (step.verb == "kill") error = member.group->run(Call{});
  if (member.me == by) {
    must(error, "barrier: ");
    if (step.verb == "kill") ::kill(::getpid(), SIGKILL);
    if (step.verb == "leave") return leave(step);
    must(member.group->abort("this rank has had enough"), "");
    error = member.group->run(Call{});
  } else if (error.ok()) {
    error = sum_until_failure(member);
  }
  // The error may name any rank that left, also one that left because `by` did (guide.md: "look for an earlier error on
  // the named rank").
  const bool named = step.verb == "leave" ? !error.ranks.empty() && !blames(error, member.me) : blames(error, by);
  if (error.code != code || !named) {
    fail("must be " + std::string(error_code_name(code)) + " naming " + std::to_string(by) + ", is " + said(error));
  }
  leave(step);
}

}  // namespace rondo::life
