// Communicators of some of a communicator's ranks.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ring/base/hash.h"
#include "ring/engine/communicator_state.h"

namespace rondo {

std::shared_ptr<CommunicatorState> CommunicatorState::subgroup(uint64_t id, std::vector<int> members) {
  Options options;
  options.fabric = context_->fabric;
  options.id = id;
  options.members = members;
  options.config = context_->config;
  options.progress_thread = progress_thread_;
  options.observer = context_->observed.observer;
  std::shared_ptr<CommunicatorState> group;
  try {
    group = std::make_shared<CommunicatorState>(std::move(options));
  } catch (const Exception& e) {
    // The others would wait for this rank until their deadline.
    const int world_rank = context_->world_rank(rank());
    const Error error{e.code(), context_->fabric->peer_name(world_rank) + ": " + e.what(), {world_rank}};
    context_->fabric->decline(id, members, error);
    const auto own = std::find(members.begin(), members.end(), world_rank);
    throw Exception(Error{error.code, error.message, {static_cast<int>(own - members.begin())}});
  }
  group->meet_neighbors(deadline(std::chrono::milliseconds(context_->config.start_timeout_ms)));
  return group;
}

uint64_t CommunicatorState::next_split() {
  std::lock_guard lock(submit_mutex_);
  return ++splits_;
}

std::shared_ptr<CommunicatorState> CommunicatorState::split(int color, int key) {
  struct Choice {
    int32_t color, key;
  };
  const Choice own{color, key};
  std::vector<Choice> all(static_cast<size_t>(size()));
  CollectiveCall call;
  call.collective = Collective::kAllGather;
  call.input = &own;
  call.output = all.data();
  call.count = 2;
  call.dtype = DType::kInt32;
  call.options.algorithm = for_plain_buffers();
  run(call);
  const uint64_t number = next_split();
  if (color < 0) return nullptr;
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (all[static_cast<size_t>(r)].color == color) ranks.push_back(r);
  }
  std::stable_sort(ranks.begin(), ranks.end(),
                   [&](int a, int b) { return all[static_cast<size_t>(a)].key < all[static_cast<size_t>(b)].key; });
  for (int& r : ranks) r = context_->world_rank(r);
  const uint64_t id = Hash64().add("split").add(context_->id).add(number).add(static_cast<uint64_t>(color)).value();
  return subgroup(id, std::move(ranks));
}

std::shared_ptr<CommunicatorState> CommunicatorState::new_group(std::span<const int> ranks) {
  check_usable();
  const auto refuse = [this](const std::string& why) {
    throw Exception(ErrorCode::kInvalid, fmt::format("new_group on rank {}: {}", rank(), why));
  };
  std::vector<int> members;
  for (const int r : ranks) {
    if (r < 0 || r >= size()) refuse(fmt::format("{} is not a rank of this group of {}", r, size()));
    if (std::count(ranks.begin(), ranks.end(), r) > 1) refuse(fmt::format("rank {} is given twice", r));
    members.push_back(context_->world_rank(r));
  }
  if (std::find(ranks.begin(), ranks.end(), rank()) == ranks.end()) {
    refuse("this rank is not among those given; only members make the call");
  }
  uint64_t number = 0;
  {
    std::lock_guard lock(submit_mutex_);
    number = ++groups_made_[members];
  }
  const uint64_t id =
      Hash64().add("group").add(context_->id).add_all(std::span<const int>(members)).add(number).value();
  return subgroup(id, std::move(members));
}

}  // namespace rondo
