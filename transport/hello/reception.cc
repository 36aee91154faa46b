#include "transport/hello/reception.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <asio/io_context.hpp>
#include <chrono>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "ring/base/system_error.h"
#include "transport/hello/handshake.h"
#include "transport/tcp/acceptor.h"
#include "transport/tcp/asio_socket.h"
#include "transport/tcp/descriptor_reserve.h"
#include "transport/tcp/io_timer.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/stranger_log.h"

namespace rondo {
namespace {

using std::chrono::milliseconds;

// Refusals in a row, Acceptor::kPause apart: longer than a dialer takes to find a dead listener out, which it says
// better.
constexpr int kMostRefused = 30;

}  // namespace

// A guest is silent (no hello yet), then known (its hello has a proof), then welcomed (waits for its confirmation), and
// then handed over. It is dropped by leaving guests_.
class Reception::State {
 public:
  State(asio::io_context& io, Settings settings, Judge judge, Welcome welcome)
      : io_(io),
        settings_(std::move(settings)),
        judge_(std::move(judge)),
        welcome_(std::move(welcome)),
        log_(settings_.logger) {
    for (Listener& listener : settings_.listeners) {
      endpoints_.push_back({listener.address.host(), listener.address.port()});
      acceptors_.push_back(std::make_unique<Acceptor>(
          io, std::move(listener.socket), [this](Descriptor socket) { take(std::move(socket)); },
          [this](int refusing, int number) { rest(refusing, number); }));
    }
  }

  const std::vector<Endpoint>& endpoints() const { return endpoints_; }

  void start() {
    for (auto& acceptor : acceptors_) acceptor->start();
  }

  void reconsider() {
    for (const auto& guest : std::vector(guests_.begin(), guests_.end())) {  // judging may remove some
      if (guest->hello && !guest->welcomed && judge(guest)) read(guest);
    }
  }

  // Paths of unix sockets go while the listeners are open, so that no process finds a path at which nobody listens.
  void stop() {
    if (std::exchange(stopped_, true)) return;
    for (const Listener& listener : settings_.listeners) {
      if (!listener.unlink_path.empty()) ::unlink(listener.unlink_path.c_str());
    }
    acceptors_.clear();
    guests_.clear();
  }

 private:
  // A connection that has not been welcomed yet.
  struct Guest {
    Guest(asio::io_context& io, Descriptor connected, const Settings& settings)
        : socket(io, std::move(connected)),
          address(peer_host(socket.get())),
          deadline(io),
          handshake(settings.auth, settings.seals) {}
    AsioSocket socket;
    const std::string address;
    IoTimer deadline;
    AcceptorHandshake handshake;
    std::array<char, kHelloBytes> bytes{};  // the hello, then the confirmation
    size_t received = 0;
    std::optional<Hello> hello;           // of a process that knows the secret, or replays what one has said
    bool welcomed = false;                // waits for its confirmation
    std::unique_ptr<TlsSession> session;  // has confirmed, and is to be sealed
  };
  using Guests = std::list<std::shared_ptr<Guest>>;  // oldest first; shared with the handlers while they run

  void take(Descriptor socket) {
    refused_ = 0;
    try {
      admit(std::move(socket));
    } catch (const std::exception& failure) {  // no memory, no place in epoll's set
      log_.warn(fmt::format("cannot take a connection: {}", failure.what()));
    }
  }

  // Out of descriptors or memory: a stranger makes room, if there is one; else who waits first is turned away, so that
  // those behind come nearer.
  void rest(int listener, int number) {
    // One may be a firewall's word about one stranger; no connection ever comes where all are refused.
    if (cause_of(number) == Cause::kRefused && ++refused_ >= kMostRefused) {
      stop();  // who dials hears it at once
      throw Exception(system_error("accepting a connection", number));
    }
    log_.warn(fmt::format("cannot accept a connection: {}", std::strerror(number)));
    if (guests_.empty()) {
      reserve_.turn_away(listener);
    } else {
      make_room(Room::kOne);
    }
  }

  // Room is made before the new one is a guest, so that it cannot be the one that is dropped.
  void admit(Descriptor socket) {
    if (guests_.size() >= std::min(settings_.max_pending, settings_.max_known)) make_room(Room::kIfFull);
    // Who is at the other end of TCP, only the job's secret can tell.
    if (peer_address(socket.get()).family() == AF_UNIX && !check_peer(socket.get(), 0).empty()) {
      return log_.warn("a process of another user connected and was refused");
    }
    auto guest = std::make_shared<Guest>(io_, std::move(socket), settings_);
    guests_.push_back(guest);
    limit(*guest, settings_.handshake_timeout_ms);
    read(guest);  // what it says first is mostly there already
  }

  // ms 0: no limit.
  void limit(Guest& guest, int64_t ms) {
    if (ms == 0) return guest.deadline.cancel();
    guest.deadline.set(IoTimer::Clock::now() + milliseconds(ms), [this, &guest, ms] {
      log_.warn(fmt::format("a connection said nothing of use for {} ms", ms));
      drop(guest);
    });
  }

  enum class Room { kIfFull, kOne };  // kOne: drops one whatever the limits say
  // What has come is heard before anybody is dropped: the oldest silent one of the address that has most of them. So a
  // flood from one address pushes out its own connections.
  void make_room(Room room) {
    for (const auto& guest : std::vector(guests_.begin(), guests_.end())) hear(guest);
    std::map<std::string, size_t> silent;  // by address
    for (const auto& guest : guests_) silent[guest->address] += !guest->hello;
    size_t strangers = 0;
    const std::string* crowd = nullptr;
    for (const auto& [address, count] : silent) {
      strangers += count;
      if (crowd == nullptr || count > silent.at(*crowd)) crowd = &address;
    }
    const size_t known = guests_.size() - strangers;
    if (strangers >= (room == Room::kOne ? 1 : settings_.max_pending)) {
      log_.warn(
          fmt::format("too many connections that have not said who they are; dropping the oldest from {}", *crowd));
      drop_first([&, address = *crowd](const Guest& guest) { return !guest.hello && guest.address == address; });
    }
    if (known >= settings_.max_known || (room == Room::kOne && strangers == 0)) {
      log_.warn("too many connections that have not finished their handshake; dropping the oldest");
      drop_first([](const Guest& guest) { return guest.hello.has_value(); });
    }
  }

  template <typename Match>
  void drop_first(Match&& match) {
    const auto found = std::find_if(guests_.begin(), guests_.end(), [&](const auto& guest) { return match(*guest); });
    if (found != guests_.end()) guests_.erase(found);
  }

  // Waits for more only where more is due: a guest that waits for reconsider() says nothing meanwhile.
  void read(const std::shared_ptr<Guest>& guest) {
    if (hear(guest) != Heard::kPart) return;
    guest->socket.when_readable([this, weak = std::weak_ptr(guest)] { read(weak.lock()); });
  }

  enum class Heard { kPart, kAll };  // kAll: it was handed over or dropped, or waits for reconsider()
  // Reads what has come, never a byte beyond the message that is due: what follows belongs to the connection's user.
  Heard hear(const std::shared_ptr<Guest>& guest) {
    while (true) {
      if (guest->hello && !guest->welcomed) return Heard::kAll;
      if (guest->session) return seal(*guest);
      const size_t wanted = guest->welcomed ? kConfirmBytes : kHelloBytes;
      std::string why;
      char* target = guest->bytes.data() + guest->received;
      const long moved = receive_some(guest->socket.get(), target, wanted - guest->received, why);
      if (moved == 0) return Heard::kPart;
      if (moved < 0) {  // a port scan, or a peer that changed its mind: nothing to say
        drop(*guest);
        return Heard::kAll;
      }
      guest->received += static_cast<size_t>(moved);
      if (!guest->welcomed && !could_be_hello({guest->bytes.data(), guest->received})) {
        log_.warn("dropped a connection that does not speak Rondo");
        drop(*guest);
        return Heard::kAll;
      }
      if (guest->received < wanted) continue;
      guest->received = 0;
      if (!(guest->welcomed ? take_confirmation(*guest) : take_hello(guest))) return Heard::kAll;
    }
  }

  // False: it is over, or waits.
  bool take_hello(const std::shared_ptr<Guest>& guest) {
    guest->hello = guest->handshake.hear({guest->bytes.data(), kHelloBytes});
    if (!guest->hello) {
      log_.warn("dropped a connection with a malformed hello");
      drop(*guest);
      return false;
    }
    if (guest->handshake.refusal()) {
      refuse(*guest, *guest->handshake.refusal());
      return false;
    }
    return judge(guest);
  }

  // False: it is over, or waits.
  bool judge(const std::shared_ptr<Guest>& guest) {
    const std::optional<Answer> answer = judge_(*guest->hello);
    if (!answer) return false;
    if (answer->code != AnswerCode::kWelcome) {
      refuse(*guest, *answer);
      return false;
    }
    if (!send(*guest, guest->handshake.answer(*answer))) {
      drop(*guest);
      return false;
    }
    guest->welcomed = true;
    limit(*guest, settings_.confirm_timeout_ms);
    return true;
  }

  // False: it is over.
  bool take_confirmation(Guest& guest) {
    if (!guest.handshake.confirmed({guest.bytes.data(), kConfirmBytes})) {
      log_.warn("dropped a connection that replayed a rank's hello");
      drop(guest);
      return false;
    }
    if (const auto key = guest.handshake.tls_key()) {
      guest.session = std::make_unique<TlsSession>(TlsSession::End::kAcceptor, *key);
      return true;
    }
    hand_over(guest);
    return false;
  }

  // The TLS handshake, as far as it goes with what has come.
  Heard seal(Guest& guest) {
    std::string why;
    const long done = shake_hands(*guest.session, guest.socket.get(), why);
    if (done == 0) return Heard::kPart;
    if (done > 0) {
      hand_over(guest);
    } else {
      log_.warn(fmt::format("dropped a connection from {}: {}", guest.address, why));
      drop(guest);
    }
    return Heard::kAll;
  }

  // The guest ends before the welcome is told: what that does may look at guests_.
  void hand_over(Guest& guest) {
    const Hello hello = *guest.hello;
    SecuredSocket socket(guest.socket.detach(), std::move(guest.session));
    drop(guest);
    welcome_(hello, std::move(socket));
  }

  // The answer is sent as well as it goes: the guest is dropped in any case.
  void refuse(Guest& guest, const Answer& answer) {
    if (answer.code == AnswerCode::kAuthFailed) {
      log_.warn(fmt::format("refused a connection from {} that does not know this job's secret ({})", guest.address,
                            settings_.auth.secret_name()));
      if (settings_.on_wrong_secret) settings_.on_wrong_secret(guest.address);
    } else if (answer.code == AnswerCode::kForbidden) {  // a rank of this job, which reports it if it matters there
      settings_.logger.info(fmt::format("refused a connection of rank {}: {}", guest.hello->rank, answer.text));
    } else {
      log_.warn(fmt::format("refused a connection: {}", answer.text));
    }
    send(guest, guest.handshake.answer(answer));
    ::shutdown(guest.socket.get(), SHUT_WR);
    drop(guest);
  }

  // Short, and into an empty buffer: all of it fits at once.
  static bool send(Guest& guest, const std::string& bytes) {
    std::string why;
    return send_some(guest.socket.get(), bytes, why) == static_cast<long>(bytes.size());
  }

  void drop(Guest& guest) {
    guests_.remove_if([&](const auto& entry) { return entry.get() == &guest; });
  }

  asio::io_context& io_;
  Settings settings_;
  Judge judge_;
  Welcome welcome_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  std::vector<Endpoint> endpoints_;
  Guests guests_;
  DescriptorReserve reserve_;
  StrangerLog log_;
  int refused_ = 0;  // by the system, in a row
  bool stopped_ = false;
};

Reception::Reception(asio::io_context& io, Settings settings, Judge judge, Welcome welcome)
    : state_(std::make_unique<State>(io, std::move(settings), std::move(judge), std::move(welcome))) {}
Reception::~Reception() = default;
const std::vector<Endpoint>& Reception::endpoints() const { return state_->endpoints(); }
void Reception::start() { state_->start(); }
void Reception::reconsider() { state_->reconsider(); }
void Reception::stop() { state_->stop(); }

}  // namespace rondo
