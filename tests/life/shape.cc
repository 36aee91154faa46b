#include "tests/life/shape.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace rondo::life {
namespace {

constexpr std::array kVerbs = {
    "all_reduce", "reduce",       "broadcast",       "all_gather",   "reduce_scatter",   "gather",
    "scatter",    "all_to_all",   "barrier",         "all_gather_v", "reduce_scatter_v", "gather_v",
    "scatter_v",  "all_to_all_v", "all_reduce_many", "scan",         "exscan",           "send",
    "recv",       "mprobe",       "sendrecv"};
constexpr auto kCollectivesEnd = kVerbs.begin() + static_cast<int>(Verb::kSend);

struct Maker {
  const Step& step;
  const Seat& seat;
  Call& call;
  Kind kind;
  uint64_t n, m, root, count;
  std::vector<uint64_t> lengths;  // of a v call: counts of the text, by rank
  uint64_t gap;

  Maker(const Step& s, const Seat& at, Call& c) : step(s), seat(at), call(c) {
    kind.dtype = dtype_named(s.words("dtype").empty() ? "uint8" : s.words("dtype")[0]);
    kind.op = op_named(s.word("op", "sum"));
    kind.members = at.members;
    kind.random = s.word("data") == "random";
    n = static_cast<uint64_t>(at.members);
    m = static_cast<uint64_t>(at.me);
    root = static_cast<uint64_t>(s.number("root")) % n;
    count = static_cast<uint64_t>(s.number("count"));
    lengths = s.numbers("counts");
    gap = static_cast<uint64_t>(s.number("gap"));
  }

  const Cycle* values() const { return &input_cycle(kind); }
  const Cycle* folded() const { return &reduced_cycle(kind); }
  uint64_t phase(uint64_t member) const { return phase_of(static_cast<int>(member), seat.salt); }
  uint64_t folded_phase() const { return phase_of(0, seat.salt); }
  uint64_t length(uint64_t r) const { return lengths.empty() ? count : lengths[r % lengths.size()]; }
  // counts and displacements of blocks; block r of member q's send list in all_to_all_v is shifted by q.
  std::vector<uint64_t> blocks(uint64_t shift) const {
    std::vector<uint64_t> result;
    for (uint64_t r = 0; r < n; ++r) result.push_back(length((shift + r) % n));
    return result;
  }
  std::vector<uint64_t> places(const std::vector<uint64_t>& counts) const {
    std::vector<uint64_t> result;
    uint64_t at = gap;
    for (uint64_t c : counts) {
      result.push_back(at);
      at += c + gap;
    }
    return result;
  }
  uint64_t extent(const std::vector<uint64_t>& counts) const {
    return std::accumulate(counts.begin(), counts.end(), gap * n);
  }
  Shape shape();
};

Shape Maker::shape() {
  Shape s;
  s.kind = kind;
  const bool uneven = !lengths.empty();
  const std::vector<uint64_t> own = uneven ? blocks(0) : std::vector<uint64_t>(n, count), at = places(own);
  const bool is_root = m == root;
  call.root = static_cast<int>(root);
  const auto pass_counts = [&](bool here) {
    if (!uneven || !here) return;
    call.counts = own;
    if (gap > 0 && call.verb != Verb::kReduceScatterV) call.displacements = at;
  };
  switch (call.verb) {
    case Verb::kAllReduce:
    case Verb::kReduce:
      s.in = s.out = count;
      s.folds = true;
      s.writes = call.verb == Verb::kAllReduce || is_root;
      s.everywhere = call.verb == Verb::kAllReduce;
      s.results = {{0, count, folded(), folded_phase()}};
      break;
    case Verb::kScan:
    case Verb::kExscan:
      s.in = s.out = count;
      s.folds = true;
      s.writes = call.verb == Verb::kScan || m > 0;
      kind.first = seat.me + (call.verb == Verb::kScan ? 1 : 0);
      if (s.writes) s.results = {{0, count, folded(), folded_phase()}};
      break;
    case Verb::kBroadcast:
      s.out = count;
      s.in = is_root ? count : 0;
      s.reads = s.nests = false;
      s.everywhere = s.in_output = true;
      if (!is_root) s.results = {{0, count, values(), phase(root)}};
      break;
    case Verb::kAllGather:
    case Verb::kAllGatherV:
    case Verb::kGather:
    case Verb::kGatherV:
      s.everywhere = call.verb == Verb::kAllGather || call.verb == Verb::kAllGatherV;
      s.writes = s.everywhere || is_root;
      s.in = length(m);
      s.out = extent(own);
      s.inside = at[m];
      for (uint64_t q = 0; q < n; ++q) s.results.push_back({at[q], own[q], values(), phase(q)});
      pass_counts(s.everywhere || is_root || (seat.salt + m) % 2 == 0);
      call.count = s.in;
      break;
    case Verb::kReduceScatter:
    case Verb::kReduceScatterV:
      s.folds = true;
      s.in = extent(own);
      s.out = length(m);
      s.inside = at[m];
      s.results = {{0, s.out, folded(), folded_phase() + at[m]}};
      pass_counts(true);
      call.count = s.out;
      break;
    case Verb::kScatter:
    case Verb::kScatterV:
      s.reads = is_root;
      s.in = extent(own);
      s.out = length(m);
      s.inside = at[m];
      s.results = {{0, s.out, values(), phase(root) + at[m]}};
      pass_counts(is_root || (seat.salt + m) % 2 == 0);
      call.count = s.out;
      break;
    case Verb::kAllToAll:
    case Verb::kAllToAllV: {
      s.nests = false;
      const std::vector<uint64_t> sent = blocks(m);  // c[(m + r) mod n] to r, and c[(q + m) mod n] from q
      s.in = s.out = extent(sent);
      const std::vector<uint64_t> to = places(sent);
      for (uint64_t q = 0; q < n; ++q) {
        s.results.push_back({to[q], sent[q], values(), phase(q) + places(blocks(q))[m]});
      }
      if (!uneven) break;
      call.counts = call.out_counts = sent;
      if (gap > 0) call.displacements = call.out_displacements = to;
      break;
    }
    default:
      s.reads = s.writes = false;
      break;
  }
  return s;
}

}  // namespace

bool is_collective(const std::string& verb) {
  return std::find(kVerbs.begin(), kCollectivesEnd, verb) != kCollectivesEnd;
}

const char* verb_name(Verb verb) { return kVerbs[static_cast<size_t>(verb)]; }

Shape make_shape(const Step& step, const Seat& seat, Call& call) {
  call.verb = static_cast<Verb>(std::find(kVerbs.begin(), kVerbs.end(), step.verb) - kVerbs.begin());
  Maker maker(step, seat, call);
  call.dtype = maker.kind.dtype;
  call.op = maker.kind.op;
  call.count = maker.count;
  return maker.shape();
}

}  // namespace rondo::life
