#include "tests/life/flight.h"

#include <algorithm>

namespace rondo::life {
namespace {

void expect(Watched& memory, const std::byte* output, const Shape::Result& result, double bound) {
  const size_t at = memory.at(output) + result.at * dtype_bytes(memory.dtype);
  if (bound > 0) return memory.loose.push_back({at, result.count, result.cycle, result.phase, bound});
  fill(*result.cycle, result.phase, memory.expected.data() + at, result.count);
}

template <typename T>
void fold(const void* in, void* inout, size_t count, void* op) {
  const auto* const from = static_cast<const T*>(in);
  auto* const to = static_cast<T*>(inout);
  const bool sum = *static_cast<const Op*>(op) == Op::kSum;
  for (size_t i = 0; i < count; ++i) to[i] = sum ? static_cast<T>(from[i] + to[i]) : std::max(from[i], to[i]);
}

// user=1, 2: the op, a sum or a maximum of numbers of 8 bytes, is one of the program's; 2: and said to need the order
// of the ranks.
void set_user(const Step& step, Call& call) {
  static Op kOps[] = {Op::kSum, Op::kMax};
  const int64_t way = step.number("user");
  const auto* const op = std::find(std::begin(kOps), std::end(kOps), call.op);
  if (way == 0 || op == std::end(kOps) || (call.dtype != DType::kInt64 && call.dtype != DType::kFloat64)) return;
  const bool whole = call.dtype == DType::kInt64;
  call.options.user = {whole ? fold<int64_t> : fold<double>, const_cast<Op*>(op), 8, way == 1};
  call.op = Op::kUser;
}

void set_options(const Step& step, const Seat& seat, CallOptions& options) {
  options.algorithm = algorithm_named(step.word("algorithm", "auto"));
  options.scalar = factor_of(seat.me);
  options.timeout = std::chrono::milliseconds(step.number("timeout"));
  options.wire.format = wire_format_named(step.word("wire", "none"));
  options.wire.stochastic = step.number("stochastic") != 0;
  options.wire.seed = seat.salt;
}

// Makes one call's memory.
class FlightMaker {
 public:
  FlightMaker(const Step& step, const Seat& seat, int slot, int index, Memory& memory)
      : step_(step), seat_(seat), slot_(slot), index_(index), memory_(memory), flight_(step) {}

  Flight make() {
    flight_.in_batch = index_ > 0;
    Call& call = flight_.call;
    const Shape shape = make_shape(step_, seat_, call);
    set_options(step_, seat_, call.options);
    if (shape.folds) set_user(step_, call);
    if (call.verb == Verb::kAllReduceMany) {
      make_many();
    } else if (call.verb != Verb::kBarrier) {
      make_buffers(shape);
    }
    return std::move(flight_);
  }

 private:
  Watched take(const char* which, size_t bytes) {
    const bool output = which[0] == 'o';
    return memory_.take({slot_, index_, output ? 1 : 0}, step_.of_member(which, seat_.me, "p"), bytes, flight_.fresh);
  }
  void keep(Watched watched) { flight_.watched.push_back(std::move(watched)); }

  void make_many() {
    const std::vector<uint64_t> lengths = step_.numbers("counts");
    const std::vector<std::string> dtypes = step_.words("dtype");
    const bool inside = step_.number("place") != 0;
    std::vector<Kind> kinds;
    std::vector<size_t> at;
    size_t bytes = 0;
    for (size_t t = 0; t < lengths.size(); ++t) {
      const DType dtype = dtype_named(dtypes[t % dtypes.size()]);
      kinds.push_back({dtype, flight_.call.op, seat_.members, step_.word("data") == "random"});
      at.push_back(bytes);
      bytes += (lengths[t] * dtype_bytes(dtype) + 7) / 8 * 8;
    }
    Watched out = take("out", bytes), in = inside ? out : take("in", bytes);
    for (size_t t = 0; t < lengths.size(); ++t) {
      fill(input_cycle(kinds[t]), phase_of(seat_.me, seat_.salt) + 29 * t, in.data + at[t], lengths[t]);
      flight_.call.tensors.push_back({in.data + at[t], out.data + at[t], lengths[t], kinds[t].dtype});
    }
    out.snapshot(bytes);
    in.snapshot(bytes);
    for (size_t t = 0; t < lengths.size(); ++t) {
      out.dtype = kinds[t].dtype;
      const double bound = bound_of(kinds[t], WireFormat::kNone, true, false, false);
      expect(out, out.data + at[t], {0, lengths[t], &reduced_cycle(kinds[t]), phase_of(0, seat_.salt) + 29 * t}, bound);
    }
    flight_.gets_data = true;
    keep(std::move(out));
    if (!inside) keep(std::move(in));
  }

  void make_buffers(const Shape& shape) {
    Call& call = flight_.call;
    const size_t size = dtype_bytes(call.dtype);
    const bool inside = step_.number("place") != 0 && shape.nests && shape.reads && shape.writes;
    const bool input_larger = shape.in > shape.out;
    // Not used here: null, or memory that must stay as it is.
    const bool null_unused = (seat_.salt + static_cast<uint64_t>(seat_.me)) % 2 == 0;
    const size_t out_bytes = (inside ? std::max(shape.in, shape.out) : shape.out) * size;
    Watched out, in;
    if (shape.writes || !null_unused) out = take("out", out_bytes);
    if (!inside && !shape.in_output && (shape.reads || !null_unused)) in = take("in", shape.in * size);
    std::byte* input = inside ? out.data + (input_larger ? 0 : shape.inside * size) : in.data;
    if (shape.in_output && shape.in > 0) input = out.data;
    std::byte* output = inside && input_larger ? out.data + shape.inside * size : out.data;
    if (input != nullptr && (shape.reads || shape.in_output)) {
      fill(input_cycle(shape.kind), phase_of(seat_.me, seat_.salt), input, shape.in);
    }
    call.in = input;
    call.out = output;
    const WireOptions& wire = call.options.wire;
    const bool residual = step_.number("residual") != 0 && wire.format != WireFormat::kNone;
    if (residual) call.options.wire.residual = memory_.residual(step_.line, shape.in).data();
    const double bound = bound_of(shape.kind, wire.format, shape.folds, wire.stochastic, residual);
    out.dtype = in.dtype = call.dtype;
    if (out.begin != nullptr) {
      out.snapshot(out_bytes);
      if (inside && shape.folds && input_larger) {  // reduce_scatter in place may change the other blocks
        out.loose.push_back({out.at(out.data), shape.in * size, nullptr, 0, 0});
        keep(out);
        out = part_of(out, output, shape.out * size);
      }
      for (const Shape::Result& result : shape.results) {
        if (shape.writes) expect(out, output, result, bound);
      }
      keep(std::move(out));
    }
    if (shape.writes && (bound > 0 || shape.kind.random))
      flight_.rounded = {output, shape.out * size, shape.everywhere};
    if (in.begin != nullptr) {
      in.snapshot(shape.in * size);
      keep(std::move(in));
    }
    flight_.gets_data = shape.writes && !shape.results.empty() && shape.out > 0 && seat_.members > 1;
  }

  static Watched part_of(const Watched& whole, std::byte* data, size_t bytes) {
    Watched part;
    part.name = whole.name + " in place";
    part.begin = part.data = data;
    part.dtype = whole.dtype;
    part.expected.assign(bytes, kUnwritten);
    return part;
  }

  const Step& step_;
  const Seat& seat_;
  const int slot_, index_;
  Memory& memory_;
  Flight flight_;
};

}  // namespace

std::string Flight::check() {
  for (Watched& memory : watched) {
    if (std::string wrong = memory.check(); !wrong.empty()) return wrong;
  }
  return "";
}

Flight make_flight(const Step& step, const Seat& seat, int slot, int index, Memory& memory) {
  return FlightMaker(step, seat, slot, index, memory).make();
}

}  // namespace rondo::life
