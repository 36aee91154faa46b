// How slices of a stream get to where they land: in how many reads, and what a slice that nobody expects leaves behind.
// Right bytes, whatever a stream gives at once: link_contract_test.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "transport/tcp/slice_header.h"
#include "transport/tcp/stream_link.h"

namespace rondo {
namespace {

constexpr uint32_t kBytes = 24 * 1024;  // lands without a copy, and is more than is read ahead
constexpr std::byte kUntouched{0xA5};
const LinkShape kShape{4, 48 * 1024};

// Gives what the test has fed it; takes and forgets what is written.
class FedStream final : public ByteStream {
 public:
  void feed(const std::byte* bytes, size_t count) { waiting_.insert(waiting_.end(), bytes, bytes + count); }

  long read(const iovec* parts, int count) override {
    size_t moved = 0;
    for (int i = 0; i < count; ++i) {
      const size_t bytes = std::min(parts[i].iov_len, waiting_.size() - moved);
      if (bytes > 0) std::memcpy(parts[i].iov_base, waiting_.data() + moved, bytes);
      moved += bytes;
    }
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(moved));
    reads_ += moved > 0;
    return static_cast<long>(moved);
  }
  long write(const iovec* parts, int count) override {
    long bytes = 0;
    for (int i = 0; i < count; ++i) bytes += static_cast<long>(parts[i].iov_len);
    return bytes;
  }
  const Error& error() const override { return none_; }

  int reads() const { return reads_; }  // that gave something

 private:
  std::vector<std::byte> waiting_;
  int reads_ = 0;
  Error none_;
};

SliceTag tag_of(uint32_t slice) { return {7, 100 + slice, kBytes}; }

std::vector<std::byte> payload_of(uint32_t slice) {
  std::vector<std::byte> bytes(kBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * 31 + slice * 7) & 0xFF);
  return bytes;
}

// Header and payload, as the peer sends them.
std::vector<std::byte> on_the_wire(uint32_t slice) {
  SliceHeader header;
  header.bytes = kBytes;
  header.index = slice;
  header.sequence = tag_of(slice).sequence;
  header.fingerprint = tag_of(slice).fingerprint;
  std::vector<std::byte> bytes(kSliceHeaderBytes);
  std::memcpy(bytes.data(), &header, sizeof header);
  const std::vector<std::byte> payload = payload_of(slice);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

// The caller's memory for a slice.
struct Target {
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes, kUntouched);
  bool untouched() const { return std::count(memory.begin(), memory.end(), kUntouched) == std::ssize(memory); }
};

struct FedLink {
  FedStream* stream = nullptr;
  std::unique_ptr<Link> link;

  FedLink() {
    auto fed = std::make_unique<FedStream>();
    stream = fed.get();
    std::vector<std::unique_ptr<ByteStream>> streams;
    streams.push_back(std::move(fed));
    link = make_stream_link(std::move(streams), kShape, "the peer");
  }
  void pump_all() {
    while (link->pump()) {
    }
  }
};

}  // namespace

TEST_CASE("slices: a large one for a slot takes one read, with its header and the next one's") {
  FedLink fed;
  fed.link->post(tag_of(0), nullptr);
  const std::vector<std::byte> first = on_the_wire(0), second = on_the_wire(1);
  fed.stream->feed(first.data(), first.size());
  fed.stream->feed(second.data(), second.size());
  fed.pump_all();
  CHECK_EQ(fed.stream->reads(), 1);
  REQUIRE(fed.link->arrived() != nullptr);
  CHECK(std::memcmp(fed.link->arrived(), payload_of(0).data(), kBytes) == 0);
  // The second waits, but for its header, until it has a landing.
  Target target;
  fed.link->post(tag_of(1), target.memory.data());
  fed.pump_all();
  CHECK_EQ(fed.stream->reads(), 2);
  fed.link->release();
  REQUIRE(fed.link->arrived() == target.memory.data());
  CHECK(target.memory == payload_of(1));
}

TEST_CASE("slices: one that was not expected is refused, never arrives, and leaves the caller's memory as it is") {
  std::vector<std::byte> other_operation = on_the_wire(0), longer = on_the_wire(0);
  other_operation[offsetof(SliceHeader, fingerprint)] ^= std::byte{1};
  const uint32_t all_of_a_slot = kShape.slice_bytes;
  std::memcpy(longer.data(), &all_of_a_slot, sizeof all_of_a_slot);
  longer.resize(kSliceHeaderBytes + all_of_a_slot);
  for (const std::vector<std::byte>& wire : {other_operation, longer}) {
    for (const bool slots : {true, false}) {
      for (size_t pause = 0; pause <= kSliceHeaderBytes + 1; ++pause) {
        CAPTURE(slots);
        CAPTURE(pause);
        FedLink fed;
        Target target;
        fed.link->post(tag_of(0), slots ? nullptr : target.memory.data());
        fed.stream->feed(wire.data(), pause);
        fed.pump_all();
        fed.stream->feed(wire.data() + pause, wire.size() - pause);
        fed.pump_all();
        CHECK(fed.link->arrived() == nullptr);
        CHECK(target.untouched());
        REQUIRE(fed.link->error() != nullptr);
        CHECK(fed.link->error()->code == ErrorCode::kMismatch);
      }
    }
  }
}

}  // namespace rondo
