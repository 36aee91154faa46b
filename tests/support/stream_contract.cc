#include "tests/support/stream_contract.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/random.h"

namespace rondo::testing {
namespace {

// Far beyond the longest simulated delay.
constexpr int kStuckPasses = 1'000'000;

std::byte byte_at(uint64_t position) { return static_cast<std::byte>(position * 2654435761u >> 13); }

// One direction: bytes of a sequence that go in at one side and come out at the other. The first thing found wrong
// stays in trouble().
class Flow {
 public:
  Flow(ByteStream& from, ByteStream& to, uint64_t seed, uint64_t bytes)
      : from_(from), to_(to), writes_(seed), reads_(seed + 1), bytes_(bytes) {}

  // True if anything moved.
  bool write() {
    // What a stream may have kept is offered again.
    const size_t bytes = std::min<uint64_t>(bytes_ - written_, std::max(kept_, size(writes_)));
    std::vector<std::byte> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = byte_at(written_ + i);
    const size_t split = writes_.below(bytes + 1);
    const iovec parts[] = {{data.data(), split}, {data.data() + split, 0}, {data.data() + split, bytes - split}};
    if (kept_ == 0 && writes_.chance(30) &&
        from_.write_whole({data.data(), split}, {data.data() + split, bytes - split})) {
      written_ += bytes;
      return bytes > 0;
    }
    const long moved = bytes > 0 ? from_.write(parts, 3) : 0;
    if (moved < 0) return fail("write: " + from_.error().message);
    if (static_cast<size_t>(moved) > bytes) return fail("more was written than there was");
    kept_ = bytes - static_cast<size_t>(moved);
    written_ += static_cast<uint64_t>(moved);
    return moved > 0;
  }

  bool read() {
    if (reads_.chance(50)) {
      const auto there = to_.view();
      const size_t bytes = std::min<size_t>(there.size(), 1 + size(reads_));
      if (!sound(there.data(), bytes)) return fail("wrong bytes are lent");
      if (bytes > 0) to_.consume(bytes);
      taken_ += bytes;
      if (bytes > 0) return true;
    }
    std::vector<std::byte> data(1 + size(reads_));
    const size_t split = reads_.below(data.size() + 1);
    const iovec parts[] = {{data.data(), split}, {data.data() + split, data.size() - split}};
    const long moved = to_.read(parts, 2);
    if (moved < 0) return fail("read: " + to_.error().message);
    if (!sound(data.data(), static_cast<size_t>(moved))) return fail("wrong bytes are read");
    taken_ += static_cast<uint64_t>(moved);
    return moved > 0;
  }

  bool all_written() const { return written_ == bytes_ || !trouble_.empty(); }
  bool done() const { return (taken_ == bytes_) || !trouble_.empty(); }
  const std::string& trouble() const { return trouble_; }

 private:
  static size_t size(Random& random) {
    const size_t largest[] = {1, 80, 130, 5000, 70'000, 600'000};
    return random.below(largest[random.below(std::size(largest))] + 1);
  }
  bool sound(const std::byte* data, size_t bytes) const {
    for (size_t i = 0; i < bytes; ++i) {
      if (data[i] != byte_at(taken_ + i)) return false;
    }
    return true;
  }
  bool fail(const std::string& what) {
    if (trouble_.empty()) trouble_ = what;
    return false;
  }

  ByteStream& from_;
  ByteStream& to_;
  Random writes_, reads_;  // of the two threads
  const uint64_t bytes_;
  size_t kept_ = 0;  // bytes offered and not written
  uint64_t written_ = 0, taken_ = 0;
  std::string trouble_;
};

// Every byte once and in order, both ways, full and empty in turn.
void check_traffic(const MakeStream& make, uint64_t seed) {
  StreamEnds ends = make(seed);
  Random random(seed);
  Flow there(*ends.side[0], *ends.side[1], seed, 1'000'000), back(*ends.side[1], *ends.side[0], seed + 7, 500'000);
  Flow* const flows[] = {&there, &back};
  for (int idle = 0; idle < kStuckPasses && !(there.done() && back.done()); ++idle) {
    for (Flow* flow : flows) {
      if (random.chance(60) && !flow->all_written() && flow->write()) idle = 0;
      if (random.chance(50) && !flow->done() && flow->read()) idle = 0;
    }
    ends.advance();
  }
  CHECK(there.trouble() == "");
  CHECK(back.trouble() == "");
  CHECK((there.done() && back.done()));
}

// write_whole() writes nothing that does not fit, and nothing at all to a peer that is gone.
void check_whole(const MakeStream& make, uint64_t seed) {
  StreamEnds ends = make(seed);
  const std::vector<std::byte> data(100'000'000);
  CHECK_FALSE(ends.side[0]->write_whole(data, {}));
  CHECK_FALSE(ends.side[0]->write_whole({}, data));
  ends.advance();
  CHECK(ends.side[1]->view().empty());
  std::byte byte;
  const iovec one{&byte, 1};
  CHECK(ends.side[1]->read(&one, 1) == 0);
}

// The peer is gone: what it wrote before is read, then there is an error, which stays.
void check_end(const MakeStream& make, uint64_t seed) {
  StreamEnds ends = make(seed);
  constexpr uint64_t kBytes = 5000;
  Flow flow(*ends.side[0], *ends.side[1], seed, kBytes);
  for (int idle = 0; idle < kStuckPasses && !flow.all_written(); ++idle) {
    if (flow.write()) idle = 0;
    ends.advance();
    if (flow.read()) idle = 0;
  }
  REQUIRE(flow.trouble() == "");
  ends.side[0].reset();
  for (int idle = 0; idle < kStuckPasses && !flow.done(); ++idle) {
    if (flow.read()) idle = 0;
    ends.advance();
  }
  CHECK(flow.trouble() == "");
  REQUIRE(flow.done());
  std::byte byte{};
  const iovec one{&byte, 1};
  long moved = 0;
  for (int idle = 0; idle < kStuckPasses && moved == 0; ++idle) {
    moved = ends.side[1]->read(&one, 1);
    ends.advance();
  }
  for (int i = 0; i < 5; ++i) {
    CHECK(ends.side[1]->view().empty());
    CHECK(ends.side[1]->read(&one, 1) == -1);
    CHECK(ends.side[1]->error().code == ErrorCode::kPeerLost);
    CHECK(ends.side[1]->error().message.find(ends.first_name) != std::string::npos);
  }
}

}  // namespace

void check_stream_contract(const MakeStream& make, uint64_t first_seed, uint64_t seeds) {
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    CAPTURE(seed);
    check_traffic(make, seed);
    check_whole(make, seed);
    check_end(make, seed);
  }
}

void check_stream_between_threads(const MakeStream& make, uint64_t first_seed, uint64_t seeds) {
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    CAPTURE(seed);
    StreamEnds ends = make(seed);
    constexpr uint64_t kBytes = 4'000'000;
    Flow flow(*ends.side[0], *ends.side[1], seed, kBytes);
    std::string write_trouble;
    std::atomic<bool> over{false};
    std::thread writer([&] {
      Flow own(*ends.side[0], *ends.side[1], seed, kBytes);
      while (!own.all_written() && !over) {
        if (!own.write()) std::this_thread::yield();
      }
      write_trouble = own.trouble();
    });
    while (!flow.done()) {
      if (!flow.read()) std::this_thread::yield();
    }
    over = true;  // if the reader has found something wrong
    writer.join();
    CHECK(write_trouble == "");
    CHECK(flow.trouble() == "");
  }
}

}  // namespace rondo::testing
