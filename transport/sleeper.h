#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ring/base/descriptor.h"
#include "rondo/error.h"

namespace rondo {

// The sockets that wake the sleepers of one rank, by their numbers: 1 to kMost.
class SleeperSockets {
 public:
  // Threads of a rank that sleep at a time and can be rung.
  static constexpr uint32_t kMost = 256;

  // From now on ring() reaches it, and rings that came before are made up for. False: there is no such number, or it is
  // known. One thread at a time.
  bool add(uint32_t number, Descriptor socket);
  // Sends a byte to it; a full socket wakes, too. Nothing where the number is not known. Any thread, never blocks,
  // whatever the socket's owner does to it.
  void ring(uint32_t number) const;

 private:
  // By number: the socket that wakes the sleeper.
  std::array<std::atomic<int>, kMost + 1> numbers_{};  // 0: not known
  std::vector<Descriptor> owned_;
};

struct Sleeper;

// What the threads of one rank sleep on. A sleeper (a socket that others send to) is lent to a thread for one sleep, so
// there are as many as threads have slept at a time. Any thread.
class Sleepers {
 public:
  // Throws Exception(kSystem) where the first cannot be had.
  Sleepers();
  ~Sleepers();
  Sleepers(const Sleepers&) = delete;
  Sleepers& operator=(const Sleepers&) = delete;

  // Called with each sleeper, those that are there included, before it is lent. Empty: none is called any more.
  using Announce = std::function<void(uint32_t number, int socket)>;
  void announce_to(Announce announce);
  // Those of this rank.
  const std::shared_ptr<const SleeperSockets>& sockets() const { return sockets_view_; }

 private:
  friend class Sleep;
  // A sleeper for one sleep; nullptr: none is free, and no other can be had.
  Sleeper* lend() noexcept;
  void give_back(Sleeper* sleeper);
  void make();

  const std::shared_ptr<SleeperSockets> sockets_;  // shared with the bells that others ring
  const std::shared_ptr<const SleeperSockets> sockets_view_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Sleeper>> all_;
  std::vector<Sleeper*> free_;  // has room for all of them
  uint32_t numbers_ = 0;        // given out
  Announce announce_;
};

// One sleep of a thread.
class Sleep {
 public:
  explicit Sleep(Sleepers& sleepers) : sleepers_(sleepers), sleeper_(sleepers.lend()) {}
  ~Sleep();
  Sleep(const Sleep&) = delete;
  Sleep& operator=(const Sleep&) = delete;

  // What a doorbell's flag holds meanwhile. 0: no sleeper could be had, so nobody can ring, and wait() takes a nap.
  uint32_t number() const;
  // Sleeps until rung, until one of `watched` (descriptors; -1: none) is readable, until the deadline, or for no
  // reason. An error: it cannot sleep any more, since somebody has closed its descriptors.
  [[nodiscard]] Error wait(std::span<const int> watched, std::chrono::steady_clock::time_point deadline);

 private:
  Error broken(const char* what, int number);

  Sleepers& sleepers_;
  Sleeper* sleeper_;
};

}  // namespace rondo
