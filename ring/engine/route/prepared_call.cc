#include "ring/engine/route/prepared_call.h"

#include <algorithm>
#include <utility>

namespace rondo {

const std::shared_ptr<PreparedCall>* PreparedCalls::find_other(const CallFields& key) {
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.key == key; });
  if (found == kept_.end()) return nullptr;
  last_ = static_cast<size_t>(found - kept_.begin());
  return &found->call;
}

const std::shared_ptr<PreparedCall>& PreparedCalls::keep(const CallFields& key, std::shared_ptr<PreparedCall> call) {
  last_ = next_;
  next_ = (next_ + 1) % kKept;
  if (last_ == kept_.size()) kept_.emplace_back();
  kept_[last_] = {key, std::move(call)};
  return kept_[last_].call;
}

}  // namespace rondo
