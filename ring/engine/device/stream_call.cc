#include "ring/engine/device/stream_call.h"

#include <algorithm>
#include <utility>

#include "ring/base/caught.h"
#include "ring/engine/device/host_wait.h"
#include "ring/engine/progress/flow.h"

namespace rondo {
namespace {

// Pieces whose host memory is there at once: one on its way to the host, one at work, one on its way back, and
// one more so that a late piece holds up no other.
constexpr size_t kSlots = 4;
// A piece's copy back goes into the stream behind the copies in of so many later ones.
constexpr size_t kAhead = kSlots - 1;
// The fewest pieces of a call that copies in both directions at once.
constexpr size_t kLeastBothWays = 3;
// Entries of the copy stream: for its begin and its end; and for each piece that uses memory again.
constexpr uint32_t kStreamEntries = 4, kAgainEntries = 2;

}  // namespace

class StreamCall::PieceGate final : public Gate {
 public:
  // word: locked host memory that the stream waits for. It becomes `value` when all operations of the piece
  // have ended.
  PieceGate(StreamCall& call, uint32_t* word, uint32_t value) : call_(call), word_(word), value_(value) {}

  // Before any of them begins.
  void add_operation() { left_.fetch_add(1); }

  // Both sequentially consistent: the flow's doorbell is rung after the store, and armed before a sleeper's
  // last look.
  void open() { open_.store(true); }
  bool is_open() const override { return open_.load(); }
  void ended(const Error* error) override {
    if (error != nullptr) call_.note_error(*error);
    if (left_.fetch_sub(1) != 1) return;
    if (call_.message_) call_.note_length(error);
    // Release: who sees the word sees what the operations wrote.
    std::atomic_ref<uint32_t>(*word_).store(value_, std::memory_order_release);
    call_.part_ended();
  }
  bool has_ended() const { return at_least(load_word(*word_), value_); }
  DeviceStatus put_wait(const DeviceDriver& driver, DeviceStream stream) const {
    return driver.await(word_, value_, stream);
  }

 private:
  StreamCall& call_;  // which lives until the gate's operations have ended
  uint32_t* const word_;
  const uint32_t value_;
  std::atomic<bool> open_{false};
  std::atomic<int> left_{0};
};

StreamCall::StreamCall(Options options, std::optional<MessageOptions> message)
    : StreamOperation(std::move(options)), asked_(std::move(message)) {
  uint64_t bytes = 0;
  for (const Piece& piece : pieces()) bytes = std::max(bytes, piece.region_bytes);
  const size_t slots = std::min(kSlots, pieces().size());
  try {
    while (slots_.size() < slots) slots_.push_back(options_.calls->pool.take(bytes));
  } catch (...) {
    give_back_memory();
    throw;
  }
  for (const auto& slot : slots_) values_.push_back(load_word(*slot.word));
  add_end();  // the stream
  if (!asked_) return;
  P2pCall staged = asked_->call;
  staged.data = memory(0);
  flow = asked_->messages;
  message_ = asked_->messages->make(staged, asked_->limit);
  message_->gate = add_gate(0);
  message_->background = !asked_->blocking;
}

void StreamCall::give_back_memory() {
  for (const auto& slot : std::exchange(slots_, {})) options_.calls->pool.give_back(slot);
}

uint32_t StreamCall::entries() const {
  uint32_t entries = asked_ ? 3 : 2;  // the end: event and function; and the kernel of a receive
  for (const Piece& piece : pieces()) entries += static_cast<uint32_t>(piece.in.size() + piece.out.size() + 2);
  if (pieces().size() >= kLeastBothWays) entries += kStreamEntries;
  if (pieces().size() > kSlots) entries += kAgainEntries * static_cast<uint32_t>(pieces().size() - kSlots);
  return entries;
}

// The first operation of a piece makes its gate; the empty calls behind the last piece share that piece's.
std::shared_ptr<Gate> StreamCall::add_gate(size_t piece) {
  if (piece == turns_.size()) {
    const size_t slot = piece % slots_.size();
    add_end();
    turns_.push_back({std::make_shared<PieceGate>(*this, slots_[slot].word, ++values_[slot]), this});
  }
  turns_[piece].gate->add_operation();
  return turns_[piece].gate;
}

void StreamCall::add_part(size_t piece, CollectiveOperation& part) { part.gate = add_gate(piece); }

// The copies in run kAhead pieces in front of the copies back, so that both directions and the operations
// overlap.
void StreamCall::put_pieces() {
  const size_t pieces = options_.pieces.size();
  if (pieces >= kLeastBothWays) {
    StreamCalls& calls = *options_.calls;
    copies_.emplace(calls, options_.stream, calls.copy_stream(options_.device), options_.device);
    copies_->begin();
  }
  for (size_t i = 0; i < pieces; ++i) {
    copy_in(i);
    if (i >= kAhead) finish(i - kAhead);
  }
  for (size_t i = pieces > kAhead ? pieces - kAhead : 0; i < pieces; ++i) finish(i);
}

// Until it has ended the stream refers to this call, so self_ keeps it alive. If something cannot be put into
// the stream, the communicator fails, and all gates open: their operations then end with the failure.
void StreamCall::enqueue() {
  self_ = OperationRef(*this);
  if (sends()) options_.calls->begin_send();
  try {
    put_pieces();
  } catch (...) {
    const Error error = caught();
    note_error(error);
    options_.give_up(error);
    for (Turn& turn : turns_) begin(*turn.gate);
    put_end();
    throw;
  }
  put_end();
}

void StreamCall::abandon(const Error& error) {
  if (state() == State::kMade) end(&error);
}

// Puts the end into the stream: the event that other streams wait for, and the function that ends the call. If
// even this fails, nothing more runs in the stream, and the call ends here.
void StreamCall::put_end() {
  copies_.reset();  // a call that fails may end before they are done
  record_end();
  if (driver_.call_host(&end_of_stream, this, options_.stream) == 0) return;
  driver_.synchronize(options_.stream);
  passed();
}

void StreamCall::copy_in(size_t piece) {
  if (piece >= kSlots) copies_->await();  // until the piece that had this memory is back
  copy(options_.pieces[piece].in, memory(piece), true, copies_ ? copies_->get() : options_.stream);
  driver_.check(driver_.call_host(&reach, &turns_[piece], copies_ ? copies_->get() : options_.stream),
                "putting a function into the stream");
}

// Lets the stream wait for the piece's operations, then copies back. A send has nothing to wait for.
void StreamCall::finish(size_t piece) {
  if (sends()) return;
  if (options_.waits == Waits::kHost) {
    await_on_host(piece);
  } else {
    driver_.check(turns_[piece].gate->put_wait(driver_, options_.stream), "putting a wait into the stream");
  }
  if (message_) return copy_received();
  copy(options_.pieces[piece].out, memory(piece), false, options_.stream);
  if (piece + kSlots < options_.pieces.size()) copies_->note();
}

// Before the word.
void StreamCall::note_length(const Error* error) { *slots_[0].length = error == nullptr ? moved_message()->bytes : 0; }

// A stream that waits has not seen the message yet, so a kernel looks how long it is.
void StreamCall::copy_received() {
  const uint64_t bytes = pieces()[0].region_bytes;
  if (bytes == 0) return;
  const StagingPool::Region& slot = slots_[0];
  if (options_.waits == Waits::kHost) {
    const uint64_t come = *slot.length;
    return copy({{asked_->call.data, come, 0, come, come, 1}}, slot.data, false, options_.stream);
  }
  void *from = nullptr, *length = nullptr;
  driver_.check(driver_.kernel_address(options_.device, slot.data, &from), "finding locked host memory");
  driver_.check(driver_.kernel_address(options_.device, slot.length, &length), "finding locked host memory");
  driver_.check(driver_.copy_in(asked_->call.data, from, bytes, static_cast<const uint64_t*>(length), options_.stream),
                "putting a copy into the stream");
}

// Waits for a piece's operations on this thread. It ends when the communicator fails, too: then the operations
// end.
void StreamCall::await_on_host(size_t piece) {
  if (asked_ && asked_->blocking) await_message();
  PieceGate& gate = *turns_[piece].gate;
  wait_on_host([&] { return gate.has_ended(); },
               [&] {
                 if (device_has_failed_meanwhile()) begin(gate);
               });
}

// --- when the stream comes there: no calls of the device's runtime

void StreamCall::reach(void* turn) {
  const Turn& at = *static_cast<Turn*>(turn);
  at.call->begin(*at.gate);
}

// The stream has reached the piece: its operations may begin. May be called again when the device has failed.
void StreamCall::begin(PieceGate& gate) {
  const auto keep = OperationRef(*this);
  gate.open();
  if (!message_) return flow->notify();
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(submitted_, true)) return;
  }
  asked_->messages->submit_from_stream(*message_);
  reached_.notify_all();
}

void StreamCall::end_of_stream(void* call) {
  auto& own = *static_cast<StreamCall*>(call);
  const StreamCalls::InStream inside(own.options_.calls);  // longer than the call may live
  own.passed();
}

void StreamCall::leave_stream() {
  if (!self_ || passed_.load()) return;
  for (Turn& turn : turns_) begin(*turn.gate);
  passed();
}

void StreamCall::passed() {
  if (passed_.exchange(true)) return;
  if (sends()) give_back_room();
  part_ended();
}

// --- any thread

void StreamCall::part_ended() {
  if (!end_part()) return;
  const OperationRef<StreamCall> keep = std::move(self_);
  give_back_memory();
  end_whole();
  // Who destroys the communicator waits for both, and then finds the call at its end.
  give_back_room();
  if (sends()) options_.calls->end_send();
  flow->notify();
}

// --- for the caller

const MessageOperation& StreamCall::await_message() {
  {
    std::unique_lock lock(mutex_);
    while (!reached_.wait_for(lock, kBetweenLooksAtDevice, [this] { return submitted_; })) {
      lock.unlock();
      look_at_device();
      lock.lock();
    }
  }
  asked_->messages->wait_blocking(*message_);
  return *message_;
}

}  // namespace rondo
