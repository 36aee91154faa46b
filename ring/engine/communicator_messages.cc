// The messages of a communicator: their arguments, then the queue of messages.
#include <fmt/format.h>

#include <new>
#include <utility>

#include "ring/engine/communicator_state.h"
#include "ring/engine/device/device_side.h"

namespace rondo {

void CommunicatorState::check_peer(const MessageCall& call, const char* name) const {
  const bool receives = call.kind != MessageKind::kSend;
  if (!(receives && call.peer == kAnySource) && (call.peer < 0 || call.peer >= size())) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("{} on rank {}: peer is {}; it must be a rank of the group, 0 to {}{}", name, rank(),
                                call.peer, size() - 1, receives ? ", or -1 for any" : ""));
  }
  if (call.tag < 0 && !(receives && call.tag == kAnyTag)) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: tag is {}; it must be 0 to 2147483647{}", name,
                                                     rank(), call.tag, receives ? ", or -1 for any" : ""));
  }
}

P2pCall CommunicatorState::checked(const MessageCall& call) const {
  const bool sends = call.kind == MessageKind::kSend;
  const bool receives = call.kind == MessageKind::kReceive;
  const char* const name = sends ? "send" : receives ? "recv" : message_kind_name(call.kind);
  check_usable();
  const uint64_t bytes = checked_bytes(name, rank(), call.count, call.dtype);
  const CallOptions& options = call.options;
  P2pCall made{call.kind, static_cast<std::byte*>(call.data), bytes, call.dtype, call.peer, call.tag};
  if (call.kind > MessageKind::kReceive || call.matched != 0 || options.synchronous || options.truncate) {
    check_special(call);
    made.plain = call.kind <= MessageKind::kReceive && !options.synchronous && call.matched == 0;
    made.synchronous = options.synchronous;
    made.truncate = options.truncate;
    made.matched = call.matched;
    if (call.matched != 0) made.peer = kAnySource, made.tag = kAnyTag;
  }
  if (call.matched == 0) check_peer(call, name);
  if (bytes > 0 && call.data == nullptr) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: data is null but {} bytes {}", name, rank(), bytes,
                                                     sends ? "are to be sent" : "may come"));
  }
  check_timeout(name, options);
  return made;
}

// What other messages have not.
void CommunicatorState::check_special(const MessageCall& call) const {
  const auto refuse = [&](const char* why) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {}", message_kind_name(call.kind), rank(), why));
  };
  if (call.kind > MessageKind::kMatchedProbe) refuse("this kind of message is unknown");
  if (call.options.stream)
    refuse("probes, matched receives, synchronous and truncate are for host memory, not a stream");
  if (call.kind != MessageKind::kSend && call.options.synchronous) refuse("synchronous is an option of sends");
  if (call.kind != MessageKind::kReceive && call.options.truncate) refuse("truncate is an option of receives");
  if (call.kind != MessageKind::kReceive && call.matched != 0) refuse("matched is for receives");
  if (call.kind > MessageKind::kReceive && call.count != 0) refuse("a probe has no buffer: its count must be 0");
}

P2pCall CommunicatorState::checked_on_host(const MessageCall& call) const {
  const P2pCall checked_call = checked(call);
  if (DeviceSide* const device = attached()) device->check_host(message_kind_name(call.kind), call.data);
  context_->log.note_thread();
  return checked_call;
}

void CommunicatorState::check_on_host(const Call& call) const {
  if (DeviceSide* const device = attached()) device->check_host(call);
}

std::shared_ptr<MessageOperation> CommunicatorState::make(const MessageCall& call) const {
  if (call.kind > MessageKind::kReceive) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: not in a batch, whose calls start at its end",
                                                     message_kind_name(call.kind), rank()));
  }
  return std::make_shared<MessageOperation>(checked_on_host(call), limit_of(call.options.timeout));
}

void CommunicatorState::submit(std::shared_ptr<MessageOperation> operation, Waited waited) {
  operation->background = waited == Waited::kInBackground;
  operation->engine = messages_;
  messages_->submit(std::move(operation));
}

void CommunicatorState::end_unsubmitted(MessageOperation& operation, const Error& error) const {
  operation.engine = messages_;  // whose progress thread calls the functions of its end
  operation.fail(error);
  operation.announce_end();
}

Message CommunicatorState::run(const MessageCall& call) try {
  if (call.options.stream) return device().run(call);
  const P2pCall checked[] = {checked_on_host(call)};
  return messages_->run(checked, limit_of(call.options.timeout));
} catch (const std::bad_alloc&) {
  fail_for_memory();
}

Message CommunicatorState::run(const MessageCall& send, const MessageCall& receive) try {
  if (send.options.stream) return device().run(send, receive);
  const P2pCall checked[] = {checked_on_host(send), checked_on_host(receive)};
  return messages_->run(checked, limit_of(send.options.timeout));
} catch (const std::bad_alloc&) {
  fail_for_memory();
}

std::optional<Message> CommunicatorState::look(const MessageCall& probe) try {
  if (probe.kind != MessageKind::kProbe && probe.kind != MessageKind::kMatchedProbe) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("look on rank {}: a {} is no probe", rank(), message_kind_name(probe.kind)));
  }
  return messages_->look(checked_on_host(probe));
} catch (const std::bad_alloc&) {
  fail_for_memory();
}

Work CommunicatorState::start(const MessageCall& call) try {
  if (call.options.stream) {
    ready_progress_thread();
    Work work(device().start(call));
    leave_to_progress_thread(*messages_);
    return work;
  }
  const P2pCall checked = checked_on_host(call);
  if (!progress_thread_->started()) ready_progress_thread();
  Message moved;
  auto operation = messages_->start(checked, limit_of(call.options.timeout), moved);
  return operation != nullptr ? Work(std::move(operation)) : Work(messages_->over(), moved);
} catch (const std::bad_alloc&) {
  fail_for_memory();
}

}  // namespace rondo
