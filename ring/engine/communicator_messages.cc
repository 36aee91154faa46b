// The messages of a communicator: their arguments, then the queue of messages.
#include <fmt/format.h>

#include <new>
#include <utility>

#include "ring/engine/communicator_state.h"
#include "ring/engine/device/device_side.h"

namespace rondo {

// Says what is wrong with a call that checked() does not take.
void CommunicatorState::refuse_arguments(const MessageCall& call) const {
  const bool receives = call.kind != MessageKind::kSend;
  const char* const or_any = receives ? ", or -1 for any" : "";
  const size_t element = dtype_bytes(call.dtype);
  std::string why;
  if (element == 0) {
    why = fmt::format("unknown dtype {}", static_cast<int>(call.dtype));
  } else if (call.count > kP2pMaxBytes / element) {
    why = fmt::format("{} elements of {} do not fit 64-bit byte counts", call.count, dtype_name(call.dtype));
  } else if (call.matched == 0 && (call.peer >= size() || call.peer < (receives ? kAnySource : 0))) {
    why = fmt::format("the {} is {}; it must be a rank of the group, 0 to {}{}", receives ? "source" : "destination",
                      call.peer, size() - 1, or_any);
  } else if (call.matched == 0 && call.tag < (receives ? kAnyTag : 0)) {
    why = fmt::format("tag is {}; it must be 0 to 2147483647{}", call.tag, or_any);
  } else if (call.count > 0 && call.data == nullptr) {
    why = fmt::format("data is null but {} bytes {}", call.count * element, receives ? "may come" : "are to be sent");
  } else {
    why =
        fmt::format("timeout is {} ms; it must be positive, or 0 for the configured one", call.options.timeout.count());
  }
  throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {}", message_kind_name(call.kind), rank(), why));
}

P2pCall CommunicatorState::checked(const MessageCall& call) const {
  static_assert(kAnySource == -1 && kAnyTag == -1);
  check_usable();
  const CallOptions& options = call.options;
  const size_t element = dtype_bytes(call.dtype);
  uint64_t bytes = 0;
  const bool countable = element > 0 && !__builtin_mul_overflow(call.count, element, &bytes) && bytes <= kP2pMaxBytes;
  P2pCall made{call.kind, static_cast<std::byte*>(call.data), bytes, call.dtype, call.peer, call.tag};
  if (call.kind > MessageKind::kReceive || call.matched != 0 || options.synchronous || options.truncate ||
      options.recoverable) {
    check_special(call);
    made.plain = call.kind <= MessageKind::kReceive && !options.synchronous && call.matched == 0;
    made.synchronous = options.synchronous;
    made.truncate = options.truncate;
    made.matched = call.matched;
    if (call.matched != 0) made.peer = kAnySource, made.tag = kAnyTag;
  }
  const int least = call.kind == MessageKind::kSend ? 0 : -1;
  const bool meets = made.peer >= least && made.peer < size() && made.tag >= least;
  const bool has_memory = call.count == 0 || call.data != nullptr;
  if (!countable || !meets || !has_memory || options.timeout.count() < 0) refuse_arguments(call);
  return made;
}

// What other messages have not.
void CommunicatorState::check_special(const MessageCall& call) const {
  const auto refuse = [&](const char* why) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {}", message_kind_name(call.kind), rank(), why));
  };
  if (call.options.recoverable) refuse("recoverable is an option of all_reduce");
  if (call.kind > MessageKind::kMatchedProbe) refuse("this kind of message is unknown");
  if (call.options.stream)
    refuse("probes, matched receives, synchronous and truncate are for host memory, not a stream");
  if (call.kind != MessageKind::kSend && call.options.synchronous) refuse("synchronous is an option of sends");
  if (call.kind != MessageKind::kReceive && call.options.truncate) refuse("truncate is an option of receives");
  if (call.kind != MessageKind::kReceive && call.matched != 0) refuse("matched is for receives");
  if (call.kind > MessageKind::kReceive && call.count != 0) refuse("a probe has no buffer: its count must be 0");
}

inline P2pCall CommunicatorState::checked_on_host(const MessageCall& call) const {
  const P2pCall checked_call = checked(call);
  if (DeviceSide* const device = attached()) device->check_host(message_kind_name(call.kind), call.data);
  context_->log.note_thread();
  return checked_call;
}

void CommunicatorState::check_on_host(const Call& call) const {
  if (DeviceSide* const device = attached()) device->check_host(call);
}

OperationRef<MessageOperation> CommunicatorState::make(const MessageCall& call) const {
  if (call.kind > MessageKind::kReceive) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: not in a batch, whose calls start at its end",
                                                     message_kind_name(call.kind), rank()));
  }
  return messages_->make(checked_on_host(call), limit_of(call.options.timeout));
}

void CommunicatorState::submit(MessageOperation& operation, Waited waited) {
  operation.background = waited == Waited::kInBackground;
  messages_->submit(operation);
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
    ready_worker();
    Work work(OperationRef<Operation>(device().start(call)).leave());
    messages_->notify();
    return work;
  }
  const P2pCall checked = checked_on_host(call);
  if (!worker_->started()) ready_worker();
  Message moved;
  auto operation = messages_->start(checked, limit_of(call.options.timeout), moved);
  if (operation) return Work(operation.leave());
  return Work(OperationRef(over_).leave(), moved);
} catch (const std::bad_alloc&) {
  fail_for_memory();
}

}  // namespace rondo
