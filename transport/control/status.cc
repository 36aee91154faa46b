#include "transport/control/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <ctime>
#include <list>
#include <utility>

#include "ring/base/json_text.h"
#include "transport/tcp/acceptor.h"
#include "transport/tcp/asio_socket.h"
#include "transport/tcp/io_timer.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

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

class StatusServer::State {
 public:
  State(asio::io_context& io, Descriptor listener, Answer answer, int64_t patience_ms)
      : io_(io),
        acceptor_(io, std::move(listener), [this](Descriptor socket) { take(std::move(socket)); }),
        answer_(std::move(answer)),
        patience_(patience_ms) {
    asio::post(io_, [this] { acceptor_.start(); });
  }

 private:
  // text is empty while the request is heard, so it also says whether an answer is being written.
  struct Client {
    Client(asio::io_context& io, Descriptor of) : socket(io, std::move(of)), limit(io) {}
    AsioSocket socket;
    IoTimer limit;
    std::string request, text;
    std::string_view rest;  // of the text
  };

  // A process of another user but root is let go at once.
  void take(Descriptor socket) noexcept {
    if (!check_peer(socket.get(), 0).empty()) return;
    try {
      if (clients_.size() == kMostClients) clients_.pop_front();
      clients_.emplace_back(io_, std::move(socket));
    } catch (...) {
      return;  // no memory for it, which is no failure of the rank's
    }
    serve(clients_.back(), &State::begin);
  }

  using Step = void (State::*)(Client&);
  // Whatever it throws is no failure of the rank's: the client is let go.
  void serve(Client& client, Step step) noexcept {
    try {
      (this->*step)(client);
    } catch (...) {
      let_go(client);
    }
  }

  void begin(Client& client) {
    limit(client, kAskPatience, &State::stop_asking);
    wait_for_request(client);
  }

  void limit(Client& client, std::chrono::milliseconds patience, Step then) {
    client.limit.set(IoTimer::Clock::now() + patience, [this, &client, then] { serve(client, then); });
  }

  void wait_for_request(Client& client) {
    client.socket.when_readable([this, &client] { serve(client, &State::hear); });
  }

  // Who has begun a request has more time.
  void stop_asking(Client& client) {
    client.request.empty() ? answer(client) : limit(client, patience_, &State::answer);
  }

  static bool may_be_request(std::string_view heard) {
    constexpr std::string_view kBegin = "GET ";
    return heard.substr(0, kBegin.size()) == kBegin.substr(0, heard.size());
  }

  // The head of a request ends with an empty line; what does not begin as one is none.
  void hear(Client& client) {
    if (!client.text.empty()) return;
    char part[1024];
    std::string why;
    const long got = receive_some(client.socket.get(), part, sizeof part, why);
    if (got == 0) return wait_for_request(client);
    if (got > 0) client.request.append(part, static_cast<size_t>(got));
    const bool more = got > 0 && may_be_request(client.request) && client.request.size() < kRequestBytes &&
                      client.request.find("\r\n\r\n") == std::string::npos;
    more ? wait_for_request(client) : answer(client);
  }

  // Once for each client: a timer and a readable socket may both call it.
  void answer(Client& client) {
    if (!client.text.empty()) return;
    client.text = answer_(client.request);
    client.rest = client.text;
    limit(client, patience_, &State::let_go);
    write(client);
  }

  void write(Client& client) {
    std::string why;
    long moved = 0;
    while (!client.rest.empty() && (moved = send_some(client.socket.get(), client.rest, why)) > 0) {
      client.rest.remove_prefix(static_cast<size_t>(moved));
    }
    if (client.rest.empty() || moved < 0) return let_go(client);
    client.socket.when_writable([this, &client] { serve(client, &State::write); });
  }

  void let_go(Client& client) {
    clients_.remove_if([&](const Client& one) { return &one == &client; });
  }

  asio::io_context& io_;
  Acceptor acceptor_;
  const Answer answer_;
  const std::chrono::milliseconds patience_;
  std::list<Client> clients_;  // oldest first
};

std::string http_answer(const std::string& type, const std::string& body) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}", type,
                     body.size(), body);
}

StatusServer::StatusServer(asio::io_context& io, Listener listener, Answer answer, int64_t patience_ms)
    : path_(std::move(listener.unlink_path)),
      state_(std::make_unique<State>(io, std::move(listener.socket), std::move(answer), patience_ms)) {}

StatusServer::~StatusServer() { ::unlink(path_.c_str()); }

}  // namespace rondo
