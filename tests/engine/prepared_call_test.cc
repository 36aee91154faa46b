// What a rank keeps of its calls, so that the next one like it is not worked out again.
#include "ring/engine/route/prepared_call.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace rondo::testing {
namespace {

Call call_of(Collective collective, uint64_t count) {
  Call call;
  call.collective = collective;
  call.count = count;
  return call;
}

std::shared_ptr<PreparedCall> prepared(uint64_t count) {
  CheckedCall call;
  call.count = count;
  return std::make_shared<PreparedCall>(call, 1);
}

}  // namespace

TEST_CASE("an all_gather between two all_reduces: both are kept") {
  PreparedCalls calls;
  const CallFields sum = fields_of(call_of(Collective::kAllReduce, 8));
  const CallFields gather = fields_of(call_of(Collective::kAllGather, 8));
  const auto one = prepared(8), other = prepared(8);
  CHECK(calls.find(sum) == nullptr);
  calls.keep(sum, one);
  CHECK(calls.find(gather) == nullptr);
  calls.keep(gather, other);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(calls.find(sum) != nullptr);
    CHECK(*calls.find(sum) == one);
    REQUIRE(calls.find(gather) != nullptr);
    CHECK(*calls.find(gather) == other);
  }
}

TEST_CASE("calls that differ in anything but their buffers are not alike") {
  const Call call = call_of(Collective::kAllReduce, 8);
  const CallFields key = fields_of(call);
  Call buffers = call;
  int memory = 0;
  buffers.input = buffers.output = &memory;
  CHECK(fields_of(buffers) == key);

  std::vector<Call> others(7, call);
  others[0].collective = Collective::kReduceScatter;
  others[1].count = 9;
  others[2].dtype = DType::kFloat64;
  others[3].op = Op::kMax;
  others[4].options.algorithm = Algorithm::kRing;
  others[5].options.scalar = 2;
  others[6].options.timeout = std::chrono::milliseconds(5);
  for (size_t i = 0; i < others.size(); ++i) {
    CAPTURE(i);
    CHECK(!(fields_of(others[i]) == key));
  }
}

TEST_CASE("of many calls the latest are kept, and those under way live on") {
  PreparedCalls calls;
  const auto first = prepared(0);
  for (uint64_t count = 0; count < 1000; ++count) {
    calls.keep(fields_of(call_of(Collective::kAllReduce, count)), count == 0 ? first : prepared(count));
  }
  CHECK(first.use_count() == 1);
  CHECK(calls.find(fields_of(call_of(Collective::kAllReduce, 0))) == nullptr);
  for (uint64_t count = 999; count > 999 - 60; --count) {
    REQUIRE(calls.find(fields_of(call_of(Collective::kAllReduce, count))) != nullptr);
    CHECK((*calls.find(fields_of(call_of(Collective::kAllReduce, count))))->count == count);
  }
}

}  // namespace rondo::testing
