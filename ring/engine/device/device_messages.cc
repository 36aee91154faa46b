// DeviceSide: messages in the order of streams.
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "ring/engine/device/device_side.h"

namespace rondo {
namespace {

// The progress thread sees within some microseconds what a stream has passed.
constexpr std::chrono::microseconds kBetweenLooks{50};

}  // namespace

std::shared_ptr<StreamMessage> DeviceSide::make(const MessageCall& call, Blocking blocking) {
  StreamMessage::Options made;
  made.call = group_.checked(call);
  const char* const name = made.call.sends() ? "send" : "recv";
  attach_for(name, call.options.timeout, &*call.options.stream);
  group_.ready_progress_thread();
  made.calls = calls_;
  made.messages = group_.messages();
  made.stream = *call.options.stream;
  made.device = check_message(name, made.call, made.stream).device;
  calls_->prepare(made.device);
  made.waits = waits_;
  made.to_itself = call.peer == group_.rank();
  made.blocking = blocking == Blocking::kYes;
  made.limit = group_.limit_of(call.options.timeout);
  made.give_up = [this](const Error& error) { group_.fail(error); };
  return std::make_shared<StreamMessage>(std::move(made));
}

StreamFacts DeviceSide::check_message(const char* name, const P2pCall& call, DeviceStream stream) const {
  const StreamFacts facts = check_stream(name, stream);
  if (call.bytes > 0) check_device(name, facts, {"data", call.data});
  return facts;
}

void DeviceSide::check(const StreamMessage& message) const {
  check_message(message.sends() ? "send" : "recv", message.call(), message.stream());
}

std::shared_ptr<StreamMessage> DeviceSide::begin(const MessageCall& call, Blocking blocking) {
  auto message = make(call, blocking);
  message->begin();
  message->finish();
  return message;
}

void DeviceSide::wait_for_streams(Clock::time_point until) {
  if (!attached_.load(std::memory_order_acquire)) return;
  const auto failed = [this] { return group_.context().failure.get() != nullptr; };
  calls_->wait_for_sends(until, failed);
  while (island_ && !island_->has_ended_passed() && Clock::now() < until && !failed()) {
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

namespace {

Message message_of(StreamMessage& message) {
  const MessageOperation& operation = message.await_message();
  if (operation.failed()) throw Exception(operation.error());
  return *operation.moved_message();
}

// A stream of the pool for as long as it lives.
class TakenStream {
 public:
  TakenStream(StreamCalls& calls, int device) : calls_(calls), device_(device), stream_(calls.take_stream(device)) {}
  ~TakenStream() { calls_.give_back_stream(device_, stream_); }
  TakenStream(const TakenStream&) = delete;
  TakenStream& operator=(const TakenStream&) = delete;
  DeviceStream get() const { return stream_; }

 private:
  StreamCalls& calls_;
  const int device_;
  const DeviceStream stream_;
};

}  // namespace

Message DeviceSide::run(const MessageCall& call) {
  if (call.kind == MessageKind::kSend) return begin(call, Blocking::kNo), Message{};
  return message_of(*begin(call, Blocking::kYes));
}

// The receive's arguments are checked before the send is under way. What is sent is copied beside what comes.
Message DeviceSide::run(const MessageCall& sent, const MessageCall& received) {
  const auto receive = make(received, Blocking::kYes);
  std::optional<TakenStream> taken;
  std::optional<CopyStream> copies;
  MessageCall beside = sent;
  if (group_.checked(sent).bytes > kPieceBytes) {
    beside.options.stream = taken.emplace(*calls_, receive->device()).get();
    copies.emplace(*calls_, receive->stream(), taken->get(), receive->device());
  }
  const auto send = make(beside, Blocking::kYes);
  if (copies) copies->begin();
  send->begin();
  send->finish();
  receive->begin();
  receive->finish();
  if (copies) copies->join();
  const Message message = message_of(*receive);
  message_of(*send);
  return message;
}

}  // namespace rondo
