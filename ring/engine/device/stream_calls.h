#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "kernels/device/device_driver.h"
#include "ring/engine/device/staging_pool.h"
#include "ring/engine/progress/operation.h"

namespace rondo {

// The time between two looks whether a device has failed.
inline constexpr std::chrono::seconds kBetweenLooksAtDevice{1};

// What calls on streams of one communicator share. The DeviceSide and the calls own it together: it outlives
// the communicator until the last call has ended.
class StreamCalls {
 public:
  StreamCalls(std::shared_ptr<const DeviceDriver> opened, int device, SharedMemory* memory, int rank)
      : driver(opened), pool(std::move(opened), device, memory, rank) {}
  const std::shared_ptr<const DeviceDriver> driver;
  StagingPool pool;

  // Events, made once and used again. take_event() calls the runtime, and after free_all() give_back() does.
  DeviceEvent take_event(int device);
  void give_back(int device, DeviceEvent event);
  // A function in a stream runs as long as this lives: free_all() waits for its end.
  class InStream {
   public:
    explicit InStream(std::shared_ptr<StreamCalls> calls);
    InStream(const InStream&) = delete;
    ~InStream();

   private:
    const std::shared_ptr<StreamCalls> calls_;  // shared with the call that the function may end
  };
  // Before the first call on the device: kernels are loaded, and streams made, while none waits. Throws Exception.
  void prepare(int device);
  // A stream for copies to the host beside the callers' streams: a device has a copy engine for each direction,
  // and a stream uses one at a time. Calls the runtime. Throws Exception.
  DeviceStream copy_stream(int device);
  // Counts the entries that a call puts into streams: these hold a bounded number. Waits while there are too
  // many, until stop(), which is asked every 20 ms at least. True: there is room, and the call counts.
  bool begin(uint32_t entries, const std::function<bool()>& stop);
  void end(uint32_t entries);
  // end() as soon as *passed has reached `number`; nobody rings for that. passed: of a board that outlives the
  // entries. In the order of numbers.
  void end_once_passed(const uint32_t* passed, uint32_t number, uint32_t entries);
  // The device of the kernels has failed: none of them passes any more, so none is waited for.
  void end_kernels();
  // Waits until no call is under way. False: some still were at that time.
  bool wait_for_all(Clock::time_point until);
  // Sends that have begun. They outlast their call, since the stream does not wait until they have gone.
  void begin_send();
  void end_send();
  // Waits until all of them have gone, or until stop(), which is asked every 20 ms.
  void wait_for_sends(Clock::time_point until, const std::function<bool()>& stop);
  // The failure of a device, after which its streams run nothing more. The driver is asked once a second, or now, or
  // not at all (kSeen: the failure that was found): by functions in streams, which may not, and by the I/O thread.
  enum class Look : uint8_t { kAtTimes, kNow, kSeen };
  std::optional<Error> broken(Look look = Look::kAtTimes);
  // Whether streams of all prepared devices can wait for a word of host memory: some drivers cannot (WSL2,
  // shares of a GPU).
  bool streams_wait() const { return streams_wait_.load(std::memory_order_relaxed); }
  // Gives everything back to the device's runtime, if no call is under way. What a Work keeps follows with its end.
  void free_all();

 private:
  bool can_wait(int device, DeviceStream stream) const;
  bool has_entries();
  Clock::duration next_look() const;

  // Entries of kernels, which end with the kernels.
  struct Launched {
    const uint32_t* passed;
    uint32_t number, entries;
  };
  std::atomic<bool> streams_wait_{true};
  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t entries_ = 0;  // of `launched_`, too
  std::deque<Launched> launched_;
  uint32_t sends_ = 0;
  uint32_t in_streams_ = 0;  // InStream
  bool freed_ = false;       // by free_all(): no function in a stream is left
  std::set<int> prepared_;   // devices
  Clock::time_point next_look_{};
  std::optional<Error> broken_;
  // By device.
  std::multimap<int, DeviceEvent> events_;
  std::map<int, DeviceStream> copy_streams_;
};

// A stream for copies to the host beside the caller's, ordered with it by events. What goes into it after
// begin() runs after what the caller's stream had by then; what goes into the caller's stream after join() runs
// after what this one had.
class CopyStream {
 public:
  // calls outlives it. Throws Exception.
  CopyStream(StreamCalls& calls, DeviceStream caller, DeviceStream copies, int device);
  ~CopyStream() { join(); }
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  DeviceStream get() const { return copies_; }
  // Throw Exception.
  void begin();
  // Work that goes in after await() waits for what the caller's stream had at the last note().
  void note();
  void await();
  // Orders the caller's stream behind this one. The second call does nothing.
  void join();

 private:
  StreamCalls& calls_;
  const DeviceDriver& driver_;
  const DeviceStream caller_, copies_;
  const int device_;
  DeviceEvent event_;
};

}  // namespace rondo
