#include "ring/engine/device/launched_call.h"

#include <algorithm>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/hash.h"
#include "ring/engine/device/host_wait.h"
#include "ring/engine/progress/flow.h"
#include "ring/engine/tensor_lists.h"

namespace rondo {
namespace {

// The host ends a call by its deadline; a kernel ends by itself where the host cannot.
constexpr std::chrono::seconds kAfterDeadline{10};
constexpr std::chrono::hours kLongestLimit{24};
// A lane's share that is worth a block: some microseconds of a link.
constexpr uint64_t kLaneBytes = 16 * 1024;
// The largest message of a ring: with larger ones less overlaps.
constexpr uint64_t kMostMessageBytes = 16u << 20;
// How much larger than a lane's share its part of a slot may have to be: both are cut at whole lines.
constexpr uint64_t kSlotSlackBytes = 256 + 128 * kMaxLanes;
constexpr uint64_t kLineBytes = 64;

}  // namespace

// One piece's: opens the operation's gate when the kernel has begun, and sees how far it is. Under the lease.
class LaunchedCall::Kernel final : public Run, public Gate {
 public:
  Kernel(OperationRef<LaunchedCall> call, uint32_t number)
      : island_(call->island_), call_(std::move(call)), number_(number) {}

  bool is_open() const override { return at_least(load_word(island_->own().status.started), number_); }
  void ended(const Error* error) override {
    island_->note_ended(number_, error == nullptr);
    std::exchange(call_, nullptr)->piece_ended(error);
  }

  bool ready() override { return true; }
  void start(const RunStart&) override {}
  bool progress(Pass) override {
    const uint64_t before = seen_;
    const CallStatus& status = island_->own().status;
    seen_ = 1 + (at_least(load_word(status.met), number_) ? 1 : 0);
    const bool passed = at_least(load_word(status.passed), number_);  // first: kernels write it behind their failure
    const auto failed = static_cast<CallFailure>(load_word(status.failure));
    if (failed != CallFailure::kNone && at_least(number_, status.failed_call)) {
      set_failure(failed, status);
    } else if (passed) {
      ++seen_;
      done_ = true;
    }
    return seen_ != before;
  }
  bool done() const override { return done_; }
  uint64_t moved() override { return seen_; }
  RunFailure failure() override { return failure_; }

 private:
  void set_failure(CallFailure failed, const CallStatus& status) {
    if (failed == CallFailure::kStopped) return;  // the communicator has failed
    failure_.kind = failed == CallFailure::kOtherCall ? RunFailure::Kind::kOtherCall : RunFailure::Kind::kCorrupt;
    failure_.peer = static_cast<int>(status.rank);
    failure_.fingerprint = status.fingerprint;
    failure_.what = text_of(failed);
  }
  static const char* text_of(CallFailure failed) {
    if (failed == CallFailure::kLate) return "the kernels of the ranks have not met";
    if (failed == CallFailure::kOverlap) {
      return "a replay of a graph ran beside another call of this communicator; order their streams by events";
    }
    return "a buffer of it lies in device memory that this rank does not map; deallocate() is for all ranks";
  }

  const std::shared_ptr<DeviceIsland> island_;  // shared with the communicator's device side
  OperationRef<LaunchedCall> call_;             // until the operation ends, which the call owns
  const uint32_t number_;
  uint64_t seen_ = 0;
  bool done_ = false;
  RunFailure failure_;
};

LaunchedCall::LaunchedCall(Options options, std::shared_ptr<DeviceIsland> island, const StreamPlans::Entry& plan,
                           std::chrono::milliseconds limit)
    : StreamOperation(std::move(options)), island_(std::move(island)), plan_(plan), limit_(limit) {
  turns_.reserve(options_.pieces.size());
  for (const Piece& piece : options_.pieces) copies_back_ = copies_back_ || !piece.out.empty();
  if (copies_back_) add_end();  // the stream
}

uint32_t LaunchedCall::entries() const {
  uint64_t entries = 3;  // the end: event, wait and function
  for (const Piece& piece : options_.pieces) entries += piece.in.size() + piece.out.size() + 1;
  return static_cast<uint32_t>(std::min<uint64_t>(entries, UINT32_MAX));
}

void LaunchedCall::add_part(size_t /*piece*/, CollectiveOperation& part) {
  add_end();
  const uint32_t number = island_->next_number();
  turns_.push_back({*part.call, part.start.buffers, number, 0, nullptr});
  const auto kernel = std::make_shared<Kernel>(OperationRef(*this), number);
  part.run = kernel;
  part.gate = kernel;
}

void LaunchedCall::add_operation(OperationRef<Operation> operation, uint64_t fingerprint) {
  const auto next = std::find_if(turns_.begin(), turns_.end(), [](const Turn& turn) { return !turn.operation; });
  next->operation = std::move(operation);
  next->fingerprint = fingerprint;
}

void LaunchedCall::capture(const CheckedCall& call, const CallBuffers& buffers, uint64_t fingerprint) {
  turns_.push_back({call, buffers, 0, fingerprint, nullptr});
  put_piece(turns_.size() - 1);
}

void LaunchedCall::enqueue() {
  try {
    for (size_t piece = 0; piece < turns_.size(); ++piece) put_piece(piece);
  } catch (...) {
    options_.give_up(caught());
    flow->notify();
    // Its kernels touch nothing from now on, and those that were not launched count as over.
    store_word(island_->own().status.started, turns_.back().number);
    store_word(island_->own().status.passed, turns_.back().number);
    for (const Turn& turn : turns_) turn.operation->wait(Clock::time_point::max());
    put_end(Ending::kByFunction);  // kernels may not have been launched
    throw;
  }
  // The kernels themselves say when they are over. Copies behind them do not.
  put_end(copies_back_ ? Ending::kByFunction : Ending::kByWord);
}

// If not even a function can be put into a stream, nothing more runs there.
void LaunchedCall::put_end(Ending how) {
  const bool recorded = record_end();
  if (how == Ending::kByWord) give_back_room_with(&island_->own().status.passed, turns_.back().number);
  if (!change_ending(Ending::kNotPut, how) || how == Ending::kByWord || (recorded && put_ring())) return;
  driver_.synchronize(options_.stream);
  passed();
}

bool LaunchedCall::change_ending(Ending from, Ending to) {
  std::lock_guard lock(mutex_);
  if (ending_ != from) return false;
  ending_ = to;
  if (to == Ending::kByFunction) self_ = OperationRef(*this);
  return true;
}

// The host hears of the end beside the caller's stream, which no function of the host holds up.
bool LaunchedCall::put_ring() {
  const DeviceStream beside = options_.calls->copy_stream(options_.device);
  return driver_.wait(beside, event_) == 0 && driver_.call_host(&end_of_stream, this, beside) == 0;
}

void LaunchedCall::ring_at_end() {
  if (change_ending(Ending::kByWord, Ending::kByFunction) && !put_ring()) passed();
}

void LaunchedCall::put_piece(size_t index) {
  const Turn& turn = turns_[index];
  const Piece& piece = options_.pieces[index];
  const StreamProgram& program = plan_.program;
  DeviceCall call = {};
  island_->describe(call, turn.number, program.to);
  // Ranks that take different forms are in different calls.
  std::ranges::fill(call.prints, agreed_bits(turn.fingerprint) ^ (program.posts ? 1 : 0));
  call.messages = plan_.most_messages;
  auto limit = std::min<std::chrono::nanoseconds>(limit_, kLongestLimit);
  if (turn.number != 0) limit += kAfterDeadline;
  call.limit_ns = static_cast<uint64_t>(limit.count());
  call.slice = slice_of(turn.call);
  bind_program(turn.call, plan_.plan, program, plan_.touched, place_of(turn, true), place_of(turn, false), call);
  copy(piece.in, island_->bounce(), true, options_.stream);
  if (options_.waits == Waits::kHost) await_hosts(turn);
  driver_.check(driver_.call(call, lanes_of(turn.call), options_.stream), "putting a kernel into the stream");
  if (options_.waits == Waits::kHost) await_kernels(turn);
  copy(piece.out, island_->bounce(), false, options_.stream);
}

// Elements of a block that a slice has: what a message of a ring, or window 0, has room for; whole lines. The same on
// all ranks.
uint64_t LaunchedCall::slice_of(const CheckedCall& call) const {
  const uint64_t element = dtype_bytes(call.dtype);
  uint64_t bytes = UINT64_MAX;
  if (plan_.program.messages > 0) {
    bytes = std::min(kMostMessageBytes, island_->slot_bytes() - kSlotSlackBytes);
  } else if (plan_.staged_blocks > 0) {
    bytes = island_->bounce_bytes() / plan_.staged_blocks;
  }
  return bytes / kLineBytes * (kLineBytes / element);
}

// The same on all ranks that are in the same call: the most where they do not know how long its blocks are.
uint32_t LaunchedCall::lanes_of(const CheckedCall& call) const {
  const std::optional<uint64_t> count = call.largest_block(1, 1);
  if (!count) return island_->lanes();
  const uint64_t bytes = *count * dtype_bytes(call.dtype);
  if (plan_.program.posts) return static_cast<uint32_t>((bytes - 1) / island_->post_bytes() + 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(bytes / kLaneBytes, 1, island_->lanes()));
}

// Where the buffer lies for this rank, and for the others: where it is, if that is memory which they map. What a rank
// scales by its own factor is staged.
BufferPlace LaunchedCall::place_of(const Turn& turn, bool input) const {
  const CheckedCall& call = turn.call;
  const bool is_root_input = call.collective == Collective::kBroadcast && call.root == plan_.plan.rank;
  auto* const data = input || is_root_input ? const_cast<std::byte*>(turn.buffers.input) : turn.buffers.output;
  BufferPlace place{.data = data};
  const std::vector<int> touched = Touched::all(input ? plan_.touched.input : plan_.touched.output);
  if (touched.empty()) return place;
  uint64_t end = call.blocks ? 0 : call.count;
  if (call.blocks) {
    for (const Extent& block : input ? call.blocks->input : call.blocks->output) {
      end = std::max(end, block.offset + block.count);
    }
  }
  if (end == 0) return place;
  const bool scales = input && call.scales_at_source();
  if (data == island_->bounce()) {
    place.offset = island_->bounce_offset();
  } else if (const auto found = island_->locate(data, end * dtype_bytes(call.dtype)); found && !scales) {
    place.window = found->window;
    place.offset = found->offset;
  } else {
    const uint64_t before = input ? 0 : Touched::all(plan_.touched.input).size() * slice_of(call);
    place.staged = island_->bounce() + before * dtype_bytes(call.dtype);
    place.offset = island_->bounce_offset() + before * dtype_bytes(call.dtype);
  }
  return place;
}

// A kernel that waits for that of another rank of this process, which has not made the call yet, would hold up calls of
// that rank which wait for the device, as cudaFree does. Ends when the communicator fails, too. The operation's
// deadline begins with the kernel, which comes behind this wait: it has one of its own. Throws Exception(kTimeout).
void LaunchedCall::await_hosts(const Turn& turn) {
  const auto until = deadline_after(Clock::now(), limit_);
  wait_on_host([&] { return island_->all_called(turn.number) || turn.operation->done(); },
               [&] {
                 device_has_failed_meanwhile();
                 if (Clock::now() >= until) throw Exception(island_->late(turn.number, describe_call(turn.call)));
               });
}

// Streams of one process may share a queue of the device: what stands behind this kernel would keep another rank's from
// it.
void LaunchedCall::await_kernels(const Turn& turn) {
  const CallStatus& status = island_->own().status;
  wait_on_host(
      [&] {
        return at_least(load_word(status.met), turn.number) || at_least(load_word(status.passed), turn.number) ||
               turn.operation->done();
      },
      [this] { device_has_failed_meanwhile(); });
}

void LaunchedCall::end_of_stream(void* call) {
  auto& own = *static_cast<LaunchedCall*>(call);
  const StreamCalls::InStream inside(own.options_.calls);  // longer than the call may live
  own.passed();
}

// No calls of the device's runtime.
void LaunchedCall::passed() {
  OperationRef<LaunchedCall> keep;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(ending_, Ending::kOver) == Ending::kOver) return;
    keep = std::move(self_);
  }
  if (copies_back_) piece_ended(nullptr);
  give_back_room();
  flow->notify();
}

void LaunchedCall::leave_stream() {
  options_.calls->end_kernels();
  passed();
}

void LaunchedCall::piece_ended(const Error* error) {
  if (error != nullptr) note_error(*error);
  if (end_part()) end_whole();
}

}  // namespace rondo
