#include "transport/control/control_connection.h"

#include <asio/post.hpp>
#include <utility>

#include "transport/tcp/asio_socket.h"

namespace rondo {
namespace {

// A thousand aborts of the longest kind; a peer that lets so much pile up does not read.
constexpr size_t kMaxQueuedBytes = 4u << 20;
constexpr size_t kReadBytes = kControlHeaderBytes + kMaxControlBodyBytes;

}  // namespace

class ControlConnection::State : public std::enable_shared_from_this<ControlConnection::State> {
 public:
  State(asio::io_context& io, SecuredSocket socket, OnFrame on_frame, OnEnd on_end)
      : io_(io), socket_(io, std::move(socket.socket)), on_frame_(std::move(on_frame)), on_end_(std::move(on_end)) {
    seal_.use(socket.keys);
  }

  void start() { wait_readable(); }

  void cancel() {
    on_frame_ = nullptr;
    on_end_ = nullptr;
    socket_.detach();
  }

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
    socket_.when_readable([self = shared_from_this()](asio::error_code failure) {
      if (!failure && self->on_end_) self->read();
    });
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

  void write() {
    std::string why;
    while (!queue_.empty()) {
      const long moved = send_some(socket_.get(), queue_, why);
      if (moved < 0) return end_soon(why);
      if (moved == 0) {
        socket_.when_writable([self = shared_from_this()](asio::error_code failure) {
          if (!failure && self->on_end_) self->write();
        });
        return;
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

}  // namespace rondo
