// A process is told from its forked children.
#include "ring/engine/progress/fork_mark.h"

#include <doctest/doctest.h>

#include <functional>

#include "tests/support/child.h"

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

}  // namespace

TEST_CASE("marks of a process are those of no other one") { CHECK(holds_in_child(tells_apart)); }

}  // namespace rondo::testing
