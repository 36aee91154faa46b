#include "ring/engine/device/stream_message.h"

#include <chrono>
#include <utility>

#include "kernels/device/peer_places.h"
#include "ring/base/caught.h"
#include "ring/engine/device/host_wait.h"
#include "ring/engine/device/inbox.h"
#include "ring/engine/device/passes.h"

namespace rondo {
namespace {

// After so long a blocking receive is one that sleeps, which other ranks may ask for.
constexpr std::chrono::milliseconds kBeforeSleep{20};

}  // namespace

StreamMessage::StreamMessage(Options options)
    : StreamOperation(options.calls, options.give_up),
      options_(std::move(options)),
      driver_(*options_.calls->driver),
      piece_bytes_(piece_bytes_of(options_.call.bytes)),
      region_(options_.calls->pool.take(options_.call.bytes)) {
  try {
    event_ = options_.calls->take_event(options_.device);
  } catch (...) {
    options_.calls->pool.give_back(region_);
    throw;
  }
  before_ = load_word(*region_.word);
  std::atomic_ref<uint64_t>(*region_.length).store(0);
  const Options& o = options_;
  P2pCall staged = o.call;
  staged.data = region_.data;
  operation_ = std::make_shared<MessageOperation>(staged, o.limit);
  if (sends()) operation_->fill_by(ready_);
  operation_->background = !o.blocking;
  operation_->engine = o.messages;
}

// Calls no runtime: the last owner may be a function in a stream.
StreamMessage::~StreamMessage() {
  give_back_memory();
  options_.calls->give_back(options_.device, event_);
}

void StreamMessage::give_back_memory() {
  if (std::exchange(holds_memory_, false)) options_.calls->pool.give_back(region_);
}

// --- what the stream gets

void StreamMessage::take_room(uint32_t entries) {
  if (options_.calls->begin(entries, [this] { return options_.messages->failure() != nullptr; })) return;
  throw Exception(*options_.messages->failure());
}

void StreamMessage::begin() {
  const uint64_t copies = sends() ? pieces() : 0;
  const uint64_t turns = std::max<uint64_t>(1, copies);
  const auto entries = static_cast<uint32_t>(copies + turns);
  uint32_t room = 0;
  engine = options_.messages;
  operation_->stage = self_ = shared_from_this();
  if (sends()) options_.calls->begin_send();
  try {
    take_room(entries);
    room = entries;
    for (uint64_t turn = 0; turn < turns; ++turn) {
      if (turn < copies) copy_in(turn);
      // A rank's message to itself is taken from its memory as a whole.
      const bool submits = turn == (options_.to_itself ? turns - 1 : 0);
      const uint32_t passed = entries / static_cast<uint32_t>(turns);
      put_turn({this, end_of(turn), passed, submits});
      room -= passed;
    }
  } catch (...) {
    options_.calls->end(room);
    stream_failed(caught());
    throw;
  }
}

void StreamMessage::finish() {
  const uint64_t waited = sends() ? 0 : pieces();
  const auto entries = static_cast<uint32_t>(2 * waited + 2);
  uint32_t room = 0;
  try {
    take_room(entries);
    room = entries;
    for (uint64_t piece = 0; piece < waited; ++piece) {
      await_piece(piece);
      copy_out(piece);
    }
  } catch (...) {
    options_.calls->end(room);
    stream_failed(caught());
    throw;
  }
  put_end(entries);
}

void StreamMessage::leave() {
  if (engine && !finished_) put_end(0);
}

// If even this cannot be put into the stream, nothing more runs there.
void StreamMessage::put_end(uint32_t entries) {
  end_entries_ = entries;
  finished_ = true;
  driver_.record(event_, options_.stream);
  if (driver_.call_host(&end_of_stream, this, options_.stream) == 0) return;
  driver_.synchronize(options_.stream);
  end_of_stream(this);
}

void StreamMessage::stream_failed(const Error& error) {
  options_.give_up(error);
  submit();  // it fails with the communicator
  put_end(0);
}

void StreamMessage::put_turn(Turn turn) {
  turns_.push_back(turn);
  driver_.check(driver_.call_host(&reach, &turns_.back(), options_.stream), "putting a function into the stream");
}

void StreamMessage::copy(void* to, const void* from, uint64_t bytes) {
  const DeviceCopy rows{to, from, bytes, bytes, bytes, 1};
  driver_.check(driver_.copy(rows, options_.stream), "putting a copy into the stream");
}

void StreamMessage::copy_in(uint64_t piece) {
  const uint64_t first = piece * piece_bytes_;
  copy(region_.data + first, options_.call.data + first, end_of(piece) - first);
}

void StreamMessage::await_piece(uint64_t piece) {
  if (options_.waits == StreamCall::Waits::kHost) return await_on_host(piece);
  const WordOp wait{region_.word, before_ + static_cast<uint32_t>(piece) + 1, WordAction::kAwait};
  driver_.check(driver_.words(&wait, 1, options_.stream), "putting a wait into the stream");
}

bool StreamMessage::has_come(uint64_t piece) const {
  return at_least(load_word(*region_.word), before_ + static_cast<uint32_t>(piece) + 1);
}

// Ends when the communicator fails, too: then the message ends.
void StreamMessage::await_on_host(uint64_t piece) {
  const auto sleeps = Clock::now() + kBeforeSleep;
  wait_on_host([&] { return has_come(piece); },
               [&] {
                 if (device_has_failed()) submit();  // it fails, and the wait ends
                 if (options_.blocking && Clock::now() >= sleeps) await_message();
               });
}

void StreamMessage::copy_out(uint64_t piece) {
  const uint64_t first = piece * piece_bytes_, bytes = end_of(piece) - first;
  if (options_.waits == StreamCall::Waits::kStream) return copy_what_has_come(first, bytes);
  const uint64_t length = std::atomic_ref<uint64_t>(*region_.length).load(std::memory_order_acquire);
  if (length > first) copy(options_.call.data + first, region_.data + first, std::min(bytes, length - first));
}

// How long the message is nobody knows yet: a pass finds it when it runs.
void StreamMessage::copy_what_has_come(uint64_t first, uint64_t bytes) {
  const BoundPass pass =
      copy_pass(options_.call.data + first, static_cast<std::byte*>(at_kernels(region_.data + first)), bytes);
  PeerPlaces places = {};
  places.world = 1;
  places.length = static_cast<const uint64_t*>(at_kernels(region_.length));
  places.before = first;
  places.sources[0] = pass.sources[0];
  places.targets[0] = pass.targets[0];
  driver_.check(driver_.fold(pass.fold, options_.stream, places), "putting a pass into the stream");
}

void* StreamMessage::at_kernels(void* memory) const {
  void* address = nullptr;
  driver_.check(driver_.kernel_address(options_.device, memory, &address), "mapping host memory");
  return address;
}

// --- when the stream comes there: no calls of the device's runtime

void StreamMessage::reach(void* turn) {
  const Turn at = *static_cast<Turn*>(turn);
  const auto keep = at.message->shared_from_this();
  keep->options_.calls->end(at.entries);
  // Release: who sees the number sees the bytes.
  keep->ready_.store(at.ready, std::memory_order_release);
  at.submits ? keep->submit() : keep->options_.messages->notify();
}

void StreamMessage::submit() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(submitted_, true)) return;
  }
  options_.messages->submit_from_stream(operation_);
  reached_.notify_all();
}

void StreamMessage::end_of_stream(void* message) {
  if (static_cast<StreamMessage*>(message)->passed_.exchange(true)) return;
  const std::shared_ptr<StreamMessage> keep = std::move(static_cast<StreamMessage*>(message)->self_);
  keep->half_ended();
  keep->options_.calls->end(keep->end_entries_);
}

void StreamMessage::leave_stream() {
  submit();  // it fails with the communicator
  if (self_) end_of_stream(this);
}

// --- of the message, under the lease

void StreamMessage::came(uint64_t bytes) {
  std::atomic_ref<uint64_t>(*region_.length).store(bytes, std::memory_order_release);
  const auto whole = static_cast<uint32_t>(bytes / piece_bytes_);
  // Release: who sees the word sees the length and the bytes.
  std::atomic_ref<uint32_t>(*region_.word).store(before_ + whole, std::memory_order_release);
}

void StreamMessage::ended(const MessageOperation& operation) {
  if (!sends()) {
    if (!operation.failed()) std::atomic_ref<uint64_t>(*region_.length).store(operation.moved_message()->bytes);
    std::atomic_ref<uint32_t>(*region_.word)
        .store(before_ + static_cast<uint32_t>(pieces()), std::memory_order_release);
  }
  half_ended();
}

void StreamMessage::half_ended() {
  if (left_.fetch_sub(1) != 1) return;
  if (sends()) options_.calls->end_send();
  give_back_memory();
  if (operation_->failed()) {
    fail(operation_->error());
  } else {
    complete();
  }
  engine->notify();
  announce_end();
}

// --- for the caller

void StreamMessage::abandon(const Error& error) {
  if (engine || done()) return;
  engine = options_.messages;  // whose progress thread calls the functions of its end
  fail(error);
  announce_end();
}

const MessageOperation& StreamMessage::await_message() {
  {
    std::unique_lock lock(mutex_);
    while (!reached_.wait_for(lock, std::chrono::seconds(1), [this] { return submitted_; })) {
      lock.unlock();
      look_at_device();
      lock.lock();
    }
  }
  options_.messages->wait_blocking(*operation_);
  return *operation_;
}

void StreamMessage::wait_on(DeviceStream stream) {
  if (!finished_) refuse_unsubmitted("wait_on()");
  driver_.check(driver_.wait(stream, event_), "putting a wait into the stream");
}

}  // namespace rondo
