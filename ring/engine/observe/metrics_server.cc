#include "ring/engine/observe/metrics_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "rondo/error.h"

namespace rondo {
namespace {

constexpr std::chrono::milliseconds kPatience{1'000};
constexpr size_t kRequestBytes = 4096;
// More push out the oldest.
constexpr size_t kMostClients = 16;
// Before the next try where this process has no descriptor left.
constexpr std::chrono::milliseconds kRest{100};

[[noreturn]] void refuse(int port, int number) {
  throw Exception(ErrorCode::kSystem, fmt::format("RONDO_METRICS: port {} of 127.0.0.1: {}", port,
                                                  std::generic_category().message(number)));
}

Descriptor listen_on(int port) {
  if (port > 65535) refuse(port, EADDRNOTAVAIL);
  Descriptor listener([] { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  if (!listener.valid() || setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener.get(), kMostClients) != 0) {
    refuse(port, errno);
  }
  return listener;
}

bool is_later(int number) { return number == EAGAIN || number == EWOULDBLOCK || number == EINTR; }

}  // namespace

MetricsServer::MetricsServer(int port, std::function<std::string()> text)
    : text_(std::move(text)), listener_(listen_on(port)) {}

void MetricsServer::run(int stop) {
  while (true) {
    const auto now = Clock::now();
    std::vector<pollfd> waits{{stop, POLLIN, 0}, {now < rest_until_ ? -1 : listener_.get(), POLLIN, 0}};
    for (const Client& client : clients_) {
      waits.push_back({client.socket.get(), static_cast<short>(client.answer.empty() ? POLLIN : POLLOUT), 0});
    }
    const int ready = poll(waits.data(), waits.size(), wait_ms(now));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0 || waits[0].revents != 0) return;
    auto wait = waits.begin() + 2;
    clients_.remove_if([&](Client& client) {
      const bool stays = (wait++->revents == 0 || go_on(client)) && Clock::now() < client.until;
      return !stays;
    });
    if (waits[1].revents != 0) accept();
  }
}

// Until a client's time is over, or the listener's rest; -1: for ever.
int MetricsServer::wait_ms(Clock::time_point now) const {
  Clock::time_point next = now < rest_until_ ? rest_until_ : Clock::time_point::max();
  if (!clients_.empty()) next = std::min(next, clients_.front().until);
  if (next == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - now);
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

void MetricsServer::accept() {
  Descriptor client([&] { return accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
  if (client.valid()) {
    if (clients_.size() == kMostClients) clients_.pop_front();
    clients_.push_back({std::move(client), Clock::now() + kPatience, "", "", 0});
  } else if (!is_later(errno) && errno != ECONNABORTED) {
    rest_until_ = Clock::now() + kRest;
  }
}

// False: it is over.
bool MetricsServer::go_on(Client& client) const {
  if (client.answer.empty()) return hear(client);
  const std::string_view rest = std::string_view(client.answer).substr(client.sent);
  const ssize_t sent = send(client.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
  if (sent < 0) return is_later(errno);
  client.sent += static_cast<size_t>(sent);
  return client.sent < client.answer.size();
}

bool MetricsServer::hear(Client& client) const {
  char part[1024];
  const ssize_t got = recv(client.socket.get(), part, sizeof(part), 0);
  if (got <= 0) return got < 0 && is_later(errno);
  client.request.append(part, static_cast<size_t>(got));
  const bool whole = client.request.find("\r\n\r\n") != std::string::npos || client.request.size() >= kRequestBytes;
  if (whole) client.answer = answer_to(client.request);
  return true;
}

std::string MetricsServer::answer_to(const std::string& request) const {
  const bool known = request.starts_with("GET /metrics ") || request.starts_with("GET / ");
  const std::string body = known ? text_() : "There is /metrics only.\n";
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      known ? "200 OK" : "404 Not Found", body.size(), body);
}

}  // namespace rondo
