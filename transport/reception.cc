#include "transport/reception.h"

#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <utility>

#include "transport/asio_socket.h"

namespace rondo {
namespace {

using std::chrono::milliseconds;

// Out of descriptors: wait so long before trying to accept again.
constexpr milliseconds kAcceptPause{50};
// Connections accepted before those that wait are read.
constexpr int kAcceptAtOnce = 16;
// One line about strangers in so long.
constexpr std::chrono::seconds kStrangerLogInterval{10};
// Connections that the kernel completes before we accept them; it caps this at net.core.somaxconn.
constexpr int kBacklog = 4096;

int enable(int socket, int level, int option) {
  const int on = 1;
  return ::setsockopt(socket, level, option, &on, sizeof on);
}

uint16_t bound_port(int socket) {
  asio::ip::tcp::endpoint endpoint;
  socklen_t size = static_cast<socklen_t>(endpoint.capacity());
  if (::getsockname(socket, endpoint.data(), &size) != 0) return 0;
  return endpoint.port();
}

// The first free port of the range.
Descriptor listen_on(const std::string& address, PortRange ports, const SocketTuning& tuning, uint16_t& port) {
  int number = 0;
  for (uint32_t candidate = ports.first; candidate <= ports.last; ++candidate) {
    const auto endpoint = asio_endpoint({address, static_cast<uint16_t>(candidate)});
    Descriptor socket = make_socket(endpoint);
    // A port in TIME_WAIT after a restart can be taken at once.
    enable(socket.get(), SOL_SOCKET, SO_REUSEADDR);
    if (endpoint.address().is_v6()) enable(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY);
    set_buffers(socket.get(), tuning);
    if (::bind(socket.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0 &&
        ::listen(socket.get(), kBacklog) == 0) {
      port = bound_port(socket.get());
      return socket;
    }
    number = errno;
  }
  throw Exception(ErrorCode::kNetwork,
                  fmt::format("cannot listen on {} port {}{}: {}; RONDO_PORT_RANGE and RONDO_SOCKET_IFNAME change "
                              "where",
                              address, ports.first, ports.last == ports.first ? "" : fmt::format("-{}", ports.last),
                              std::strerror(number)));
}

}  // namespace

class Reception::State : public std::enable_shared_from_this<Reception::State> {
 public:
  State(asio::io_context& io, const Settings& settings, Judge judge, Welcome welcome)
      : io_(io), settings_(settings), judge_(std::move(judge)), welcome_(std::move(welcome)) {
    for (const std::string& address : settings.addresses) {
      uint16_t port = 0;
      Descriptor socket = listen_on(address, settings.ports, settings.tuning, port);
      acceptors_.push_back(std::make_unique<Acceptor>(io, std::move(socket)));
      endpoints_.push_back({address, port});
    }
  }

  const std::vector<Endpoint>& endpoints() const { return endpoints_; }

  void start() {
    for (auto& acceptor : acceptors_) wait(*acceptor);
  }

  void reconsider() {
    for (auto it = guests_.begin(); it != guests_.end();) {
      Guest& guest = **it++;  // judging may remove it
      if (guest.received == kHelloBytes) judge(guest);
    }
  }

  void stop() {
    stopped_ = true;
    acceptors_.clear();
    guests_.clear();
  }

 private:
  struct Acceptor {
    Acceptor(asio::io_context& io, Descriptor listening) : socket(io, std::move(listening)), pause(io) {}
    AsioSocket socket;
    asio::steady_timer pause;
  };
  // A connection that has not been welcomed yet.
  struct Guest {
    Guest(asio::io_context& io, Descriptor connected) : socket(io, std::move(connected)), deadline(io) {}
    AsioSocket socket;
    asio::steady_timer deadline;
    std::array<char, kHelloBytes> bytes{};
    size_t received = 0;
  };
  using Guests = std::list<std::shared_ptr<Guest>>;  // oldest first; shared with Asio's handlers

  void wait(Acceptor& acceptor) {
    acceptor.socket.when_readable([self = shared_from_this(), &acceptor](asio::error_code failure) {
      if (failure || self->stopped_) return;
      self->accept_some(acceptor);
    });
  }

  // A part of the queue at a time, so that the dialers that were accepted are heard in between.
  void accept_some(Acceptor& acceptor) {
    for (int i = 0; i < kAcceptAtOnce; ++i) {
      Descriptor socket(::accept4(acceptor.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (socket.valid()) {
        admit(std::move(socket));
        continue;
      }
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return wait(acceptor);
      return rest(acceptor, errno);
    }
    wait(acceptor);
  }

  // Out of descriptors or memory: the oldest stranger makes room, if there is one.
  void rest(Acceptor& acceptor, int number) {
    complain(fmt::format("cannot accept a connection: {}", std::strerror(number)));
    if (!guests_.empty()) guests_.pop_front();
    acceptor.pause.expires_after(kAcceptPause);
    acceptor.pause.async_wait([self = shared_from_this(), &acceptor](asio::error_code failure) {
      if (failure || self->stopped_) return;
      self->accept_some(acceptor);
    });
  }

  void admit(Descriptor socket) {
    if (guests_.size() >= settings_.max_pending) make_room();
    auto guest = std::make_shared<Guest>(io_, std::move(socket));
    guests_.push_back(guest);
    guest->deadline.expires_after(milliseconds(settings_.handshake_timeout_ms));
    guest->deadline.async_wait([self = shared_from_this(), weak = std::weak_ptr(guest)](asio::error_code failure) {
      const auto late = weak.lock();
      if (failure || !late) return;
      self->complain(fmt::format("a connection said nothing of use for {} ms", self->settings_.handshake_timeout_ms));
      self->drop(*late);
    });
    read(guest);  // what it says first is mostly there already
  }

  // The hellos that have come are heard before anybody is dropped; then the oldest that has said none goes.
  void make_room() {
    for (const auto& guest : std::vector(guests_.begin(), guests_.end())) {
      if (guest->received < kHelloBytes) hear(*guest);
    }
    if (guests_.size() < settings_.max_pending) return;
    complain("too many connections that have not said who they are; dropping the oldest");
    const auto silent =
        std::find_if(guests_.begin(), guests_.end(), [](const auto& guest) { return guest->received < kHelloBytes; });
    guests_.erase(silent != guests_.end() ? silent : guests_.begin());
  }

  void listen_to(const std::shared_ptr<Guest>& guest) {
    guest->socket.when_readable([self = shared_from_this(), weak = std::weak_ptr(guest)](asio::error_code failure) {
      const auto ready = weak.lock();
      if (failure || !ready || self->stopped_) return;
      self->read(ready);
    });
  }

  void read(const std::shared_ptr<Guest>& guest) {
    if (hear(*guest) == Heard::kPart) listen_to(guest);
  }

  enum class Heard { kPart, kAll };  // kAll: it was judged or dropped
  Heard hear(Guest& guest) {
    std::string why;
    while (guest.received < kHelloBytes) {
      const long moved =
          receive_some(guest.socket.get(), guest.bytes.data() + guest.received, kHelloBytes - guest.received, why);
      if (moved == 0) return Heard::kPart;
      if (moved < 0) {  // a port scan, or a peer that changed its mind: nothing to say
        drop(guest);
        return Heard::kAll;
      }
      guest.received += static_cast<size_t>(moved);
      if (!could_be_hello({guest.bytes.data(), guest.received})) {
        complain("dropped a connection that does not speak Rondo");
        drop(guest);
        return Heard::kAll;
      }
    }
    judge(guest);
    return Heard::kAll;
  }

  void judge(Guest& guest) {
    const std::optional<Hello> hello = parse_hello({guest.bytes.data(), guest.bytes.size()});
    if (!hello) {
      complain("dropped a connection with a malformed hello");
      return drop(guest);
    }
    const std::optional<Answer> answer = judge_(*hello);
    if (!answer) return;
    std::string why;
    const std::string bytes = encode(*answer);
    // The socket's buffer is empty, so all of it fits at once.
    const bool sent = send_some(guest.socket.get(), bytes, why) == static_cast<long>(bytes.size());
    if (answer->code != AnswerCode::kWelcome) {
      complain(fmt::format("refused a connection: {}", answer->text));
      ::shutdown(guest.socket.get(), SHUT_WR);
    }
    if (!sent || answer->code != AnswerCode::kWelcome) return drop(guest);
    Descriptor socket = guest.socket.detach();
    drop(guest);
    welcome_(*hello, std::move(socket));
  }

  void drop(Guest& guest) {
    guests_.remove_if([&](const auto& entry) { return entry.get() == &guest; });
  }

  void complain(const std::string& text) {
    uint64_t suppressed = 0;
    if (!strangers_.allow(RateLimit::Clock::now(), &suppressed)) return;
    settings_.logger.warn(suppressed == 0 ? text : fmt::format("{} ({} more like it)", text, suppressed));
  }

  asio::io_context& io_;
  Settings settings_;
  Judge judge_;
  Welcome welcome_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  std::vector<Endpoint> endpoints_;
  Guests guests_;
  RateLimit strangers_{kStrangerLogInterval};
  bool stopped_ = false;
};

Reception::Reception(asio::io_context& io, const Settings& settings, Judge judge, Welcome welcome)
    : state_(std::make_shared<State>(io, settings, std::move(judge), std::move(welcome))) {}
Reception::~Reception() = default;
const std::vector<Endpoint>& Reception::endpoints() const { return state_->endpoints(); }
void Reception::start() { state_->start(); }
void Reception::reconsider() { state_->reconsider(); }
void Reception::stop() { state_->stop(); }

}  // namespace rondo
