#include "ring/engine/device/enqueued_call.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "ring/base/caught.h"
#include "ring/engine/device/host_wait.h"
#include "ring/engine/progress/progress_engine.h"

namespace rondo {
namespace {

using Kind = StreamEntry::Kind;

}  // namespace

// Sees how far the stream is. Under the lease.
class EnqueuedCall::PassRun final : public Run {
 public:
  PassRun(std::shared_ptr<DeviceIsland> island, uint32_t number, int rank, int world)
      : island_(std::move(island)), number_(number), rank_(rank), world_(world) {}

  bool ready() override { return true; }
  void start(const RunStart& start) override { fingerprint_ = start.fingerprint; }
  bool progress(Pass) override {
    const uint64_t before = seen_;
    const Inbox& inbox = island_->own();
    seen_ = 1;
    for (int rank = 0; rank < world_; ++rank) {
      if (at_least(load_word(inbox.words[0][rank]), number_)) ++seen_;
    }
    if (at_least(load_word(inbox.passed), number_) && !done_) {
      ++seen_;
      done_ = same_call();
    }
    return seen_ != before;
  }
  bool done() const override { return done_; }
  uint64_t moved() override { return seen_; }
  RunFailure failure() override { return failure_; }

 private:
  // All ranks have met in it, so all cards are there.
  bool same_call() {
    for (int rank = 0; rank < world_; ++rank) {
      const DeviceCard& card = island_->of(rank).cards[number_ % Inbox::kCards];
      const uint64_t found = std::atomic_ref<uint64_t>(const_cast<uint64_t&>(card.fingerprint)).load();
      if (rank == rank_ || found == fingerprint_) continue;
      failure_.kind = found == Inbox::kClosed ? RunFailure::Kind::kClosed : RunFailure::Kind::kOtherCall;
      failure_.peer = rank;
      failure_.fingerprint = found;
      return false;
    }
    const uint32_t refused = load_word(island_->own().refused);
    if (refused == 0) return true;
    failure_.kind = RunFailure::Kind::kCorrupt;
    failure_.peer = static_cast<int>(refused - 1);
    failure_.what = "a buffer of it lies in device memory that this rank does not map; deallocate() is for all ranks";
    return false;
  }

  const std::shared_ptr<DeviceIsland> island_;  // shared with the communicator's device side
  const uint32_t number_;
  const int rank_, world_;
  uint64_t fingerprint_ = 0;
  uint64_t seen_ = 0;
  bool done_ = false;
  RunFailure failure_;
};

class EnqueuedCall::PassGate final : public Gate {
 public:
  PassGate(std::shared_ptr<EnqueuedCall> call, uint32_t number)
      : island_(call->options_.island), call_(std::move(call)), number_(number) {}
  bool is_open() const override { return at_least(load_word(island_->own().started), number_); }
  void ended(const Error* error) override {
    island_->note_ended(number_, error == nullptr);
    std::exchange(call_, nullptr)->piece_ended(error);
  }

 private:
  const std::shared_ptr<DeviceIsland> island_;  // shared with the communicator's device side
  std::shared_ptr<EnqueuedCall> call_;          // until the operation ends, which the call owns
  const uint32_t number_;
};

EnqueuedCall::EnqueuedCall(Options options)
    : StreamOperation(options.calls, options.give_up),
      options_(std::move(options)),
      driver_(*options_.calls->driver),
      entries_(entries_of(options_.pieces, options_.plan->program)) {
  try {
    event_ = options_.calls->take_event(options_.island->device());
  } catch (...) {
    options_.calls->end(entries_);
    throw;
  }
  turns_.reserve(options_.pieces.size());
}

// Calls no runtime: the last owner may be a function in a stream.
EnqueuedCall::~EnqueuedCall() {
  options_.calls->give_back(options_.island->device(), event_);
  if (!enqueued_) options_.calls->end(entries_);
}

uint32_t EnqueuedCall::entries_of(const std::vector<Piece>& pieces, const StreamProgram& program) {
  uint64_t entries = 2;  // the end: event and function
  for (const Piece& piece : pieces) {
    entries += program.entries.size() + 2;
    for (const Piece::Rows& rows : piece.in) entries += rows.rows;
    for (const Piece::Rows& rows : piece.out) entries += rows.rows;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(entries, UINT32_MAX));
}

EnqueuedCall::Part EnqueuedCall::add_part(const CheckedCall& call) {
  Turn turn;
  turn.call = call;
  turn.number = options_.island->next_number();
  turn.messages = options_.island->next_messages(options_.plan->most_messages);
  turns_.push_back(std::move(turn));
  const Plan& plan = options_.plan->plan;
  const uint32_t number = turns_.back().number;
  return {std::make_shared<PassRun>(options_.island, number, plan.rank, plan.world),
          std::make_shared<PassGate>(shared_from_this(), number)};
}

void EnqueuedCall::add_operation(std::shared_ptr<Operation> operation, uint64_t fingerprint) {
  const auto next = std::find_if(turns_.begin(), turns_.end(), [](const Turn& turn) { return !turn.operation; });
  next->operation = std::move(operation);
  next->fingerprint = fingerprint;
}

void EnqueuedCall::enqueue() {
  self_ = shared_from_this();
  enqueued_ = true;
  try {
    for (size_t piece = 0; piece < turns_.size(); ++piece) put_piece(piece);
  } catch (...) {
    options_.give_up(caught());
    engine->notify();
    // Its passes touch nothing from now on, and the stream's words say that it has passed.
    store_word(options_.island->own().started, turns_.back().number);
    store_word(options_.island->own().passed, turns_.back().number);
    for (const Turn& turn : turns_) turn.operation->wait(Clock::time_point::max());
    put_end();
    throw;
  }
  put_end();
}

// If even this cannot be put into the stream, nothing more runs there.
void EnqueuedCall::put_end() {
  driver_.record(event_, options_.stream);
  if (driver_.call_host(&end_of_stream, this, options_.stream) == 0) return;
  driver_.synchronize(options_.stream);
  end_of_stream(this);
}

void EnqueuedCall::put_piece(size_t index) {
  Turn& turn = turns_[index];
  const Piece& piece = options_.pieces[index];
  DeviceIsland& island = *options_.island;
  Inbox& inbox = island.own();
  wait_for_card(turn.number);
  const Buffer input = buffer_of(piece, true), output = buffer_of(piece, false);
  const PassMemory memory = memory_of(piece, input, output);
  island.show_card(turn.number, {turn.fingerprint, input.card, output.card});
  island.fill_places(turn.number, turn.fingerprint, turn.places);

  add_word(inbox.started, turn.number, WordAction::kWrite);
  if (input.copied) put_copies(piece.in, turn, true);
  for (const StreamEntry& entry : options_.plan->program.entries) {
    if (entry.kind == Kind::kPass) {
      put_pass(bind_pass(turn.call, options_.plan->plan, entry, memory), turn);
    } else {
      put_entry(entry, turn);
    }
  }
  if (output.copied) put_copies(piece.out, turn, false);
  add_word(inbox.passed, turn.number, WordAction::kWrite);
  flush();
}

// A call so far ahead would take a card that others may still look for.
void EnqueuedCall::wait_for_card(uint32_t number) {
  wait_on_host([&] { return options_.island->has_card(number); }, [this] { device_has_failed(); });
}

// Where the buffer's blocks lie for this rank, and for the others.
EnqueuedCall::Buffer EnqueuedCall::buffer_of(const Piece& piece, bool input) const {
  const std::vector<Piece::Rows>& parts = input ? piece.in : piece.out;
  Buffer buffer;
  if (parts.empty()) return buffer;
  const Piece::Rows& rows = parts.front();
  buffer.place = {rows.device, rows.device_pitch};
  const Touched& touched = options_.plan->touched;
  if (!(input ? touched.input : touched.output)) return buffer;
  // Parts of a list are put together there.
  const auto found = parts.size() > 1
                         ? std::nullopt
                         : options_.island->locate(rows.device, (rows.rows - 1) * rows.device_pitch + rows.row_bytes);
  if (found) {
    buffer.card = {found->window, 0, found->offset, rows.device_pitch};
    return buffer;
  }
  buffer.copied = true;
  buffer.place = {options_.island->bounce() + rows.region, rows.region_pitch};
  buffer.card = {0, 0, rows.region, rows.region_pitch};
  return buffer;
}

// Of broadcast the root's output is its input; where a rank has none, none is used.
PassMemory EnqueuedCall::memory_of(const Piece& piece, const Buffer& input, const Buffer& output) const {
  const DeviceIsland& island = *options_.island;
  const StreamProgram& program = options_.plan->program;
  PassMemory memory;
  memory.input = piece.in.empty() ? output.place : input.place;
  memory.output = piece.out.empty() ? input.place : output.place;
  if (program.from >= 0) memory.arrivals = {island.places(options_.plan->plan.rank), island.place_bytes()};
  if (program.to >= 0) memory.departures = {island.places(program.to), island.place_bytes()};
  return memory;
}

void EnqueuedCall::put_copies(const std::vector<Piece::Rows>& parts, Turn& turn, bool in) {
  for (const Piece::Rows& rows : parts) {
    for (uint64_t row = 0; row < rows.rows; ++row) {
      std::byte* const device = rows.device + row * rows.device_pitch;
      std::byte* const window = options_.island->bounce() + rows.region + row * rows.region_pitch;
      put_pass(in ? copy_pass(window, device, rows.row_bytes) : copy_pass(device, window, rows.row_bytes), turn);
    }
  }
}

void EnqueuedCall::put_pass(const BoundPass& pass, Turn& turn) {
  if (pass.fold.count == 0) return;
  flush();
  std::copy_n(pass.sources, pass.fold.source_count, turn.places.sources);
  std::copy_n(pass.targets, pass.fold.target_count, turn.places.targets);
  driver_.check(driver_.fold(pass.fold, options_.stream, turn.places), "putting a pass into the stream");
}

void EnqueuedCall::put_entry(const StreamEntry& entry, Turn& turn) {
  DeviceIsland& island = *options_.island;
  const auto me = static_cast<size_t>(options_.plan->plan.rank);
  if (entry.kind == Kind::kAwait && options_.waits == StreamCall::Waits::kHost) return await_on_host(entry, turn);
  for (const int other : entry.peers) {
    if (entry.kind == Kind::kSignal) {
      add_word(island.of(other).words[entry.index][me], value_of(entry, turn), WordAction::kWrite);
    } else {
      add_word(island.own().words[entry.index][static_cast<size_t>(other)], value_of(entry, turn), WordAction::kAwait);
    }
  }
}

uint32_t EnqueuedCall::value_of(const StreamEntry& entry, const Turn& turn) {
  return entry.index < kArrivedWord ? turn.number : turn.messages + entry.messages;
}

// Ends when the communicator fails, too: let_go() writes the words.
void EnqueuedCall::await_on_host(const StreamEntry& entry, const Turn& turn) {
  flush();
  const Inbox& inbox = options_.island->own();
  const auto all_there = [&] {
    return std::all_of(entry.peers.begin(), entry.peers.end(), [&](int other) {
      return at_least(load_word(inbox.words[entry.index][static_cast<size_t>(other)]), value_of(entry, turn));
    });
  };
  wait_on_host(all_there, [this] { device_has_failed(); });
}

void EnqueuedCall::add_word(uint32_t& word, uint32_t value, WordAction action) {
  if (words_.size() == kMaxWordOps) flush();
  words_.push_back({&word, value, action});
}

void EnqueuedCall::flush() {
  if (words_.empty()) return;
  driver_.check(driver_.words(words_.data(), static_cast<int>(words_.size()), options_.stream),
                "putting waits into the stream");
  words_.clear();
}

// In the stream: no calls of the device's runtime.
void EnqueuedCall::end_of_stream(void* call) {
  const std::shared_ptr<EnqueuedCall> keep = std::move(static_cast<EnqueuedCall*>(call)->self_);
  keep->options_.calls->end(keep->entries_);
  keep->engine->notify();
}

void EnqueuedCall::piece_ended(const Error* error) {
  {
    std::lock_guard lock(end_mutex_);
    if (error != nullptr && error_.ok()) error_ = *error;
    if (++ended_ < turns_.size()) return;
  }
  if (error_.ok()) {
    complete();
  } else {
    fail(error_);
  }
  announce_end();
}

void EnqueuedCall::wait_on(DeviceStream stream) {
  driver_.check(driver_.wait(stream, event_), "putting a wait into the stream");
}

}  // namespace rondo
