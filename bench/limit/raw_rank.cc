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
#include <thread>

#include "bench/loop/statistics.h"
#include "ring/base/cores.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

constexpr double kMeetSeconds = 10;      // processes may share a busy core; a lost one is seen by its parent at once
constexpr timeval kSetupTimeout{5, 0};   // accept and the first bytes of a connection
constexpr int kExchangesPerBatch = 100;  // some 300 us: far above the clock's resolution
constexpr uint64_t kExchangeBytes = 8;
// A limit is what raw TCP does when nothing disturbs it, while operations are judged by their median.
constexpr double kStreamQuantile = 0.25;

[[noreturn]] void fail(const char* what) {
  throw Exception(ErrorCode::kSystem, fmt::format("raw TCP measurement: {}: {}", what, std::strerror(errno)));
}

struct Hello {
  uint64_t token;
  uint64_t index;
};

void set_congestion(int fd, const std::string& congestion) {
  const auto length = static_cast<socklen_t>(congestion.size());
  if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion.data(), length) != 0) fail("TCP_CONGESTION");
}

void set_streaming(int fd) {
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0) fail("TCP_NODELAY");
  if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) fail("O_NONBLOCK");
}

uint64_t lines_for(uint64_t bytes) { return (bytes + sizeof(RawRank::Line) - 1) / sizeof(RawRank::Line); }

void grow(std::vector<RawRank::Line>& memory, uint64_t bytes) {
  if (memory.size() < lines_for(bytes)) memory.resize(lines_for(bytes));
}

// An atomic maximum.
void raise(std::atomic<double>& value, double to) {
  double before = value.load();
  while (before < to && !value.compare_exchange_weak(before, to)) {
  }
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

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// The scheduler puts two processes that wake each other on one core now and then, for seconds: not what the machine can
// do. So each has an equal share of the cores for itself, for all of its threads, where there are enough.
void take_cores(int rank, int world) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  const int share = CPU_COUNT(&allowed) / world;
  cpu_set_t own;
  CPU_ZERO(&own);
  for (int place = rank * share; place < (rank + 1) * share; ++place) CPU_SET(home_core(allowed, place), &own);
  if (CPU_COUNT(&own) > 0) sched_setaffinity(0, sizeof(own), &own);
}

// True if the call failed only because nothing can move now.
bool would_block(ssize_t moved) { return moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR); }

}  // namespace

RawRank::RawRank(int rank, Descriptor listener, std::vector<uint16_t> ports, uint64_t buffer_bytes, RawMeeting* meeting)
    : rank_(rank),
      world_(static_cast<int>(ports.size())),
      listener_(std::move(listener)),
      ports_(std::move(ports)),
      cores_(usable_cores()),
      buffer_(lines_for(buffer_bytes)),
      meeting_(meeting) {
  take_cores(rank_, world_);
  setsockopt(listener_.get(), SOL_SOCKET, SO_RCVTIMEO, &kSetupTimeout, sizeof(kSetupTimeout));
}

void RawRank::meet() {
  const uint64_t all = ++meetings_ * static_cast<uint64_t>(world_);
  meeting_->arrived.fetch_add(1, std::memory_order_acq_rel);
  const double deadline = raw_seconds() + kMeetSeconds;
  for (uint32_t vain = 1; meeting_->arrived.load(std::memory_order_acquire) < all; ++vain) {
    if (meeting_->failed.load(std::memory_order_relaxed) || raw_seconds() > deadline) {
      errno = ETIMEDOUT;
      fail("waiting for the other ranks");
    }
    wait_a_little(vain);
  }
}

// Beside a foreign busy process a yield lasts as long as that one's turn, some milliseconds; so who has a core spins.
void RawRank::wait_a_little(uint32_t vain) const {
  constexpr uint32_t kYields = 100;
  constexpr timespec kNap{0, 20'000};
  if (world_ <= cores_) return;
  if (vain % kYields == 0) {
    nanosleep(&kNap, nullptr);
  } else {
    sched_yield();
  }
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
  const Hello hello{meeting_->token, static_cast<uint64_t>(index)};
  if (send(fd.get(), &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) fail("send");
  return fd;
}

std::pair<int, Descriptor> RawRank::accept_one(const std::string& congestion) {
  while (true) {
    Descriptor fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.get() < 0) fail("accept");
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &kSetupTimeout, sizeof(kSetupTimeout));
    Hello hello{};
    const bool ours = recv(fd.get(), &hello, sizeof(hello), MSG_WAITALL) == sizeof(hello) &&
                      hello.token == meeting_->token && hello.index < 64;
    if (!ours) continue;
    set_congestion(fd.get(), congestion);
    return {static_cast<int>(hello.index), std::move(fd)};
  }
}

const RawRank::Connections& RawRank::connections(const std::string& congestion, int count) {
  const auto key = std::make_pair(congestion, count);
  const auto known = connections_.find(key);
  if (known != connections_.end()) return known->second;
  return connections_.emplace(key, connect(congestion, count)).first->second;
}

RawRank::Connections RawRank::connect(const std::string& congestion, int count) {
  Connections out;
  const bool duplex = world_ == 2;
  const bool dials = !duplex || rank_ == 0;
  const bool accepts = !duplex || rank_ == 1;
  if (dials) {
    const uint16_t next = ports_[static_cast<size_t>((rank_ + 1) % world_)];
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
  if (duplex && rank_ == 0) out.incoming = out.outgoing;
  if (duplex && rank_ == 1) out.outgoing = out.incoming;
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
  const uint64_t transfers = (batch_bytes / count + setting.transfer_bytes - 1) / setting.transfer_bytes;
  const uint64_t flow_bytes = std::max<uint64_t>(transfers, 1) * setting.transfer_bytes;
  const auto idle = world_ > cores_ ? RawPump::Idle::kYield : RawPump::Idle::kSpin;
  double us = 0;
  if (setting.driving == Driving::kTwoThreads) {
    RawPump receiver(std::move(receiving), setting, idle);
    Helper sender([pump = RawPump(std::move(sending), setting, idle), flow_bytes]() mutable { pump.run(flow_bytes); });
    us = batch_us(seconds, kStreamQuantile, [&] {
      sender.start();
      receiver.run(flow_bytes);
      sender.finish();
    });
  } else {
    sending.insert(sending.end(), receiving.begin(), receiving.end());
    RawPump pump(std::move(sending), setting, idle);
    us = batch_us(seconds, kStreamQuantile, [&] { pump.run(flow_bytes); });
  }
  return us > 0 ? static_cast<double>(flow_bytes * count) / us / 1e3 : 0;
}

// All ranks run the same number of batches: rank 0 decides, and says so where they meet between two of them. On a busy
// host a batch may take a second, so time ends the measurement, not a count.
double RawRank::batch_us(double seconds, double quantile_wanted, const std::function<void()>& batch) {
  const double end = raw_seconds() + seconds;
  std::vector<double> all_us;
  for (uint64_t i = 0;; ++i) {
    meet();
    if (rank_ == 0 && i >= 2)
      all_us.push_back(meeting_->slowest_us[(i - 1) % 2].exchange(0));  // the first one warms up
    if (rank_ == 0 && i == 1) meeting_->slowest_us[0] = 0;
    if (meeting_->enough.load(std::memory_order_acquire) == meetings_) break;
    const double start = raw_seconds();
    batch();
    const double stop = raw_seconds();
    raise(meeting_->slowest_us[i % 2], (stop - start) * 1e6);
    if (rank_ == 0 && stop > end && i >= 1) meeting_->enough.store(meetings_ + 1, std::memory_order_release);
  }
  return all_us.empty() ? 0 : quantile(all_us, quantile_wanted);
}

double RawRank::exchange_us(const std::string& congestion, double seconds) {
  const Connections& made = connections(congestion, 1);
  const int out = made.outgoing[0];
  const int in = made.incoming[0];
  const auto exchange = [&] {
    std::byte message[kExchangeBytes] = {};
    if (send(out, message, sizeof(message), MSG_NOSIGNAL) != sizeof(message)) fail("send");
    for (size_t have = 0; have < sizeof(message);) {
      const ssize_t got = recv(in, message + have, sizeof(message) - have, 0);
      if (got == 0 || (got < 0 && !would_block(got))) fail("a connection broke");
      if (got > 0) have += static_cast<size_t>(got);
    }
  };
  return batch_us(seconds, 0.5,
                  [&] {
                    for (int i = 0; i < kExchangesPerBatch; ++i) exchange();
                  }) /
         kExchangesPerBatch;
}

}  // namespace rondo::bench
