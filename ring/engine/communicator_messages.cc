// The messages of a communicator: their arguments, then the queue of messages.
#include <fmt/format.h>

#include <new>
#include <utility>

#include "ring/engine/communicator_state.h"
#include "ring/engine/device/device_side.h"

namespace rondo {
namespace {

Work::Message message_of(const Operation& receive) { return {receive.peer, receive.tag, receive.message_bytes}; }

Work::Message message_of(const P2pIn& receive) { return {receive.from, receive.got_tag, receive.got_bytes}; }

void throw_failure(const Operation& operation) {
  if (operation.failed()) throw Exception(operation.error());
}

}  // namespace

void CommunicatorState::check_peer(const char* call, int peer, int tag, bool receives) const {
  if (!(receives && peer == kAnySource) && (peer < 0 || peer >= size())) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("{} on rank {}: peer is {}; it must be a rank of the group, 0 to {}{}", call, rank(),
                                peer, size() - 1, receives ? ", or -1 for any" : ""));
  }
  if (tag < 0 && !(receives && tag == kAnyTag)) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: tag is {}; it must be 0 to 2147483647{}", call,
                                                     rank(), tag, receives ? ", or -1 for any" : ""));
  }
}

void CommunicatorState::check_on_host(const char* call, const void* data) const {
  if (DeviceSide* const device = attached()) device->check_host(call, data);
}

void CommunicatorState::check_on_host(const Call& call) const {
  if (DeviceSide* const device = attached()) device->check_host(call);
}

void CommunicatorState::submit_message(std::shared_ptr<MessageOperation> operation, const CallOptions& options,
                                       Waited waited) {
  operation->background = waited == Waited::kInBackground;
  operation->engine = messages_;
  operation->limit = limit_of(options.timeout);
  context_->log.note_thread();
  messages_->submit(std::move(operation));
}

void CommunicatorState::end_unsubmitted(MessageOperation& operation, const Error& error) const {
  operation.engine = messages_;  // whose progress thread calls the functions of its end
  operation.fail(error);
  operation.announce_end();
}

uint64_t CommunicatorState::send_bytes(const Outgoing& out, DType dtype, int tag) const {
  check_usable();
  const uint64_t bytes = checked_bytes("send", rank(), out.count, dtype);
  check_peer("send", out.peer, tag, false);
  if (bytes > 0 && out.data == nullptr) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("send on rank {}: data is null but {} bytes are to be sent", rank(), bytes));
  }
  return bytes;
}

std::shared_ptr<MessageOperation> CommunicatorState::make_send(const void* data, uint64_t count, DType dtype, int peer,
                                                               int tag) const {
  const uint64_t bytes = send_bytes({data, count, peer}, dtype, tag);
  check_on_host("send", data);
  return std::make_shared<SendOperation>(static_cast<const std::byte*>(data), bytes, dtype, peer, tag);
}

Work CommunicatorState::start_send(const Outgoing& out, DType dtype, int tag, const CallOptions& options) try {
  if (options.stream) {
    ready_progress_thread();
    Work work(device().start_send(out, dtype, tag, options));
    leave_to_progress_thread(*messages_);
    return work;
  }
  check_timeout("send", options);
  const P2pOut sends{static_cast<const std::byte*>(out.data), send_bytes(out, dtype, tag), dtype, out.peer, tag};
  check_on_host("send", out.data);
  context_->log.note_thread();
  ready_progress_thread();
  const auto operation = messages_->start(sends, limit_of(options.timeout));
  return operation != nullptr ? Work(operation) : Work(messages_->over(), {out.peer, tag, sends.bytes});
} catch (const std::bad_alloc&) {
  fail_for_memory();
}

uint64_t CommunicatorState::recv_bytes(const Incoming& in, DType dtype, int tag) const {
  check_usable();
  const uint64_t bytes = checked_bytes("recv", rank(), in.count, dtype);
  check_peer("recv", in.peer, tag, true);
  if (bytes > 0 && in.data == nullptr) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("recv on rank {}: data is null but {} bytes may come", rank(), bytes));
  }
  return bytes;
}

std::shared_ptr<MessageOperation> CommunicatorState::make_recv(void* data, uint64_t count, DType dtype, int peer,
                                                               int tag) const {
  const uint64_t bytes = recv_bytes({data, count, peer}, dtype, tag);
  check_on_host("recv", data);
  return std::make_shared<RecvOperation>(static_cast<std::byte*>(data), bytes, dtype, peer, tag);
}

Work CommunicatorState::start_recv(const Incoming& in, DType dtype, int tag, const CallOptions& options) try {
  if (options.stream) {
    ready_progress_thread();
    Work work(device().start_recv(in, dtype, tag, options));
    leave_to_progress_thread(*messages_);
    return work;
  }
  check_timeout("recv", options);
  P2pIn receives{static_cast<std::byte*>(in.data), recv_bytes(in, dtype, tag), dtype, in.peer, tag};
  check_on_host("recv", in.data);
  context_->log.note_thread();
  ready_progress_thread();
  const auto operation = messages_->start(receives, limit_of(options.timeout));
  return operation != nullptr ? Work(operation) : Work(messages_->over(), message_of(receives));
} catch (const std::bad_alloc&) {
  fail_for_memory();
}

// What run_at_once() leaves.
void CommunicatorState::run_messages(SendOperation* send, RecvOperation* recv, const CallOptions& options) {
  if (send != nullptr) send->limit = limit_of(options.timeout);
  if (recv != nullptr) recv->limit = limit_of(options.timeout);
  messages_->run(send, recv);
  if (send != nullptr) throw_failure(*send);
  if (recv != nullptr) throw_failure(*recv);
}

void CommunicatorState::run_send(const P2pOut& out, const CallOptions& options) {
  SendOperation send(out.data, out.bytes, out.dtype, out.peer, out.tag);
  run_messages(&send, nullptr, options);
}

Work::Message CommunicatorState::run_recv(const P2pIn& in, const CallOptions& options) {
  RecvOperation recv(in.data, in.bytes, in.dtype, in.peer, in.tag);
  run_messages(nullptr, &recv, options);
  return message_of(recv);
}

void CommunicatorState::send(const Outgoing& out, DType dtype, int tag, const CallOptions& options) try {
  if (options.stream) return void(device().start_send(out, dtype, tag, options));
  check_timeout("send", options);
  const P2pOut sends{static_cast<const std::byte*>(out.data), send_bytes(out, dtype, tag), dtype, out.peer, tag};
  check_on_host("send", out.data);
  context_->log.note_thread();
  if (!messages_->run_at_once(&sends, nullptr).sent) run_send(sends, options);
} catch (const std::bad_alloc&) {
  fail_for_memory();
}

Work::Message CommunicatorState::recv(const Incoming& in, DType dtype, int tag, const CallOptions& options) try {
  if (options.stream) return device().recv(in, dtype, tag, options);
  check_timeout("recv", options);
  P2pIn receives{static_cast<std::byte*>(in.data), recv_bytes(in, dtype, tag), dtype, in.peer, tag};
  check_on_host("recv", in.data);
  context_->log.note_thread();
  return messages_->run_at_once(nullptr, &receives).received ? message_of(receives) : run_recv(receives, options);
} catch (const std::bad_alloc&) {
  fail_for_memory();
}

Work::Message CommunicatorState::sendrecv(const Outgoing& out, const Incoming& in, DType dtype, int tag,
                                          const CallOptions& options) try {
  if (options.stream) return device().sendrecv(out, in, dtype, tag, options);
  P2pIn receives{static_cast<std::byte*>(in.data), recv_bytes(in, dtype, tag), dtype, in.peer, tag};
  check_timeout("send", options);
  const P2pOut sends{static_cast<const std::byte*>(out.data), send_bytes(out, dtype, tag), dtype, out.peer, tag};
  check_on_host("send", out.data);
  check_on_host("recv", in.data);
  context_->log.note_thread();
  const Messages::AtOnce over = messages_->run_at_once(&sends, &receives);
  if (over.received) return message_of(receives);
  if (over.sent) return run_recv(receives, options);
  SendOperation send(sends.data, sends.bytes, dtype, sends.peer, tag);
  RecvOperation recv(receives.data, receives.bytes, dtype, receives.peer, tag);
  run_messages(&send, &recv, options);
  return message_of(recv);
} catch (const std::bad_alloc&) {
  fail_for_memory();
}

}  // namespace rondo
