// Proves how long a yes of the program's function ends waits of its thread.
#include "ring/base/interrupt.h"

#include <doctest/doctest.h>

#include "rondo/interrupt.h"

namespace rondo {

TEST_CASE("a yes stands for waits of a start until it is taken, and for calls of a communicator once") {
  set_thread_interrupt_function([](void*) { return 1; }, nullptr);
  CHECK(call_interrupted());
  set_thread_interrupt_function(nullptr, nullptr);
  CHECK(wait_interrupted());
  CHECK_FALSE(call_interrupted());
  CHECK(take_interruption());
  CHECK_FALSE(wait_interrupted());
}

}  // namespace rondo
