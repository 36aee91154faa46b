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

std::shared_ptr<StreamMessage> DeviceSide::make_message(StreamMessage::Options options, const char* call,
                                                        const CallOptions& given) {
  group_.check_timeout(call, given);
  attach_for(call, given.timeout, &*given.stream);
  group_.ready_progress_thread();
  const StreamFacts facts = check_stream(call, *given.stream);
  if (options.bytes > 0) check_device(call, facts, {"data", options.data});
  calls_->prepare(facts.device);
  options.calls = calls_;
  options.messages = group_.messages();
  options.stream = *given.stream;
  options.device = facts.device;
  options.waits = waits_;
  options.limit = group_.limit_of(given.timeout);
  options.give_up = [this](const Error& error) { group_.fail(error); };
  return std::make_shared<StreamMessage>(std::move(options));
}

void DeviceSide::check(const StreamMessage& message) const {
  const char* const call = message.sends() ? "send" : "recv";
  const StreamFacts facts = check_stream(call, message.stream());
  if (message.bytes() > 0) check_device(call, facts, {"data", message.data()});
}

std::shared_ptr<StreamMessage> DeviceSide::make_send(const CommunicatorState::Outgoing& out, DType dtype, int tag,
                                                     const CallOptions& options, Blocking blocking) {
  StreamMessage::Options made;
  made.direction = StreamMessage::Direction::kSend;
  made.data = static_cast<std::byte*>(const_cast<void*>(out.data));
  made.bytes = group_.send_bytes(out, dtype, tag);
  made.dtype = dtype;
  made.peer = out.peer;
  made.tag = tag;
  made.to_itself = out.peer == group_.rank();
  made.blocking = blocking == Blocking::kYes;
  return make_message(std::move(made), "send", options);
}

std::shared_ptr<StreamMessage> DeviceSide::make_recv(const CommunicatorState::Incoming& in, DType dtype, int tag,
                                                     const CallOptions& options, Blocking blocking) {
  StreamMessage::Options made;
  made.direction = StreamMessage::Direction::kReceive;
  made.data = static_cast<std::byte*>(in.data);
  made.bytes = group_.recv_bytes(in, dtype, tag);
  made.dtype = dtype;
  made.peer = in.peer;
  made.tag = tag;
  made.blocking = blocking == Blocking::kYes;
  return make_message(std::move(made), "recv", options);
}

std::shared_ptr<Operation> DeviceSide::start_send(const CommunicatorState::Outgoing& out, DType dtype, int tag,
                                                  const CallOptions& options) {
  auto send = make_send(out, dtype, tag, options);
  send->begin();
  send->finish();
  return send;
}

std::shared_ptr<Operation> DeviceSide::start_recv(const CommunicatorState::Incoming& in, DType dtype, int tag,
                                                  const CallOptions& options) {
  auto receive = make_recv(in, dtype, tag, options);
  receive->begin();
  receive->finish();
  return receive;
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

Work::Message message_of(StreamMessage& message) {
  const MessageOperation& operation = message.await_message();
  if (operation.failed()) throw Exception(operation.error());
  return {operation.peer, operation.tag, operation.message_bytes};
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

Work::Message DeviceSide::recv(const CommunicatorState::Incoming& in, DType dtype, int tag,
                               const CallOptions& options) {
  const auto receive = make_recv(in, dtype, tag, options, Blocking::kYes);
  receive->begin();
  receive->finish();
  return message_of(*receive);
}

// The receive's arguments are checked before the send is under way. What is sent is copied beside what comes.
Work::Message DeviceSide::sendrecv(const CommunicatorState::Outgoing& out, const CommunicatorState::Incoming& in,
                                   DType dtype, int tag, const CallOptions& options) {
  const auto receive = make_recv(in, dtype, tag, options, Blocking::kYes);
  const bool beside = group_.send_bytes(out, dtype, tag) > kPieceBytes;
  std::optional<TakenStream> taken;
  std::optional<CopyStream> copies;
  CallOptions send_options = options;
  if (beside) {
    send_options.stream = taken.emplace(*calls_, receive->device()).get();
    copies.emplace(*calls_, receive->stream(), taken->get(), receive->device());
  }
  const auto send = make_send(out, dtype, tag, send_options, Blocking::kYes);
  if (copies) copies->begin();
  send->begin();
  send->finish();
  receive->begin();
  receive->finish();
  if (copies) copies->join();
  const Work::Message message = message_of(*receive);
  message_of(*send);
  return message;
}

}  // namespace rondo
