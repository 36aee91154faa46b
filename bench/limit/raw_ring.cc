#include "bench/limit/raw_ring.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <new>
#include <random>
#include <sstream>

#include "bench/limit/raw_rank.h"
#include "rondo/error.h"

namespace rondo::bench {

// Both travel over a socket pair between processes of one binary, one message each.
struct RawRing::Command {
  enum Kind : uint32_t { kStream, kExchange } kind = kStream;
  Driving driving = Driving::kPoll;
  int connections = 1;
  uint64_t transfer_bytes = 0;
  Memory memory = Memory::kWalk;
  uint64_t batch_bytes = 0;
  double seconds = 0;
  char congestion[16] = {};
};
struct RawRing::Result {
  double value = 0;
  char error[240] = {};  // empty: it worked
};

namespace {

constexpr double kAnswerSeconds = 30;  // beyond the measurement itself

[[noreturn]] void fail(const std::string& what) {
  throw Exception(ErrorCode::kSystem, fmt::format("raw TCP measurement: {}: {}", what, std::strerror(errno)));
}

Descriptor listen_on_loopback(uint16_t& port) {
  Descriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
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

template <typename Text>
void copy_text(const std::string& from, Text& to) {
  std::memcpy(to, from.data(), std::min(from.size(), sizeof(to) - 1));
}

std::string read_first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

RawRing::RawRing(int world, uint64_t buffer_bytes) : buffer_bytes_(buffer_bytes) {
  void* memory = mmap(nullptr, sizeof(RawMeeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mapping shared memory");
  shared_ = memory;
  new (shared_) RawMeeting();
  std::random_device random;
  static_cast<RawMeeting*>(shared_)->token = (uint64_t{random()} << 32) | random();
  std::vector<Descriptor> listeners;
  std::vector<uint16_t> ports(static_cast<size_t>(world));
  for (uint16_t& port : ports) listeners.push_back(listen_on_loopback(port));
  for (int rank = 0; rank < world; ++rank) start_child(rank, listeners, ports);
}

RawRing::~RawRing() {
  for (Child& child : children_) kill(child.pid, SIGKILL);  // they hold nothing that would need a goodbye
  for (Child& child : children_) waitpid(child.pid, nullptr, 0);
  munmap(shared_, sizeof(RawMeeting));
}

void RawRing::start_child(int rank, std::vector<Descriptor>& listeners, const std::vector<uint16_t>& ports) {
  int channel[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) != 0) fail("socketpair");
  Descriptor mine(channel[0]), theirs(channel[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) fail("fork");
  if (pid > 0) {
    children_.push_back({pid, std::move(mine)});
    return;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  mine.reset();
  Descriptor listener = std::move(listeners[static_cast<size_t>(rank)]);
  listeners.clear();
  children_.clear();
  RawRank self(rank, std::move(listener), ports, buffer_bytes_, static_cast<RawMeeting*>(shared_));
  Command command;
  while (recv(theirs.get(), &command, sizeof(command), 0) == sizeof(command)) {
    Result result;
    try {
      const RawSetting setting{command.transfer_bytes, command.driving, command.congestion, command.connections,
                               command.memory};
      result.value = command.kind == Command::kStream ? self.stream_gbps(setting, command.batch_bytes, command.seconds)
                                                      : self.exchange_us(setting.congestion, command.seconds);
    } catch (const std::exception& e) {
      static_cast<RawMeeting*>(shared_)->failed = true;
      copy_text(e.what(), result.error);
    }
    if (send(theirs.get(), &result, sizeof(result), MSG_NOSIGNAL) != sizeof(result)) break;
  }
  _exit(0);
}

RawRing::Result RawRing::receive(Child& child, double seconds) {
  pollfd wait{child.channel.get(), POLLIN, 0};
  Result result;
  const int ready = poll(&wait, 1, static_cast<int>((seconds + kAnswerSeconds) * 1000));
  if (ready != 1 || recv(child.channel.get(), &result, sizeof(result), 0) != sizeof(result)) {
    copy_text("a process of the measurement ended or hangs", result.error);
  }
  return result;
}

double RawRing::run(const Command& command) {
  for (Child& child : children_) {
    if (send(child.channel.get(), &command, sizeof(command), MSG_NOSIGNAL) != sizeof(command)) fail("a lost process");
  }
  double value = 0;
  for (Child& child : children_) {
    const Result result = receive(child, command.seconds * 2);
    if (result.error[0] != 0) throw Exception(ErrorCode::kSystem, result.error);
    value = std::max(value, result.value);
  }
  return value;
}

double RawRing::stream_gbps(const RawSetting& setting, uint64_t batch_bytes, double seconds) {
  Command command;
  command.driving = setting.driving;
  command.memory = setting.memory;
  command.connections = setting.connections;
  command.transfer_bytes = setting.transfer_bytes;
  command.batch_bytes = batch_bytes;
  command.seconds = seconds;
  copy_text(setting.congestion, command.congestion);
  return run(command);
}

double RawRing::exchange_us(const std::string& congestion, double seconds) {
  Command command;
  command.kind = Command::kExchange;
  command.seconds = seconds;
  copy_text(congestion, command.congestion);
  return run(command);
}

std::vector<std::string> allowed_congestion_controls() {
  std::istringstream names(read_first_line("/proc/sys/net/ipv4/tcp_allowed_congestion_control"));
  std::vector<std::string> out;
  for (std::string name; names >> name;) out.push_back(name);
  const std::string fallback = default_congestion_control();
  if (std::find(out.begin(), out.end(), fallback) == out.end()) out.push_back(fallback);
  return out;
}

std::string default_congestion_control() {
  const std::string name = read_first_line("/proc/sys/net/ipv4/tcp_congestion_control");
  return name.empty() ? "cubic" : name;  // the kernel's own default where /proc does not say
}

}  // namespace rondo::bench
