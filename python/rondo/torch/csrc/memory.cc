#include "csrc/memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "csrc/errors.h"

namespace rondo_torch {

class GroupMemory::Allocation {
 public:
  explicit Allocation(std::shared_ptr<GroupMemory> memory) : memory_(std::move(memory)) {
    const bool counted = memory_->state_.with([](State& state) {
      if (!state.ended) ++state.blocks;
      return !state.ended;
    });
    if (!counted) fail("registered memory: this process group has been destroyed");
  }
  // The destructor of a tensor cannot throw: what the library says here was said by the calls before.
  ~Allocation() {
    if (forks_ != forks_so_far()) return;  // a forked child has the memory, not the communicator
    if (data != nullptr) rondo_deallocate(memory_->comm_, data);
    const bool last = memory_->state_.with([](State& state) { return --state.blocks == 0 && state.closed; });
    if (last) rondo_destroy(memory_->comm_);
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  void* data = nullptr;

 private:
  const std::shared_ptr<GroupMemory> memory_;
  const int forks_ = forks_so_far();
};

std::shared_ptr<void> GroupMemory::allocate(size_t bytes) {
  const auto allocation = std::make_shared<Allocation>(shared_from_this());
  check(rondo_allocate(comm_, bytes, &allocation->data));
  return {allocation, allocation->data};
}

// rondo_close() says goodbye and keeps the memory mapped for the tensors that live on. Where none does, rondo_destroy()
// does both.
void GroupMemory::end() {
  const bool used = state_.with([](State& state) {
    state.ended = true;
    return state.blocks > 0;
  });
  if (!used) return check(rondo_destroy(comm_));
  const rondo_result_t code = rondo_close(comm_);
  const std::exception_ptr failed = code == RONDO_OK ? nullptr : failure(code);
  const bool still_used = state_.with([](State& state) {
    state.closed = true;
    return state.blocks > 0;
  });
  if (!still_used) rondo_destroy(comm_);
  if (failed) raise(failed);
}

class Arena::Piece {
 public:
  // The piece has no bytes yet.
  explicit Piece(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {
    Gaps one{{0, 0}};
    node = one.extract(one.begin());
  }
  // In a forked child nobody needs the gap, and another thread of the parent's may have had the lock.
  ~Piece() {
    if (node.mapped() == 0 || !arena_->usable()) return;
    arena_->gaps_.with([this](Gaps& gaps) { join(gaps, std::move(node)); });
  }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  Gaps::node_type node;

 private:
  const std::shared_ptr<Arena> arena_;
};

Arena::Arena(const std::shared_ptr<GroupMemory>& memory, size_t bytes)
    : block_(memory->allocate(bytes)), bytes_(bytes) {
  gaps_.with([bytes](Gaps& gaps) { gaps.emplace(0, bytes); });
}

std::shared_ptr<void> Arena::allocate(size_t bytes) {
  constexpr size_t kAlignment = 64;  // torch's gAlignment
  const size_t taken = std::max<size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  const auto piece = std::make_shared<Piece>(shared_from_this());
  if (!gaps_.with([&](Gaps& gaps) { return cut(gaps, taken, piece->node); })) return nullptr;
  return {piece, static_cast<char*>(block_.get()) + piece->node.key()};
}

// The first gap that is large enough: tensors of a forward pass come and go in the same order, so that each gets the
// same memory every time. False: there is none.
bool Arena::cut(Gaps& gaps, size_t bytes, Gaps::node_type& piece) {
  const auto found = std::find_if(gaps.begin(), gaps.end(), [&](const auto& gap) { return gap.second >= bytes; });
  if (found == gaps.end()) return false;
  Gaps::node_type gap = gaps.extract(found);
  piece.key() = gap.key();
  piece.mapped() = bytes;
  gap.key() += bytes;
  gap.mapped() -= bytes;
  if (gap.mapped() > 0) gaps.insert(std::move(gap));
  return true;
}

void Arena::join(Gaps& gaps, Gaps::node_type piece) {
  const auto gap = gaps.insert(std::move(piece)).position;
  const auto adjoin = [](const auto& left, const auto& right) { return left->first + left->second == right->first; };
  if (const auto next = std::next(gap); next != gaps.end() && adjoin(gap, next)) {
    gap->second += next->second;
    gaps.erase(next);
  }
  if (gap == gaps.begin()) return;
  if (const auto before = std::prev(gap); adjoin(before, gap)) {
    before->second += gap->second;
    gaps.erase(gap);
  }
}

}  // namespace rondo_torch
