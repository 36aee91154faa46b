// What a peer writes on the streams of a link: headers and payloads of slices. Only the slice that is due lands, and
// only where it was told to.
//   input: mode (bit 0: two streams; bit 1: landings are slots), bytes a read, then the streams, one half each
#include <cstring>
#include <memory>

#include "tests/fuzz/fed_stream.h"
#include "tests/fuzz/target.h"
#include "transport/tcp/slice_header.h"
#include "transport/tcp/stream_link.h"

namespace rondo::fuzz {
namespace {

constexpr uint32_t kSizes[] = {100, 6000, 0, 5000};  // copied, read in place, a signal, read in place
constexpr LinkShape kShape{3, 8192};
constexpr std::byte kUntouched{0xA5};

SliceTag tag_of(uint64_t slice) { return {7, 100 + slice, kSizes[slice % 4]}; }

std::string slice_text(uint32_t number) {
  const SliceTag tag = tag_of(number);
  SliceHeader header;
  header.bytes = tag.bytes;
  header.index = number;
  header.sequence = tag.sequence;
  header.fingerprint = tag.fingerprint;
  std::string text(sizeof header, '\0');
  std::memcpy(text.data(), &header, sizeof header);
  return text + std::string(tag.bytes, 'x');
}

// Memory of exactly one slice, for the address sanitizer.
struct Landing {
  std::vector<std::byte> memory;
  explicit Landing(uint64_t slice) : memory(std::max<uint32_t>(1, tag_of(slice).bytes), kUntouched) {}
  bool untouched() const {
    return std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == kUntouched; });
  }
};

}  // namespace

std::vector<std::string> seeds() {
  const std::string one("\0\xff", 2), slots("\2\xff", 2), crumbs("\2\x07", 2), two("\1\xff", 2);
  return {one + slice_text(0) + slice_text(1) + slice_text(2) + slice_text(3), slots + slice_text(0) + slice_text(1),
          crumbs + slice_text(0), two + slice_text(1) + slice_text(0), one + slice_text(0) + slice_text(0)};
}

void try_input(std::string_view input) {
  if (input.size() < 2) return;
  const bool two = (input[0] & 1) != 0, slots = (input[0] & 2) != 0;
  const auto most = static_cast<size_t>(static_cast<unsigned char>(input[1])) * 16;
  input.remove_prefix(2);
  std::vector<std::unique_ptr<ByteStream>> streams;
  const size_t first = two ? input.size() / 2 : input.size();
  streams.push_back(std::make_unique<FedStream>(input.substr(0, first), most, false));
  if (two) streams.push_back(std::make_unique<FedStream>(input.substr(first), most, false));
  const auto link = make_stream_link(std::move(streams), kShape, "the peer");

  std::vector<std::unique_ptr<Landing>> landings;  // of the slices that are posted
  uint64_t released = 0;
  for (bool moved = true; moved && link->error() == nullptr;) {
    while (link->can_post()) {
      landings.push_back(std::make_unique<Landing>(landings.size()));
      link->post(tag_of(landings.size() - 1), slots ? nullptr : landings.back()->memory.data());
    }
    moved = link->pump();
    for (; const std::byte* there = link->arrived(); ++released) {
      RONDO_CHECK(slots || there == landings[released]->memory.data(), "it arrives where it was told to");
      std::vector<std::byte> used(there, there + tag_of(released).bytes);
      link->release();
    }
  }
  if (const Error* error = link->error(); error != nullptr && !two) {
    RONDO_CHECK(error->code == ErrorCode::kProtocol || error->code == ErrorCode::kMismatch, "a refusal says of what");
    for (size_t i = released; i < landings.size(); ++i) {
      RONDO_CHECK(landings[i]->untouched(), "nothing lands behind what is refused");
    }
  }
}

}  // namespace rondo::fuzz
