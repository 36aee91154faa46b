#include "transport/store/store_server.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <future>
#include <list>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "ring/base/caught.h"
#include "ring/base/figures.h"
#include "ring/base/json_text.h"
#include "rondo/error.h"
#include "transport/auth/text_seal.h"
#include "transport/hello/reception.h"
#include "transport/store/store_map.h"
#include "transport/store/store_wire.h"
#include "transport/tcp/asio_socket.h"
#include "transport/tcp/descriptor_reserve.h"
#include "transport/tcp/io_thread.h"
#include "transport/tcp/io_timer.h"
#include "transport/tcp/socket_options.h"
#include "transport/tcp/stranger_log.h"

namespace rondo {
namespace {

// What is read at a time; also the most that a client can make the server hold beyond a request's own length.
constexpr size_t kReadBytes = 16 * 1024;
constexpr const char* kBroken = "it broke the protocol";
// The map and all unfinished requests: a rank's card is a few kilobytes, and the table of all is written once more.
constexpr size_t kBaseBytes = 16u << 20;
constexpr size_t kBytesPerRank = 256u << 10;
// A rank has one for each exchange of its start.
constexpr size_t kMostWills = 4;

// One connection: one request is read, carried out and answered, then the next. Used by the server's thread alone.
struct Client {
  Client(asio::io_context& io, SecuredSocket connected) : socket(io, std::move(connected.socket)), deadline(io) {
    seal.use(std::move(connected.session));
  }

  AsioSocket socket;
  IoTimer deadline;
  TextSeal seal;
  // In a get of a key that is not there yet; its next request ends that. Else between requests, or in the middle of
  // one.
  bool waiting = false;
  bool closed = false;
  bool timed = false;    // the deadline counts
  bool reading = false;  // a readiness wait is under way
  bool writing = false;
  std::string input;   // at most one request and kReadBytes
  std::string output;  // one reply
  size_t written = 0;
  uint32_t number = 0;  // of its last request
  std::string wanted;   // the key of its last get() that had to wait; empty once it has asked for something else
  std::map<std::string, std::string> wills;
};

// The handler under way shares a client with the list it is in; `closed` tells it that the client is over.
using ClientPtr = std::shared_ptr<Client>;

}  // namespace

// Everything of the server, on its own thread but for the calls that say otherwise. The thread is stopped first when it
// ends, so that no handler finds a member gone.
class StoreServer::Loop {
 public:
  // The thread has no work before the post: handlers find reception_ made.
  explicit Loop(Options options)
      : options_(std::move(options)),
        owner_(::getpid()),
        over_tcp_(options_.listener.address.family() != AF_UNIX),
        log_(options_.log),
        thread_([this](const Error& error) { complain(error); }),
        reception_(
            thread_.context(), reception_settings(), [this](const Hello& hello) { return judge(hello); },
            [this](const Hello&, SecuredSocket socket) { admit(std::move(socket)); }) {
    map_.limit(memory_limit());
    thread_.post([this] { reception_.start(); });
  }

  ~Loop() {
    thread_.stop();
    stop_listening();
    while (!clients_.empty()) drop(clients_.front(), "");
  }

  bool ended() const { return ended_.load(std::memory_order_acquire); }
  size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }

  // Waits for the server's thread.
  std::vector<Caller> callers() {
    // Shared with the thread. What it throws there is thrown here.
    const auto find = std::make_shared<std::packaged_task<std::vector<Caller>()>>([this] { return callers_now(); });
    thread_.post([find] { (*find)(); });
    return find->get_future().get();
  }

  void answer(const std::string& key, const std::string& value) {
    thread_.post([this, key, value] { wake(key, value); });
  }

  bool in_owner() const { return ::getpid() == owner_; }

 private:
  // Called while the object is made: options_ are there, and the listener is moved out of them.
  Reception::Settings reception_settings() {
    Reception::Settings settings;
    settings.listeners.push_back(std::move(options_.listener));
    settings.handshake_timeout_ms = options_.handshake_ms;
    settings.confirm_timeout_ms = options_.idle_ms;
    settings.max_pending = std::clamp<size_t>(free_descriptors() / 4, 8, kMaxStrangers);
    settings.logger = options_.log;
    settings.auth = options_.auth;
    settings.on_wrong_secret = [this](const std::string& from) { put_if_room(std::string(kWrongSecretKey), from); };
    return settings;
  }

  // New clients are turned away; those that are connected are served on.
  void stop_listening() {
    listening_ = false;
    reception_.stop();
    look_for_end();
  }

  // Released, so that who sees ended() also sees that all descriptors are closed.
  void look_for_end() {
    if (!listening_ && clients_.empty()) ended_.store(true, std::memory_order_release);
  }

  std::vector<Caller> callers_now() const {
    std::vector<Caller> callers;
    for (const ClientPtr& client : clients_) {
      if (!client->wanted.empty()) callers.push_back({client->wanted, client->waiting});
    }
    std::sort(callers.begin(), callers.end(), [](const Caller& a, const Caller& b) { return a.key < b.key; });
    return callers;
  }

  // --- who may come in

  // Only the role, the job and the seal of the hello count: a client need not know its rank yet.
  Answer judge(const Hello& hello) const {
    Answer answer;  // a welcome of rank 0
    if (hello.role != Role::kStore) {
      answer.code = AnswerCode::kForbidden;
      answer.text = "a store is served here, and no rank";
    } else if (hello.job_id != bounded_job_id(options_.job_id)) {
      answer.code = AnswerCode::kJob;
      answer.text =
          fmt::format("this is job {}, not {}", json_text(bounded_job_id(options_.job_id)), json_text(hello.job_id));
    } else if (options_.encrypt && !hello.sealed) {
      answer.code = AnswerCode::kShared;
      answer.text = "RONDO_ENCRYPT is 1 here, and not there: it must be equal on all ranks";
    }
    return answer;
  }

  size_t max_clients() const {
    return options_.world == 0 ? kMaxClients : 2 * static_cast<size_t>(options_.world) + 16;
  }
  // Bytes; for the map and, separately, for all requests that are not complete.
  size_t memory_limit() const {
    const size_t ranks = options_.world == 0 ? 0 : static_cast<size_t>(options_.world);
    return std::min(StoreMap::kMaxBytes, kBaseBytes + ranks * kBytesPerRank);
  }

  // A connection whose handshake is over. From here on it has idle_ms for its first request.
  void admit(SecuredSocket socket) {
    if (clients_.size() >= max_clients()) {
      log_.warn(fmt::format("store: there are {} clients already, which is more than a world of {} needs",
                            clients_.size(), options_.world));
      return;
    }
    if (over_tcp_) tune_control_socket(socket.socket.get(), options_.silence_ms);
    clients_.push_back(std::make_shared<Client>(thread_.context(), std::move(socket)));
    const ClientPtr client = clients_.back();
    serve(client, [&] {
      start_deadline(client, options_.idle_ms);
      arm_read(client);
    });
  }

  // --- the life of a connection

  // Without memory for a client it is dropped, and hears that at once: nothing would read it or answer it any more.
  template <typename Action>
  void serve(const ClientPtr& client, Action action) {
    try {
      action();
    } catch (...) {
      const Error why = caught();
      complain(why);
      drop(client, "its request could not be served: " + why.message);
    }
  }

  void complain(const Error& error) noexcept {
    try {
      log_.warn(fmt::format("store: a request could not be served: {}", error.message));
    } catch (const std::exception&) {
      // There is no memory for that either.
    }
  }

  // One timer a client: it waits for a request, for the rest of one, or for a reply to be taken. While a get waits
  // there is no deadline but the client's own.
  void start_deadline(const ClientPtr& client, int64_t ms) {
    client->timed = true;
    client->deadline.set(IoTimer::Clock::now() + std::chrono::milliseconds(ms), [this, client] {
      serve(client, [&] {
        log_.warn("store: a client fell silent, or does not take its answer");
        drop(client, "it fell silent, or does not take its answer");
      });
    });
  }

  void end_deadline(const ClientPtr& client) {
    client->timed = false;
    client->deadline.cancel();
  }

  // The end of a connection carries out the client's will, so that others hear of its death without a timeout. why "":
  // the server itself ends, which is no death.
  void drop(ClientPtr client, const std::string& why) {
    if (std::exchange(client->closed, true)) return;
    forget_waiter(client);
    clients_.remove(client);
    client->deadline.cancel();
    client->socket.detach();
    if (!why.empty()) execute_wills(*client, why);
    look_for_end();
  }

  // The first verdict stays: a key that is there already is left. A will that finds the store full is left out; the
  // others are carried out.
  void execute_wills(const Client& client, const std::string& why) {
    for (const auto& [key, value] : client.wills) {
      if (map_.find(key) == nullptr && put_if_room(key, value + why)) wake(key, value + why);
    }
  }

  // Puts what the server itself has to say. A store that is full must not keep it from the rest of what it does then.
  bool put_if_room(const std::string& key, const std::string& value) {
    try {
      map_.put(key, value);
      return true;
    } catch (const Exception& full) {
      log_.warn(fmt::format("store: {}", full.what()));
      return false;
    }
  }

  // A client waits for one key at most.
  void forget_waiter(const ClientPtr& client) {
    if (!std::exchange(client->waiting, false)) return;
    auto [first, last] = waiters_.equal_range(client->wanted);
    for (auto w = first; w != last; ++w) {
      if (w->second == client) {
        waiters_.erase(w);
        break;
      }
    }
    waiting_.store(waiters_.size(), std::memory_order_relaxed);
  }

  // One wait for readability at a time, also while a get waits: the end of the connection must be seen then, too.
  void arm_read(const ClientPtr& client) {
    if (client->closed || std::exchange(client->reading, true)) return;
    client->socket.when_readable([this, client] {
      client->reading = false;
      serve(client, [&] { on_readable(client); });
    });
  }

  // Also while a get waits: the end of the connection is seen then, and another request ends the get.
  void on_readable(const ClientPtr& client) {
    char buffer[kReadBytes];
    std::string why;
    int number = 0;
    const long moved = receive_some(client->socket.get(), buffer, sizeof buffer, why, &number);
    if (moved < 0) {
      const bool silent = number != 0 && number != ECONNRESET;
      return drop(client, silent ? fmt::format("its host, or the network to it, gives no sign of life ({})", why)
                                 : "its process ended, or gave up");
    }
    if (moved > 0) take(client, {buffer, static_cast<size_t>(moved)});
    go_on(client);
  }

  // A reply that the client does not take stops its next request, so that output stays one reply.
  void go_on(const ClientPtr& client) {
    while (!client->closed && client->output.empty() && consume_request(client)) continue;
    if (!client->closed && client->output.empty()) arm_read(client);
  }

  // Opens the seal of what has come. Changed bytes end the connection: their order is lost.
  void take(const ClientPtr& client, std::string_view bytes) {
    if (!client->seal.open(bytes, client->input)) {
      log_.warn("store: a client's bytes were changed on their way, and it was dropped");
      drop(client, "its bytes were changed on their way");
    } else if (!client->timed) {
      start_deadline(client, options_.idle_ms);  // of a request behind a get that still waits
    }
  }

  // --- requests

  // Takes the next whole request off the input, and carries it out. False: none is complete, or the client was dropped.
  bool consume_request(const ClientPtr& client) {
    std::string& input = client->input;
    if (input.size() < kFrameHeadBytes) return false;
    size_t body_bytes = decode_frame_head(input);
    if (body_bytes > kMaxRequestBodyBytes) {
      log_.warn("store: a request of an impossible length was dropped");
      drop(client, kBroken);
      return false;
    }
    if (input.size() < kFrameHeadBytes + body_bytes) {
      if (unfinished_bytes() > memory_limit()) {
        log_.warn("store: too much memory is taken by requests that are not complete; dropping one of them");
        drop(client, kBroken);
      }
      return false;
    }
    std::optional<StoreRequest> request = decode_request(std::string_view(input).substr(kFrameHeadBytes, body_bytes));
    if (!request) {
      log_.warn("store: a malformed request was dropped");
      drop(client, kBroken);
      return false;
    }
    end_deadline(client);
    // Memory of a large request goes back at once: each of thousands of clients would keep it else.
    input.erase(0, kFrameHeadBytes + body_bytes);
    input.shrink_to_fit();
    forget_waiter(client);
    client->number = request->number;
    execute(client, *request);
    return true;
  }

  // All requests that are not complete, of all clients: many slow clients could fill the memory otherwise.
  size_t unfinished_bytes() const {
    size_t bytes = 0;
    for (const ClientPtr& client : clients_) bytes += client->input.size();
    return bytes;
  }

  // Carries out a request. A get of a key that is not there is parked in waiters_ and answered by wake(). Any other
  // request is answered first, and then those that wait for its key.
  void execute(const ClientPtr& client, const StoreRequest& request) {
    if (request.operation == StoreOperation::kGet && map_.find(request.key) == nullptr) {
      client->waiting = true;
      client->wanted = request.key;
      waiters_.emplace(request.key, client);
      waiting_.store(waiters_.size(), std::memory_order_relaxed);
      return;
    }
    client->wanted.clear();
    StoreReply reply;
    try {
      reply = request.operation == StoreOperation::kWill ? bequeath(*client, request) : map_.apply(request);
    } catch (const Exception& e) {
      reply = {StoreStatus::kRefused, e.what()};
    }
    if (options_.world == 0 && request.key == options_.world_key) learn_world(request.first);
    // Before anybody can know of the last key: who leaves now and comes again must not meet this server.
    if (!options_.last_key.empty() && map_.find(options_.last_key) != nullptr) stop_listening();
    send(client, reply);
    if (const std::string* value = map_.find(request.key)) wake(request.key, *value);
  }

  // Learns the number of ranks from the text "<ranks> <host>", and sets the limits by it.
  void learn_world(const std::string& text) {
    const auto world = parse_number<int>(std::string_view(text).substr(0, text.find(' ')));
    if (!world || *world < 1) return;
    options_.world = *world;
    map_.limit(memory_limit());
  }

  // A will is of the connection, and counts against no bound but kMostWills: its value is bounded like any other.
  static StoreReply bequeath(Client& client, const StoreRequest& request) {
    if (request.first.empty()) {
      client.wills.erase(request.key);
    } else if (client.wills.size() >= kMostWills && client.wills.count(request.key) == 0) {
      return {StoreStatus::kRefused, fmt::format("a client has {} wills at most", kMostWills)};
    } else {
      client.wills[request.key] = request.first;
    }
    return {};
  }

  // Answers all who wait for the key. They are moved out first, since an answer may drop a client and change waiters_.
  void wake(const std::string& key, const std::string& value) {
    decltype(waiters_) woken;  // which needs no memory
    for (auto w = waiters_.find(key); w != waiters_.end(); w = waiters_.find(key)) woken.insert(waiters_.extract(w));
    waiting_.store(waiters_.size(), std::memory_order_relaxed);
    for (const auto& [wanted, client] : woken) {
      client->waiting = false;
      serve(client, [&, &to = client] {
        send(to, {StoreStatus::kOk, value});
        go_on(to);
      });
    }
  }

  // --- sending

  // Requires that the answer before has been sent whole. The deadline now counts for the client to take this one.
  void send(const ClientPtr& client, StoreReply reply) {
    reply.number = client->number;
    client->output.clear();
    client->seal.seal(encode_reply(std::move(reply)), client->output);
    client->written = 0;
    start_deadline(client, options_.idle_ms);
    write_some(client);
  }

  // Writes what the socket takes. arm_write() goes on, and the next request is served once all has gone.
  void write_some(const ClientPtr& client) {
    std::string why;
    while (client->written < client->output.size()) {
      const std::string_view rest = std::string_view(client->output).substr(client->written);
      const long moved = send_some(client->socket.get(), rest, why);
      if (moved == 0) return arm_write(client);
      if (moved < 0) return drop(client, "its process ended, or gave up");
      client->written += static_cast<size_t>(moved);
    }
    client->output.clear();
    client->output.shrink_to_fit();
  }

  // One wait for writability at a time.
  void arm_write(const ClientPtr& client) {
    if (std::exchange(client->writing, true)) return;
    client->socket.when_writable([this, client] {
      client->writing = false;
      serve(client, [&] {
        write_some(client);
        go_on(client);
      });
    });
  }

  Options options_;
  const pid_t owner_;
  const bool over_tcp_;
  // The server's thread alone uses what is not atomic here, but for the destructor, which has stopped it.
  bool listening_ = true;
  std::atomic<bool> ended_{false};
  std::atomic<size_t> waiting_{0};  // waiters_
  StoreMap map_;
  StrangerLog log_;
  IoThread thread_;
  Reception reception_;
  std::list<ClientPtr> clients_;
  std::multimap<std::string, ClientPtr> waiters_;
};

StoreServer::StoreServer(Options options) : loop_(std::make_unique<Loop>(std::move(options))) {}

StoreServer::~StoreServer() {
  // A forked child has neither the thread nor the descriptors; taking the object apart there would wait for ever.
  if (loop_ && !loop_->in_owner()) (void)loop_.release();
}

bool StoreServer::ended() const { return loop_->ended(); }
size_t StoreServer::waiting() const { return loop_->waiting(); }
std::vector<StoreServer::Caller> StoreServer::callers() const { return loop_->callers(); }
void StoreServer::answer(const std::string& key, const std::string& value) { loop_->answer(key, value); }

}  // namespace rondo
