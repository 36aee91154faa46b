#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "ring/engine/observe/trace_format.h"

namespace rondo {

// The trace of one rank. The file is mapped and shared, so records are in it whatever ends the process, SIGKILL
// included. Any thread.
class TraceFile {
 public:
  // Makes folder/rank-R.rondo-trace, of about `bytes`, in place of an earlier one, and the folder (not its
  // parents). All blocks are allocated here, so that a full disk is an error now. Throws Exception(kSystem).
  TraceFile(const std::string& folder, int rank, uint64_t bytes);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Replaces the oldest record where the ring is full. No lock, allocation or system call.
  void put(const TraceRecord& record) { put_at(reserve(1), record); }
  // Takes the places of so many records, and returns the index of the first. Each is then filled by put_at().
  uint64_t reserve(uint64_t count) { return header_->written.fetch_add(count, std::memory_order_relaxed); }
  void put_at(uint64_t index, const TraceRecord& record) {
    TraceSlot& slot = slots_[index & mask_];
    slot.index.store(0, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);  // a process that is killed here leaves no mixed record
    slot.record = record;
    slot.index.store(index + 1, std::memory_order_release);
    __builtin_prefetch(&slots_[(index + kAhead) & mask_], 1);
  }
  // Adds a line of text. A line that has no room is only counted.
  void say(std::string_view line);
  // The trace is complete. Its mapping becomes memory that nobody reads, where late records are lost. So a file
  // that is removed or replaced takes no space any more. Throws std::bad_alloc.
  void let_go();

 private:
  void prepare(void* memory, uint64_t records);

  // The ring is larger than caches, so its lines are fetched so many records before they are written: about an
  // operation.
  static constexpr uint64_t kAhead = 16;

  size_t bytes_ = 0;
  TraceHeader* header_ = nullptr;
  char* text_ = nullptr;
  TraceSlot* slots_ = nullptr;
  uint64_t mask_ = 0;
  std::mutex text_mutex_;
};

}  // namespace rondo
