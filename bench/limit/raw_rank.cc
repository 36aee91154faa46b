#include "bench/limit/raw_rank.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <random>
#include <thread>

#include "rondo/error.h"

namespace rondo::bench {
namespace {

constexpr timeval kSetupTimeout{5, 0};   // accept and the first bytes of a connection
constexpr int kExchangesPerBatch = 100;  // some 300 us: far above the clock's resolution
constexpr uint64_t kExchangeBytes = 8;
// A limit is what raw TCP does when nothing disturbs it, while operations are judged by their median.
constexpr double kStreamQuantile = 0.25;

[[noreturn]] void fail(const char* what) {
  throw Exception(ErrorCode::kSystem, fmt::format("raw TCP measurement: {}: {}", what, std::strerror(errno)));
}

// The first bytes of a connection: the ring's token, and which of the connections it is.
struct Hello {
  uint64_t token;
  uint64_t index;
};

void set_congestion(int fd, const std::string& congestion) {
  const auto length = static_cast<socklen_t>(congestion.size());
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion.data(), length) != 0) fail("TCP_CONGESTION");
}

// After the connection's first bytes, which are read and written blocking.
void set_streaming(int fd) {
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) fail("TCP_NODELAY");
  if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) fail("O_NONBLOCK");
}

Descriptor listen_on_loopback(uint16_t& port) {
  // Made before the ranks are forked.
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), Descriptor::InChild::kInherited);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (fd.get() < 0 || bind(fd.get(), generic, length) != 0 || listen(fd.get(), 64) != 0 ||
      getsockname(fd.get(), generic, &length) != 0) {
    fail("listening on 127.0.0.1");
  }
  port = ntohs(address.sin_port);
  return fd;
}

uint64_t lines_for(uint64_t bytes) { return (bytes + sizeof(RawRank::Line) - 1) / sizeof(RawRank::Line); }

// Never shrinks: one measurement after the other uses the memory.
void grow(std::vector<RawRank::Line>& memory, uint64_t bytes) {
  if (memory.size() < lines_for(bytes)) memory.resize(lines_for(bytes));
}

// A second thread that does the same work whenever it is told to.
class Helper {
 public:
  explicit Helper(std::function<void()> work) : work_(std::move(work)), thread_([this] { run(); }) {}
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper() {
    stopping_ = true;
    start();
    thread_.join();
  }
  void start() { started_.fetch_add(1, std::memory_order_release); }
  // Until the work is done; throws what it threw.
  void finish() {
    while (finished_.load(std::memory_order_acquire) != started_.load()) sched_yield();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void run() {
    for (uint64_t turn = 1;; ++turn) {
      while (started_.load(std::memory_order_acquire) < turn) sched_yield();
      if (stopping_) return;
      try {
        work_();
      } catch (...) {
        failure_ = std::current_exception();
      }
      finished_.store(turn, std::memory_order_release);
    }
  }

  std::function<void()> work_;
  std::atomic<uint64_t> started_{0}, finished_{0};
  std::atomic<bool> stopping_{false};
  std::exception_ptr failure_;  // published by finished_
  std::thread thread_;
};

// True if the call failed only because nothing can move now.
bool would_block(ssize_t moved) { return moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR); }

}  // namespace

RawRank::RawRank(Measurer& process, Descriptor listener, const RawAddresses& addresses, uint64_t buffer_bytes)
    : process_(process), listener_(std::move(listener)), addresses_(addresses), buffer_(lines_for(buffer_bytes)) {
  setsockopt(listener_.get(), SOL_SOCKET, SO_RCVTIMEO, &kSetupTimeout, sizeof(kSetupTimeout));
}

Descriptor RawRank::dial(uint16_t port, const std::string& congestion, int index) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) fail("socket");
  set_congestion(fd.get(), congestion);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fail("connect");
  const Hello hello{addresses_.token, static_cast<uint64_t>(index)};
  if (send(fd.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) fail("send");
  return fd;
}

// Strangers on the port do not know the token: their connections are closed.
std::pair<int, Descriptor> RawRank::accept_one(const std::string& congestion) {
  while (true) {
    Descriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.get() < 0) fail("accept");
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kSetupTimeout, sizeof(kSetupTimeout));
    Hello hello{};
    const bool ours = recv(fd.get(), &hello, sizeof(hello), MSG_WAITALL) == sizeof(hello) &&
                      hello.token == addresses_.token && hello.index < 64;
    if (!ours) continue;
    set_congestion(fd.get(), congestion);
    return {static_cast<int>(hello.index), std::move(fd)};
  }
}

// Kept for the turns to come. All ranks measure the settings in one order, so a hello that comes belongs to the
// connections that are made here, too.
const RawRank::Connections& RawRank::connections(const std::string& congestion, int count) {
  const auto key = std::make_pair(congestion, count);
  const auto known = connections_.find(key);
  if (known != connections_.end()) return known->second;
  return connections_.emplace(key, connect(congestion, count)).first->second;
}

// Two ranks share one connection for both directions. In a larger ring each dials the next and accepts the one before.
RawRank::Connections RawRank::connect(const std::string& congestion, int count) {
  Connections out;
  const bool duplex = process_.world() == 2;
  const bool dials = !duplex || process_.rank() == 0;
  const bool accepts = !duplex || process_.rank() == 1;
  if (dials) {
    const uint16_t next = addresses_.ports[static_cast<size_t>((process_.rank() + 1) % process_.world())];
    for (int i = 0; i < count; ++i) {
      out.owned.push_back(dial(next, congestion, i));
      out.outgoing.push_back(out.owned.back().get());
    }
  }
  if (accepts) {
    out.incoming.resize(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      auto [index, fd] = accept_one(congestion);
      out.incoming.at(static_cast<size_t>(index)) = fd.get();
      out.owned.push_back(std::move(fd));
    }
  }
  if (duplex && process_.rank() == 0) out.incoming = out.outgoing;
  if (duplex && process_.rank() == 1) out.outgoing = out.incoming;
  for (const Descriptor& fd : out.owned) set_streaming(fd.get());
  return out;
}

void RawRank::add_flows(const std::vector<int>& fds, RawFlow::Direction direction, const RawSetting& setting,
                        std::vector<RawFlow>& flows) {
  const uint64_t share = buffer_.size() / fds.size() * sizeof(Line);
  for (size_t i = 0; i < fds.size(); ++i) {
    flows.push_back({fds[i], direction, buffer_.data()->bytes + i * share, share,
                     rooms_.data()->bytes + i * setting.transfer_bytes, 0});
  }
}

double RawRank::stream_gbps(const RawSetting& setting, uint64_t batch_bytes, double seconds) {
  const Connections& made = connections(setting.congestion, setting.connections);
  const auto count = static_cast<uint64_t>(setting.connections);
  grow(rooms_, setting.transfer_bytes * count);
  grow(buffer_, setting.transfer_bytes * count);
  std::vector<RawFlow> sending, receiving;
  add_flows(made.outgoing, RawFlow::Direction::kSend, setting, sending);
  add_flows(made.incoming, RawFlow::Direction::kReceive, setting, receiving);
  // Whole transfers of each connection, at least one.
  const uint64_t transfers = (batch_bytes / count + setting.transfer_bytes - 1) / setting.transfer_bytes;
  const uint64_t flow_bytes = std::max<uint64_t>(transfers, 1) * setting.transfer_bytes;
  const auto idle = process_.crowded() ? RawPump::Idle::kYield : RawPump::Idle::kSpin;
  double us = 0;
  if (setting.driving == Driving::kTwoThreads) {
    RawPump receiver(std::move(receiving), setting, idle);
    Helper sender([pump = RawPump(std::move(sending), setting, idle), flow_bytes]() mutable { pump.run(flow_bytes); });
    us = process_.batch_us(seconds, kStreamQuantile, [&] {
      sender.start();
      receiver.run(flow_bytes);
      sender.finish();
    });
  } else {
    sending.insert(sending.end(), receiving.begin(), receiving.end());
    RawPump pump(std::move(sending), setting, idle);
    us = process_.batch_us(seconds, kStreamQuantile, [&] { pump.run(flow_bytes); });
  }
  return us > 0 ? static_cast<double>(flow_bytes * count) / us / 1e3 : 0;
}

double RawRank::exchange_us(const std::string& congestion, double seconds) {
  const Connections& made = connections(congestion, 1);
  const int out = made.outgoing[0];
  const int in = made.incoming[0];
  const auto exchange = [&] {
    std::byte message[kExchangeBytes] = {};
    if (send(out, message, sizeof(message), MSG_NOSIGNAL) != sizeof(message)) fail("send");
    RawDeadline deadline;
    for (size_t have = 0; have < sizeof(message);) {
      const ssize_t got = recv(in, message + have, sizeof(message) - have, 0);
      if (got == 0 || (got < 0 && !would_block(got))) fail("a connection broke");
      if (got > 0) {
        have += static_cast<size_t>(got);
      } else {
        deadline.passed_in_vain();
      }
    }
  };
  return process_.batch_us(seconds, 0.5, [&] {
    for (int i = 0; i < kExchangesPerBatch; ++i) exchange();
  }) / kExchangesPerBatch;
}

// All ranks of the ring listen before the first is forked, so no dial comes too early. A rank closes the listeners of
// the others.
void run_ring(int world, uint64_t buffer_bytes, const std::function<void(RawRank&)>& body) {
  std::random_device random;
  RawAddresses addresses{std::vector<uint16_t>(static_cast<size_t>(world)), (uint64_t{random()} << 32) | random()};
  std::vector<Descriptor> listeners;
  for (uint16_t& port : addresses.ports) listeners.push_back(listen_on_loopback(port));
  run_in_processes(world, [&](Measurer& process) {
    Descriptor listener = std::move(listeners[static_cast<size_t>(process.rank())]);
    listeners.clear();
    RawRank rank(process, std::move(listener), addresses, buffer_bytes);
    body(rank);
  });
}

}  // namespace rondo::bench
