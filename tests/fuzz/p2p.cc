// What a peer writes on a point-to-point stream: envelopes and payloads, whole or in crumbs, to a rank that has
// receives and a send under way. Nothing lands outside a receive; the pool keeps its bound; fail() ends everything.
//   input: mode (bit 0: on the stream of the rank's own messages; bit 1: the stream lends; bit 2: a receive takes the
//   beginning of a message, another is a matched probe, and the send is synchronous; bit 3: messages that are asked for
//   are read, where their address is even), bytes a read, the stream
#include "ring/engine/p2p/p2p.h"

#include <algorithm>
#include <memory>

#include "ring/engine/p2p/wire.h"
#include "tests/fuzz/fed_stream.h"
#include "tests/fuzz/target.h"

namespace rondo::fuzz {
namespace {

constexpr uint64_t kCommunicator = 0x1234;
constexpr uint64_t kPoolBytes = 8192, kEagerBytes = 1024;

struct WithMemory : P2pRequest {
  std::vector<std::byte> memory;
  bool completed = false;
  void complete(const Error*) override {
    RONDO_CHECK(!completed, "a request completes once");
    completed = true;
  }
  void use(size_t size) {
    memory.resize(size);
    memory.shrink_to_fit();
    this->data = memory.data();
    this->bytes = size;
  }
};

struct Streams : P2pStreams {
  std::unique_ptr<ByteStream> to, from;
  std::unique_ptr<ByteStream> take_stream_to(int) override { return std::move(to); }
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from() override {
    if (!from) return std::nullopt;
    return std::pair(0, std::move(from));
  }
};

std::string frame(P2pKind kind, uint64_t sequence, uint64_t bytes, uint64_t offset = 0, uint32_t tag = 0) {
  P2pEnvelope envelope;
  envelope.kind = kind;
  envelope.communicator = kCommunicator;
  envelope.sequence = sequence;
  envelope.bytes = bytes;
  envelope.offset = offset;
  envelope.tag = tag;
  std::string text(kP2pEnvelopeBytes, '\0');
  p2p_encode(envelope, reinterpret_cast<std::byte*>(text.data()));
  const bool payload = kind == P2pKind::kEager || kind == P2pKind::kData;
  return text + std::string(payload ? bytes : 0, 'x');
}

}  // namespace

std::vector<std::string> seeds() {
  using enum P2pKind;
  const std::string reads("\x8\x7f", 2), read_back("\x9\xff", 2);
  const std::string whole("\0\xff", 2), crumbs("\2\x1f", 2), backward("\1\xff", 2), special("\4\x40", 2);
  return {whole + frame(kEager, 0, 100) + frame(kEager, 1, 900, 0, 7) + frame(kEnd, 0, 0),
          crumbs + frame(kEager, 0, 8) + frame(kRequest, 1, 2000) + frame(kData, 1, 1500) + frame(kData, 1, 500, 1500),
          whole + frame(kEager, 0, 1024) + frame(kEager, 1, 1024) + frame(kEager, 2, 0, 0, 9),
          special + frame(kEager, 0, 700) + frame(kEager, 1, 900) + frame(kRequest, 2, 0),
          special + frame(kRequest, 0, 700) + frame(kEager, 1, 8) + frame(kEager, 2, 8) + frame(kData, 0, 100),
          backward + frame(kClear, 0, 5000) + frame(kCredit, 0, 0),
          backward + frame(kClear, 0, 0),
          backward + frame(kRefuse, 0, 5000, 100),
          reads + frame(kRequest, 0, 1900, 4096) + frame(kRequest, 1, 100, 4097) + frame(kData, 0, 0, 1900),
          read_back + frame(kClear, 0, 5000, 5000)};
}

void try_input(std::string_view input) {
  if (input.size() < 2) return;
  const bool backward = (input[0] & 1) != 0, lends = (input[0] & 2) != 0, special = (input[0] & 4) != 0;
  const auto most = static_cast<unsigned char>(input[1]);
  Streams streams;
  streams.from = std::make_unique<FedStream>(backward ? "" : input.substr(2), most, lends);
  streams.to = std::make_unique<FedStream>(backward ? input.substr(2) : "", most, lends);
  WithMemory receives[3], send;
  P2pOptions options;
  options.communicator = kCommunicator;
  options.eager_bytes = kEagerBytes;
  options.pool_bytes = kPoolBytes;
  if ((input[0] & 8) != 0) {
    options.read = [](int, uint64_t address, std::byte* to, size_t bytes) {
      if (address % 2 == 0) std::fill_n(to, bytes, std::byte{'y'});
      return address % 2 == 0;
    };
    options.readable = [](int) { return true; };
    options.always_read = true;
  }
  P2p p2p(1, 2, options, streams);
  const size_t sizes[] = {100, 2000, 0};
  for (size_t i = 0; i < 3; ++i) {
    receives[i].kind = MessageKind::kReceive;
    receives[i].use(sizes[i]);
    receives[i].peer = i == 0 ? 0 : kAnySource;
    receives[i].tag = i == 0 ? 0 : kAnyTag;
    receives[i].truncate = special && i < 2;
    if (special && i == 2) receives[i].kind = MessageKind::kMatchedProbe;
    p2p.submit(receives[i]);
  }
  send.use(5000);
  send.synchronous = special;
  p2p.submit(send);
  while (p2p.progress()) {
    RONDO_CHECK(p2p.pooled_bytes() <= kPoolBytes, "the pool keeps its bound");
    if (p2p.failure()) break;
  }
  p2p.fail(p2p.failure().value_or(Error{ErrorCode::kPeerLost, "the end of the input", {}}));
  for (const auto& receive : receives) RONDO_CHECK(receive.completed, "fail() completes every receive");
  RONDO_CHECK(send.completed, "fail() completes every send");
  RONDO_CHECK(p2p.pooled_bytes() == 0, "fail() empties the pool");
}

}  // namespace rondo::fuzz
