#include "transport/island/reachability_probe.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "ring/base/hash.h"
#include "ring/base/interrupt.h"
#include "rondo/error.h"
#include "transport/island/island_socket.h"
#include "transport/island/memory_file.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// "RONDOMET", so that another program's message is none of ours.
constexpr uint64_t kMagic = 0x54454d4f444e4f52;
// Connections of the peers' processes that have not said who they are: one each, and these for what is no probe. More
// push out the oldest.
constexpr size_t kSpareStrangers = 16;
// Dials that have not been answered: enough to keep both ends busy, and far below what a listener queues.
constexpr size_t kDialsAtOnce = 16;
// The longest wait without a look for those who have died.
constexpr milliseconds kLook{50};
// Before a listener whose queue was full is tried again.
constexpr milliseconds kQueuePause{1};

// First message, both ways: with the descriptor of the sender's trial memory.
struct Greeting {
  uint64_t magic = kMagic;
  uint64_t session = 0;
  int32_t from = -1;
  int32_t to = -1;
  uint64_t nonce = 0;    // of the sender; stands at the beginning of its trial memory, and at `address`
  uint64_t address = 0;  // in the sender's process
  uint64_t bytes = 0;    // of its trial memory
};

// Second message, both ways: what the sender found out about the receiver.
struct Finding {
  uint64_t magic = kMagic;
  uint32_t mapped = 0;  // it read the receiver's nonce in its memory, and left its answer there
  uint32_t pulled = 0;  // the kernel copied the receiver's nonce
};

// A real transfer, since permissions (yama, seccomp, namespaces) cannot be asked for beforehand. The nonce proves that
// it is the peer's memory and not that of a process that has got its number.
bool pull_nonce(pid_t pid, uint64_t address, uint64_t expected) {
  uint64_t found = 0;
  const iovec here{&found, sizeof found};
  const iovec there{reinterpret_cast<void*>(address), sizeof found};
  return ::process_vm_readv(pid, &here, 1, &there, 1, 0) == sizeof found && found == expected;
}

// The probe of one rank, on the thread that starts it. One epoll set has the listener and all sockets; a pair is
// settled once, when both ends have told what they found, or when it fails.
class Probe {
 public:
  // The higher rank of a pair dials, so this rank dials the lower ones and is dialed by the others.
  Probe(const ProbeListener& listener, const ProbeOrder& order) : listener_(listener), order_(order) {
    for (const Neighbor& peer : order.peers) {
      pairs_[peer.rank].peer = &peer;
      pids_.insert(peer.pid);
      if (peer.rank < order.rank) to_dial_.push_back(peer.rank);
    }
    open_ = pairs_.size();
    std::sort(to_dial_.begin(), to_dial_.end());
  }

  // Ends when every pair is settled, at the deadline, or when no pair has been settled for `patience`.
  std::vector<ProbeResult> run() {
    if (open_ > 0 && make_trial()) {
      watch(listener_.socket());
      finish_by_ = Clock::now() + order_.patience;
      while (open_ > 0 && Clock::now() < std::min<Clock::time_point>(order_.deadline, finish_by_)) {
        give_up_the_lost();
        dial_some();
        wait();
      }
    }
    return results();
  }

 private:
  // One neighbor: dialed by the higher rank, greeted both ways, then each tells what it found. `why_not`: it failed.
  struct Pair {
    const Neighbor* peer = nullptr;
    Descriptor socket;
    bool dialed = false;  // by this rank, and not answered yet
    bool greeted = false;
    uint64_t nonce = 0;
    Finding own;
    bool pulls = false;
    bool shares = false;
    std::string why_not;
    bool open() const { return !shares && why_not.empty(); }
  };

  // The first reason counts. A pair that is settled only closes its socket.
  void fail(Pair& pair, const std::string& why) {
    if (pair.open()) {
      pair.why_not = why;
      settle(pair);
    }
    if (pair.socket.valid()) pair_at_.erase(pair.socket.get());
    pair.socket.reset();
  }

  // A pair that finishes gives the others more time: only a probe in which nothing happens any more is given up.
  void settle(Pair& pair) {
    --open_;
    answered(pair);
    finish_by_ = Clock::now() + order_.patience;
  }

  // The peer has said its first word, so its dial counts no more.
  void answered(Pair& pair) {
    if (std::exchange(pair.dialed, false)) --dials_;
  }

  // Again does no harm.
  void watch(int socket) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = socket;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event);
  }

  // Memory with this rank's nonce, and a place for every rank's answer. False: every pair has failed.
  bool make_trial() {
    try {
      if (!listener_.why().empty()) throw Exception(ErrorCode::kSystem, listener_.why());
      epoll_ = Descriptor([&] { return ::epoll_create1(EPOLL_CLOEXEC); });
      if (!epoll_.valid()) throw Exception(ErrorCode::kSystem, std::string("epoll_create1: ") + std::strerror(errno));
      if (::getrandom(&nonce_, sizeof nonce_, 0) != sizeof nonce_)
        throw Exception(ErrorCode::kSystem, "no random bytes");
      trial_bytes_ = (static_cast<size_t>(order_.world) + 1) * sizeof(uint64_t);
      trial_file_ = make_memory_file(trial_bytes_, Pages::kReserved);
      trial_.emplace(trial_file_.get(), trial_bytes_, Mapping::Touch::kNow);
      answers()[0] = nonce_;
      return true;
    } catch (const Exception& failure) {
      for (auto& [rank, pair] : pairs_) fail(pair, failure.what());
      return false;
    }
  }
  // Word 0 is this rank's nonce; word 1 + r is for the answer of rank r, which another process writes.
  volatile uint64_t* answers() const { return reinterpret_cast<volatile uint64_t*>(trial_->data()); }

  // Says where this rank's nonce lies, in shared memory and in its own, so that the peer can try both ways.
  void greet(Pair& pair) {
    Greeting greeting;
    greeting.session = order_.session;
    greeting.from = order_.rank;
    greeting.to = pair.peer->rank;
    greeting.nonce = nonce_;
    greeting.address = reinterpret_cast<uint64_t>(&nonce_);
    greeting.bytes = trial_bytes_;
    const int file = trial_file_.get();
    std::string why;
    if (send_message(pair.socket.get(), &greeting, sizeof greeting, {&file, 1}, why) != Sent::kYes) fail(pair, why);
  }

  // From the nearest rank down, a few at a time, so that no listener has all ranks before it at once.
  void dial_some() {
    while (dials_ < kDialsAtOnce && !to_dial_.empty()) {
      Pair& pair = pairs_.at(to_dial_.back());
      if (pair.open() && !dial(pair)) return;
      to_dial_.pop_back();
    }
  }

  // False: its queue is full now.
  bool dial(Pair& pair) {
    int error = 0;
    pair.socket = connect_abstract(pair.peer->listener, error);
    if (!pair.socket.valid()) {
      if (error == EAGAIN) return false;
      fail(pair, fmt::format("connecting its local socket: {}", std::strerror(error)));
      return true;
    }
    const std::string why = check_peer(pair.socket.get(), pair.peer->pid);
    if (!why.empty()) {
      fail(pair, "its local socket: " + why);
      return true;
    }
    ++dials_;
    pair.dialed = true;
    keep(pair);
    greet(pair);
    return true;
  }

  // Hears the pair's socket from now on.
  void keep(Pair& pair) {
    pair_at_[pair.socket.get()] = &pair;
    watch(pair.socket.get());
  }

  // At most once in kLook, since order_.gone() asks the control plane. A rank without a listener will never come.
  void give_up_the_lost() {
    if (Clock::now() < next_look_) return;
    next_look_ = Clock::now() + kLook;
    for (auto& [rank, pair] : pairs_) {
      if (!pair.open()) continue;
      if (pair.peer->listener.empty()) {
        fail(pair, "that rank cannot share memory");
      } else if (order_.gone(rank)) {
        fail(pair, "that rank has gone");
      }
    }
  }

  // Hears all that have something to say.
  void wait() {
    if (open_ == 0) return;
    end_wait_if_interrupted();
    const bool dials_wait = !to_dial_.empty() && dials_ < kDialsAtOnce;
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   static_cast<int>((dials_wait ? kQueuePause : kLook).count()));
    for (int i = 0; i < count; ++i) {
      const int socket = events[static_cast<size_t>(i)].data.fd;
      if (socket == listener_.socket()) {
        accept_strangers();
      } else if (const auto pair = pair_at_.find(socket); pair != pair_at_.end()) {
        hear(*pair->second);
      } else {
        std::erase_if(strangers_, [&](Descriptor& stranger) { return stranger.get() == socket && admit(stranger); });
      }
    }
  }

  // What a peer has said by now.
  void hear(Pair& pair) {
    std::vector<Descriptor> files;
    if (!pair.greeted) {
      Greeting greeting;
      if (receive(pair, &greeting, sizeof greeting, files) && use_greeting(pair, greeting, files)) send_finding(pair);
    }
    if (pair.socket.valid() && pair.greeted && !pair.shares) {
      Finding theirs;
      if (receive(pair, &theirs, sizeof theirs, files)) use_finding(pair, theirs);
    }
  }

  // False: nothing has come, or the pair has failed.
  bool receive(Pair& pair, void* message, size_t bytes, std::vector<Descriptor>& files) {
    std::string why;
    const Received received = receive_message(pair.socket.get(), message, bytes, files, why);
    if (received == Received::kOver || received == Received::kBroken) fail(pair, why);
    return received == Received::kYes;
  }

  // Higher ranks come in any order, and anybody else of this machine may: who is not the process of a peer, by the
  // kernel's account, is shut out. A peer speaks as soon as it is connected.
  void accept_strangers() {
    while (true) {
      Descriptor stranger = accept_abstract(listener_.socket());
      if (!stranger.valid()) return;
      if (!check_peer(stranger.get(), 0).empty() || pids_.count(peer_pid(stranger.get())) == 0) continue;
      if (admit(stranger)) continue;
      if (strangers_.size() == order_.peers.size() + kSpareStrangers) strangers_.pop_front();
      watch(stranger.get());
      strangers_.push_back(std::move(stranger));
    }
  }

  // False: it has said nothing yet. A peer's connection becomes its pair's; any other that spoke is closed.
  bool admit(Descriptor& socket) {
    Greeting greeting;
    std::vector<Descriptor> files;
    std::string why;
    const Received received = receive_message(socket.get(), &greeting, sizeof greeting, files, why);
    if (received != Received::kYes) return received != Received::kNothing;
    const auto found = pairs_.find(greeting.from);
    const bool expected = found != pairs_.end() && found->first > order_.rank && !found->second.greeted;
    if (!expected || !check_peer(socket.get(), found->second.peer->pid).empty()) return true;
    Pair& pair = found->second;
    if (!pair.open()) return true;
    pair.socket = std::move(socket);
    keep(pair);
    if (!use_greeting(pair, greeting, files)) return true;
    greet(pair);
    send_finding(pair);
    return true;
  }

  // Tries what the peer offers. False if it is not that peer.
  bool use_greeting(Pair& pair, const Greeting& greeting, const std::vector<Descriptor>& files) {
    pair.greeted = true;
    answered(pair);
    if (greeting.magic != kMagic || greeting.session != order_.session || greeting.from != pair.peer->rank ||
        greeting.to != order_.rank || files.size() != 1) {
      fail(pair, "it did not greet as a rank of this start does");
      return false;
    }
    pair.nonce = greeting.nonce;
    if (greeting.bytes == trial_bytes_) pair.own.mapped = answer_in(files[0].get(), greeting.nonce) ? 1 : 0;
    pair.own.pulled = pull_nonce(pair.peer->pid, greeting.address, greeting.nonce) ? 1 : 0;
    return true;
  }

  // Whether the peer's memory holds its nonce. If so, leaves there the answer of both nonces. The memory is mapped for
  // this only.
  bool answer_in(int file, uint64_t nonce) const {
    if (!check_memory_file(file, trial_bytes_).empty()) return false;
    try {
      const Mapping theirs(file, trial_bytes_, Mapping::Touch::kNow);
      auto* words = reinterpret_cast<volatile uint64_t*>(theirs.data());
      if (words[0] != nonce) return false;
      words[1 + order_.rank] = nonce ^ nonce_;
      return true;
    } catch (const Exception&) {
      return false;
    }
  }

  // What this rank found out; nothing where the pair has failed meanwhile.
  void send_finding(Pair& pair) {
    std::string why;
    if (!pair.socket.valid()) return;
    if (send_message(pair.socket.get(), &pair.own, sizeof pair.own, {}, why) != Sent::kYes) fail(pair, why);
  }

  // Memory is shared only if both ends could write in the other's and this rank sees what the peer wrote.
  void use_finding(Pair& pair, const Finding& theirs) {
    if (theirs.magic != kMagic) return fail(pair, "it did not answer as a rank of this start does");
    if (theirs.mapped == 0 || pair.own.mapped == 0) return fail(pair, "memory cannot be shared with it");
    // Its message came after its answer was written.
    if (answers()[1 + pair.peer->rank] != (nonce_ ^ pair.nonce)) {
      return fail(pair, "its writing in shared memory does not show");
    }
    pair.shares = true;
    pair.pulls = theirs.pulled != 0 && pair.own.pulled != 0;
    pair_at_.erase(pair.socket.get());
    pair.socket.reset();  // the peer has said all
    settle(pair);
  }

  // What is still open at the end has failed.
  std::vector<ProbeResult> results() {
    std::vector<ProbeResult> all;
    for (auto& [rank, pair] : pairs_) {
      if (pair.open()) fail(pair, "it did not answer the probe of shared memory in time");
      all.push_back({rank, pair.pulls, pair.why_not});
    }
    return all;
  }

  const ProbeListener& listener_;
  const ProbeOrder& order_;
  Descriptor epoll_;
  std::map<int, Pair> pairs_;        // by rank
  std::map<int, Pair*> pair_at_;     // by socket, of those that are open
  std::set<pid_t> pids_;             // of the peers
  size_t open_ = 0;                  // pairs that are not settled
  std::vector<int> to_dial_;         // lower ranks, ascending
  size_t dials_ = 0;                 // not answered
  std::list<Descriptor> strangers_;  // accepted, and have not said who they are; oldest first
  Clock::time_point next_look_, finish_by_;
  uint64_t nonce_ = 0;
  size_t trial_bytes_ = 0;
  Descriptor trial_file_;
  std::optional<Mapping> trial_;
};

}  // namespace

// The backlog is the world, so that a dial rarely finds the queue full.
ProbeListener::ProbeListener(int world) {
  try {
    make_memory_file(1, Pages::kReserved);  // else no rank need wait for this one
    name_ = random_socket_name();
    socket_ = listen_abstract(name_, std::max(world, 16));
  } catch (const Exception& failure) {
    name_.clear();
    why_ = failure.what();
  }
}

// Hashes what the kernel looks at when processes share and read memory: the namespaces by their inodes, the security
// label and the user.
uint64_t process_class() {
  Hash64 hash;
  for (const char* space : {"user", "mnt", "pid", "ipc"}) {
    struct stat found {};
    if (::stat(fmt::format("/proc/self/ns/{}", space).c_str(), &found) != 0) return 0;
    hash.add(static_cast<uint64_t>(found.st_dev)).add(static_cast<uint64_t>(found.st_ino));
  }
  std::string label;
  std::getline(std::ifstream("/proc/self/attr/current"), label);  // empty where no security module gives any
  hash.add(label).add(uint64_t{::geteuid()});
  return std::max<uint64_t>(1, hash.value());
}

std::vector<ProbeResult> probe_peers(const ProbeListener& listener, const ProbeOrder& order) {
  return Probe(listener, order).run();
}

}  // namespace rondo
