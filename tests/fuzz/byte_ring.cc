// A stream over shared memory into whose flags, counters and lists the peer writes what it likes between any two calls:
// no access out of bounds, nothing lent beyond a piece, and a number that cannot be ends the stream.
//   input: which side, then steps: one byte, and its operands
#include <vector>

#include "tests/fuzz/shared_pages.h"
#include "tests/fuzz/target.h"
#include "tests/support/bytes.h"
#include "transport/island/shared_stream_body.h"

namespace rondo::fuzz {
namespace {

enum Step : uint8_t { kWrite, kNumber, kGive, kRead, kView, kSend, kClose, kSteps };

constexpr BufferShape kShape = kSmallStreamBuffers;

class Victim {
 public:
  explicit Victim(bool maker) : pages_(shared_stream_bytes(kShape)), maker_(maker) {
    stream_ = make_shared_stream(
        {pages_.owner(), pages_.data(), maker, std::make_shared<Bell>(), std::make_shared<PeerLife>(), "the peer"},
        std::make_shared<StreamBuffers>(kShape));
  }

  void step(ByteReader& in) {
    switch (in.u8() % kSteps) {
      case kWrite: {
        const size_t at = in.u32();
        return pages_.write(at, in.u64());
      }
      case kNumber: {
        const uint8_t which = in.u8();
        return write_number(which, in.u64());
      }
      case kGive: {
        const uint16_t buffer = in.u16();
        return give(buffer, in.u32());
      }
      case kRead:
        return read(in.u32());
      case kView: {
        const auto there = stream_->view();
        RONDO_CHECK(there.size() <= kShape.bytes, "no more is lent than a piece holds");
        const std::vector<std::byte> used(there.begin(), there.end());
        stream_->consume(std::min<size_t>(in.u32(), there.size()));
        return;
      }
      case kSend:
        return send(in.u32());
      case kClose:
        return pages_.write(maker_ ? sizeof(uint32_t) : 0, in.u32());
    }
  }

 private:
  // which: the ring in the lowest bit; above it 0 for `taken`, else the number of the piece.
  void write_number(uint8_t which, uint64_t value) {
    const size_t begin = ChannelLayout<StreamCells>({}).begin(which % 2 == 0);
    const CellRing<StreamCells, CellOrders> ring(pages_.data() + begin, {}, begin);
    (which < 2 ? ring.taken() : ring.flag(which / 2)).store(value);
  }
  // This buffer, as often as there is room; and how many have been given back.
  void give(uint16_t buffer, uint64_t count) {
    const size_t begin = ChannelLayout<StreamCells>({}).bytes;
    for (size_t i = 0; i < 2 * kShape.count; ++i) {
      std::memcpy(pages_.data() + begin + kCellBytes + i * sizeof buffer, &buffer, sizeof buffer);
    }
    pages_.write(begin, count);
  }
  void read(uint32_t bytes) {
    std::vector<std::byte> memory(1 + bytes % kMost);
    const size_t split = bytes % memory.size();
    const iovec parts[] = {{memory.data(), split}, {memory.data() + split, memory.size() - split}};
    check(stream_->read(parts, 2), memory.size());
  }
  void send(uint32_t bytes) {
    const std::vector<std::byte> memory(1 + bytes % kMost);
    const iovec part{const_cast<std::byte*>(memory.data()), memory.size()};
    check(stream_->write(&part, 1), memory.size());
  }
  void check(long moved, size_t most) const {
    RONDO_CHECK(moved <= static_cast<long>(most), "no more moves than was asked for");
    RONDO_CHECK(moved >= 0 || !stream_->error().ok(), "an end has its reason");
  }

  static constexpr size_t kMost = 100'000;
  SharedPages pages_;
  const bool maker_;
  std::unique_ptr<ByteStream> stream_;
};

std::string number(uint8_t which, uint64_t value) { return ByteWriter().u8(kNumber).u8(which).u64(value).take(); }
std::string flag(uint8_t ring, uint8_t piece, uint32_t bytes, uint32_t buffer = 0) {
  return number(static_cast<uint8_t>(2 * (piece % kStreamPieces + 1) + ring),
                cell_flag(piece + uint64_t{1}, StreamPiece{bytes, buffer}.shown()));
}
std::string give(uint16_t buffer, uint32_t count) { return ByteWriter().u8(kGive).u16(buffer).u32(count).take(); }
std::string taken(uint8_t ring, uint64_t pieces) { return number(ring, pieces); }
std::string bytes(Step step, uint32_t count) { return ByteWriter().u8(step).u32(count).take(); }

}  // namespace

std::vector<std::string> seeds() {
  const std::string maker(1, '\0'), other(1, '\1');
  return {maker + flag(1, 0, 100) + bytes(kRead, 60) + bytes(kView, 30) + bytes(kSend, 500) + taken(0, 1),
          other + flag(0, 0, 8000) + flag(0, 1, 121, 1) + bytes(kView, 7000) + bytes(kRead, 99'999) +
              flag(0, 2, 8000, 1) + bytes(kView, 9),
          maker + bytes(kSend, 99'999) + bytes(kSend, 99'999) + bytes(kSend, 99'999) + taken(0, 9) + give(3, 1) +
              bytes(kSend, 50'000) + give(3, 2) + bytes(kSend, 99'999) + taken(0, ~uint64_t{0}) + bytes(kSend, 99'999),
          maker + flag(1, 5, 8) + flag(1, 0, 0) + bytes(kView, 1) + bytes(kRead, 1),
          other + flag(0, 0, 5) + bytes(kClose, 1) + bytes(kRead, 9) + bytes(kRead, 9)};
}

void try_input(std::string_view input) {
  ByteReader in(input);
  Victim victim((in.u8() & 1) == 0);
  while (in.ok() && in.left() > 0) victim.step(in);
}

}  // namespace rondo::fuzz
