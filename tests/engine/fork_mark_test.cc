// A process is told from its forked children.
#include "ring/engine/progress/fork_mark.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tests/support/rank_group.h"

namespace rondo::testing {
namespace {

// Whether it holds in a forked child.
bool in_child(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(holds() ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return status == 0;
}

bool tells_apart() {
  const ForkMark parents;
  return parents.same_process() && in_child([&] {
           const ForkMark childs;
           return !parents.same_process() && childs.same_process() &&
                  in_child([&] { return !parents.same_process() && !childs.same_process(); }) && childs.same_process();
         }) &&
         parents.same_process() && ForkMark().same_process();
}

}  // namespace

TEST_CASE("marks of a process are those of no other one") { CHECK(in_child(tells_apart)); }

TEST_CASE("a child that uses its parent's communicator is refused") {
  const RankGroup group;
  CHECK(run_processes(group, [](Communicator& communicator) {
          float sum = 1;
          communicator.all_reduce(&sum, &sum, 1, DType::kFloat32);
          expect(sum == 2, "a wrong sum");
          const bool refused = in_child([&] {
            try {
              communicator.barrier();
              return false;
            } catch (const Exception& e) {
              return e.code() == ErrorCode::kInvalid;
            }
          });
          expect(refused, "a child used its parent's communicator");
          communicator.barrier();
        }) == "");
}

}  // namespace rondo::testing
