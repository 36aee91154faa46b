#include "transport/store/store_server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "ring/base/bytes.h"
#include "ring/base/own_thread.h"
#include "rondo/error.h"
#include "transport/store/store_map.h"
#include "transport/tcp/descriptor_reserve.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// What is read at a time; also the most that a client can make the server hold beyond a request's own length.
constexpr size_t kReadBytes = 16 * 1024;
// Out of descriptors: time for others to close some.
constexpr auto kAcceptPause = std::chrono::milliseconds(50);
constexpr auto kStrangerLogInterval = std::chrono::seconds(10);
// The map and all unfinished requests: a rank's card is a few kilobytes, and the table of all is written once more.
constexpr size_t kBaseBytes = 16u << 20;
constexpr size_t kBytesPerRank = 256u << 10;

enum class Phase {
  kHello,    // has not said who it is
  kConfirm,  // has said so, and may only repeat what another has said
  kIdle,     // between requests, or in the middle of receiving one
  kWaiting,  // in a get of a key that is not there yet
  kRefused,  // was told why; its input is thrown away until it closes, since closing first could discard the refusal
};

struct Connection {
  Connection(asio::io_context& io, Descriptor fd)
      : descriptor(std::move(fd)), address(peer_host(descriptor.get())), readiness(io), deadline(io) {
    readiness.assign(descriptor.get());
  }
  ~Connection() { readiness.release(); }  // the Descriptor closes it

  Descriptor descriptor;
  const std::string address;
  asio::posix::stream_descriptor readiness;
  asio::steady_timer deadline;
  Phase phase = Phase::kHello;
  bool closed = false;
  bool timed = false;       // the deadline counts
  bool in_request = false;  // part of one has come
  bool reading = false;     // a readiness wait is under way
  bool writing = false;
  std::string input;   // at most one request and kReadBytes
  std::string output;  // one reply
  size_t written = 0;
  std::string wanted;   // kWaiting: the key
  ConnectionKeys keys;  // used once it has confirmed
  TextSeal seal;
  Mac confirmation{};  // kConfirm: what a process that knows the secret says next
};

// Handlers under way share a connection with the list it is in; `closed` tells them that it is over.
using ConnectionPtr = std::shared_ptr<Connection>;

}  // namespace

class StoreServer::Loop {
 public:
  explicit Loop(Options options)
      : options_(std::move(options)),
        max_strangers_(std::clamp<size_t>(free_descriptors() / 4, 8, kMaxStrangers)),
        listener_(io_),
        accept_pause_(io_),
        owner_(::getpid()) {
    map_.limit(memory_limit());
    listener_.assign(options_.listener.get());
    arm_accept();
    thread_ = start_own_thread("rondo-store", [this] { serve(); });
  }

  ~Loop() {
    asio::post(io_, [this] { stop(); });
    thread_.join();
  }

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  bool in_owner() const { return ::getpid() == owner_; }

 private:
  void serve() {
    while (true) {
      try {
        io_.run();
        break;
      } catch (const std::exception& e) {  // out of memory for one client's request: the others go on
        log_stranger(fmt::format("a request could not be served: {}", e.what()));
      }
    }
    ended_.store(true, std::memory_order_release);
  }

  void stop() {
    stop_listening();
    for (auto* list : {&strangers_, &clients_}) {
      while (!list->empty()) drop(list->front());
    }
  }

  void stop_listening() {
    if (!options_.listener.valid()) return;
    if (!options_.unlink_path.empty()) ::unlink(options_.unlink_path.c_str());
    accept_pause_.cancel();
    listener_.release();
    options_.listener.reset();
  }

  // --- accepting

  void arm_accept() {
    listener_.async_wait(asio::posix::stream_descriptor::wait_read, [this](asio::error_code error) {
      if (error || !options_.listener.valid()) return;
      if (accept_some()) {
        arm_accept();
      } else {
        accept_pause_.expires_after(kAcceptPause);
        accept_pause_.async_wait([this](asio::error_code e) {
          if (!e && options_.listener.valid()) arm_accept();
        });
      }
    });
  }

  // False if there is no descriptor to be had.
  bool accept_some() {
    constexpr int kBurst = 64;  // then the connections have their turn
    for (int i = 0; i < kBurst; ++i) {
      int fd = ::accept4(options_.listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        admit(Descriptor(fd));
        continue;
      }
      if (errno == EAGAIN) return true;
      bool exhausted = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (!exhausted) continue;  // that one connection died before it was accepted
      if (strangers_.empty()) {
        reserve_.turn_away(options_.listener.get());
        return false;
      }
      drop_stranger();
    }
    return true;
  }

  // The oldest of the address that has the most: a flood pushes out its own.
  void drop_stranger() {
    std::map<std::string_view, size_t> count;
    for (const ConnectionPtr& stranger : strangers_) ++count[stranger->address];
    const auto crowd =
        std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    drop(*std::find_if(strangers_.begin(), strangers_.end(),
                       [&](const ConnectionPtr& stranger) { return stranger->address == crowd->first; }));
  }

  size_t max_clients() const {
    return options_.world == 0 ? kMaxClients : 2 * static_cast<size_t>(options_.world) + 16;
  }
  size_t memory_limit() const {
    const size_t ranks = options_.world == 0 ? 0 : static_cast<size_t>(options_.world);
    return std::min(StoreMap::kMaxBytes, kBaseBytes + ranks * kBytesPerRank);
  }

  void admit(Descriptor fd) {
    if (options_.same_user && !is_same_user(fd.get())) {
      log_stranger("a process of another user connected and was refused");
      return;
    }
    if (strangers_.size() >= max_strangers_) drop_stranger();
    ConnectionPtr connection;
    try {
      connection = std::make_shared<Connection>(io_, std::move(fd));
    } catch (const std::exception&) {
      return;  // epoll is out of memory: this one is refused, the others stay
    }
    strangers_.push_back(connection);
    start_deadline(connection, options_.handshake_ms);
    arm_read(connection);
  }

  static bool is_same_user(int fd) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == ::geteuid();
  }

  // --- the life of a connection

  void start_deadline(const ConnectionPtr& connection, int64_t ms) {
    connection->timed = true;
    connection->deadline.expires_after(std::chrono::milliseconds(ms));
    connection->deadline.async_wait([this, connection](asio::error_code error) {
      if (error || connection->closed || !connection->timed || connection->deadline.expiry() > Clock::now()) return;
      const bool unknown = connection->phase == Phase::kHello || connection->phase == Phase::kConfirm;
      if (unknown) log_stranger("a connection did not say who it is in time");
      if (connection->phase == Phase::kIdle) log_stranger("a client fell silent, or does not take its answer");
      drop(connection);
    });
  }

  void end_deadline(const ConnectionPtr& connection) {
    connection->timed = false;
    connection->deadline.cancel();
  }

  void drop(ConnectionPtr connection) {
    if (std::exchange(connection->closed, true)) return;
    forget_waiter(connection);
    strangers_.remove(connection);
    clients_.remove(connection);
    connection->deadline.cancel();
    connection->readiness.release();
    connection->descriptor.reset();
  }

  void forget_waiter(const ConnectionPtr& connection) {
    if (connection->phase != Phase::kWaiting) return;
    auto [first, last] = waiters_.equal_range(connection->wanted);
    for (auto w = first; w != last; ++w) {
      if (w->second == connection) {
        waiters_.erase(w);
        return;
      }
    }
  }

  void log_stranger(std::string_view what) {
    uint64_t suppressed = 0;
    if (!options_.log.shows(LogLevel::kWarn) || !stranger_log_.allow(Clock::now(), &suppressed)) return;
    options_.log.warn(suppressed == 0 ? fmt::format("store: {}", what)
                                      : fmt::format("store: {} ({} more like it)", what, suppressed));
  }

  void arm_read(const ConnectionPtr& connection) {
    if (connection->closed || std::exchange(connection->reading, true)) return;
    connection->readiness.async_wait(asio::posix::stream_descriptor::wait_read,
                                     [this, connection](asio::error_code error) {
                                       connection->reading = false;
                                       if (!error && !connection->closed) on_readable(connection);
                                     });
  }

  void on_readable(const ConnectionPtr& connection) {
    char buffer[kReadBytes];
    ssize_t n = ::recv(connection->descriptor.get(), buffer, sizeof buffer, 0);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      drop(connection);
      return;
    }
    if (n > 0 && connection->phase != Phase::kRefused) {
      if (!take(connection, {buffer, static_cast<size_t>(n)})) return;
      consume(connection);
    }
    // A reply that the client does not take stops its next request, so that output stays one reply.
    if (!connection->closed && connection->output.empty()) arm_read(connection);
  }

  // False: a record is not what the client has sealed, and it was dropped.
  bool take(const ConnectionPtr& connection, std::string_view bytes) {
    if (connection->seal.open(bytes, connection->input)) return true;
    log_stranger("a client's bytes were changed on their way, and it was dropped");
    drop(connection);
    return false;
  }

  void consume(const ConnectionPtr& connection) {
    if (connection->phase == Phase::kHello) {
      consume_hello(connection);
    } else if (connection->phase == Phase::kConfirm) {
      consume_confirmation(connection);
    } else if (connection->phase == Phase::kWaiting) {
      log_stranger("a client sent a request before the answer to its last one, and was dropped");
      drop(connection);
    } else {
      consume_request(connection);
    }
  }

  void consume_hello(const ConnectionPtr& connection) {
    const std::string& input = connection->input;
    if (!plausible_head(input)) {
      log_stranger("something that does not speak Rondo's protocol connected and was dropped");
      drop(connection);
      return;
    }
    if (input.size() < kStoreHeadBytes) return;
    StoreHead head = decode_head(input);
    if (head.version != kStoreVersion) {
      log_stranger(fmt::format("refused a process that speaks version {} of the store's protocol; this one speaks {}",
                               head.version, kStoreVersion));
      refuse(connection, {StoreVerdict::kOtherVersion, Cipher::kNone, {}, "", {}});
      return;
    }
    if (head.body_bytes > kMaxHelloBodyBytes) {
      log_stranger("a hello of an impossible length was dropped");
      drop(connection);
      return;
    }
    if (input.size() < kStoreHeadBytes + head.body_bytes) return;
    std::optional<StoreHello> hello = decode_hello(std::string_view(input).substr(kStoreHeadBytes, head.body_bytes));
    if (!hello || input.size() > kStoreHeadBytes + head.body_bytes) {
      log_stranger("a malformed hello was dropped");
      drop(connection);
      return;
    }
    judge(connection, *hello);
  }

  void judge(const ConnectionPtr& connection, const StoreHello& hello) {
    if (!holds(hello, options_.auth)) {
      log_stranger(
          fmt::format("refused a process that does not know this job's secret ({})", options_.auth.secret_name()));
      refuse(connection, {StoreVerdict::kAuthFailed, Cipher::kNone, {}, "", {}});
      return;
    }
    StoreWelcome welcome;
    if (hello.job_id != options_.job_id) {
      log_stranger(
          fmt::format("refused a process of job \"{}\"; this store serves job \"{}\"", hello.job_id, options_.job_id));
      welcome.verdict = StoreVerdict::kOtherJob;
      welcome.text = options_.job_id;
      prove(welcome, hello, options_.auth);
      refuse(connection, welcome);
      return;
    }
    welcome.cipher = choose_cipher(own_ciphers(), hello.ciphers);
    if (options_.encrypt && welcome.cipher == Cipher::kNone) {
      log_stranger("refused a process without RONDO_ENCRYPT=1, which this store has");
      welcome.verdict = StoreVerdict::kEncryption;
      prove(welcome, hello, options_.auth);
      refuse(connection, welcome);
      return;
    }
    prove(welcome, hello, options_.auth);
    connection->keys = store_keys(hello, welcome, options_.auth, StoreSide::kServer);
    connection->confirmation = store_confirmation(hello, welcome, options_.auth);
    connection->input.clear();
    connection->phase = Phase::kConfirm;
    send(connection, encode_welcome(welcome));
  }

  void consume_confirmation(const ConnectionPtr& connection) {
    if (connection->input.size() < kStoreConfirmBytes) return;
    const Mac said = ByteReader(connection->input).array<sizeof(Mac)>();
    if (!equal_in_constant_time(said, connection->confirmation)) {
      log_stranger("a connection that repeated another process's hello was dropped");
      drop(connection);
      return;
    }
    if (clients_.size() >= max_clients()) {
      log_stranger(fmt::format("there are {} clients already, which is more than a world of {} needs", clients_.size(),
                               options_.world));
      drop(connection);
      return;
    }
    connection->input.erase(0, said.size());
    connection->phase = Phase::kIdle;
    strangers_.remove(connection);
    clients_.push_back(connection);
    start_deadline(connection, options_.idle_ms);
    connection->seal.use(connection->keys);
    if (!take(connection, std::exchange(connection->input, {}))) return;
    if (!connection->input.empty()) consume_request(connection);
  }

  void refuse(const ConnectionPtr& connection, const StoreWelcome& welcome) {
    connection->phase = Phase::kRefused;
    connection->input.clear();
    std::string bytes = encode_welcome(welcome);
    // Shorter than any socket buffer, and the first thing sent: it is taken whole or not at all.
    (void)!::send(connection->descriptor.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    ::shutdown(connection->descriptor.get(), SHUT_WR);
  }

  // --- requests

  void consume_request(const ConnectionPtr& connection) {
    std::string& input = connection->input;
    if (!connection->in_request) start_deadline(connection, options_.handshake_ms);
    connection->in_request = true;
    if (input.size() < kFrameHeadBytes) return;
    size_t body_bytes = decode_frame_head(input);
    if (body_bytes > kMaxRequestBodyBytes) {
      log_stranger("a request of an impossible length was dropped");
      drop(connection);
      return;
    }
    if (input.size() < kFrameHeadBytes + body_bytes) {
      if (unfinished_bytes() > memory_limit()) {
        log_stranger("too much memory is taken by requests that are not complete; dropping one of them");
        drop(connection);
      }
      return;
    }
    std::optional<StoreRequest> request = decode_request(std::string_view(input).substr(kFrameHeadBytes, body_bytes));
    if (!request || input.size() > kFrameHeadBytes + body_bytes) {
      log_stranger("a malformed request was dropped");
      drop(connection);
      return;
    }
    end_deadline(connection);
    connection->in_request = false;
    input.clear();
    input.shrink_to_fit();
    execute(connection, *request);
  }

  size_t unfinished_bytes() const {
    size_t bytes = 0;
    for (const ConnectionPtr& client : clients_) bytes += client->input.size();
    return bytes;
  }

  void execute(const ConnectionPtr& connection, const StoreRequest& request) {
    if (request.operation == StoreOperation::kGet && map_.find(request.key) == nullptr) {
      connection->phase = Phase::kWaiting;
      connection->wanted = request.key;
      waiters_.emplace(request.key, connection);
      return;
    }
    StoreReply reply;
    try {
      reply = apply(request);
    } catch (const Exception& e) {
      reply = {StoreStatus::kRefused, e.what()};
    }
    if (options_.world == 0 && request.key == options_.world_key) learn_world(request.first);
    // Before anybody can know of the last key: who leaves now and comes again must not meet this server.
    if (!options_.last_key.empty() && map_.find(options_.last_key) != nullptr) stop_listening();
    send(connection, encode_reply(reply));
    wake(request.key);
  }

  // "<ranks> <host>"
  void learn_world(const std::string& text) {
    int world = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), world);
    if (failure != std::errc() || world < 1) return;
    options_.world = world;
    map_.limit(memory_limit());
  }

  StoreReply apply(const StoreRequest& request) {
    switch (request.operation) {
      case StoreOperation::kPut:
        map_.put(request.key, request.first);
        return {};
      case StoreOperation::kAdd:
        return {StoreStatus::kOk, fmt::format("{}", map_.add(request.key, request.amount))};
      case StoreOperation::kCompareSet:
        return {StoreStatus::kOk, map_.compare_set(request.key, request.first, request.second)};
      case StoreOperation::kRemove:
        return {map_.remove(request.key) ? StoreStatus::kOk : StoreStatus::kAbsent, ""};
      case StoreOperation::kGet:
      case StoreOperation::kTryGet:
        break;
    }
    const std::string* value = map_.find(request.key);
    return value == nullptr ? StoreReply{StoreStatus::kAbsent, ""} : StoreReply{StoreStatus::kOk, *value};
  }

  void wake(const std::string& key) {
    const std::string* value = map_.find(key);
    if (value == nullptr) return;
    auto [first, last] = waiters_.equal_range(key);
    std::vector<ConnectionPtr> woken;
    for (auto w = first; w != last; ++w) woken.push_back(w->second);
    waiters_.erase(first, last);
    std::string reply = encode_reply({StoreStatus::kOk, *value});
    for (const ConnectionPtr& connection : woken) {
      connection->phase = Phase::kIdle;
      send(connection, reply);
    }
  }

  // --- sending

  void send(const ConnectionPtr& connection, std::string bytes) {
    connection->output.clear();
    connection->seal.seal(std::move(bytes), connection->output);
    connection->written = 0;
    if (connection->phase == Phase::kIdle) start_deadline(connection, options_.handshake_ms);
    write_some(connection);
  }

  void write_some(const ConnectionPtr& connection) {
    while (connection->written < connection->output.size()) {
      ssize_t n = ::send(connection->descriptor.get(), connection->output.data() + connection->written,
                         connection->output.size() - connection->written, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) {
        connection->written += static_cast<size_t>(n);
      } else if (errno == EAGAIN) {
        arm_write(connection);
        return;
      } else if (errno != EINTR) {
        drop(connection);
        return;
      }
    }
    connection->output.clear();
    connection->output.shrink_to_fit();
    if (connection->phase == Phase::kIdle) start_deadline(connection, options_.idle_ms);
    arm_read(connection);
  }

  void arm_write(const ConnectionPtr& connection) {
    if (std::exchange(connection->writing, true)) return;
    connection->readiness.async_wait(asio::posix::stream_descriptor::wait_write,
                                     [this, connection](asio::error_code error) {
                                       connection->writing = false;
                                       if (!error && !connection->closed) write_some(connection);
                                     });
  }

  asio::io_context io_{1};
  Options options_;
  const size_t max_strangers_;
  DescriptorReserve reserve_;
  asio::posix::stream_descriptor listener_;
  asio::steady_timer accept_pause_;
  std::list<ConnectionPtr> strangers_;  // oldest first
  std::list<ConnectionPtr> clients_;
  std::multimap<std::string, ConnectionPtr> waiters_;
  StoreMap map_;
  RateLimit stranger_log_{kStrangerLogInterval};
  std::atomic<bool> ended_{false};
  pid_t owner_;
  std::thread thread_;
};

StoreServer::StoreServer(Options options) : loop_(std::make_unique<Loop>(std::move(options))) {}

StoreServer::~StoreServer() {
  // A forked child has neither the thread nor the descriptors; taking the object apart there would wait for ever.
  if (loop_ && !loop_->in_owner()) (void)loop_.release();
}

bool StoreServer::ended() const { return loop_->ended(); }

}  // namespace rondo
