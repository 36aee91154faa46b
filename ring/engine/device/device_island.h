#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/device/device_driver.h"
#include "ring/base/descriptor.h"
#include "ring/engine/communicator_context.h"
#include "ring/engine/device/gate.h"
#include "ring/engine/device/rank_board.h"
#include "ring/engine/progress/operation.h"
#include "ring/plan/peer_reach.h"

namespace rondo {

// The memory that the ranks of a communicator share on their devices: a board of each rank in host memory, and
// windows in device memory, which every rank maps whose device can. Window 0 holds the words by which kernels
// signal each other, posts, the slots for messages of a ring, and room that plain buffers go through. The
// others are from allocate().
//
// The DeviceSide and the calls under way share it, so that memory stays until the last kernel has ended. Any
// thread, unless a comment says otherwise.
class DeviceIsland {
 public:
  // Collective: gathers one word of each rank, in rank order. Throws Exception.
  using AllSay = std::function<std::vector<uint64_t>(uint64_t own)>;

  // device: the one that this rank uses. context must outlive it. All its ranks are of one island of the host.
  DeviceIsland(CommunicatorContext& context, std::shared_ptr<const DeviceDriver> driver, int device);
  // Frees nothing, since a device may be at work on it: close() does.
  ~DeviceIsland() = default;
  DeviceIsland(const DeviceIsland&) = delete;
  DeviceIsland& operator=(const DeviceIsland&) = delete;

  // Collective: shares boards and windows, and tries them by transfers between all ranks and by a kernel.
  // lanes: the blocks that this rank's kernels may take. Returns "", or why there is no island: the same verdict
  // on all ranks.
  static constexpr const char* kDoNotMeet = "kernels of the ranks do not meet";
  std::string connect(uint32_t lanes, const AllSay& all_say, Clock::time_point deadline);

  // The name of the first rank that has said 0; "": none has.
  static std::string first_without(const CommunicatorContext& context, const std::vector<uint64_t>& said);

  int device() const { return device_; }
  // Which rank writes into whose memory, and the order of their ring; empty: there is none. The same on all
  // ranks.
  const PeerReach& reach() const { return reach_; }
  const std::vector<int>& order() const { return order_; }

  // Collective: zeroed memory of the device. When it returns, all ranks whose devices can have mapped it.
  // Throws Exception(kSystem) on all ranks if one of them has none.
  void* allocate(size_t bytes, const AllSay& all_say, Clock::time_point deadline);
  // Frees this rank's part of an allocation, its own memory and what it maps of the others'. False: the memory
  // is not of allocate(). Requires that no call is under way.
  bool deallocate(void* data);

  struct DevicePlace {
    uint32_t window = 0;
    uint64_t offset = 0;
  };
  // The window of allocate() in which all of [data, data + bytes) lies, and where; nullopt: in none.
  std::optional<DevicePlace> locate(const void* data, uint64_t bytes) const;
  std::byte* bounce() const { return static_cast<std::byte*>(windows_.front().own) + header_bytes_; }
  uint64_t bounce_offset() const { return header_bytes_; }  // in window 0
  uint64_t bounce_bytes() const { return windows_.front().bytes - header_bytes_; }
  uint64_t slot_bytes() const { return (windows_.front().bytes - header_bytes_) / kMessageSlots / 64 * 64; }
  // The most blocks of a kernel: the same on all ranks.
  uint32_t lanes() const { return lanes_; }
  // Bytes of a lane's part of a post: the same on all ranks.
  uint64_t post_bytes() const { return kMostPostBytes / std::bit_floor(std::min(lanes_, kMostPostLanes)); }

  RankBoard& own() const { return *boards_[static_cast<size_t>(rank_)]; }
  // Fills in what every call has of this island. to: the rank that messages go to; -1: none.
  void describe(DeviceCall& call, uint32_t number, int to) const;

  // The number of the next call. One thread at a time: under the lock that orders calls on streams.
  uint32_t next_number() { return last_number_ = number_behind(last_number_); }
  // Shows that this rank's host is about to launch the call. True: so are the hosts of all ranks.
  bool all_called(uint32_t number);
  // The error of a call whose deadline has passed before all hosts launched it: it names the ranks that have
  // not.
  Error late(uint32_t number, const std::string& call) const;
  // The call is over, as far as this rank's host knows. well: without an error.
  void note_ended(uint32_t number, bool well) {
    if (well) done_.store(number);
    ended_.store(number);
  }
  // Every call whose kernel the stream has passed has ended on the host, too.
  bool has_ended_passed() const { return at_least(ended_.load(), load_word(own().status.passed)); }

  // The communicator has failed: kernels of this rank end and touch nothing more, and kernels of other ranks no
  // memory of this one. False: a kernel is at work, here or on another rank; ask again. So for at most a second,
  // or 10 s for kernels of this process. broken: this rank's device is, and its kernels do not end. Any thread.
  bool let_go(Clock::time_point now, bool broken = false);
  // Before captured calls are put into a graph: lets the graph share the memory that its kernels reach.
  void keep_in(const StreamFacts& captured);
  // Unmaps and frees all of it; nothing of this rank is in a stream any more. What other ranks still map lives until
  // they have released it. Where a graph has calls of this rank, all of it stays until the graph is gone: a replay
  // finds a stop, and ends.
  void close();

 private:
  struct DeviceMemory {
    void* own = nullptr;
    std::vector<void*> mapped;  // by rank; nullptr: own or none
    uint64_t bytes = 0;
  };
  // What close() leaves to graphs. They share it, and the last one frees it.
  struct Left {
    ~Left();
    std::shared_ptr<const DeviceDriver> driver;
    std::vector<DeviceMemory> windows;
    std::vector<void*> locked;
    std::vector<std::shared_ptr<Window>> boards;  // locked memory lies there; shared as board_windows_ is
  };

  void share_boards(Clock::time_point deadline);
  void* lock(void* memory, size_t bytes);
  // Collective: makes a window of each rank. Returns "", or what is wrong on this rank, or which rank has none.
  std::string share(uint64_t bytes, const AllSay& all_say, Clock::time_point deadline);
  std::string exchange(Descriptor descriptor, const std::vector<uint64_t>& bytes, DeviceMemory& memory,
                       Clock::time_point deadline);
  std::string map_peers(DeviceMemory& memory, const std::vector<uint64_t>& bytes, uint64_t name,
                        Clock::time_point deadline);
  static void release(const DeviceDriver& driver, DeviceMemory& memory);
  bool leave_to_graphs();
  bool show(size_t window, const DeviceMemory& memory, const std::vector<uint64_t>& bytes);
  bool in_own_stream(const std::function<bool(DeviceStream)>& use) const;
  bool try_transfers(const AllSay& all_say);
  std::string try_kernel(const AllSay& all_say, Clock::time_point deadline);
  bool set_reach(const std::vector<uint64_t>& heard);
  bool peer_at_work(int rank) const;
  std::string first_without(const std::vector<uint64_t>& said) const { return first_without(context_, said); }

  CommunicatorContext& context_;
  const std::shared_ptr<const DeviceDriver> driver_;  // shared with the communicator's device side
  const int device_, rank_, world_;
  const uint64_t posts_at_, header_bytes_;  // of window 0: behind DeviceControl and the table of windows, and posts
  std::vector<std::shared_ptr<Window>> board_windows_;  // by rank; shared with the fabric, which finds windows by name
  std::vector<RankBoard*> boards_;                      // in board_windows_, by rank; empty after close()
  CallStatus* status_at_ = nullptr;                     // the own one, as kernels reach it
  uint32_t lanes_ = 0;
  std::vector<void*> locked_;  // host memory that devices reach, to be unlocked by close()

  mutable std::mutex mutex_;  // of windows_
  std::vector<DeviceMemory> windows_;
  PeerReach reach_;  // empty until it is known
  std::vector<int> order_;
  std::string refused_;  // why a window was not mapped
  uint64_t shares_ = 0;  // names of what has been offered
  std::shared_ptr<Left> left_to_graphs_ = std::make_shared<Left>();
  std::atomic<uint64_t> last_capture_{0};  // the capture whose graph shares the memory already

  std::atomic<uint32_t> last_number_{1};  // 1: of the trial
  std::atomic<uint32_t> ended_{1}, done_{1};

  std::mutex end_mutex_;
  std::optional<Clock::time_point> asked_to_end_;
};

}  // namespace rondo
