// DeviceSide: messages in the order of streams.
#include <chrono>
#include <thread>
#include <utility>

#include "ring/engine/device/device_side.h"

namespace rondo {
namespace {

// How often wait_for_streams() looks: a pass of the flow finds what a stream has passed within some
// microseconds.
constexpr std::chrono::microseconds kPassedPoll{50};

const char* name_of(const P2pCall& call) { return call.sends() ? "send" : "recv"; }

Message message_of(StreamCall& call) {
  const MessageOperation& operation = call.await_message();
  if (operation.failed()) throw Exception(operation.error());
  return *operation.moved_message();
}

}  // namespace

OperationRef<StreamCall> DeviceSide::make(const MessageCall& call, Blocking blocking) {
  const P2pCall checked = group_.message_calls().checked(call);
  attach_for(name_of(checked), call.options.timeout, &*call.options.stream);
  group_.ready_worker();
  const StreamFacts stream = check_message(checked, *call.options.stream);
  calls_->prepare(stream.device);
  Piece piece;
  piece.region_bytes = checked.bytes;
  if (checked.bytes > 0 && checked.sends()) {
    piece.in = {{checked.data, checked.bytes, 0, checked.bytes, checked.bytes, 1}};
  }
  return or_fail([&] {
    return Operation::make<StreamCall>(
        in_stream(*call.options.stream, stream.device, {std::move(piece)}),
        StreamCall::MessageOptions{checked, group_.message_calls().flow(),
                                   group_.context().limit_of(call.options.timeout), blocking == Blocking::kYes});
  });
}

StreamFacts DeviceSide::check_message(const P2pCall& call, DeviceStream stream) const {
  const StreamFacts facts = check_stream(name_of(call), stream);
  if (call.bytes > 0) check_device(name_of(call), facts, {"data", call.data});
  return facts;
}

void DeviceSide::check(const StreamCall& message) const { check_message(message.message(), message.stream()); }

void DeviceSide::enqueue(StreamCall& message) {
  or_fail([&] {
    take_room(message);
    message.submitted();
    message.enqueue();
  });
}

OperationRef<StreamCall> DeviceSide::start(const MessageCall& call, Blocking blocking) {
  auto message = make(call, blocking);
  enqueue(*message);
  return message;
}

void DeviceSide::wait_for_streams(Clock::time_point until) {
  if (!attached_.load(std::memory_order_acquire)) return;
  const auto failed = [this] { return group_.context().failure.get() != nullptr; };
  // The worker's thread moves sends, so its functions cannot wait for them.
  if (!in_end_function()) calls_->wait_for_sends(until, failed);
  while (island_ && !island_->has_ended_passed() && Clock::now() < until && !failed()) {
    group_.calls().flow()->look();
    std::this_thread::sleep_for(kPassedPoll);
  }
}

Message DeviceSide::run(const MessageCall& call) {
  if (call.kind == MessageKind::kSend) return start(call), Message{};
  return message_of(*start(call, Blocking::kYes));
}

// The receive is made first: its arguments are checked before the send is under way.
Message DeviceSide::run(const MessageCall& sent, const MessageCall& received) {
  const auto receive = make(received, Blocking::kYes);
  const auto send = start(sent, Blocking::kYes);
  enqueue(*receive);
  const Message message = message_of(*receive);
  message_of(*send);
  return message;
}

}  // namespace rondo
