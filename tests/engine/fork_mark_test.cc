// A process is told from its forked children, also where the kernel wipes no page for that.
#include "ring/engine/progress/fork_mark.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <functional>

#include "tests/support/child.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"
#include "tests/support/refuse.h"

namespace rondo::testing {
namespace {

bool holds_in_child(const std::function<bool()>& holds) {
  return in_child([&] { return holds() ? 0 : 1; }) == 0;
}

bool tells_apart() {
  const ForkMark parents;
  return parents.same_process() && holds_in_child([&] {
           const ForkMark childs;
           return !parents.same_process() && childs.same_process() &&
                  holds_in_child([&] { return !parents.same_process() && !childs.same_process(); }) &&
                  childs.same_process();
         }) &&
         parents.same_process() && ForkMark().same_process();
}

void refuse_to_wipe() { refuse({.call = SYS_madvise, .value = MADV_WIPEONFORK, .argument = 2, .error = EINVAL}); }

}  // namespace

TEST_CASE("marks of a process are those of no other one, wiped by the kernel or not") {
  CHECK(holds_in_child(tells_apart));
  CHECK(holds_in_child([] {
    refuse_to_wipe();
    return tells_apart();
  }));
}

TEST_CASE("ranks run where the kernel wipes no page, and their children are refused") {
  RankGroup group;
  group.before = [](int) { refuse_to_wipe(); };
  CHECK(run_processes(group, [](Communicator& communicator) {
          float sum = 1;
          communicator.all_reduce(&sum, &sum, 1, DType::kFloat32);
          expect(sum == 2, "a wrong sum");
          const auto refused = [&] { return code_of([&] { communicator.barrier(); }) == ErrorCode::kInvalid; };
          expect(holds_in_child(refused), "a child used its parent's communicator");
          communicator.barrier();
        }) == "");
}

}  // namespace rondo::testing
