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

// Why a communicator is over. The first reason wins. A loss may be replaced by a loss that names more ranks,
// where others have died since. Any thread; reading it costs one load.
class Failure {
 public:
  // locate: sets an error's world ranks and processes by its ranks. Called before the first reason is set.
  explicit Failure(std::function<void(Error&)> locate = {}) : locate_(std::move(locate)) {}
  // Sets the reason, unless there is one. Without memory for the text, the reason is that.
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
  // destroy() is over: nothing is pending any more. Later calls end with kClosed, whatever has failed before.
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
  // For signal handlers: one atomic store, without lock and allocation. `error` must live as long as this
  // object.
  void set_constant(const Error& error) noexcept { store(nullptr, &error); }
  // The error with its world ranks and processes; without memory for these it has none.
  Error located(const Error& error) const noexcept {
    Error whole;
    keep_error(error, whole);
    locate(whole);
    return whole;
  }
  // nullptr while there is none. The error stays unchanged for as long as this object, also when a later one
  // replaces it.
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
  // Whether the error is the same kind of loss as the known one, and names all of its ranks and more.
  static bool extends(const Error& known, const Error& error) {
    const auto named = [&](int rank) {
      return std::find(error.ranks.begin(), error.ranks.end(), rank) != error.ranks.end();
    };
    const bool loss = known.code == ErrorCode::kPeerLost || known.code == ErrorCode::kUnresponsive;
    return loss && known.code == error.code && error.ranks.size() > known.ranks.size() &&
           std::all_of(known.ranks.begin(), known.ranks.end(), named);
  }

  const std::function<void(Error&)> locate_;
  // Guards all_. newest_ changes under it, too, but for set_constant().
  std::mutex mutex_;
  std::forward_list<Error> all_;  // newest first; one for each loss at most
  // Sequentially consistent: a doorbell is rung after the store, and armed before a sleeper's last look at it.
  std::atomic<const Error*> newest_{nullptr};
};

}  // namespace rondo
