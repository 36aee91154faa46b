#include "transport/control/status_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <map>
#include <string_view>
#include <utility>

#include "transport/tcp/asio_socket.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

// Before the next try where this process has no descriptor left.
constexpr std::chrono::milliseconds kPause{100};

}  // namespace

class StatusServer::State : public std::enable_shared_from_this<StatusServer::State> {
 public:
  State(asio::io_context& io, Descriptor listener, std::function<std::string()> text, int64_t patience_ms)
      : io_(io), listener_(io, std::move(listener)), pause_(io), text_(std::move(text)), patience_(patience_ms) {}

  void start_soon() {
    asio::post(io_, [self = shared_from_this()] { self->wait(); });
  }
  void cancel() {
    text_ = nullptr;
    pause_.cancel();
    listener_.detach();
    clients_.clear();
  }

 private:
  struct Client {
    Client(asio::io_context& io, Descriptor of, std::string of_rank)
        : socket(io, std::move(of)), limit(io), text(std::move(of_rank)) {}
    AsioSocket socket;
    asio::steady_timer limit;
    const std::string text;
    std::string_view rest = text;
  };

  void wait() {
    listener_.when_readable([self = shared_from_this()](asio::error_code failure) {
      if (!failure && self->text_) self->accept();
    });
  }

  void accept() {
    while (true) {
      Descriptor client([&] { return ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
      if (!client.valid()) break;
      if (check_peer(client.get(), 0).empty()) answer(std::move(client));
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNABORTED || errno == EINTR) return wait();
    pause_.expires_after(kPause);
    pause_.async_wait([self = shared_from_this()](asio::error_code failure) {
      if (!failure && self->text_) self->wait();
    });
  }

  // Whatever it throws is no failure of the rank's: the client is let go.
  void answer(Descriptor socket) noexcept {
    const uint64_t number = ++last_client_;
    try {
      if (clients_.size() == kMostClients) clients_.erase(clients_.begin());
      Client& client = clients_.try_emplace(number, io_, std::move(socket), text_()).first->second;
      client.limit.expires_after(patience_);
      client.limit.async_wait([self = shared_from_this(), number](asio::error_code failure) {
        if (!failure) self->clients_.erase(number);
      });
      write(number);
    } catch (...) {
      clients_.erase(number);
    }
  }

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
  std::function<std::string()> text_;
  const std::chrono::milliseconds patience_;
  std::map<uint64_t, Client> clients_;  // oldest first
  uint64_t last_client_ = 0;
};

StatusServer::StatusServer(asio::io_context& io, Listener listener, std::function<std::string()> text,
                           int64_t patience_ms)
    : path_(std::move(listener.unlink_path)),
      state_(std::make_shared<State>(io, std::move(listener.socket), std::move(text), patience_ms)) {
  state_->start_soon();
}

StatusServer::~StatusServer() {
  state_->cancel();
  ::unlink(path_.c_str());
}

}  // namespace rondo
