// Calls that are made of exchanges (split, attach_device, sparse_all_reduce) match only themselves: against any call
// whose exchange looks the same, and against each other, both ranks get MISMATCH with both calls named, and no data.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ring/base/types.h"
#include "rondo/communicator.h"
#include "rondo/sparse.h"
#include "tests/support/errors.h"

namespace rondo::testing {
namespace {

struct Door {
  std::string text;  // in the error
  std::function<void(Communicator&, void* output)> call;
  size_t bytes = 0;  // of a block of the output
};

Door gather(uint64_t count, DType dtype, const std::string& text) {
  return {text,
          [=](Communicator& group, void* output) {
            const std::array<uint64_t, 8> own{};
            group.all_gather(own.data(), output, count, dtype);
          },
          count * dtype_bytes(dtype)};
}

std::vector<Door> doors() {
  return {{"called split()", [](Communicator& group, void*) { group.split(0); }},
          {"attach_device(): all_gather(count=64, uint8", [](Communicator& group, void*) { group.attach_device(); }},
          {"sparse_all_reduce(): all_gather(count=3, uint64",
           [](Communicator& group, void*) {
             std::vector<float> values(100, 1.0f);
             sparse_all_reduce(group, values.data(), values.data(), values.size());
           }},
          {"called commit()", [](Communicator& group, void*) { group.commit(1); }},
          gather(2, DType::kInt32, "called all_gather(count=2, int32"),
          gather(64, DType::kUint8, "called all_gather(count=64, uint8"),
          gather(3, DType::kUint64, "called all_gather(count=3, uint64")};
}

std::array<Error, 2> both(const Door& first, const Door& second, std::array<std::vector<uint8_t>, 2>& outputs) {
  Config config;
  config.timeout_ms = 20'000;
  std::vector<Communicator> groups = Communicator::inproc(2, config);
  std::array<Error, 2> errors;
  for (auto& output : outputs) output.assign(128, 0xab);
  std::thread other([&] { errors[1] = error_of([&] { second.call(groups[1], outputs[1].data()); }); });
  errors[0] = error_of([&] { first.call(groups[0], outputs[0].data()); });
  other.join();
  return errors;
}

}  // namespace

TEST_CASE("an exchange that a call is made of matches that of no other call") {
  const std::vector<Door> all = doors();
  for (const Door& first : all) {
    for (const Door& second : all) {
      if (first.text == second.text) continue;
      CAPTURE(first.text);
      CAPTURE(second.text);
      std::array<std::vector<uint8_t>, 2> outputs;
      for (const Error& error : both(first, second, outputs)) {
        CHECK(error.code == ErrorCode::kMismatch);
        CHECK(error.message.find(first.text) != std::string::npos);
        CHECK(error.message.find(second.text) != std::string::npos);
      }
      for (const size_t rank : {0, 1}) {  // the other's block, and what lies behind
        const size_t bytes = (rank == 0 ? first : second).bytes;
        std::vector<uint8_t>& output = outputs[rank];
        std::fill_n(output.begin() + static_cast<ptrdiff_t>(rank * bytes), bytes, 0xab);
        CHECK(std::all_of(output.begin(), output.end(), [](uint8_t byte) { return byte == 0xab; }));
      }
    }
  }
}

TEST_CASE("what is a rank's own, its timeout, keeps no exchange from being the one that all make") {
  std::vector<Communicator> groups = Communicator::inproc(2);
  const auto run = [](Communicator& group) {
    std::array<uint8_t, 24> own{};
    std::array<uint8_t, 48> all{};
    CallOptions options;
    if (group.rank() == 0) options.timeout = std::chrono::seconds(5);
    group.all_gather(own.data(), all.data(), own.size(), DType::kUint8, options);
    CHECK_THROWS_AS(group.attach_device(), Exception);  // kUnsupported: there is no GPU
    float one = 1;
    group.all_reduce(&one, &one, 1, DType::kFloat32);
    CHECK(one == 2);
  };
  std::thread other([&] { run(groups[1]); });
  run(groups[0]);
  other.join();
}

TEST_CASE("calls of a purpose that the program gives match calls of that purpose only") {
  const auto of = [](uint16_t purpose) {
    return Door{"all_reduce(count=1, float32, sum", [=](Communicator& group, void*) {
                  float one = 1;
                  CallOptions options;
                  options.purpose = static_cast<Purpose>(purpose);
                  group.all_reduce(&one, &one, 1, DType::kFloat32, Op::kSum, options);
                }};
  };
  std::array<std::vector<uint8_t>, 2> outputs;
  for (const Error& error : both(of(300), of(300), outputs)) CHECK(error.ok());
  for (const Error& error : both(of(300), of(0), outputs)) {
    CHECK(error.code == ErrorCode::kMismatch);
    CHECK(error.message.find("purpose 300: all_reduce") != std::string::npos);
  }
}

}  // namespace rondo::testing
