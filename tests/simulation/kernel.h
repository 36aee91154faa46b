#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/machine.h"

namespace rondo::testing::sim {

// What a descriptor leads to.
class File {
 public:
  explicit File(Process& of) : process(of) {}
  virtual ~File() = default;
  // POLLIN, ..., of what can be done now.
  virtual short events() = 0;
  virtual long read(char*, size_t) { return fail(EINVAL); }
  virtual long write(const char*, size_t) { return fail(EINVAL); }
  virtual void close() {}
  static long fail(int number);

  Process& process;
  bool blocking = true;
  int references = 1;
  // Count what edge-triggered watchers are told of.
  uint64_t inward = 1, outward = 1;

  void turned_readable() { ++inward, told(); }
  void turned_writable() { ++outward, told(); }

 private:
  void told();
};

struct Endpoint4 {
  uint32_t address = 0;  // host order
  uint16_t port = 0;
  auto operator<=>(const Endpoint4&) const = default;
};

class Socket;

// Descriptors of all processes, and the network between their hosts.
class Kernel {
 public:
  static constexpr int kFirst = 1000;  // below are this program's own

  struct Network {
    Time latency = 30 * kMicrosecond;  // between hosts, and as much at random
    Time local_latency = 5 * kMicrosecond;
    size_t buffer_bytes = 64 * 1024;  // of a connection, a way
    uint32_t lost_percent = 0;        // of segments, which arrive 200 ms later
  };
  Kernel(Machine& of, Network shape);
  ~Kernel();
  static Kernel& of_process();

  // --- descriptors
  int add(std::shared_ptr<File> file);
  // nullptr: there is none, of the calling process.
  std::shared_ptr<File> find(int descriptor);
  int duplicate(int descriptor);
  int close(int descriptor);
  size_t open_descriptors(const Process& process) const;
  // Descriptors that were used or closed though they were not open.
  int misuses() const { return misuses_; }
  void adopt(Process& process);  // closes what it has when it ends

  std::shared_ptr<Socket> make_socket(Process& of);

  // --- the network. A way that is blocked delivers nothing; what was sent arrives some time after it is open again.
  bool is_blocked(int from, int to) const { return from != to && blocked_.count({from, to}) != 0; }
  void block(int from, int to) { blocked_.insert({from, to}); }
  void unblock(int from, int to);
  // Connections that are there say nothing from now on, and nobody is told (a firewall has forgotten them).
  void silence_connections(int one, int other);
  void forget_connection(int one, int other);  // one of them, by the seed
  // Dials are refused (a firewall rejects them); connections that are there stay.
  void reject(int from, int to, bool rejects);
  // The host is gone, without a word. Its processes end.
  void lose_power(int host);
  bool has_power(int host) const { return dark_.count(host) == 0; }

  static uint32_t address_of(int host) { return 0x0a000001u + static_cast<uint32_t>(host); }
  static int host_of(uint32_t address, int own) {
    return (address >> 24) == 127 || address == 0 ? own : static_cast<int>(address - 0x0a000001u);
  }

  Machine& machine;
  const Network network;

 private:
  friend class Socket;
  friend class Pipe;
  bool carries(int from, int to) const { return has_power(from) && has_power(to) && !is_blocked(from, to); }
  Time delay(int from, int to);
  std::vector<Socket*> sockets_between(int one, int other);
  // `arrive` once the way is open: after the latency, or some time after it is opened again.
  void send(int from, int to, std::function<void()> arrive);

  std::map<int, std::shared_ptr<File>> files_;
  std::map<std::pair<int, Endpoint4>, Socket*> listeners_;  // by host
  std::map<int, uint16_t> next_port_;
  std::set<std::pair<int, int>> blocked_, rejected_;
  std::set<int> dark_;
  std::map<std::pair<int, int>, std::vector<std::function<void()>>> stalled_;
  std::map<std::pair<int, int>, Time> blocked_since_;
  std::vector<std::weak_ptr<Socket>> sockets_;
  int misuses_ = 0;
};

// SOCK_STREAM of AF_INET.
class Socket final : public File {
 public:
  explicit Socket(Kernel& kernel, Process& of) : File(of), kernel_(kernel) {}

  short events() override;
  long read(char* target, size_t size) override;
  long write(const char* source, size_t size) override;
  void close() override;

  int bind(Endpoint4 address);
  int listen();
  std::shared_ptr<Socket> accept();
  // -1 with EINPROGRESS, ECONNREFUSED, ...
  int connect(Endpoint4 to);
  int shut_down_writing();
  int take_error();
  void set_option(int level, int option, int value);

  const Endpoint4& own() const { return own_; }
  bool connected() const { return state_ == State::kConnected; }
  const Endpoint4& peer() const { return peer_; }
  uint64_t acknowledged() const { return acknowledged_; }
  uint64_t unacknowledged() const { return written_ - acknowledged_; }
  bool retransmits() const { return unacknowledged() > 0 && kernel_.machine.now() - progress_at_ > kSecond / 4; }
  std::weak_ptr<Socket> self;

 private:
  friend class Kernel;
  enum class State { kNew, kListening, kConnecting, kConnected, kFailed };

  void establish(std::shared_ptr<Socket> other);
  void dial(int attempt);
  void fail_connecting(int number);
  void broken(int number);
  void arrive(std::string bytes, bool end);
  void send_reset();
  void to_peer(std::function<void(Socket&)> what);
  void deliver_later();
  void deliver();

  // silence.cc
  void look_for_silence();
  bool is_cut_off();

  Kernel& kernel_;
  State state_ = State::kNew;
  Endpoint4 own_, peer_;
  int error_ = 0;
  std::deque<std::shared_ptr<Socket>> backlog_;
  std::weak_ptr<Socket> other_;
  int other_host_ = -1;
  bool silent_ = false;  // what is sent is dropped
  bool closed_ = false;  // this end, by its process
  bool reset_ = false;
  std::string unread_;
  size_t taken_ = 0;  // of unread_
  bool end_came_ = false, end_sent_ = false;
  uint64_t written_ = 0, acknowledged_ = 0, consumed_ = 0;  // consumed_: by the peer, as far as is known here
  bool wants_room_ = false;
  std::deque<std::pair<Time, std::function<void(Socket&)>>> sent_;  // under way, with the time of arrival
  Time progress_at_ = 0, heard_at_ = 0;
  struct Silence {
    bool looks = false, probes = false;  // probes: SO_KEEPALIVE
    Time idle = 7'200 * kSecond, interval = 75 * kSecond;
    Time limit = 0;  // TCP_USER_TIMEOUT
    int most_probes = 9;
    int sent = 0;  // probes, without an answer
    Time sent_at = 0;
  } silence_;
};

class Event final : public File {  // eventfd
 public:
  using File::File;
  uint64_t count = 0;
  short events() override;
  long read(char* target, size_t size) override;
  long write(const char* source, size_t size) override;
};

class PairEnd final : public File {  // socketpair
 public:
  using File::File;
  std::weak_ptr<PairEnd> other;
  std::string unread;
  bool ended = false;
  short events() override;
  long read(char* target, size_t size) override;
  long write(const char* source, size_t size) override;
  void close() override;
};

class ProcessFile final : public File {  // pidfd
 public:
  ProcessFile(Process& of, Process& watched);
  short events() override;
  Process& watched;
};

class DatagramSocket final : public File {  // tells which address is used; carries nothing
 public:
  using File::File;
  Endpoint4 own;
  short events() override { return 0; }
};

class Epoll final : public File {
 public:
  Epoll(Kernel& kernel, Process& of) : File(of), kernel_(kernel) {}
  short events() override;
  int control(int operation, int descriptor, const epoll_event* event);
  int take(epoll_event* found, int most);

 private:
  struct Entry {
    std::weak_ptr<File> file;
    epoll_event event{};
    uint64_t inward = 0, outward = 0;  // as they were reported
  };
  static uint32_t report(const Entry& entry);
  Kernel& kernel_;
  std::map<int, Entry> entries_;
  int first_ = 0;  // reports begin behind it
};

// poll(); deadline kNever: for ever.
int poll_files(pollfd* entries, size_t count, Time deadline);
int wait_epoll(Epoll& epoll, epoll_event* found, int most, Time deadline);

}  // namespace rondo::testing::sim
