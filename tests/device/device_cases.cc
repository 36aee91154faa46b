#include "tests/device/device_cases.h"

#include "tests/support/collective_call.h"

namespace rondo::testing {
namespace {

void run_one(Communicator& group, const CollectiveCase& what) {
  Mirror mirror;
  CollectiveRank rank(what, group.rank(), &mirror);
  mirror.to_device();
  CollectiveCall call = rank.call();
  call.input = mirror.image(call.input);
  call.output = mirror.image(call.output);
  call.options.stream = mirror.stream();
  run(group, call);
  mirror.to_host();
  mirror.synchronize();
  const std::string wrong = rank.check();
  expect(wrong.empty(), [&] { return what.describe() + " on device memory: " + wrong; });
}

}  // namespace

void run_on_device(Communicator& group, const std::vector<CollectiveCase>& cases) {
  for (const CollectiveCase& what : cases) run_one(group, what);
}

}  // namespace rondo::testing
