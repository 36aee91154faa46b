#include "ring/compress/sparse_routes.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/combine.h"
#include "ring/base/given_numbers.h"
#include "ring/compress/selection_code.h"

namespace rondo {
namespace {

// What stays in a first-level cache beside its sources.
constexpr uint64_t kPiece = 4096;

// Merging makes three small exchanges more. They are worth this many words (64 KiB: half a millisecond at 1 Gbit/s).
constexpr double kMergingWords = 16 * 1024;

// A rank's range of the elements, as all ranks cut them.
struct Range {
  uint64_t begin = 0, count = 0;
};
Range range_of(uint64_t count, int world, int rank) {
  const auto ranks = static_cast<uint64_t>(world), r = static_cast<uint64_t>(rank);
  const uint64_t each = count / ranks, more = count % ranks;
  return {each * r + std::min(r, more), each + (r < more ? 1 : 0)};
}

// u into the residual, and zeros into the output, which may be u's input: a pass over each.
// Throws nothing: the selections travel meanwhile.
void move_to_residual(const SparseCall& call) noexcept {
  for (uint64_t at = 0; at < call.u.count; at += kPiece) {
    const uint64_t count = std::min(kPiece, call.u.count - at);
    if (call.residual != nullptr) {
      const void* sources[] = {call.u.input + at, call.residual + at};
      void* targets[] = {call.residual + at};
      const CombineMove move{.sources = sources, .targets = targets, .source_count = 2, .target_count = 1};
      combine({DType::kFloat32, Op::kSum}, move, count);
    }
    std::memset(call.output + at, 0, count * sizeof(float));
  }
  if (call.residual == nullptr) return;
  for (const uint32_t i : call.own.indices()) call.residual[i] = 0;
}

std::vector<uint32_t> encode_own(const SparseCall& call) {
  std::vector<uint32_t> words(selection_words(call.own.count, call.u.count));
  encode_selection(call.own.indices(), call.own.value_memory.get(), 0, call.u.count, words.data());
  return words;
}

// The length of each rank's code, by the numbers that the ranks have exchanged.
std::vector<uint64_t> words_of(const std::vector<uint64_t>& selected, uint64_t count) {
  std::vector<uint64_t> words;
  for (const uint64_t one : selected) words.push_back(selection_words(one, count));
  return words;
}

uint64_t sum_of(const std::vector<uint64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), uint64_t{0});
}

GivenNumbers given_by(const SparseCall& call, size_t rank) {
  return GivenNumbers::of_peer(call.group.name(), call.group.rank(), static_cast<int>(rank));
}

// What a rank has sent of `range`, into the output.
void add(const SparseCall& call, size_t rank, const uint32_t* words, uint64_t selected, const Range& range) {
  const uint64_t named = add_selection(words, selected, range.count, call.output + range.begin);
  given_by(call, rank).equal(selected, named, "the number of elements that its selection names");
}

// What ranks send each other for the ranges of others: their selections there.
struct Pieces {
  std::vector<uint64_t> selected;  // of this rank, by the range's rank
  std::vector<uint64_t> words;     // likewise
  std::vector<uint32_t> coded;
};
// Indices ascend, so the elements of a range follow one another.
Pieces cut_own(const SparseCall& call) {
  Pieces pieces;
  const std::span<const uint32_t> indices = call.own.indices();
  size_t begin = 0;
  for (int r = 0; r < call.group.size(); ++r) {
    const Range range = range_of(call.u.count, call.group.size(), r);
    const auto end = static_cast<size_t>(std::lower_bound(indices.begin(), indices.end(), range.begin + range.count) -
                                         indices.begin());
    const uint64_t words = selection_words(end - begin, range.count), at = pieces.coded.size();
    pieces.coded.resize(at + words);
    encode_selection(indices.subspan(begin, end - begin), call.own.value_memory.get() + begin,
                     static_cast<uint32_t>(range.begin), range.count, pieces.coded.data() + at);
    pieces.selected.push_back(end - begin);
    pieces.words.push_back(words);
    begin = end;
  }
  return pieces;
}

// The selections of all ranks in this rank's range, added up in rank order into the output, which is zero before.
void add_to_own_range(const SparseCall& call, const Pieces& pieces) {
  const auto world = static_cast<size_t>(call.group.size()), rank = static_cast<size_t>(call.group.rank());
  const Range own = range_of(call.u.count, call.group.size(), call.group.rank());
  std::vector<uint64_t> selected(world * world);  // by sender, then by range
  call.group->all_gather(pieces.selected.data(), selected.data(), world, DType::kUint64, call.options);
  for (size_t i = 0; i < selected.size(); ++i) {
    const Range range = range_of(call.u.count, call.group.size(), static_cast<int>(i % world));
    given_by(call, i / world).at_most(range.count, selected[i], "the number of its selected elements in a range");
  }
  std::vector<uint64_t> arriving;
  for (size_t r = 0; r < world; ++r) arriving.push_back(selection_words(selected[r * world + rank], own.count));
  std::vector<uint32_t> arrived(sum_of(arriving));
  call.group->all_to_all_v(pieces.coded.data(), pieces.words, {}, arrived.data(), arriving, {}, DType::kUint32,
                           call.options);
  const uint32_t* from = arrived.data();
  for (size_t r = 0; r < world; ++r) {
    add(call, r, from, selected[r * world + rank], own);
    from += arriving[r];
  }
}

}  // namespace

SparseRoute cheapest_route(const std::vector<uint64_t>& selected, uint64_t count) {
  const auto world = static_cast<double>(selected.size()), elements = static_cast<double>(count);
  double coded = 0, untouched = 1;  // words of all selections; the share of elements that no rank selects
  for (const uint64_t one : selected) {
    coded += static_cast<double>(selection_words(one, count));
    untouched *= 1 - static_cast<double>(one) / elements;
  }
  // All in double, in one order of operations and without fused ones (tools/bazel/rondo.bzl): the ranks must agree.
  const auto touched = static_cast<uint64_t>((1 - untouched) * elements);
  // Words that a rank receives.
  const double others = (world - 1) / world;
  const double gathered = coded * others;
  const double merged = coded / world * others + static_cast<double>(selection_words(touched, count)) * others +
                        kMergingWords + world * world * 2;
  const double dense = 2 * elements * others;
  // With one rank nothing is sent, by any route.
  if (selected.size() > 1 && dense <= std::min(gathered, merged)) return SparseRoute::kDense;
  return merged < gathered ? SparseRoute::kMerged : SparseRoute::kGathered;
}

// Every rank gets every selection, and adds them in rank order: the same bits on all ranks.
uint64_t run_gathered(const SparseCall& call) {
  const std::vector<uint32_t> own = encode_own(call);
  const std::vector<uint64_t> words = words_of(call.selected, call.u.count);
  std::vector<uint32_t> gathered(sum_of(words));
  // The passes over all elements are made while the selections travel.
  Work travelling =
      call.group->all_gather_v_async(own.data(), gathered.data(), words, {}, DType::kUint32, call.options);
  move_to_residual(call);
  travelling.wait();
  const uint32_t* from = gathered.data();
  for (size_t r = 0; r < call.selected.size(); ++r) {
    add(call, r, from, call.selected[r], {0, call.u.count});
    from += words[r];
  }
  return own.size() * sizeof(uint32_t) * (call.selected.size() - 1);
}

// Each rank adds up the selections of its range, and sends the sum's elements that are not zero to all.
uint64_t run_merged(const SparseCall& call) {
  const Pieces pieces = cut_own(call);
  move_to_residual(call);
  add_to_own_range(call, pieces);

  const auto world = static_cast<size_t>(call.group.size()), rank = static_cast<size_t>(call.group.rank());
  const Range own = range_of(call.u.count, call.group.size(), call.group.rank());
  const Selection merged = select_nonzero(call.output + own.begin, own.count);
  std::vector<uint64_t> selected(world), words(world);
  call.group->all_gather(&merged.count, selected.data(), 1, DType::kUint64, call.options);
  for (size_t r = 0; r < world; ++r) {
    const Range range = range_of(call.u.count, call.group.size(), static_cast<int>(r));
    given_by(call, r).at_most(range.count, selected[r], "the number of elements in its range that are not zero");
    words[r] = selection_words(selected[r], range.count);
  }
  std::vector<uint32_t> coded(words[rank]), gathered(sum_of(words));
  encode_selection(merged.indices(), merged.value_memory.get(), 0, own.count, coded.data());
  call.group->all_gather_v(coded.data(), gathered.data(), words, {}, DType::kUint32, call.options);
  const uint32_t* from = gathered.data();
  for (size_t r = 0; r < world; ++r) {
    const Range range = range_of(call.u.count, call.group.size(), static_cast<int>(r));
    if (r != rank) add(call, r, from, selected[r], range);
    from += words[r];
  }
  return (pieces.coded.size() - pieces.words[rank] + coded.size() * (world - 1)) * sizeof(uint32_t);
}

// The selections as a full array with zeros, by an all_reduce.
uint64_t run_dense(const SparseCall& call) {
  move_to_residual(call);
  const std::span<const uint32_t> indices = call.own.indices();
  for (size_t k = 0; k < indices.size(); ++k) call.output[indices[k]] = call.own.value_memory[k];
  call.group->all_reduce(call.output, call.output, call.u.count, DType::kFloat32, Op::kSum, call.options);
  const uint64_t world = call.selected.size();
  return 2 * call.u.count * sizeof(float) * (world - 1) / world;
}

}  // namespace rondo
