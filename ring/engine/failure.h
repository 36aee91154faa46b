#pragma once

#include <algorithm>
#include <atomic>
#include <forward_list>
#include <mutex>

#include "rondo/error.h"

namespace rondo {

// Why a communicator is over. The first reason wins; a loss may go on to name those who died later. Any thread.
class Failure {
 public:
  void set(const Error& error) {
    std::lock_guard lock(mutex_);
    if (!all_.empty() && !extends(all_.front(), error)) return;
    all_.push_front(error);
    newest_.store(&all_.front(), std::memory_order_release);
  }
  // nullptr while there is none. What it points at stays as it is for as long as this object.
  const Error* get() const { return newest_.load(std::memory_order_acquire); }

 private:
  static bool extends(const Error& known, const Error& error) {
    const auto named = [&](int rank) {
      return std::find(error.ranks.begin(), error.ranks.end(), rank) != error.ranks.end();
    };
    return known.code == ErrorCode::kPeerLost && error.code == ErrorCode::kPeerLost &&
           error.ranks.size() > known.ranks.size() && std::all_of(known.ranks.begin(), known.ranks.end(), named);
  }

  std::mutex mutex_;
  std::forward_list<Error> all_;  // newest first; one for each death at most
  std::atomic<const Error*> newest_{nullptr};
};

}  // namespace rondo
