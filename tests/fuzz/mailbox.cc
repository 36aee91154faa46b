// A link over shared memory into which the peer writes what it likes between any two calls. No access out of bounds;
// nothing arrives that was not announced in full; counters give no more room than there is.
//   input: which end, then steps: one byte, and its operands
#include <vector>

#include "tests/fuzz/shared_pages.h"
#include "tests/fuzz/target.h"
#include "tests/support/bytes.h"
#include "transport/island/shared_link_body.h"

namespace rondo::fuzz {
namespace {

constexpr LinkShape kShape{3, 200};
constexpr uint64_t kSequence = 5, kFingerprint = 6;

enum Step : uint8_t { kWrite, kShow, kFree, kPost, kPump, kTake, kSend, kCommit, kClose, kSteps };

class Victim {
 public:
  explicit Victim(bool lower) : pages_(layout().bytes), lower_(lower) {
    link_ = make_shared_link(
        {pages_.owner(), pages_.data(), lower, std::make_shared<Bell>(), std::make_shared<PeerLife>(), "the peer"},
        kShape);
  }

  void step(ByteReader& in) {
    switch (in.u8() % kSteps) {
      case kWrite: {
        const size_t at = in.u16();
        return pages_.write(at, in.u64());
      }
      case kShow: {
        const uint8_t slice = in.u8();
        const uint32_t bytes = in.u32();
        return show(slice, bytes, in.u8());
      }
      case kFree:
        return ring(lower_).taken().store(in.u8());
      case kPost:
        return post(in.u8());
      case kPump:
        return static_cast<void>(link_->pump());
      case kTake:
        return take();
      case kSend:
        if (link_->can_send()) link_->send({kSequence, kFingerprint, kShape.slice_bytes}, payload_.data());
        return;
      case kCommit:
        return commit(in.u8());
      case kClose:
        return pages_.write(lower_ ? sizeof(uint32_t) : 0, in.u32());
    }
  }

 private:
  static ChannelLayout<LinkCells> layout() { return ChannelLayout<LinkCells>({kShape.depth, kShape.slice_bytes}); }
  CellRing<LinkCells, CellOrders> ring(bool of_lower) {
    const size_t begin = layout().begin(of_lower);
    return {pages_.data() + begin, {kShape.depth, kShape.slice_bytes}, begin};
  }

  // Shows slice `number` like an honest peer; of any length.
  void show(uint8_t number, uint32_t bytes, uint8_t wrong) {
    ring(!lower_).tag(number + 1u) = {kSequence + wrong % 2, kFingerprint};
    ring(!lower_).publish(number + 1u, bytes, true);
  }
  void post(uint8_t bytes) {
    if (!link_->can_post()) return;
    const uint32_t length = bytes % (kShape.slice_bytes + 1);
    landings_.push_back(std::vector<std::byte>(length));
    landings_.back().shrink_to_fit();
    link_->post({kSequence, kFingerprint, length}, bytes % 2 != 0 ? landings_.back().data() : nullptr);
  }
  void take() {
    const std::byte* there = link_->arrived();
    if (there == nullptr) return;
    const std::vector<std::byte> used(there, there + landings_[taken_].size());
    ++taken_;
    link_->release();
  }
  void commit(uint8_t bytes) {
    if (!link_->can_send()) return;
    const uint32_t length = bytes % (kShape.slice_bytes + 1);
    std::memset(link_->reserve(length), 1, length);
    link_->commit({kSequence, kFingerprint, length});
    RONDO_CHECK(link_->sent() > 0, "what is committed counts");
  }

  SharedPages pages_;
  const bool lower_;
  std::unique_ptr<Link> link_;
  std::vector<std::vector<std::byte>> landings_;  // one a post; unused where the link lends its slot
  size_t taken_ = 0;
  const std::vector<std::byte> payload_ = std::vector<std::byte>(kShape.slice_bytes);
};

std::string post(uint8_t bytes) { return ByteWriter().u8(kPost).u8(bytes).take(); }
std::string show(uint8_t slice, uint32_t bytes) { return ByteWriter().u8(kShow).u8(slice).u32(bytes).u8(0).take(); }
std::string only(Step step) { return std::string(1, static_cast<char>(step)); }

}  // namespace

std::vector<std::string> seeds() {
  const std::string lower(1, '\0'), higher(1, '\1');
  const std::string received =
      post(101) + post(30) + show(0, 101) + show(1, 30) + only(kPump) + only(kTake) + only(kTake);
  const std::string sent = only(kSend) + only(kSend) + only(kSend) + ByteWriter().u8(kFree).u8(2).take() + only(kPump) +
                           ByteWriter().u8(kCommit).u8(20).take();
  return {lower + received + sent, higher + sent + received, lower + post(200) + show(0, 201) + only(kPump),
          higher + post(9) + ByteWriter().u8(kWrite).u16(4096).u64(~uint64_t{0}).take() + only(kPump) +
              ByteWriter().u8(kClose).u32(1).take() + only(kPump)};
}

void try_input(std::string_view input) {
  ByteReader in(input);
  Victim victim((in.u8() & 1) == 0);
  while (in.ok() && in.left() > 0) victim.step(in);
}

}  // namespace rondo::fuzz
