#include "transport/control/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <ctime>
#include <map>
#include <utility>

#include "ring/base/json_text.h"
#include "transport/tcp/asio_socket.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

// Before the next try where this process has no descriptor left.
constexpr std::chrono::milliseconds kPause{100};
// Ten times the head of a scraper's request; what is longer is answered by its beginning.
constexpr size_t kRequestBytes = 4096;

// The local time, as RAS writes it.
std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%F %T", &local)};
}

// null: no TCP link is known to move anything.
std::string link_json(const LinkRate& link) {
  if (link.peer < 0) return "null";
  return fmt::format(R"({{"rank":{},"bytes_per_second":{},"best":{}}})", link.peer, link.bytes_per_second, link.best);
}

}  // namespace

std::string status_json(const RankStatus& status) {
  return fmt::format(R"({{"timestamp":"{}","job":{},"session":"{:08x}","rank":{},"world":{},"host":{},)"
                     R"("pid":{},"slowest_link":{},"communicators_count":{},"communicators":[{}]}})"
                     "\n",
                     timestamp(), json_text(status.job), status.session, status.rank, status.world,
                     json_text(status.host), ::getpid(), link_json(status.slowest), status.communicators.size(),
                     fmt::join(status.communicators, ","));
}

// An empty answer_ says that the server has gone: handlers that Asio still holds then do nothing.
class StatusServer::State : public std::enable_shared_from_this<StatusServer::State> {
 public:
  State(asio::io_context& io, Descriptor listener, Answer answer, int64_t patience_ms)
      : io_(io), listener_(io, std::move(listener)), pause_(io), answer_(std::move(answer)), patience_(patience_ms) {}

  void start_soon() {
    asio::post(io_, [self = shared_from_this()] { self->wait(); });
  }
  void cancel() {
    answer_ = nullptr;
    pause_.cancel();
    listener_.detach();
    clients_.clear();
  }

 private:
  // text is empty while the request is heard, so it also says whether an answer is being written.
  struct Client {
    Client(asio::io_context& io, Descriptor of) : socket(io, std::move(of)), limit(io) {}
    AsioSocket socket;
    asio::steady_timer limit;
    std::string request, text;
    std::string_view rest;  // of the text
  };

  void wait() {
    listener_.when_readable([self = shared_from_this()](asio::error_code failure) {
      if (!failure && self->answer_) self->accept();
    });
  }

  // Accepts all that wait. A process of another user but root is let go at once.
  void accept() {
    while (true) {
      Descriptor client([&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
      if (!client.valid()) break;
      if (check_peer(client.get(), 0).empty()) take(std::move(client));
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNABORTED || errno == EINTR) return wait();
    pause_.expires_after(kPause);
    pause_.async_wait([self = shared_from_this()](asio::error_code failure) {
      if (!failure && self->answer_) self->wait();
    });
  }

  // Whatever it throws is no failure of the rank's: the client is let go.
  void take(Descriptor socket) noexcept {
    const uint64_t number = ++last_client_;
    try {
      if (clients_.size() == kMostClients) clients_.erase(clients_.begin());
      Client& client = clients_.try_emplace(number, io_, std::move(socket)).first->second;
      limit(number, kAskPatience, &State::stop_asking);
      wait_for_request(number, client);
    } catch (...) {
      clients_.erase(number);
    }
  }

  // A timer that has run out just before its client was let go, or it was set anew, calls its handler without an error.
  void limit(uint64_t number, std::chrono::milliseconds patience, void (State::*then)(uint64_t)) {
    Client& client = clients_.at(number);
    client.limit.expires_after(patience);
    client.limit.async_wait([self = shared_from_this(), number, then](asio::error_code failure) {
      const auto found = self->clients_.find(number);
      if (failure || found == self->clients_.end()) return;
      if (found->second.limit.expiry() <= std::chrono::steady_clock::now()) (*self.*then)(number);
    });
  }

  void wait_for_request(uint64_t number, Client& client) {
    client.socket.when_readable([self = shared_from_this(), number](asio::error_code failure) {
      if (!failure) self->hear(number);
    });
  }

  // Who has begun a request has more time.
  void stop_asking(uint64_t number) {
    clients_.at(number).request.empty() ? answer(number) : limit(number, patience_, &State::answer);
  }

  static bool may_be_request(std::string_view heard) {
    constexpr std::string_view kBegin = "GET ";
    return heard.substr(0, kBegin.size()) == kBegin.substr(0, heard.size());
  }

  // The head of a request ends with an empty line; what does not begin as one is none.
  void hear(uint64_t number) noexcept {
    const auto found = clients_.find(number);
    if (found == clients_.end() || !found->second.text.empty()) return;
    try {
      Client& client = found->second;
      char part[1024];
      std::string why;
      const long got = receive_some(client.socket.get(), part, sizeof part, why);
      if (got == 0) return wait_for_request(number, client);
      if (got > 0) client.request.append(part, static_cast<size_t>(got));
      const bool more = got > 0 && may_be_request(client.request) && client.request.size() < kRequestBytes &&
                        client.request.find("\r\n\r\n") == std::string::npos;
      more ? wait_for_request(number, client) : answer(number);
    } catch (...) {
      clients_.erase(number);
    }
  }

  // Once for each client: a timer and a readable socket may both call it.
  void answer(uint64_t number) noexcept {
    const auto found = clients_.find(number);
    if (found == clients_.end() || !found->second.text.empty()) return;
    try {
      Client& client = found->second;
      client.text = answer_(client.request);
      client.rest = client.text;
      limit(number, patience_, &State::let_go);
      write(number);
    } catch (...) {
      clients_.erase(number);
    }
  }

  void let_go(uint64_t number) noexcept { clients_.erase(number); }

  // A failed write, and one that throws, lets the client go: no error of the rank's.
  void write(uint64_t number) noexcept {
    const auto found = clients_.find(number);
    if (found == clients_.end()) return;  // pushed out
    try {
      Client& client = found->second;
      std::string why;
      long moved = 0;
      while (!client.rest.empty() && (moved = send_some(client.socket.get(), client.rest, why)) > 0) {
        client.rest.remove_prefix(static_cast<size_t>(moved));
      }
      if (client.rest.empty() || moved < 0) return static_cast<void>(clients_.erase(found));
      client.socket.when_writable([self = shared_from_this(), number](asio::error_code failure) {
        if (!failure) self->write(number);
      });
    } catch (...) {
      clients_.erase(found);
    }
  }

  asio::io_context& io_;
  AsioSocket listener_;
  asio::steady_timer pause_;
  Answer answer_;
  const std::chrono::milliseconds patience_;
  std::map<uint64_t, Client> clients_;  // oldest first
  uint64_t last_client_ = 0;
};

std::string http_answer(const std::string& type, const std::string& body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", type,
                     body.size(), body);
}

StatusServer::StatusServer(asio::io_context& io, Listener listener, Answer answer, int64_t patience_ms)
    : path_(std::move(listener.unlink_path)),
      state_(std::make_shared<State>(io, std::move(listener.socket), std::move(answer), patience_ms)) {
  state_->start_soon();
}

StatusServer::~StatusServer() {
  state_->cancel();
  ::unlink(path_.c_str());
}

}  // namespace rondo
