#include "tests/life/flight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "tests/support/element.h"

namespace rondo::life {
namespace {

constexpr std::array kVerbs = {"all_reduce",       "reduce",   "broadcast",  "all_gather",   "reduce_scatter",
                               "gather",           "scatter",  "all_to_all", "barrier",      "all_gather_v",
                               "reduce_scatter_v", "gather_v", "scatter_v",  "all_to_all_v", "all_reduce_many"};

// Elements of the output that come from other ranks.
struct Result {
  uint64_t at;
  uint64_t count;
  const Cycle* cycle;
  uint64_t phase;
};

// What a line means for one member, in elements.
struct Shape {
  uint64_t in = 0, out = 0;
  bool reads = true, writes = true;  // whether the call uses its input and output here
  bool folds = false, everywhere = false;
  bool nests = true;    // place=1 has a meaning here
  uint64_t inside = 0;  // in place: where the smaller buffer lies in the larger
  std::vector<Result> results;
};

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
    case Verb::kBroadcast:
      s.out = count;
      s.reads = s.nests = false;
      s.everywhere = true;
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

// Writes a member's input, which the call must leave alone.
void put_input(Watched& memory, const Cycle& cycle, uint64_t phase, size_t at, uint64_t count) {
  fill(cycle, phase, memory.data + at, count);
}

void snapshot(Watched& memory, size_t bytes) {
  memory.expected.assign(memory.begin, memory.data + bytes + kGuardBytes);
}

void expect(Watched& memory, const std::byte* output, const Result& result, double bound) {
  const size_t at = memory.at(output) + result.at * dtype_bytes(memory.dtype);
  if (bound > 0) return memory.loose.push_back({at, result.count, result.cycle, result.phase, bound});
  fill(*result.cycle, result.phase, memory.expected.data() + at, result.count);
}

void set_options(const Step& step, const Seat& seat, CallOptions& options) {
  options.algorithm = algorithm_named(step.word("algorithm", "auto"));
  options.scalar = factor_of(seat.me);
  options.timeout = std::chrono::milliseconds(step.number("timeout"));
  options.wire.format = wire_format_named(step.word("wire", "none"));
  options.wire.stochastic = step.number("stochastic") != 0;
  options.wire.seed = seat.salt;
}

void make_many(Flight& flight, const Seat& seat, int slot, int index, Memory& memory) {
  const Step& step = *flight.step;
  const std::vector<uint64_t> lengths = step.numbers("counts");
  const std::vector<std::string> dtypes = step.words("dtype");
  const bool inside = step.number("place") != 0;
  std::vector<Kind> kinds;
  std::vector<size_t> at;
  size_t bytes = 0;
  for (size_t t = 0; t < lengths.size(); ++t) {
    kinds.push_back(
        {dtype_named(dtypes[t % dtypes.size()]), flight.call.op, seat.members, step.word("data") == "random"});
    at.push_back(bytes);
    bytes += (lengths[t] * dtype_bytes(kinds[t].dtype) + 7) / 8 * 8;
  }
  Watched out = memory.take({slot, index, 1}, step.of_member("out", seat.me, "p"), bytes, flight.fresh);
  Watched in = inside ? out : memory.take({slot, index, 0}, step.of_member("in", seat.me, "p"), bytes, flight.fresh);
  for (size_t t = 0; t < lengths.size(); ++t) {
    put_input(in, input_cycle(kinds[t]), phase_of(seat.me, seat.salt) + 29 * t, at[t], lengths[t]);
    flight.call.tensors.push_back({in.data + at[t], out.data + at[t], lengths[t], kinds[t].dtype});
  }
  snapshot(out, bytes);
  snapshot(in, bytes);
  for (size_t t = 0; t < lengths.size(); ++t) {
    out.dtype = kinds[t].dtype;
    const double bound = bound_of(kinds[t], WireFormat::kNone, true, false, false);
    if (bound == 0) {
      expect(out, out.data + at[t], {0, lengths[t], &reduced_cycle(kinds[t]), phase_of(0, seat.salt) + 29 * t}, 0);
    } else {
      out.loose.push_back(
          {out.at(out.data + at[t]), lengths[t], &reduced_cycle(kinds[t]), phase_of(0, seat.salt) + 29 * t, bound});
    }
  }
  flight.gets_data = true;
  flight.watched.push_back(std::move(out));
  if (!inside) flight.watched.push_back(std::move(in));
}

}  // namespace

bool is_collective(const std::string& verb) { return std::find(kVerbs.begin(), kVerbs.end(), verb) != kVerbs.end(); }

std::string Watched::check() {
  for (const Loose& part : loose) {
    const std::byte* got = begin + part.at;
    const size_t size = part.cycle == nullptr ? 1 : dtype_bytes(part.cycle->dtype);
    for (uint64_t i = 0; part.cycle != nullptr && i < part.count; ++i) {
      const double value = testing::load_value(part.cycle->dtype, got + i * size);
      const double want = part.cycle->values[(part.phase + i) % kPeriod];
      if (!(std::abs(value - want) <= part.bound)) {
        return name + ": element " + std::to_string(i) + " of " + std::to_string(part.count) + " is " +
               std::to_string(value) + ", must be within " + std::to_string(part.bound) + " of " + std::to_string(want);
      }
    }
    std::memcpy(expected.data() + part.at, got, part.count * size);
  }
  if (expected.empty()) return "";
  if (std::memcmp(begin, expected.data(), expected.size()) == 0) return "";
  const auto [got, want] = std::mismatch(begin, begin + expected.size(), expected.begin());
  size_t wrong = 0;
  for (size_t i = 0; i < expected.size(); ++i) wrong += begin[i] != expected[i];
  const ptrdiff_t byte = got - data, size = static_cast<ptrdiff_t>(dtype_bytes(dtype));
  const auto bytes = static_cast<ptrdiff_t>(expected.size() - kGuardBytes) - (data - begin);
  std::string text = name + ": byte " + std::to_string(byte) + " of " + std::to_string(bytes) + " is " +
                     std::to_string(static_cast<int>(*got)) + " instead of " + std::to_string(static_cast<int>(*want)) +
                     "; " + std::to_string(wrong) + " bytes differ";
  if (byte < 0 || byte + size > bytes) return text + "; it lies beside the buffer";
  const ptrdiff_t i = byte / size;
  return text + "; element " + std::to_string(i) + " is " +
         std::to_string(testing::load_value(dtype, data + i * size)) + " instead of " +
         std::to_string(testing::load_value(dtype, expected.data() + at(data) + static_cast<size_t>(i * size)));
}

std::string Flight::check() {
  for (Watched& memory : watched) {
    if (std::string wrong = memory.check(); !wrong.empty()) return wrong;
  }
  return "";
}

std::byte* Memory::kept(const Use& use, bool registered, size_t size) {
  Region& region = regions_[{use, registered}];
  if (region.size < size) {
    region.size = size + size / 4;
    if (registered) {
      if (region.registered != nullptr) job_->deallocate(region.registered);
      region.registered = static_cast<std::byte*>(job_->allocate(region.size));
    } else {
      region.plain.resize(region.size + 64);
    }
  }
  if (registered) return region.registered;
  const auto address = reinterpret_cast<uintptr_t>(region.plain.data());
  return region.plain.data() + (64 - address % 64) % 64;
}

Watched Memory::take(const Use& use, const std::string& where, size_t bytes,
                     std::vector<std::unique_ptr<std::byte[]>>& fresh) {
  const size_t plus = where.find('+');
  const size_t behind = plus == std::string::npos ? 0 : std::stoul(where.substr(plus + 1));
  const size_t size = kGuardBytes + behind + bytes + kGuardBytes;
  Watched result;
  result.name = std::get<2>(use) == 0 ? "input" : "output";
  if (where[0] == 'n') {
    fresh.emplace_back(new std::byte[size]);
    result.begin = fresh.back().get();
  } else {
    result.begin = kept(use, where[0] == 'r', size);
  }
  std::memset(result.begin, static_cast<int>(kUnwritten), size);
  result.data = result.begin + kGuardBytes + behind;
  return result;
}

std::vector<float>& Memory::residual(int line, uint64_t count) {
  std::vector<float>& values = residuals_[line];
  if (values.size() != count) values.assign(count, 0);
  return values;
}

void Memory::free_registered(int below) {
  for (auto& [use, region] : regions_) {
    if (std::get<0>(use.first) >= below) continue;
    if (region.registered != nullptr) job_->deallocate(region.registered);
    region.registered = nullptr;
    if (use.second) region.size = 0;
  }
}

Flight make_flight(const Step& step, const Seat& seat, int slot, int index, Memory& memory) {
  Flight flight;
  flight.step = &step;
  Call& call = flight.call;
  call.verb = static_cast<Verb>(std::find(kVerbs.begin(), kVerbs.end(), step.verb) - kVerbs.begin());
  Maker maker(step, seat, call);
  call.dtype = maker.kind.dtype;
  call.op = maker.kind.op;
  call.count = maker.count;
  set_options(step, seat, call.options);
  if (call.verb == Verb::kAllReduceMany) {
    make_many(flight, seat, slot, index, memory);
    return flight;
  }
  const Shape shape = maker.shape();
  if (call.verb == Verb::kBarrier) return flight;
  if (step.number("residual") != 0 && call.options.wire.format != WireFormat::kNone) {
    call.options.wire.residual = memory.residual(step.line, shape.in).data();
  }
  const size_t size = dtype_bytes(call.dtype);
  const bool inside = step.number("place") != 0 && shape.nests && shape.reads && shape.writes;
  const bool input_larger = shape.in > shape.out;
  // Not used here: null, or memory that must stay as it is.
  const bool null_unused = (seat.salt + maker.m) % 2 == 0;
  Watched out, in;
  if (shape.writes || !null_unused) {
    out = memory.take({slot, index, 1}, step.of_member("out", seat.me, "p"),
                      (inside ? std::max(shape.in, shape.out) : shape.out) * size, flight.fresh);
  }
  if (!inside && call.verb != Verb::kBroadcast && (shape.reads || !null_unused)) {
    in = memory.take({slot, index, 0}, step.of_member("in", seat.me, "p"), shape.in * size, flight.fresh);
  }
  std::byte* input = inside ? out.data + (input_larger ? 0 : shape.inside * size) : in.data;
  std::byte* output = inside && input_larger ? out.data + shape.inside * size : out.data;
  if (call.verb == Verb::kBroadcast && maker.m == maker.root) input = out.data;
  if (input != nullptr && (shape.reads || call.verb == Verb::kBroadcast)) {
    fill(*maker.values(), maker.phase(maker.m), input, call.verb == Verb::kBroadcast ? shape.out : shape.in);
  }
  call.in = input;
  call.out = output;
  const WireFormat wire = call.options.wire.format;
  const double bound =
      bound_of(maker.kind, wire, shape.folds, call.options.wire.stochastic, step.number("residual") != 0);
  if (out.begin != nullptr) {
    out.dtype = call.dtype;
    snapshot(out, (inside ? std::max(shape.in, shape.out) : shape.out) * size);
    if (inside && shape.folds && input_larger) {  // reduce_scatter in place may change the other blocks
      out.loose.push_back({out.at(out.data), shape.in * size, nullptr, 0, 0});
      Watched part;
      part.name = "output in place";
      part.begin = part.data = output;
      part.dtype = call.dtype;
      part.expected.assign(shape.out * size, kUnwritten);
      for (const Result& result : shape.results) expect(part, output, result, bound);
      flight.watched.push_back(std::move(part));
    } else if (shape.writes) {
      for (const Result& result : shape.results) expect(out, output, result, bound);
    }
    flight.watched.push_back(std::move(out));
  }
  if (shape.writes && shape.everywhere && (bound > 0 || maker.kind.random)) {
    flight.output = static_cast<int>(flight.watched.size()) - 1;
    flight.output_bytes = shape.out * size;
  }
  if (in.begin != nullptr) {
    in.dtype = call.dtype;
    snapshot(in, shape.in * size);
    flight.watched.push_back(std::move(in));
  }
  flight.gets_data = shape.writes && !shape.results.empty() && shape.out > 0 && seat.members > 1;
  return flight;
}

}  // namespace rondo::life
