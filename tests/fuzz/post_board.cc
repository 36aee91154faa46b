// A one-shot all_reduce over boards into which the other two ranks write what they like: no access out of bounds, and
// it ends only when each of them has posted in each round.
//   input: steps: one byte, and its operands
#include "ring/engine/island/post_board.h"

#include <memory>
#include <vector>

#include "ring/engine/run/one_shot.h"
#include "ring/plan/build.h"
#include "tests/fuzz/shared_pages.h"
#include "tests/fuzz/target.h"
#include "tests/support/bytes.h"
#include "tests/support/whole_board.h"

namespace rondo::fuzz {
namespace {

constexpr int kWorld = 3;
constexpr uint64_t kCount = 9000;  // floats: three rounds of 4,096
constexpr uint64_t kRoundElements = 4096;
constexpr uint64_t kFingerprint = 42;
constexpr size_t kBoardBytes = testing::whole_board_bytes<PostBoard>(testing::Rings::kNone);

enum Step : uint8_t { kWrite, kShow, kProgress, kSteps };

const Plan& plan() {
  static const Plan made = [] {
    PlanRequest request;
    request.collective = Collective::kAllReduce;
    request.algorithm = Algorithm::kOneShot;
    request.topology.host.assign(kWorld, 0);
    request.topology.island.assign(kWorld, 0);
    return build_plan(request);
  }();
  return made;
}

class Victim {
 public:
  Victim() : input_(kCount), output_(kCount), blocks_{{{0, kCount}}, {{0, kCount}}} {
    std::vector<std::byte*> places;
    for (SharedPages& board : boards()) places.push_back(board.data());
    for (SharedPages& board : boards()) std::memset(board.data(), 0, kBoardBytes);
    channel_.board = testing::whole_board<PostBoard>(places, 0, testing::Rings::kNone);
    channel_.bells.assign(kWorld, std::make_shared<Bell>());
    Binding binding;
    binding.plan = &plan();
    binding.blocks = &blocks_;
    binding.slicing = OneShotRun::slicing(plan(), kCount, sizeof(float));
    binding.slicing.slice = kRoundElements;
    binding.combine = {DType::kFloat32, Op::kSum, 1.0, kWorld};
    binding.element_bytes = sizeof(float);
    run_.bind(binding, channel_);
    const CallBuffers buffers{reinterpret_cast<const std::byte*>(input_.data()),
                              reinterpret_cast<std::byte*>(output_.data())};
    run_.start({buffers, 0, kFingerprint});
  }

  void step(ByteReader& in) {
    switch (in.u8() % kSteps) {
      case kWrite: {
        const uint8_t rank = in.u8();
        const size_t at = in.u32();
        return boards()[1 + rank % 2].write(at, in.u64());
      }
      case kShow: {
        const uint8_t rank = in.u8(), number = in.u8();
        const uint32_t ready = in.u32();
        return show(1 + rank % 2, number, ready, in.u8());
      }
      case kProgress: {
        run_.progress(Pass::kPolling);
        const int refused = run_.failure().peer;
        RONDO_CHECK(refused < kWorld && refused != 0, "another rank is refused, or none");
        RONDO_CHECK(!run_.done() || refused < 0, "a run that is done has refused nobody");
        return;
      }
    }
  }

 private:
  // Posts like an honest rank in that round.
  void show(size_t rank, uint8_t number, uint32_t ready, uint8_t wrong) {
    const size_t area = (rank + number / PostBoard::kDepth) % kWorld;
    const CellRing<PostBoard::Cells, BoardOrders> ring(boards()[area].data() + PostBoard::kCellsOffset, {},
                                                       PostBoard::kCellsOffset);
    ring.tag(number) = kFingerprint + wrong % 2;
    ring.publish(number, ready, true);
  }
  // Made once: each is 620 KiB.
  static std::vector<SharedPages>& boards() {
    static std::vector<SharedPages> made = [] {
      std::vector<SharedPages> list;
      for (int r = 0; r < kWorld; ++r) list.emplace_back(kBoardBytes);
      return list;
    }();
    return made;
  }

  std::vector<float> input_, output_;
  Blocks blocks_;
  IslandChannel channel_;
  OneShotRun run_;
};

std::string show(uint8_t rank, uint8_t number, uint32_t ready, uint8_t wrong = 0) {
  return ByteWriter().u8(kShow).u8(rank).u8(number).u32(ready).u8(wrong).take();
}
std::string progress() { return std::string(1, static_cast<char>(kProgress)); }

}  // namespace

std::vector<std::string> seeds() {
  constexpr uint32_t kWhole = kRoundElements * sizeof(float);
  constexpr uint32_t kLast = (kCount - 2 * kRoundElements) * sizeof(float);
  const std::string first = show(0, 1, kWhole) + show(1, 1, kWhole) + progress();
  const std::string second = show(0, 2, kWhole / 2) + progress() + show(0, 2, kWhole) + show(1, 2, kWhole) + progress();
  return {first + second + show(0, 3, kLast) + show(1, 3, kLast) + progress(),
          first + show(0, 2, kWhole + 1) + progress(), first + show(1, 2, kWhole, 1) + progress(),
          show(0, 9, 0) + progress(),
          first + ByteWriter().u8(kWrite).u8(0).u32(0).u64(~uint64_t{0}).take() + progress()};
}

void try_input(std::string_view input) {
  ByteReader in(input);
  Victim victim;
  while (in.ok() && in.left() > 0) victim.step(in);
}

}  // namespace rondo::fuzz
