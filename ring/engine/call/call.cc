#include "ring/engine/call/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <type_traits>

#include "kernels/wire_codec.h"
#include "ring/base/hash.h"

namespace rondo {
namespace {

// The bytes of counts, offsets and sums stay below this, so that they fit a signed 64-bit number and no sum
// wraps.
constexpr uint64_t kMaxBytes = uint64_t{1} << 62;

// Checks one call. Each step throws with the argument and its value, before anything happens. The order of
// steps matters: later ones use element_bytes_ and blocks_ of earlier ones.
class Checker {
 public:
  Checker(const Call& call, int rank, int world) : call_(call), rank_(rank), world_(world) {}

  CheckedCall run() {
    if (static_cast<int>(call_.collective) >= kCollectives)
      fail(fmt::format("unknown collective {}", static_cast<int>(call_.collective)));
    static_cast<CallFields&>(checked_) = fields_of(call_);
    clear_unused_fields();
    if (call_.options.timeout.count() < 0) {
      fail(fmt::format("timeout is {} ms; it must be positive, or 0 for the configured one",
                       call_.options.timeout.count()));
    }
    check_wire();
    check_recoverable();
    if (call_.collective == Collective::kBarrier) return checked_;
    check_types();
    check_root();
    lay_out();
    check_buffers();
    check_residual();
    if (!blocks_.input.empty()) checked_.blocks = std::make_shared<const Blocks>(std::move(blocks_));
    return std::move(checked_);
  }

 private:
  std::string name() const { return std::string(collective_name(call_.collective)) + (call_.uneven ? "_v" : ""); }

  // Every refusal names the collective and this rank, then the argument and its value.
  [[noreturn]] void fail(const std::string& why) const {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {}", name(), rank_, why));
  }

  // Clears the fields that this collective or op does not use: a difference in them is no mismatch.
  void clear_unused_fields() {
    const CallFields none;
    if (!collective_has_root(call_.collective)) checked_.root = none.root;
    if (call_.collective == Collective::kBarrier) checked_.count = none.count, checked_.dtype = none.dtype;
    const bool reduces = collective_reduces(call_.collective);
    if (!reduces) checked_.op = none.op;
    if (!reduces || call_.op != Op::kUser) checked_.user_bytes = none.user_bytes, checked_.in_order = none.in_order;
    // kPremulSum and kAverage scale, and by whom depends on the plan. The program's own has its own rules.
    if (!reduces || call_.op == Op::kPremulSum || call_.op == Op::kAverage || call_.op == Op::kUser) {
      checked_.any_op = none.any_op;
    }
  }

  // Sets element_bytes_, which all later steps count with. A dtype or op that is out of the list is refused before its
  // name is asked for.
  void check_types() {
    const bool reduces = collective_reduces(call_.collective);
    if (call_.options.user.function != nullptr && !(reduces && call_.op == Op::kUser)) {
      fail(fmt::format("an operation of the program's is given, but the op is {}",
                       reduces ? op_name(call_.op) : "none"));
    }
    if (reduces && call_.op == Op::kUser) return check_user();
    if (collective_scans(call_.collective) && call_.op == Op::kAverage) fail("avg is over all ranks; use sum");
    if (static_cast<int>(call_.dtype) >= kDTypes) fail(fmt::format("unknown dtype {}", static_cast<int>(call_.dtype)));
    element_bytes_ = dtype_bytes(call_.dtype);
    if (!reduces) return;
    if (static_cast<int>(call_.op) >= kOps) fail(fmt::format("unknown op {}", static_cast<int>(call_.op)));
    if (!op_supports(call_.op, call_.dtype)) {
      fail(fmt::format("{} of {} is not defined (docs/numerics.md)", op_name(call_.op), dtype_name(call_.dtype)));
    }
  }

  // The program's own operation: elements are bytes in groups of element_bytes, whatever dtype the call has.
  void check_user() {
    const UserOp& user = call_.options.user;
    if (user.function == nullptr) fail("the op is user, but there is no function in options.user");
    if (user.element_bytes < 1 || user.element_bytes > kMostUserBytes) {
      fail(fmt::format("the op is user, of elements of {} bytes; they must have 1 to {}", user.element_bytes,
                       kMostUserBytes));
    }
    checked_.dtype = DType::kUint8;
    element_bytes_ = user.element_bytes;
  }

  // Which collectives, dtypes and ops a wire format carries. kPacked loses nothing, so its rules are others.
  void check_wire() {
    const WireOptions& wire = call_.options.wire;
    if (static_cast<int>(wire.format) >= kWireFormats) {
      fail(fmt::format("unknown wire format {}", static_cast<int>(wire.format)));
    }
    if (wire.stochastic && !wire_format_rounds_at_random(wire.format)) {
      fail(fmt::format("stochastic rounding is for the wire formats int8 and int4, not for {}",
                       wire_format_name(wire.format)));
    }
    if (wire.format == WireFormat::kNone) {
      if (wire.residual != nullptr) fail("a residual is given, but no wire format whose loss it could keep");
      return;
    }
    const Collective c = call_.collective;
    const std::string format = wire_format_name(wire.format);
    if (wire.format == WireFormat::kPacked) return check_packed();
    if (c != Collective::kAllReduce && c != Collective::kReduceScatter && c != Collective::kAllGather) {
      fail("the wire format " + format + " is for all_reduce, reduce_scatter and all_gather");
    }
    if (call_.dtype != DType::kFloat32 && call_.dtype != DType::kFloat16 && call_.dtype != DType::kBfloat16) {
      fail("the wire format " + format + " is for calls of float32, bfloat16 and float16, not of " +
           dtype_name(call_.dtype));
    }
    if (collective_reduces(c) && call_.op != Op::kSum && call_.op != Op::kAverage) {
      fail("the wire format " + format + " is for sum and avg, not for " + op_name(call_.op));
    }
  }

  void check_packed() const {
    if (call_.collective != Collective::kBroadcast && call_.collective != Collective::kAllGather) {
      fail("the wire format packed is for broadcast and all_gather");
    }
    if (call_.dtype != DType::kFloat32 && call_.dtype != DType::kBfloat16) {
      fail(fmt::format("the wire format packed is for calls of bfloat16 and float32, not of {}",
                       dtype_name(call_.dtype)));
    }
    if (call_.options.wire.residual != nullptr) fail("the wire format packed loses nothing that a residual could keep");
  }

  // A recoverable call keeps its input until it has succeeded, which only an all_reduce in host memory can.
  void check_recoverable() const {
    if (!call_.options.recoverable) return;
    if (call_.collective != Collective::kAllReduce) fail("recoverable is an option of all_reduce");
    if (checked_.coded()) fail("a call with a wire format cannot be recoverable: its residual changes");
    if (call_.options.stream) fail("recoverable is for host memory, not a stream");
  }

  // The residual has a float32 for each element of the input, whatever the call's dtype.
  void check_residual() const {
    const auto residual = reinterpret_cast<uintptr_t>(call_.options.wire.residual);
    if (residual == 0) return;
    const uint64_t bytes = input_end_ * sizeof(float);
    if (residual % alignof(float) != 0) fail("the residual is not aligned to 4 bytes");
    const auto meets = [&](const void* data, uint64_t length) {
      const auto begin = reinterpret_cast<uintptr_t>(data);
      return begin < residual + bytes && residual < begin + length;
    };
    const uint64_t element = checked_.element_bytes();
    if (meets(call_.input, input_end_ * element) || meets(call_.output, output_end_ * element)) {
      fail(fmt::format("the residual [{:#x}, +{}) overlaps the input or the output", residual, bytes));
    }
  }

  void check_root() {
    if (!collective_has_root(call_.collective)) return;
    if (call_.root < 0 || call_.root >= world_) {
      fail(fmt::format("root is {}; it must be a rank of the group, 0 to {}", call_.root, world_ - 1));
    }
  }

  bool is_root() const { return call_.root == rank_; }
  const CollectiveFacts& facts() const { return facts_of(call_.collective); }
  // Whether this rank's input, or output, has a block for every rank.
  bool has_blocks(const CollectiveBuffer& buffer) const { return buffer.blocks && (!buffer.rooted || is_root()); }

  // Works out where the blocks lie, and how far each buffer is used.
  void lay_out() {
    if (!collective_has_blocks(call_.collective)) {
      if (call_.uneven) fail("this collective has no uneven variant");
      input_end_ = output_end_ = bounded(call_.count);
      return;
    }
    blocks_.input.resize(static_cast<size_t>(world_));
    blocks_.output.resize(static_cast<size_t>(world_));
    const auto own = static_cast<size_t>(rank_);
    if (call_.uneven) checked_.count = own_count();
    if (!call_.uneven) check_equal_blocks();
    if (has_blocks(facts().input)) {
      input_end_ = fill(blocks_.input, call_.input_counts, call_.input_displacements, "input");
    } else if (!facts().input.blocks) {
      blocks_.input[own] = {0, checked_.count};
      input_end_ = bounded(checked_.count);
    }
    if (has_blocks(facts().output)) {
      output_end_ = fill(blocks_.output, call_.output_counts, call_.output_displacements, "output");
    } else if (!facts().output.blocks) {
      blocks_.output[own] = {0, checked_.count};
      output_end_ = bounded(checked_.count);
    }
    check_own_block(own);
    hash_counts();
  }

  // The count of this rank's own block: among the counts, where this rank has all of them, else Call::count.
  uint64_t own_count() const {
    const auto own = static_cast<size_t>(rank_);
    if (!collective_shares_blocks(call_.collective)) return call_.count;
    const auto counts = shared_counts();
    if (counts.size() != static_cast<size_t>(world_)) {
      fail(fmt::format("{} counts given; there must be one for each of the {} ranks", counts.size(), world_));
    }
    return counts[own];
  }

  // The counts that every rank gives.
  std::span<const uint64_t> shared_counts() const {
    return facts().output.blocks ? call_.output_counts : call_.input_counts;
  }

  // Lays the blocks of one buffer out, by counts and displacements. Returns how many elements of the buffer are
  // used.
  uint64_t fill(std::vector<Extent>& blocks, std::span<const uint64_t> counts, std::span<const uint64_t> displacements,
                const char* which) {
    const auto world = static_cast<size_t>(world_);
    if (call_.uneven && counts.size() != world) {
      fail(fmt::format("{} {} counts given; there must be one for each of the {} ranks", counts.size(), which, world_));
    }
    if (!call_.uneven && !displacements.empty()) {
      fail(fmt::format("{} {} displacements given; only calls with a count for each rank (uneven) have any",
                       displacements.size(), which));
    }
    if (!displacements.empty() && displacements.size() != world) {
      fail(fmt::format("{} {} displacements given; there must be one for each of the {} ranks", displacements.size(),
                       which, world_));
    }
    uint64_t next = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < world; ++i) {
      const uint64_t count = call_.uneven ? counts[i] : call_.count;
      const uint64_t offset = displacements.empty() ? next : displacements[i];
      bounded(count);
      bounded(offset);
      blocks[i] = {offset, count};
      next = bounded(offset + count);
      end = std::max(end, count == 0 ? 0 : next);
    }
    return end;
  }

  std::string element_text() const {
    return checked_.user_bytes > 0 ? fmt::format("{} bytes", checked_.user_bytes) : dtype_name(call_.dtype);
  }

  // The number, if its bytes can be counted.
  uint64_t bounded(uint64_t elements) const {
    if (elements > kMaxBytes / element_bytes_) {
      fail(fmt::format("{} elements of {} do not fit 64-bit byte counts", elements, element_text()));
    }
    return elements;
  }

  // The blocks of all ranks together must be countable, though only the root of a gather or scatter has them:
  // so all ranks refuse the call alike.
  void check_equal_blocks() const {
    if (call_.count <= kMaxBytes / element_bytes_ / static_cast<uint64_t>(world_)) return;
    fail(fmt::format("{} elements of {} for each of the {} ranks do not fit 64-bit byte counts", call_.count,
                     element_text(), world_));
  }

  // In gather_v and scatter_v the root states its own count twice, in all_to_all_v each rank does. Both must be
  // equal.
  void check_own_block(size_t own) {
    if (!call_.uneven) return;
    const Extent in = blocks_.input[own];
    const Extent out = blocks_.output[own];
    if (!has_blocks(facts().input) && !has_blocks(facts().output)) return;
    if (collective_shares_blocks(call_.collective)) return;
    if (in.count != out.count) {
      fail(fmt::format("rank {} sends itself {} elements but expects {}", rank_, in.count, out.count));
    }
  }

  // In all_gather_v and reduce_scatter_v all ranks know all counts: their hash becomes an agreed field. All
  // ranks refuse a sum that is too large, also one whose displacements would keep its blocks lower.
  void hash_counts() {
    if (!call_.uneven || !collective_shares_blocks(call_.collective)) return;
    const auto counts = shared_counts();
    uint64_t total = 0;
    for (const uint64_t count : counts) total = bounded(total + count);
    checked_.shared_counts = Hash64().add_all(counts).value();
  }

  void check_buffers() const {
    const uint64_t in = needs_input() ? input_end_ * element_bytes_ : 0;
    const uint64_t out = needs_output() ? output_end_ * element_bytes_ : 0;
    if (in > 0 && call_.input == nullptr) fail(fmt::format("input is null but {} bytes are read from it", in));
    if (out > 0 && call_.output == nullptr) fail(fmt::format("output is null but {} bytes are written to it", out));
    if (in == 0 || out == 0) return;
    // Buffers of 0 bytes overlap nothing: both are longer here.
    const auto input = reinterpret_cast<uintptr_t>(call_.input);
    const auto output = reinterpret_cast<uintptr_t>(call_.output);
    if (input + in <= output || output + out <= input) return;
    if (!is_in_place(input, output)) {
      fail(fmt::format("input [{:#x}, +{}) and output [{:#x}, +{}) overlap, and not as in-place calls do", input, in,
                       output, out));
    }
  }

  // A broadcast's input is its output, which all ranks have. Exscan writes nothing on rank 0.
  bool needs_input() const { return call_.collective == Collective::kBroadcast || !facts().input.rooted || is_root(); }
  bool needs_output() const {
    if (call_.collective == Collective::kExscan) return rank_ > 0;
    return !facts().output.rooted || is_root();
  }

  // Whether the overlap of input and output is the one that in-place calls have.
  bool is_in_place(uintptr_t input, uintptr_t output) const {
    const auto own = static_cast<size_t>(rank_);
    const bool in = facts().input.blocks, out = facts().output.blocks;
    if (in && out) return false;
    if (in) return output == input + blocks_.input[own].offset * element_bytes_;
    if (out) return input == output + blocks_.output[own].offset * element_bytes_;
    return input == output;
  }

  const Call& call_;
  const int rank_;
  const int world_;
  size_t element_bytes_ = 1;
  uint64_t input_end_ = 0;  // elements of the input buffer that are used
  uint64_t output_end_ = 0;
  Blocks blocks_;
  CheckedCall checked_;
};

}  // namespace

CheckedCall check_call(const Call& call, int rank, int world) { return Checker(call, rank, world).run(); }

namespace {

// The blocks that every rank knows, or nullptr.
const std::vector<Extent>* known_blocks(const CheckedCall& call) {
  if (!collective_shares_blocks(call.collective)) return nullptr;
  return facts_of(call.collective).output.blocks ? &call.blocks->output : &call.blocks->input;
}

}  // namespace

// Without blocks, one buffer; with blocks, all blocks. Uneven counts that only pairs know give 0.
uint64_t CheckedCall::total_bytes(int world) const {
  if (collective == Collective::kBarrier) return 0;
  const uint64_t element = element_bytes();
  if (!collective_has_blocks(collective)) return count * element;
  if (!uneven) return count * element * static_cast<uint64_t>(world);
  uint64_t total = 0;
  if (const auto* known = known_blocks(*this)) {
    for (const Extent& block : *known) total += block.count * element;
  }
  return total;
}

uint64_t CheckedCall::travelling_bytes(int world) const {
  const uint64_t bytes = total_bytes(world);
  return coded() && wire != WireFormat::kPacked ? wire_bytes(wire, bytes / element_bytes()) : bytes;
}

std::optional<uint64_t> CheckedCall::largest_block(uint32_t block_count, uint64_t granule) const {
  if (!collective_has_blocks(collective)) {
    const uint64_t granules = (count + granule - 1) / granule;
    return (granules + block_count - 1) / block_count * granule;
  }
  if (!uneven) return count;
  const auto* known = known_blocks(*this);
  if (known == nullptr) return std::nullopt;
  uint64_t largest = 0;
  for (const Extent& block : *known) largest = std::max(largest, block.count);
  return largest;
}

namespace {

// Pieces are cut alike on all ranks, so a mismatch shows which one each rank is at.
std::string describe_place(const CheckedCall& call) {
  if (call.pieces == 0) return "";
  if (call.pieces == 1) return " on device memory";
  return fmt::format(" on device memory, piece {} of {}", call.piece, call.pieces);
}

// The program's call that this exchange belongs to; "": the exchange is the program's own call.
std::string describe_purpose(Purpose purpose) {
  // In the order of Purpose.
  constexpr const char* kNames[] = {"",
                                    "split()",
                                    "attach_device()",
                                    "sparse_all_reduce()",
                                    "DistOpt",
                                    "the start of the job",
                                    "new_group()",
                                    "dup()",
                                    "broadcast_object()",
                                    "all_gather_object()",
                                    "gather_object()",
                                    "scatter_object()",
                                    "all_gather_v()",
                                    "gather_v()",
                                    "all_to_all_v()",
                                    "shrink()",
                                    "commit()",
                                    "grow()",
                                    "newcomers()"};
  const auto number = static_cast<size_t>(purpose);
  return number < std::size(kNames) ? kNames[number] : fmt::format("purpose {}", number);
}

// The program's call has one exchange, or several whose shapes the program does not know: its name says all.
bool names_all(Purpose purpose) {
  return purpose == Purpose::kSplit || (purpose >= Purpose::kJoin && purpose <= Purpose::kNewcomers);
}

// The algorithm that the call asks for, which may have another name than that of the plan it gets.
std::string asked_for(const CallFields& call) {
  if (call.asked == Algorithm::kAuto) return "";
  return fmt::format("algorithm=\"{}\"", algorithm_name(call.asked));
}

uint64_t elements(const std::vector<Extent>& blocks) {
  uint64_t count = 0;
  for (const Extent& block : blocks) count += block.count;
  return count;
}

// Uneven counts are this rank's own; the text shows sums where it has several.
std::string describe_count(const CheckedCall& call) {
  if (!call.uneven) return fmt::format("count={}", call.count);
  if (call.collective != Collective::kAllToAll || !call.blocks) return fmt::format("own count={}", call.count);
  return fmt::format("sends={}, receives={}", elements(call.blocks->input), elements(call.blocks->output));
}

}  // namespace

uint64_t kind_of(uint64_t communicator, const CallFields& call) {
  using Words = std::array<uint64_t, sizeof(CallFields) / sizeof(uint64_t)>;
  Hash64 hash;
  hash.add(communicator);
  // Every byte of the fields is hashed: a field that ranks need not agree on must be cleared in agreed().
  for (const uint64_t word : std::bit_cast<Words>(call.agreed())) hash.add(word);
  return noted_fingerprint(hash.value(), static_cast<uint8_t>(call.op));
}

// Names everything that ranks must agree on: the error of a mismatch shows this text of two ranks, and a field
// that is not in it would make two different calls look alike (call_fields_test).
std::string describe_call(const CheckedCall& call) {
  std::string text = describe_purpose(call.purpose);
  if (names_all(call.purpose)) {
    if (call.root >= 0) text.insert(text.size() - 1, fmt::format("root={}", call.root));
    return text;
  }
  if (!text.empty()) text += ": ";
  text += collective_name(call.collective);
  if (call.collective == Collective::kBarrier)
    return text + fmt::format("({})", asked_for(call)) + describe_place(call);
  if (call.list) {
    return text +
           fmt::format(" of {} tensors {}, operation {} of {} (count={}, {})", call.list->tensors.size(),
                       call.list->describe(), call.part, call.parts, call.count, algorithm_name(call.algorithm)) +
           describe_place(call);
  }
  if (call.uneven) text += "_v";
  text += fmt::format("({}, {}", describe_count(call),
                      call.user_bytes > 0 ? fmt::format("{} bytes each", call.user_bytes) : dtype_name(call.dtype));
  if (call.shared_counts != 0) text += fmt::format(", counts#{:016x}", call.shared_counts);
  if (collective_reduces(call.collective))
    text += fmt::format(", {}{}", call.any_op ? "own op " : "", op_name(call.op));
  if (call.in_order) text += " in the order of the ranks";
  if (call.wire != WireFormat::kNone) text += fmt::format(", wire {}", wire_format_name(call.wire));
  if (call.root >= 0) text += fmt::format(", root={}", call.root);
  if (call.algorithm != Algorithm::kAuto) text += fmt::format(", {}", algorithm_name(call.algorithm));
  if (call.asked != Algorithm::kAuto) text += ", " + asked_for(call);
  if (call.registered_first) text += " unless registered";
  return text + ")" + describe_place(call);
}

}  // namespace rondo
