#include "transport/control/control_mesh.h"

#include <algorithm>
#include <asio/post.hpp>
#include <cstdint>
#include <utility>

#include "transport/auth/text_seal.h"
#include "transport/tcp/asio_socket.h"

namespace rondo {
namespace {

// A thousand aborts of the longest kind; a peer that lets so much pile up does not read.
constexpr size_t kMaxQueuedBytes = 4u << 20;
// One read takes many small frames. The largest come in several.
constexpr size_t kReadBytes = 8192;

// Steps from one rank to the other on the circle of all ranks, the shorter way round.
int circle_distance(int one, int other, int world) {
  const int forward = (other - one + world) % world;
  return std::min(forward, world - forward);
}

}  // namespace

// Control frames over one socket, in both directions. On the I/O thread.
class ControlConnection {
 public:
  using OnFrame = std::function<void(ControlFrame)>;
  // Nothing comes any more; why, in words. Called once, unless the object is destroyed before.
  using OnEnd = std::function<void(const std::string& why)>;

  ControlConnection(asio::io_context& io, SecuredSocket socket, OnFrame on_frame, OnEnd on_end);
  ~ControlConnection();

  // More than kMaxQueuedBytes unsent ends the connection: the peer has stopped reading.
  void send(const ControlFrame& frame);
  // Says that nothing more will be sent, once what is queued has gone. Reading goes on to the peer's end.
  void finish();

 private:
  class State;
  std::shared_ptr<State> state_;  // shared with the handlers that Asio still holds
};

// on_end_ is set while the connection is in use: what was posted asks for it first, and does nothing without it.
class ControlConnection::State : public std::enable_shared_from_this<ControlConnection::State> {
 public:
  State(asio::io_context& io, SecuredSocket socket, OnFrame on_frame, OnEnd on_end)
      : io_(io), socket_(io, std::move(socket.socket)), on_frame_(std::move(on_frame)), on_end_(std::move(on_end)) {
    seal_.use(std::move(socket.session));
  }

  void start() { wait_readable(); }

  // The owner goes: neither function is called any more.
  void cancel() {
    on_frame_ = nullptr;
    on_end_ = nullptr;
    socket_.detach();
  }

  // Never fails to the caller's face: an end is told later (end_soon()).
  void send(const ControlFrame& frame) {
    if (!on_end_ || finishing_) return;
    seal_.seal(encode(frame), queue_);
    if (queue_.size() > kMaxQueuedBytes) return end_soon("it has stopped reading");
    write_soon();
  }

  void finish() {
    if (!on_end_ || finishing_) return;
    finishing_ = true;
    write_soon();
  }

 private:
  // Behind the handlers that are due: what they send as well goes by the same system call.
  void write_soon() {
    if (writing_) return;
    asio::post(io_, [self = shared_from_this()] {
      if (self->on_end_) self->write();
    });
    writing_ = true;
  }

  void wait_readable() {
    socket_.when_readable([self = shared_from_this()] { self->read(); });
  }

  void read() {
    std::string why;
    char buffer[kReadBytes];
    // A few frames at a time, so that one peer cannot keep the thread from the others.
    const long moved = receive_some(socket_.get(), buffer, sizeof buffer, why);
    if (moved < 0) return end(why);
    if (!seal_.open({buffer, static_cast<size_t>(moved)}, input_)) {
      return end("its control messages were changed on their way");
    }
    if (!parse()) return end("it sent a malformed control message");
    if (on_end_) wait_readable();
  }

  // False: what came is no frame.
  bool parse() {
    size_t used = 0;
    const OnFrame deliver = on_frame_;  // the frame may end this connection, and with it on_frame_
    while (on_frame_ && input_.size() - used >= kControlHeaderBytes) {
      const std::string_view rest = std::string_view(input_).substr(used);
      const auto header = decode_control_header(rest.substr(0, kControlHeaderBytes));
      if (!header) return false;
      if (rest.size() < kControlHeaderBytes + header->body_bytes) break;
      auto body = decode_control_body(header->type, rest.substr(kControlHeaderBytes, header->body_bytes));
      if (!body) return false;
      used += kControlHeaderBytes + header->body_bytes;
      deliver({header->source, header->destination, std::move(*body), header->hops});
    }
    input_.erase(0, used);
    return true;
  }

  // Until the queue is empty or the socket full. After finish() the end of this side follows the last byte, and reading
  // goes on.
  void write() {
    std::string why;
    while (!queue_.empty()) {
      const long moved = send_some(socket_.get(), queue_, why);
      if (moved < 0) return end_soon(why);
      if (moved == 0) {
        return socket_.when_writable([self = shared_from_this()] { self->write(); });
      }
      queue_.erase(0, static_cast<size_t>(moved));
    }
    writing_ = false;
    if (finishing_) ::shutdown(socket_.get(), SHUT_WR);
  }

  void end(const std::string& why) {
    // on_end may destroy this connection, and with it the functions.
    const auto self = shared_from_this();
    auto tell = std::exchange(on_end_, nullptr);
    on_frame_ = nullptr;
    socket_.detach();
    if (tell) tell(why);
  }

  // Out of send(): its caller may be in the middle of a loop over connections. A write fails before what the peer had
  // sent is read (its goodbye, an abort): read that first.
  void end_soon(const std::string& why) {
    queue_.clear();
    finishing_ = true;
    asio::post(io_, [self = shared_from_this(), why] {
      if (self->on_end_) self->read_rest(why);
    });
  }

  // At most kMaxQueuedBytes, so that a peer which goes on sending does not keep the thread here.
  void read_rest(const std::string& why) {
    std::string ignored;
    char buffer[kReadBytes];
    for (size_t total = 0; total < kMaxQueuedBytes;) {
      const long moved = receive_some(socket_.get(), buffer, sizeof buffer, ignored);
      if (moved <= 0) break;
      total += static_cast<size_t>(moved);
      if (!seal_.open({buffer, static_cast<size_t>(moved)}, input_) || !parse() || !on_end_) break;
    }
    end(why);
  }

  asio::io_context& io_;
  AsioSocket socket_;
  OnFrame on_frame_;
  OnEnd on_end_;
  std::string input_;  // at most one incomplete frame between reads
  std::string queue_;
  TextSeal seal_;
  // A write is posted, or waits for the socket: who sends more need not ask for another one.
  bool writing_ = false;
  bool finishing_ = false;
};

ControlConnection::ControlConnection(asio::io_context& io, SecuredSocket socket, OnFrame on_frame, OnEnd on_end)
    : state_(std::make_shared<State>(io, std::move(socket), std::move(on_frame), std::move(on_end))) {
  state_->start();
}
ControlConnection::~ControlConnection() { state_->cancel(); }
void ControlConnection::send(const ControlFrame& frame) { state_->send(frame); }
void ControlConnection::finish() { state_->finish(); }

ControlMesh::ControlMesh(asio::io_context& io, int rank, int world, OnMessage on_message, OnEnd on_end, OnSign on_sign)
    : io_(io),
      rank_(rank),
      world_(world),
      on_message_(std::move(on_message)),
      on_end_(std::move(on_end)),
      on_sign_(std::move(on_sign)),
      map_(world) {}

ControlMesh::~ControlMesh() = default;

// The end of a dropped connection is told to nobody: it only leaves dropped_. The object is then destroyed inside its
// own handler, which its State outlives.
void ControlMesh::add(int peer, SecuredSocket socket) {
  next_.clear();
  connections_[peer] = std::make_unique<ControlConnection>(
      io_, std::move(socket), [this, peer](const ControlFrame& frame) { on_frame(peer, frame); },
      [this, peer](const std::string& why) {
        if (dropped_.erase(peer) == 0) on_end_(peer, why);
      });
}

bool ControlMesh::remove(int peer) {
  next_.clear();
  return connections_.erase(peer) != 0;
}

void ControlMesh::finish(int peer) {
  if (const auto found = connections_.find(peer); found != connections_.end()) found->second->finish();
}

void ControlMesh::finish_all() {
  for (const auto& [peer, connection] : connections_) connection->finish();
}

// The connection stays until the peer ends its side, since what was sent to it last must still arrive.
bool ControlMesh::drop(int peer) {
  const auto found = connections_.find(peer);
  if (found == connections_.end()) return false;
  found->second->finish();
  dropped_[peer] = std::move(found->second);
  next_.clear();
  connections_.erase(found);
  return true;
}

void ControlMesh::send(int destination, const ControlBody& body) {
  forward({static_cast<uint32_t>(rank_), static_cast<uint32_t>(destination), body});
}

void ControlMesh::on_frame(int peer, const ControlFrame& frame) {
  if (dropped_.count(peer)) return;
  on_sign_(peer);
  const auto world = static_cast<uint32_t>(world_);
  const auto own = static_cast<uint32_t>(rank_);
  // What this rank has sent may come back where others do not yet know who is gone.
  const bool honest = frame.source < world && frame.destination < world && (frame.source != own || frame.hops > 0) &&
                      (world_ > kMaxFullMesh || frame.source == static_cast<uint32_t>(peer));
  if (!honest) return on_end_(peer, "it sent a control message in another rank's name");
  if (frame.destination != own) {
    ControlFrame passed = frame;
    if (++passed.hops <= kMaxHops) forward(passed);
    return;
  }
  on_message_(static_cast<int>(frame.source), frame.body);
}

void ControlMesh::forget(int peer) {
  map_.forget(peer);
  some_gone_ = true;
  next_.clear();
}

void ControlMesh::cut(int one, int other) {
  map_.cut(one, other);
  some_gone_ = true;
  next_.clear();
}

// -1: no way is known. While nobody is gone the nearest neighbor to the destination is next, without a table: each hop
// comes nearer, so no frame goes round. After that the table of MeshMap says it, and is made again when the map has
// changed.
int ControlMesh::next_hop(int destination) {
  if (connections_.count(destination)) return destination;
  if (world_ <= kMaxFullMesh) return -1;
  if (some_gone_) {
    if (next_.empty()) {
      std::vector<int> connected;
      for (const auto& [peer, connection] : connections_) connected.push_back(peer);
      next_ = map_.next_hops(rank_, connected);
    }
    return next_[static_cast<size_t>(destination)];
  }
  int best = -1;
  int nearest = circle_distance(rank_, destination, world_);
  for (const auto& [peer, connection] : connections_) {
    const int distance = circle_distance(peer, destination, world_);
    if (distance >= nearest) continue;
    nearest = distance;
    best = peer;
  }
  return best;
}

void ControlMesh::forward(const ControlFrame& frame) {
  const auto found = connections_.find(next_hop(static_cast<int>(frame.destination)));
  if (found != connections_.end()) found->second->send(frame);
}

}  // namespace rondo
