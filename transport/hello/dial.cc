#include "transport/hello/dial.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <asio/post.hpp>
#include <utility>

#include "ring/base/system_error.h"
#include "transport/hello/handshake.h"
#include "transport/tcp/asio_socket.h"
#include "transport/tcp/io_timer.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/socket_options.h"

namespace rondo {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Between two attempts; doubled each time, since all ranks of a job may dial one listener at once.
constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLongestPause{500};
// A peer listens before it publishes its endpoints and until it is gone: "connection refused" at all of them for so
// long means that it died. Longer than an overloaded host takes to let a dying listener's queue drain.
constexpr milliseconds kRefusalPatience{800};

// How a connection attempt ended: the system's number, 0 if it stands. Reading it takes it away.
int socket_error(int socket) {
  int number = 0;
  socklen_t size = sizeof number;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &number, &size) != 0) return errno;
  return number;
}

}  // namespace

// One attempt at a time: connect, hello, answer, confirm, and the TLS handshake if it is to be sealed. An empty done_
// says that the Dial has gone or has ended.
class Dial::State : public std::enable_shared_from_this<Dial::State> {
 public:
  State(asio::io_context& io, DialOrder order, std::function<void(DialResult)> done)
      : io_(io), order_(std::move(order)), done_(std::move(done)), timer_(io) {}

  void start() {
    asio::post(io_, [self = shared_from_this()] { self->attempt(); });
  }

  std::string words() const { return socket_ && limited_by_ != nullptr ? sentence(limited_by_) : words_; }
  bool accepted() const { return accepted_; }

  // Only from ~Dial().
  void cancel() {
    done_ = nullptr;
    timer_.cancel();
    socket_.reset();
  }

 private:
  // Begins with the next endpoint. What this process itself lacks (descriptors, an option) is tried again like a peer's
  // failure, since it may pass.
  void attempt() {
    if (!done_) return;
    received_ = 0;
    accepted_ = false;
    session_.reset();
    from_.clear();
    attempted_ = Clock::now();
    const Endpoint& endpoint = order_.endpoints[next_ % order_.endpoints.size()];
    try {
      const SocketAddress target = numeric_address(endpoint.address, endpoint.port);
      Descriptor socket = stream_socket(target.family());
      if (!socket.valid()) throw Exception(system_error("making a socket", errno));
      socket_ = std::make_unique<AsioSocket>(io_, std::move(socket));
      set_buffers(socket_->get(), order_.tuning);
      if (!carries_data()) tune_control_socket(socket_->get(), order_.tuning.silence_ms);
      if (::connect(socket_->get(), target.get(), target.size) != 0 && errno != EINPROGRESS && errno != EINTR) {
        return failed(errno);
      }
      from_ = bound_address(socket_->get()).host();
    } catch (const Exception& failure) {
      return retry(failure.what(), Sign::kOther);
    }
    // Each of its endpoints is tried within the silence.
    const auto attempt = std::min<Clock::duration>(order_.attempt, silence() / order_.endpoints.size());
    limit(std::min({order_.deadline, attempted_ + attempt, std::min(silent_since_, attempted_) + silence()}),
          "no answer to the connection attempt", Sign::kNone);
    socket_->when_writable([self = shared_from_this()] { self->connected(); });
  }

  // The kernel of the peer's host has accepted; its process may not have looked yet. A knock ends here.
  void connected() {
    if (const int number = socket_error(socket_->get()); number != 0) return failed(number);
    accepted_ = true;
    if (!order_.hello) return finish({{socket_->detach()}, {}});
    handshake_.emplace(*order_.hello, order_.auth);
    std::string why;
    // The socket's buffer is empty, so all of it fits at once.
    if (send_some(socket_->get(), handshake_->hello(), why) != static_cast<long>(kHelloBytes)) {
      return retry(why, Sign::kOther);
    }
    // The peer may be busy with its start: it answers once it knows all ranks.
    limit(order_.deadline, "it accepts connections and does not answer", Sign::kOther);
    wait();
  }

  void wait() {
    socket_->when_readable([self = shared_from_this()] { self->read(); });
  }

  // The answer, which comes in parts perhaps; behind it the peer's TLS messages.
  void read() {
    if (session_) return seal();
    std::string why;
    int number = 0;
    while (received_ < kAnswerBytes) {
      char* const target = bytes_.data() + received_;
      const long moved = receive_some(socket_->get(), target, kAnswerBytes - received_, why, &number);
      if (moved == 0) return wait();
      if (moved < 0) return retry(why, number == ETIMEDOUT ? Sign::kNone : Sign::kOther);
      received_ += static_cast<size_t>(moved);
    }
    judge();
  }

  // A peer that is busy, and a program that is none of ours, are tried again: a port may have been another program's
  // for a moment. Any other refusal ends the dial.
  void judge() {
    const auto [welcome, busy, error] = handshake_->judge({bytes_.data(), bytes_.size()});
    if (busy || error.code == ErrorCode::kProtocol) return retry(error.message, Sign::kOther);
    if (!welcome) {
      return finish({{}, {error.code, fmt::format("{} at {}: {}", order_.peer, where(), error.message), {}}});
    }
    std::string why;
    if (send_some(socket_->get(), handshake_->confirm(), why) != static_cast<long>(kConfirmBytes)) {
      return retry(why, Sign::kOther);
    }
    if (const auto key = handshake_->tls_key()) {
      session_ = std::make_unique<TlsSession>(TlsSession::End::kDialer, *key);
      return seal();
    }
    finish({{socket_->detach()}, {}});
  }

  // The TLS handshake, as far as it goes with what has come.
  void seal() {
    std::string why;
    int number = 0;
    const long done = shake_hands(*session_, socket_->get(), why, &number);
    if (done == 0) return wait();
    if (done < 0) return retry(why, number == ETIMEDOUT ? Sign::kNone : Sign::kOther);
    finish({{socket_->detach(), std::move(session_)}, {}});
  }

  // The connection attempt was refused by the network or by this system.
  void failed(int number) {
    if (number == EADDRNOTAVAIL) {
      return retry(fmt::format("{} (is a local port free? net.ipv4.ip_local_port_range)", std::strerror(number)),
                   Sign::kNoPort);
    }
    if (cause_of(number) != Cause::kRefused) {
      const bool none = number == ETIMEDOUT || number == EHOSTUNREACH || number == ENETUNREACH;
      return retry(std::strerror(number), number == ECONNREFUSED ? Sign::kRefused : none ? Sign::kNone : Sign::kOther);
    }
    // This process may not connect, or cannot: another try would end alike.
    finish({{}, system_error(fmt::format("connecting to {} at {}", order_.peer, where()), number)});
  }

  // What an attempt that failed shows of the peer. kNone: no sign of life. kRefused: its host lives, and nothing
  // listens. kNoPort: this host had no local port. kOther: anything else.
  enum class Sign { kNone, kRefused, kNoPort, kOther };  // of life, of the peer; kNoPort: this host's fault
  // Ends the dial where signs of one kind have lasted for their patience, else tries again after a pause. One sign of
  // another kind begins all patience anew.
  void retry(const std::string& why, Sign sign) {
    socket_.reset();
    timer_.cancel();
    const auto now = Clock::now();
    refused_since_ = sign == Sign::kRefused ? std::min(refused_since_, now) : Clock::time_point::max();
    silent_since_ = sign == Sign::kNone ? std::min(silent_since_, attempted_) : Clock::time_point::max();
    portless_since_ = sign == Sign::kNoPort ? std::min(portless_since_, now) : Clock::time_point::max();
    const std::string message = words_ = sentence(why);
    if (refused_since_ != Clock::time_point::max() && now - refused_since_ >= kRefusalPatience) {
      return finish({{}, {ErrorCode::kPeerLost, message, {}}});
    }
    if (sign == Sign::kNoPort && now - portless_since_ >= order_.attempt) {
      return finish({{}, {ErrorCode::kSystem, message, {}}});
    }
    if (sign == Sign::kNone && now - silent_since_ >= silence()) {
      return finish(
          {{},
           {ErrorCode::kUnresponsive,
            message + "; its host has given no sign of life for the suspicion: it has vanished, or a firewall "
                      "drops what is sent there",
            {}}});
    }
    // The last look at a peer that refuses comes when the patience with it ends, not a long pause later.
    const Clock::time_point refused_until = sign == Sign::kRefused ? refused_since_ + kRefusalPatience : now + pause_;
    const Clock::time_point next = std::min(now + pause_, refused_until);
    if (next >= order_.deadline) return finish({{}, {ErrorCode::kTimeout, message, {}}});
    ++next_;
    timer_.set(next, [self = shared_from_this()] { self->attempt(); });
    pause_ = std::min(pause_ * 2, kLongestPause);
  }

  bool carries_data() const {
    return order_.hello && (order_.hello->role == Role::kData || order_.hello->role == Role::kStream);
  }

  // For how long a host may give no sign of life; without such a limit a year, which the deadline always cuts.
  Clock::duration silence() const {
    return order_.tuning.silence_ms > 0 ? milliseconds(order_.tuning.silence_ms) : std::chrono::hours(24 * 365);
  }

  // The attempt's timer: retry() with `why` unless the attempt has gone on before.
  void limit(Clock::time_point when, const char* why, Sign sign) {
    limited_by_ = why;
    timer_.set(when, [self = shared_from_this(), why, sign] { self->retry(why, sign); });
  }

  // The handler is moved out first: it may destroy the Dial, and this object lives on by its handler's pointer.
  void finish(DialResult result) {
    timer_.cancel();
    socket_.reset();
    if (auto done = std::exchange(done_, nullptr)) done(std::move(result));
  }

  std::string sentence(const std::string& why) const {
    return fmt::format("connecting to {} at {}{}{}: {}", order_.peer, where(), from_.empty() ? "" : " from ", from_,
                       why);
  }
  std::string where() const { return to_string(order_.endpoints[next_ % order_.endpoints.size()]); }

  asio::io_context& io_;
  DialOrder order_;
  std::function<void(DialResult)> done_;
  IoTimer timer_;
  std::unique_ptr<AsioSocket> socket_;
  std::optional<DialerHandshake> handshake_;  // of this attempt
  std::unique_ptr<TlsSession> session_;       // the same; null: not yet, or not to be sealed
  std::array<char, kAnswerBytes> bytes_{};
  size_t received_ = 0;
  bool accepted_ = false;  // this attempt
  std::string from_;       // its own address
  std::string words_;      // of the last attempt that has ended
  const char* limited_by_ = nullptr;
  size_t next_ = 0;  // endpoint
  milliseconds pause_ = kFirstPause;
  Clock::time_point attempted_{};
  // Since when all attempts have shown this sign; max(): the last one has not.
  Clock::time_point refused_since_ = Clock::time_point::max();
  Clock::time_point silent_since_ = Clock::time_point::max();
  Clock::time_point portless_since_ = Clock::time_point::max();
};

Dial::Dial(asio::io_context& io, DialOrder order, std::function<void(DialResult)> done)
    : state_(std::make_shared<State>(io, std::move(order), std::move(done))) {
  state_->start();
}
Dial::~Dial() { state_->cancel(); }
std::string Dial::words() const { return state_->words(); }
bool Dial::accepted() const { return state_->accepted(); }

}  // namespace rondo
