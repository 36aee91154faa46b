// What stands against a call on a communicator is said, at every moment of its end.
#include "ring/engine/communicator_context.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/support/errors.h"

namespace rondo::testing {

TEST_CASE("a call beside a destroy() that has no reason yet is refused as closed, later ones with the reason") {
  CommunicatorContext context;
  context.rank = 2;
  // What shrink() does where another thread waits in destroy() for the streams of a device.
  const auto refused = [&] { return error_of([&] { context.refuse_use(); }); };
  CHECK(refused().code == ErrorCode::kClosed);
  CHECK(refused().message == "the communicator is being destroyed on rank 2");
  CHECK(refused().ranks == std::vector<int>{2});
  context.failure.close(context.rank);
  CHECK(refused().code == ErrorCode::kClosed);
  CHECK(refused().message == "the communicator was destroyed on rank 2");
}

}  // namespace rondo::testing
