#include "tests/support/sim_stream.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <span>

#include "ring/base/check.h"
#include "tests/support/random.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kNever = ~uint64_t{0};

// The bytes that went in by write() at position `written`, in a ring of the direction's capacity; a part is readable
// from its tick on.
struct Direction {
  struct Part {
    uint64_t end;  // position after its last byte
    uint64_t ready;
  };
  std::vector<std::byte> ring;
  uint64_t written = 0;
  uint64_t taken = 0;
  std::deque<Part> parts;
  uint64_t stalled_until = 0;
  uint64_t flip_at = kNever;

  size_t room() const { return ring.size() - static_cast<size_t>(written - taken); }

  uint64_t readable_end(uint64_t now) const {
    if (now < stalled_until) return taken;
    uint64_t end = taken;
    for (const Part& part : parts) {
      if (part.ready > now) break;
      end = part.end;
    }
    return end;
  }

  void put(const iovec* parts_in, int count, size_t bytes) {
    for (int i = 0; i < count && bytes > 0; ++i) {
      const auto* src = static_cast<const std::byte*>(parts_in[i].iov_base);
      const size_t length = std::min(parts_in[i].iov_len, bytes);
      for (size_t done = 0; done < length;) {
        const size_t at = written % ring.size();
        const size_t run = std::min(length - done, ring.size() - at);
        std::memcpy(ring.data() + at, src + done, run);
        if (flip_at >= written && flip_at < written + run) flip();
        written += run;
        done += run;
      }
      bytes -= length;
    }
  }

  void flip() {
    ring[flip_at % ring.size()] ^= std::byte{1} << (flip_at % 8);
    flip_at = kNever;
  }

  void take(const iovec* parts_out, int count, size_t bytes) {
    for (int i = 0; i < count && bytes > 0; ++i) {
      auto* dst = static_cast<std::byte*>(parts_out[i].iov_base);
      const size_t length = std::min(parts_out[i].iov_len, bytes);
      for (size_t done = 0; done < length;) {
        const size_t at = taken % ring.size();
        const size_t run = std::min(length - done, ring.size() - at);
        std::memcpy(dst + done, ring.data() + at, run);
        taken += run;
        done += run;
      }
      bytes -= length;
    }
    forget_taken();
  }

  void forget_taken() {
    while (!parts.empty() && parts.front().end <= taken) parts.pop_front();
  }
};

size_t total(const iovec* parts, int count) {
  RONDO_CHECK(count >= 0 && count <= 8, "a vector of at most 8 parts");
  size_t sum = 0;
  for (int i = 0; i < count; ++i) sum += parts[i].iov_len;
  return sum;
}

}  // namespace

// One connection: two directions, and how it ends.
class SimWire {
 public:
  SimWire(uint64_t seed, const SimShape& shape, std::shared_ptr<uint64_t> now)
      : shape_(shape), now_(std::move(now)), random_(seed) {
    RONDO_CHECK(shape.capacity_bytes > 0, "a connection needs room");
    for (Direction& direction : from_) direction.ring.resize(shape.capacity_bytes);
  }

  long write(int side, const iovec* parts, int count) {
    Direction& direction = from_[side];
    if (cut_) return end(side);
    const size_t wanted = std::min({total(parts, count), direction.room(), static_cast<size_t>(cut_in_)});
    const size_t bytes = some_of(wanted);
    if (bytes == 0) return 0;
    put(side, parts, count, bytes);
    return static_cast<long>(bytes);
  }

  bool write_whole(int side, std::span<const std::byte> head, std::span<const std::byte> payload) {
    const size_t bytes = head.size() + payload.size();
    if (!shape_.lends || cut_ || bytes > std::min(from_[side].room(), static_cast<size_t>(cut_in_))) return false;
    if (random_.chance(shape_.refuse_percent)) return false;
    const auto part = [](std::span<const std::byte> of) { return iovec{const_cast<std::byte*>(of.data()), of.size()}; };
    const iovec parts[] = {part(head), part(payload)};
    put(side, parts, 2, bytes);
    return true;
  }

  long read(int side, const iovec* parts, int count) {
    Direction& direction = from_[1 - side];
    const auto available = static_cast<size_t>(direction.readable_end(*now_) - direction.taken);
    if (cut_ && direction.taken == direction.written) return end(side);
    const size_t bytes = some_of(std::min(total(parts, count), available));
    if (bytes == 0) return 0;
    direction.take(parts, count, bytes);
    ++transfers_[side];
    return static_cast<long>(bytes);
  }

  std::span<const std::byte> view(int side) {
    const Direction& direction = from_[1 - side];
    if (!shape_.lends) return {};
    const size_t at = direction.taken % direction.ring.size();
    const auto available = static_cast<size_t>(direction.readable_end(*now_) - direction.taken);
    const size_t bytes = some_of(std::min(available, direction.ring.size() - at));
    if (bytes > 0) ++transfers_[side];
    return {direction.ring.data() + at, bytes};
  }

  void consume(int side, size_t bytes) {
    Direction& direction = from_[1 - side];
    RONDO_CHECK(bytes <= direction.readable_end(*now_) - direction.taken, "bytes that were lent");
    direction.taken += bytes;
    direction.forget_taken();
  }

  void cut(SimCut how) {
    if (cut_) return;
    cut_ = true;
    cut_how_ = how;
    if (how == SimCut::kClose) return;
    for (Direction& direction : from_) {
      direction.written = direction.readable_end(*now_);
      while (!direction.parts.empty() && direction.parts.back().end > direction.written) direction.parts.pop_back();
    }
  }

  void cut_after(uint64_t bytes, SimCut how) {
    if (bytes == 0) return cut(how);
    cut_in_ = bytes;
    cut_how_ = how;
  }

  const Error& error(int side) const { return errors_[side]; }
  Direction& from(int side) { return from_[side]; }
  uint64_t transfers(int side) const { return transfers_[side]; }

 private:
  long end(int side) {
    errors_[side] = cut_how_ == SimCut::kClose ? Error{ErrorCode::kPeerLost, "the peer closed the connection", {}}
                                               : Error{ErrorCode::kPeerLost, "the connection was reset", {}};
    return -1;
  }

  void put(int side, const iovec* parts, int count, size_t bytes) {
    Direction& direction = from_[side];
    direction.put(parts, count, bytes);
    const uint64_t ready = *now_ + random_.below(uint64_t{shape_.delay_ticks} + 1);
    const uint64_t earliest = direction.parts.empty() ? 0 : direction.parts.back().ready;
    direction.parts.push_back({direction.written, std::max(ready, earliest)});
    ++transfers_[side];
    if (cut_in_ != kNever && (cut_in_ -= bytes) == 0) cut(cut_how_);
  }

  size_t some_of(size_t bytes) {
    if (bytes == 0 || random_.chance(shape_.refuse_percent)) return 0;
    if (random_.chance(shape_.crumb_percent)) return random_.between(1, std::min<size_t>(bytes, 64));
    return random_.chance(shape_.part_percent) ? random_.between(1, bytes) : bytes;
  }

  SimShape shape_;
  std::shared_ptr<uint64_t> now_;  // shared with the network and its other wires
  Random random_;
  Direction from_[2];
  Error errors_[2];
  uint64_t transfers_[2] = {0, 0};
  bool cut_ = false;
  SimCut cut_how_ = SimCut::kClose;
  uint64_t cut_in_ = kNever;  // bytes until the cut
};

namespace {

class SimStream : public ByteStream {
 public:
  SimStream(std::shared_ptr<SimWire> wire, int side) : wire_(std::move(wire)), side_(side) {}
  ~SimStream() override { wire_->cut(SimCut::kClose); }
  long read(const iovec* parts, int count) override { return wire_->read(side_, parts, count); }
  std::span<const std::byte> view() override { return wire_->view(side_); }
  void consume(size_t bytes) override { wire_->consume(side_, bytes); }
  long write(const iovec* parts, int count) override { return wire_->write(side_, parts, count); }
  bool write_whole(std::span<const std::byte> head, std::span<const std::byte> payload) override {
    return wire_->write_whole(side_, head, payload);
  }
  const Error& error() const override { return wire_->error(side_); }

 private:
  std::shared_ptr<SimWire> wire_;  // shared with the other side and the network
  int side_;
};

}  // namespace

SimNetwork::SimNetwork(uint64_t seed) : seed_(seed), now_(std::make_shared<uint64_t>(0)) {}
SimNetwork::~SimNetwork() = default;

SimNetwork::Connection SimNetwork::connect(const SimShape& shape) {
  Connection connection;
  connection.id = static_cast<int>(wires_.size());
  const uint64_t seed = Hash64().add(seed_).add(wires_.size()).value();
  wires_.push_back(std::make_shared<SimWire>(seed, shape, now_));
  for (int side : {0, 1}) connection.side[side] = std::make_unique<SimStream>(wires_.back(), side);
  return connection;
}

uint64_t SimNetwork::now() const { return *now_; }
void SimNetwork::advance(uint64_t ticks) { *now_ += ticks; }

void SimNetwork::cut(int id, SimCut how) { wires_.at(id)->cut(how); }
void SimNetwork::cut_after(int id, uint64_t bytes, SimCut how) { wires_.at(id)->cut_after(bytes, how); }

void SimNetwork::stall(int id, int from, uint64_t ticks) {
  Direction& direction = wires_.at(id)->from(from);
  direction.stalled_until = std::max(direction.stalled_until, *now_ + ticks);
}

void SimNetwork::flip_after(int id, int from, uint64_t bytes) {
  Direction& direction = wires_.at(id)->from(from);
  direction.flip_at = direction.written + bytes;
}

size_t SimNetwork::in_flight(int id, int from) const {
  const Direction& direction = wires_.at(id)->from(from);
  return static_cast<size_t>(direction.written - direction.taken);
}
uint64_t SimNetwork::written(int id, int from) const { return wires_.at(id)->from(from).written; }
uint64_t SimNetwork::transfers(int id, int side) const { return wires_.at(id)->transfers(side); }

}  // namespace rondo::testing
