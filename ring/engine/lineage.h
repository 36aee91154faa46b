#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace rondo {

// Which communicator one was made of, and whether this rank is in shrink() of it. A rank in shrink() makes no
// calls on communicators that were made of that one, and fails those in which others wait for it (call_state).
// All epochs of a communicator share one. Any thread.
class Lineage {
 public:
  explicit Lineage(std::shared_ptr<const Lineage> made_of = nullptr) : made_of_(std::move(made_of)) {}

  // A shrink() that is under way, for as long as this lives.
  class Shrinking {
   public:
    explicit Shrinking(Lineage& of) : of_(of) { of_.shrinking_.fetch_add(1); }
    ~Shrinking() { of_.shrinking_.fetch_sub(1); }
    Shrinking(const Shrinking&) = delete;
    Shrinking& operator=(const Shrinking&) = delete;

   private:
    Lineage& of_;
  };

  // This rank is in shrink() of the communicator that this one was made of, or of one that that one was made
  // of.
  bool ancestor_shrinks() const {
    for (const Lineage* one = made_of_.get(); one != nullptr; one = one->made_of_.get()) {
      if (one->shrinking_.load() > 0) return true;
    }
    return false;
  }

 private:
  const std::shared_ptr<const Lineage> made_of_;  // shared with all that were made of that one
  std::atomic<int> shrinking_{0};
};

}  // namespace rondo
