#pragma once

#include <algorithm>
#include <atomic>
#include <forward_list>
#include <functional>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "ring/base/caught.h"
#include "rondo/error.h"

namespace rondo {

// Why a communicator is over. The first reason wins; a loss may go on to name those who were lost later. Any thread.
class Failure {
 public:
  // locate: sets an error's world ranks and processes by its ranks; before the first reason.
  explicit Failure(std::function<void(Error&)> locate = {}) : locate_(std::move(locate)) {}
  // Without memory for it, the reason is that.
  void set(const Error& error) noexcept {
    try {
      std::lock_guard lock(mutex_);
      const Error* known = newest_.load();
      if (known != nullptr && !extends(*known, error)) return;
      all_.push_front(error);
      locate(all_.front());
      store(known, &all_.front());
    } catch (const std::bad_alloc&) {
      set_constant(out_of_memory());
    }
  }
  // The communicator was destroyed on this rank.
  void close(int rank) noexcept {
    try {
      set({ErrorCode::kClosed, "the communicator was destroyed on rank " + std::to_string(rank), {rank}});
    } catch (const std::bad_alloc&) {
      set_constant(out_of_memory());
    }
  }
  // destroy() is over: nothing is pending any more, and later calls end with kClosed, whatever has failed before.
  void end(int rank) noexcept {
    try {
      std::lock_guard lock(mutex_);
      const Error* known = newest_.load();
      if (known != nullptr && known->code == ErrorCode::kClosed) return;
      std::string text = "the communicator was destroyed on rank " + std::to_string(rank);
      if (known != nullptr) text += ", after it had failed: " + known->message;
      all_.push_front({ErrorCode::kClosed, text, {rank}});
      locate(all_.front());
      newest_.store(&all_.front());
    } catch (const std::bad_alloc&) {
      // The reason before stays.
    }
  }
  // `error` must live as long as this object. Neither locks nor allocates: one atomic store, for signal handlers.
  void set_constant(const Error& error) noexcept { store(nullptr, &error); }
  // The error with its world ranks and processes; without memory for them it has none.
  Error located(const Error& error) const noexcept {
    Error whole;
    keep_error(error, whole);
    locate(whole);
    return whole;
  }
  // nullptr while there is none. What it points at stays as it is for as long as this object.
  const Error* get() const { return newest_.load(); }

 private:
  void locate(Error& error) const noexcept {
    try {
      if (locate_ && error.world_ranks.empty()) locate_(error);
    } catch (const std::bad_alloc&) {
      error.world_ranks.clear();
      error.processes.clear();
    }
  }
  void store(const Error* known, const Error* error) noexcept { newest_.compare_exchange_strong(known, error); }
  static const Error& out_of_memory() {
    static const Error error{ErrorCode::kSystem, "out of memory", {}};  // short enough to need none
    return error;
  }
  static bool extends(const Error& known, const Error& error) {
    const auto named = [&](int rank) {
      return std::find(error.ranks.begin(), error.ranks.end(), rank) != error.ranks.end();
    };
    const bool loss = known.code == ErrorCode::kPeerLost || known.code == ErrorCode::kUnresponsive;
    return loss && known.code == error.code && error.ranks.size() > known.ranks.size() &&
           std::all_of(known.ranks.begin(), known.ranks.end(), named);
  }

  const std::function<void(Error&)> locate_;
  std::mutex mutex_;
  std::forward_list<Error> all_;  // newest first; one for each loss at most
  // Sequentially consistent: doorbells are rung behind a store, and armed before a last look.
  std::atomic<const Error*> newest_{nullptr};
};

}  // namespace rondo
