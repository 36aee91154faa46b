#include "transport/shared/meeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "rondo/error.h"
#include "transport/shared/island_socket.h"
#include "transport/shared/memory_file.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kNoPlace = "that rank cannot share memory";

// "RONDOMET", so that another program's message is none of ours.
constexpr uint64_t kMagic = 0x54454d4f444e4f52;
// Connections of this user that have not said who they are; more push out the oldest.
constexpr size_t kMaxStrangers = 64;
// The longest wait without a look for those who have died.
constexpr milliseconds kLook{50};

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

bool pull_nonce(pid_t pid, uint64_t address, uint64_t expected) {
  uint64_t found = 0;
  const iovec here{&found, sizeof found};
  const iovec there{reinterpret_cast<void*>(address), sizeof found};
  return ::process_vm_readv(pid, &here, 1, &there, 1, 0) == sizeof found && found == expected;
}

class Meeting {
 public:
  Meeting(const MeetingPlace& place, const MeetingOrder& order) : place_(place), order_(order) {
    for (const MeetingGuest& guest : order.guests) pairs_[guest.rank].guest = &guest;
  }

  std::vector<MeetingResult> run() {
    if (make_trial()) {
      for (auto& [rank, pair] : pairs_) {
        if (rank < order_.rank) dial(pair);
      }
      while (look_for_the_lost() && Clock::now() < order_.deadline) {
        wait();
        for (auto& [rank, pair] : pairs_) hear(pair);
        hear_strangers();
        accept_strangers();
      }
    }
    return results();
  }

 private:
  struct Pair {
    const MeetingGuest* guest = nullptr;
    Descriptor socket;
    bool greeted = false;
    uint64_t nonce = 0;
    Finding own;
    bool pulls = false;
    bool shares = false;
    std::string why_not;
  };

  static void fail(Pair& pair, const std::string& why) {
    if (pair.why_not.empty()) pair.why_not = why;
    pair.socket.reset();
  }

  // Memory with this rank's nonce, and a place for every rank's answer.
  bool make_trial() {
    try {
      if (!place_.why().empty()) throw Exception(ErrorCode::kSystem, place_.why());
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
  volatile uint64_t* answers() const { return reinterpret_cast<volatile uint64_t*>(trial_->data()); }

  void greet(Pair& pair) {
    Greeting greeting;
    greeting.session = order_.session;
    greeting.from = order_.rank;
    greeting.to = pair.guest->rank;
    greeting.nonce = nonce_;
    greeting.address = reinterpret_cast<uint64_t>(&nonce_);
    greeting.bytes = trial_bytes_;
    const int file = trial_file_.get();
    std::string why;
    if (send_message(pair.socket.get(), &greeting, sizeof greeting, {&file, 1}, why) != Sent::kYes) fail(pair, why);
  }

  void dial(Pair& pair) {
    if (pair.guest->place.empty()) return fail(pair, kNoPlace);
    while (true) {
      int error = 0;
      pair.socket = connect_abstract(pair.guest->place, error);
      if (pair.socket.valid()) break;
      if (error != EAGAIN || Clock::now() >= order_.deadline || order_.gone(pair.guest->rank)) {
        return fail(pair, fmt::format("connecting its local socket: {}", std::strerror(error)));
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    const std::string why = check_peer(pair.socket.get(), pair.guest->pid);
    if (!why.empty()) return fail(pair, "its local socket: " + why);
    greet(pair);
  }

  // True while a guest is waited for.
  bool look_for_the_lost() {
    bool any = false;
    for (auto& [rank, pair] : pairs_) {
      if (pair.shares || !pair.why_not.empty()) continue;
      if (pair.guest->place.empty()) {
        fail(pair, kNoPlace);
      } else if (order_.gone(rank)) {
        fail(pair, "that rank has gone");
      } else {
        any = true;
      }
    }
    return any;
  }

  void wait() const {
    std::vector<pollfd> wishes{{place_.listener(), POLLIN, 0}};
    for (const Descriptor& stranger : strangers_) wishes.push_back({stranger.get(), POLLIN, 0});
    for (const auto& [rank, pair] : pairs_) {
      if (pair.socket.valid() && !pair.shares) wishes.push_back({pair.socket.get(), POLLIN, 0});
    }
    const auto left = std::chrono::ceil<milliseconds>(order_.deadline - Clock::now());
    ::poll(wishes.data(), wishes.size(), static_cast<int>(std::clamp<int64_t>(left.count(), 0, kLook.count())));
  }

  // What a guest has said by now.
  void hear(Pair& pair) {
    std::vector<Descriptor> files;
    if (pair.socket.valid() && !pair.greeted) {
      Greeting greeting;
      if (receive(pair, &greeting, sizeof greeting, files) && use_greeting(pair, greeting, files)) tell_finding(pair);
    }
    if (pair.socket.valid() && pair.greeted && !pair.shares) {
      Finding theirs;
      if (receive(pair, &theirs, sizeof theirs, files)) use_finding(pair, theirs);
    }
  }

  static bool receive(Pair& pair, void* message, size_t bytes, std::vector<Descriptor>& files) {
    std::string why;
    const Received received = receive_message(pair.socket.get(), message, bytes, files, why);
    if (received == Received::kOver || received == Received::kBroken) fail(pair, why);
    return received == Received::kYes;
  }

  // Higher ranks come in any order, and anybody else of this machine may.
  void accept_strangers() {
    while (true) {
      Descriptor stranger = accept_abstract(place_.listener());
      if (!stranger.valid()) return;
      if (!check_peer(stranger.get(), 0).empty()) continue;  // another user's: closed
      if (strangers_.size() == kMaxStrangers) strangers_.erase(strangers_.begin());
      strangers_.push_back(std::move(stranger));
    }
  }

  void hear_strangers() {
    std::erase_if(strangers_, [this](Descriptor& stranger) { return admit(stranger); });
  }

  // False: it has said nothing yet. A guest becomes its pair's socket; whoever else spoke is closed.
  bool admit(Descriptor& socket) {
    Greeting greeting;
    std::vector<Descriptor> files;
    std::string why;
    const Received received = receive_message(socket.get(), &greeting, sizeof greeting, files, why);
    if (received != Received::kYes) return received != Received::kNothing;
    const auto found = pairs_.find(greeting.from);
    if (found == pairs_.end() || found->first < order_.rank || found->second.greeted) return true;
    Pair& pair = found->second;
    if (!check_peer(socket.get(), pair.guest->pid).empty()) return true;
    pair.socket = std::move(socket);
    if (!use_greeting(pair, greeting, files)) return true;
    greet(pair);
    tell_finding(pair);
    return true;
  }

  // Tries what the guest offers. False if it is not that guest.
  bool use_greeting(Pair& pair, const Greeting& greeting, const std::vector<Descriptor>& files) {
    pair.greeted = true;
    if (greeting.magic != kMagic || greeting.session != order_.session || greeting.from != pair.guest->rank ||
        greeting.to != order_.rank || files.size() != 1) {
      fail(pair, "it did not greet as a rank of this start does");
      return false;
    }
    pair.nonce = greeting.nonce;
    if (greeting.bytes == trial_bytes_) pair.own.mapped = answer_in(files[0].get(), greeting.nonce) ? 1 : 0;
    pair.own.pulled = pull_nonce(pair.guest->pid, greeting.address, greeting.nonce) ? 1 : 0;
    return true;
  }

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

  void tell_finding(Pair& pair) {
    std::string why;
    if (!pair.socket.valid()) return;
    if (send_message(pair.socket.get(), &pair.own, sizeof pair.own, {}, why) != Sent::kYes) fail(pair, why);
  }

  void use_finding(Pair& pair, const Finding& theirs) {
    if (theirs.magic != kMagic) return fail(pair, "it did not answer as a rank of this start does");
    if (theirs.mapped == 0 || pair.own.mapped == 0) return fail(pair, "memory cannot be shared with it");
    // Its message came after its answer was written.
    if (answers()[1 + pair.guest->rank] != (nonce_ ^ pair.nonce)) {
      return fail(pair, "its writing in shared memory does not show");
    }
    pair.shares = true;
    pair.pulls = theirs.pulled != 0 && pair.own.pulled != 0;
  }

  std::vector<MeetingResult> results() {
    std::vector<MeetingResult> all;
    for (auto& [rank, pair] : pairs_) {
      if (!pair.shares && pair.why_not.empty()) fail(pair, "it did not come to the meeting in time");
      all.push_back({rank, std::move(pair.socket), pair.pulls, pair.shares ? "" : pair.why_not});
    }
    return all;
  }

  const MeetingPlace& place_;
  const MeetingOrder& order_;
  std::map<int, Pair> pairs_;
  std::vector<Descriptor> strangers_;  // have not said who they are
  uint64_t nonce_ = 0;
  size_t trial_bytes_ = 0;
  Descriptor trial_file_;
  std::optional<Mapping> trial_;
};

}  // namespace

MeetingPlace::MeetingPlace(int world) {
  try {
    make_memory_file(1, Pages::kReserved);  // else nobody need wait for this rank
    name_ = random_socket_name();
    listener_ = listen_abstract(name_, std::max(world, 16));
  } catch (const Exception& failure) {
    name_.clear();
    why_ = failure.what();
  }
}

std::vector<MeetingResult> meet(const MeetingPlace& place, const MeetingOrder& order) {
  return Meeting(place, order).run();
}

}  // namespace rondo
