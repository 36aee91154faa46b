#include "tests/p2p/world.h"

#include <algorithm>
#include <cstring>

#include "ring/base/hash.h"

namespace rondo::testing {

class SimWorld::Streams : public P2pStreams {
 public:
  Streams(SimWorld& world, int rank) : world_(world), rank_(rank) {}

  std::unique_ptr<ByteStream> take_stream_to(int peer) override {
    auto [at, first] = world_.wanted_.try_emplace({rank_, peer});
    Wanted& wanted = at->second;
    if (first) {
      auto connection = world_.network_.connect(world_.settings_.shape);
      wanted.id = connection.id;
      wanted.to = std::move(connection.side[0]);
      wanted.from = std::move(connection.side[1]);
      wanted.ready = world_.network_.now() + world_.random_.below(world_.settings_.connect_ticks + 1);
    }
    return wanted.ready <= world_.network_.now() ? std::move(wanted.to) : nullptr;
  }

  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from() override {
    for (auto& [pair, wanted] : world_.wanted_) {
      if (pair.second != rank_ || !wanted.from || wanted.ready > world_.network_.now()) continue;
      return std::pair(pair.first, std::move(wanted.from));
    }
    return std::nullopt;
  }

 private:
  SimWorld& world_;
  int rank_;
};

std::byte message_byte(int from, int to, uint64_t index, uint64_t i) {
  const uint64_t key = (static_cast<uint64_t>(from) << 48) ^ (static_cast<uint64_t>(to) << 40) ^ (index << 32);
  return static_cast<std::byte>(mix64(key ^ (i / 8)) >> (i % 8 * 8));
}

SimWorld::SimWorld(Settings settings) : settings_(settings), random_(settings.seed), network_(settings.seed) {
  settings_.shape.lends = streams_lend;
  P2pOptions options;
  options.communicator = 0x1234;
  options.eager_bytes = settings.eager_bytes;
  options.pool_bytes = settings.pool_bytes;
  options.checked = [checked = settings.checked](int) { return checked; };
  if (settings.reads) {
    options.read = [this](int, uint64_t address, std::byte* to, size_t bytes) {
      if (settings_.unreadable != 0 && pieces_read_ >= settings_.unreadable) return false;
      ++pieces_read_;
      std::memcpy(to, reinterpret_cast<const std::byte*>(address), bytes);
      return true;
    };
    options.readable = [](int) { return true; };
    options.always_read = true;
  }
  for (int rank = 0; rank < settings.world; ++rank) {
    streams_.push_back(std::make_unique<Streams>(*this, rank));
    ranks_.push_back(std::make_unique<P2p>(rank, settings.world, options, *streams_.back()));
  }
}

SimWorld::~SimWorld() = default;

TestRequest& SimWorld::made(MessageKind kind, int peer, int tag, uint64_t bytes, DType dtype) {
  TestRequest& request = *requests_.emplace_back(std::make_unique<TestRequest>());
  request.kind = kind;
  request.memory.assign(bytes, kUntouched);
  request.data = request.memory.data();
  request.bytes = bytes;
  request.peer = peer;
  request.tag = tag;
  request.dtype = dtype;
  return request;
}

TestRequest& SimWorld::send(int from, int to, int tag, uint64_t bytes, DType dtype, bool synchronous) {
  TestRequest& request = made(MessageKind::kSend, to, tag, bytes, dtype);
  const uint64_t index = sent_[{from, to}]++;
  for (uint64_t i = 0; i < bytes; ++i) request.memory[i] = message_byte(from, to, index, i);
  request.synchronous = synchronous;
  at(from).submit(request);
  return request;
}

TestRequest& SimWorld::recv(int at_rank, int from, int tag, uint64_t bytes, DType dtype, bool truncate) {
  TestRequest& request = made(MessageKind::kReceive, from, tag, bytes, dtype);
  request.truncate = truncate;
  at(at_rank).submit(request);
  return request;
}

TestRequest& SimWorld::probe(int at_rank, int from, int tag, MessageKind kind) {
  TestRequest& request = made(kind, from, tag, 0, DType::kUint8);
  at(at_rank).submit(request);
  return request;
}

TestRequest& SimWorld::mrecv(int at_rank, const TestRequest& probe, uint64_t bytes, DType dtype) {
  TestRequest& request = made(MessageKind::kReceive, kAnySource, kAnyTag, bytes, dtype);
  request.matched = probe.message.matched;
  at(at_rank).submit(request);
  return request;
}

bool SimWorld::intact(const TestRequest& receive, int at) {
  for (uint64_t i = 0; i < receive.wanted(); ++i) {
    if (receive.memory[i] != message_byte(receive.message.peer, at, receive.sequence, i)) return false;
  }
  return std::all_of(receive.memory.begin() + static_cast<long>(receive.wanted()), receive.memory.end(),
                     [](std::byte byte) { return byte == kUntouched; });
}

bool SimWorld::step() {
  bool moved = false;
  const int first = static_cast<int>(random_.below(ranks_.size()));
  for (int i = 0; i < size(); ++i) {
    const int rank = (first + i) % size();
    if (!ranks_[rank]) continue;
    moved |= ranks_[rank]->progress(random_.chance(50) ? P2pSweep::kAll : P2pSweep::kAwaited);
  }
  network_.advance();
  return moved;
}

void SimWorld::settle(uint64_t limit) {
  const uint64_t quiet = settings_.connect_ticks + settings_.shape.delay_ticks + 20;
  for (uint64_t tick = 0, still = 0; tick < limit && still < quiet; ++tick) still = step() ? 0 : still + 1;
}

int SimWorld::connection(int from, int to) const {
  const auto at = wanted_.find({from, to});
  return at == wanted_.end() ? -1 : at->second.id;
}

void SimWorld::destroy(int rank) { ranks_[rank].reset(); }

}  // namespace rondo::testing
