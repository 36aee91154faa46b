#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

namespace rondo {

// What is remembered of the newest `most` ids; older ones are forgotten. Not thread safe.
template <typename Value>
class Newest {
 public:
  explicit Newest(size_t most) : most_(most) {}

  bool has(uint64_t id) const { return values_.count(id) != 0; }
  // nullptr: never added, taken, or forgotten.
  const Value* find(uint64_t id) const {
    const auto found = values_.find(id);
    return found == values_.end() ? nullptr : &found->second;
  }
  // Its value, made where there is none.
  Value& operator[](uint64_t id) {
    const auto [place, added] = values_.try_emplace(id);
    if (added) order_.push_back(id);
    if (order_.size() > most_) {
      values_.erase(order_.front());
      order_.pop_front();
    }
    return place->second;
  }
  // Forgets it, and returns what was remembered.
  Value take(uint64_t id) {
    const auto found = values_.find(id);
    if (found == values_.end()) return {};
    Value taken = std::move(found->second);
    values_.erase(found);
    std::erase(order_, id);
    return taken;
  }

 private:
  const size_t most_;
  std::map<uint64_t, Value> values_;
  std::deque<uint64_t> order_;  // the same ids, oldest first
};

}  // namespace rondo
