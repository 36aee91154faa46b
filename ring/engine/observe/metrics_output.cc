#include "ring/engine/observe/metrics_output.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/log.h"
#include "ring/base/own_thread.h"
#include "ring/engine/observe/prometheus.h"

namespace rondo {
namespace {

// Prometheus' file collector reads every 15 s by default.
constexpr int kFileIntervalMs = 5'000;
// For a client to send its request, of at most so many bytes.
constexpr int kRequestMs = 1'000;
constexpr size_t kRequestBytes = 4096;
constexpr std::string_view kPort = "port:";

[[noreturn]] void refuse(const std::string& what) {
  throw Exception(ErrorCode::kSystem,
                  fmt::format("RONDO_METRICS: {}: {}", what, std::generic_category().message(errno)));
}

struct JoinObserver {
  explicit JoinObserver(ObservedRank about) : observer(std::move(about)) {}
  Observer observer;
  std::unique_ptr<MetricsOutput> output;
};

}  // namespace

std::shared_ptr<Observer> make_observer(ObservedRank about, const Config& config) {
  about.trace_bytes = config.trace_bytes;
  auto join = std::make_shared<JoinObserver>(std::move(about));
  if (!config.trace_folder.empty()) join->observer.start_trace(config.trace_folder);
  if (!config.metrics.empty()) join->observer.start_metrics();
  if (!config.metrics.empty() && config.metrics != "on") {
    join->output = std::make_unique<MetricsOutput>(join->observer, config.metrics);
  }
  return {join, &join->observer};
}

MetricsOutput::MetricsOutput(const Observer& observer, const std::string& where)
    : observer_(observer), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), pid_(getpid()) {
  if (!stop_.valid()) refuse("no descriptor for the thread's end");
  if (where.starts_with(kPort)) {
    int port = 0;
    std::from_chars(where.data() + kPort.size(), where.data() + where.size(), port);
    listen(port + observer.about().local_rank);
  } else {
    if (mkdir(where.c_str(), 0755) != 0 && errno != EEXIST) refuse(where);
    file_ = fmt::format("{}/rondo-rank-{}.prom", where, observer.about().rank);
    if (!write_file()) refuse(file_);
  }
  thread_ = start_own_thread("rondo-metrics", [this] { run(); });
}

MetricsOutput::~MetricsOutput() {
  if (getpid() != pid_) {
    thread_.detach();  // the parent's
    return;
  }
  const uint64_t one = 1;
  static_cast<void>(!write(stop_.get(), &one, sizeof(one)));
  thread_.join();
  if (!file_.empty()) write_file();
}

void MetricsOutput::listen(int port) {
  listener_ = Descriptor([&] { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  if (port > 65535) {
    errno = EADDRNOTAVAIL;
    refuse(fmt::format("port {}", port));
  }
  if (!listener_.valid() || setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(listener_.get(), 8) != 0) {
    refuse(fmt::format("127.0.0.1:{}", port));
  }
}

std::string MetricsOutput::text() const { return prometheus_text(*observer_.metrics(), observer_.about().rank); }

// To a file beside it first, so that no reader sees half of it.
bool MetricsOutput::write_file() const {
  const std::string part = file_ + ".part";
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  out << text();
  out.close();
  return out && std::rename(part.c_str(), file_.c_str()) == 0;
}

void MetricsOutput::run() {
  pollfd waits[] = {{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  while (true) {
    const int ready = poll(waits, file_.empty() ? 2 : 1, file_.empty() ? -1 : kFileIntervalMs);
    if (ready < 0 && errno != EINTR) return;
    if (waits[0].revents != 0) return;
    try {
      serve(ready);
    } catch (...) {  // nobody's data depends on it
      Logger("warn", observer_.about().rank).warn("RONDO_METRICS: " + caught().message);
    }
  }
}

// ready: of poll(); 0: it is time for the file.
void MetricsOutput::serve(int ready) const {
  if (ready == 0) {
    write_file();
  } else if (ready > 0) {
    const Descriptor client([&] { return accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC); });
    if (client.valid()) answer(client.get());
  }
}

void MetricsOutput::answer(int client) const {
  const timeval limit{kRequestMs / 1000, 0};
  setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  std::string request;
  char part[1024];
  while (request.find("\r\n\r\n") == std::string::npos && request.size() < kRequestBytes) {
    const ssize_t got = recv(client, part, sizeof(part), 0);
    if (got <= 0) return;
    request.append(part, static_cast<size_t>(got));
  }
  const bool known = request.starts_with("GET /metrics ") || request.starts_with("GET / ");
  const std::string body = known ? text() : "There is /metrics only.\n";
  std::string reply = fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      known ? "200 OK" : "404 Not Found", body.size(), body);
  std::string_view left = reply;
  while (!left.empty()) {
    const ssize_t sent = send(client, left.data(), left.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    left.remove_prefix(static_cast<size_t>(sent));
  }
}

}  // namespace rondo
