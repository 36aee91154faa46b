#include "transport/island/island_connection.h"

#include <array>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "rondo/error.h"
#include "transport/island/island_socket.h"
#include "transport/tcp/asio_socket.h"
#include "transport/tcp/io_timer.h"

namespace rondo {
namespace {

// Frames that a peer has not read: each communicator costs it a few, each registered buffer one.
constexpr size_t kMaxQueued = 16 * 1024;
// A queue that is full (some 200 frames fit the socket) is looked at again after so long: the peer's I/O thread reads
// within microseconds, unless it is stopped.
constexpr std::chrono::milliseconds kRetry{1};

}  // namespace

// The connection itself. What was posted keeps it alive after the IslandConnection has gone; over_ and an empty
// on_frame_ make that do nothing.
class IslandConnection::State : public std::enable_shared_from_this<IslandConnection::State> {
  using End = IslandConnection::End;

 public:
  State(asio::io_context& io, Dial dial, OnFrame on_frame, OnEnd on_end)
      : io_(io), retry_(io), dial_(std::move(dial)), on_frame_(std::move(on_frame)), on_end_(std::move(on_end)) {}

  void start_soon() {
    asio::post(io_, [self = shared_from_this()] { self->dial(); });
  }

  // The first socket carries the queue that send() has filled so far. A second one, from a peer that dialed at the same
  // time, is only read.
  void add(Descriptor socket) {
    std::string why;
    Sent sent = Sent::kYes;
    {
      std::lock_guard lock(mutex_);
      const size_t index = sockets_[0] ? 1 : 0;
      if (over_ || sockets_[index]) return;
      sockets_[index].emplace(io_, std::move(socket));
      if (index == 0) sent = send_queue(why);
      wait_readable(index);
    }
    if (sent == Sent::kLater) retry_later();
    if (sent == Sent::kOver) end(End::kGone, why);
  }

  // The owner goes. No handler calls out from here on.
  void cancel() {
    std::lock_guard lock(mutex_);
    over_ = true;
    on_frame_ = nullptr;
    on_end_ = nullptr;
    retry_.cancel();
    for (auto& socket : sockets_) socket.reset();
  }

  // Sends at once where the queue is empty, on the caller's thread: a frame then costs one system call and no wake-up
  // of the I/O thread. Otherwise the frame waits behind the others, and order is kept.
  void send(const IslandFrame& frame, std::vector<int> descriptors, std::shared_ptr<void> keep) {
    std::string why;
    End kind = End::kGone;
    {
      std::lock_guard lock(mutex_);
      if (over_) return;
      queue_.push_back({frame, std::move(descriptors), std::move(keep)});
      if (queue_.size() > 1 || !sockets_[0]) {
        if (queue_.size() <= kMaxQueued) return;  // the timer is set, or it is being connected
        why = "it has stopped reading";
        kind = End::kBroken;
      } else {
        switch (send_queue(why)) {
          case Sent::kYes:
            return;
          case Sent::kLater:
            try {
              asio::post(io_, [self = shared_from_this()] { self->retry_later(); });
            } catch (...) {  // no memory: a frame in the queue says that the timer is set
              queue_.clear();
              throw;
            }
            return;
          case Sent::kOver:
            break;
        }
      }
    }
    asio::post(io_, [self = shared_from_this(), kind, why] { self->end(kind, why); });
  }

 private:
  // A frame that is not sent yet; `keep` owns its descriptors meanwhile.
  struct Queued {
    IslandFrame frame;
    std::vector<int> descriptors;
    std::shared_ptr<void> keep;
  };

  // On the I/O thread. A peer that has dialed this rank first makes dialing needless.
  void dial() {
    if (!on_frame_ || sockets_[0]) return;
    Dialed dialed = dial_();
    if (dialed.socket.valid()) return add(std::move(dialed.socket));
    if (!dialed.later) return end(dialed.end, dialed.why);
    retry_.set(IoTimer::Clock::now() + kRetry, [this] { dial(); });
  }

  // Requires the lock.
  Sent send_queue(std::string& why) {
    while (!queue_.empty()) {
      const Queued& next = queue_.front();
      const Sent sent = send_message(sockets_[0]->get(), &next.frame, sizeof next.frame, next.descriptors, why);
      if (sent != Sent::kYes) return sent;
      queue_.pop_front();
    }
    return Sent::kYes;
  }

  // A timer, and no wait for writability: a socket that refuses a message for the descriptors that are under way
  // (ETOOMANYREFS) counts as writable.
  void retry_later() {
    retry_.set(IoTimer::Clock::now() + kRetry, [this] {
      std::string why;
      Sent sent = Sent::kYes;
      {
        std::lock_guard lock(mutex_);
        if (over_) return;
        sent = send_queue(why);
      }
      if (sent == Sent::kLater) retry_later();
      if (sent == Sent::kOver) end(End::kGone, why);
    });
  }

  // One handler for each socket at a time: read() asks for the next only when it has read what there was.
  void wait_readable(size_t index) {
    sockets_[index]->when_readable([this, index] { read(index); });
  }

  void read(size_t index) {
    // A few frames at a time, so that one peer cannot keep the thread from the others.
    for (int i = 0; i < 16 && on_frame_ && read_one(index); ++i) {
    }
    if (on_frame_) wait_readable(index);
  }

  // False: nothing more has come, or it has ended.
  bool read_one(size_t index) {
    const auto ended = [this](End kind, const std::string& why) {
      end(kind, why);
      return false;
    };
    IslandFrame frame;
    std::vector<Descriptor> descriptors;
    std::string why;
    const Received received = receive_message(sockets_[index]->get(), &frame, sizeof frame, descriptors, why);
    if (received == Received::kNothing) return false;
    if (received == Received::kOver) {
      const size_t other = 1 - index;  // what it has said there came before the end
      if (sockets_[other] && !std::exchange(draining_, true)) {
        while (on_frame_ && read_one(other)) {
        }
      }
      return ended(End::kGone, why);
    }
    if (received == Received::kBroken) return ended(End::kBroken, why);
    const int expected = descriptors_of(frame.topic);
    if (expected < 0 || descriptors.size() != static_cast<size_t>(expected)) {
      return ended(End::kBroken, "it sent a message that makes no sense");
    }
    try {
      const OnFrame on_frame = on_frame_;  // what it does may end the connection
      on_frame(frame, std::move(descriptors));
    } catch (const Exception& failure) {
      return ended(failure.code() == ErrorCode::kSystem ? End::kUnmade : End::kBroken, failure.what());
    }
    return true;
  }

  // Calls on_end once, without the lock, since it may close the island's parts or send to other peers.
  void end(End kind, const std::string& why) {
    const auto self = shared_from_this();
    OnEnd on_end;
    {
      std::lock_guard lock(mutex_);
      over_ = true;
      queue_.clear();
      on_end = std::exchange(on_end_, nullptr);
      on_frame_ = nullptr;
      retry_.cancel();
      for (auto& socket : sockets_) socket.reset();
    }
    if (on_end) on_end(kind, why);
  }

  asio::io_context& io_;
  // The I/O thread uses them, and changes them under the lock. Under it, any thread may send on the first until over_.
  std::array<std::optional<AsioSocket>, 2> sockets_;
  IoTimer retry_;
  const Dial dial_;
  OnFrame on_frame_;
  OnEnd on_end_;
  bool draining_ = false;  // one has ended
  std::mutex mutex_;
  std::deque<Queued> queue_;
  bool over_ = false;
};

IslandConnection::IslandConnection(asio::io_context& io, Dial dial, OnFrame on_frame, OnEnd on_end)
    : state_(std::make_shared<State>(io, std::move(dial), std::move(on_frame), std::move(on_end))) {}
IslandConnection::~IslandConnection() { state_->cancel(); }
void IslandConnection::start() { state_->start_soon(); }
void IslandConnection::add(Descriptor socket) { state_->add(std::move(socket)); }
void IslandConnection::send(const IslandFrame& frame, std::vector<int> descriptors, std::shared_ptr<void> keep) {
  state_->send(frame, std::move(descriptors), std::move(keep));
}

}  // namespace rondo
