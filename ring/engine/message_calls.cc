#include "ring/engine/message_calls.h"

#include <fmt/format.h>

#include <new>
#include <string>
#include <utility>

#include "ring/engine/communicator_state.h"
#include "ring/engine/device/device_side.h"
#include "ring/engine/p2p/wire.h"

namespace rondo {
namespace {

// Throws what is wrong with a call that check_message() does not accept. Apart from it, so that a good call
// does not pay for the texts.
[[noreturn]] void refuse_arguments(const MessageCall& call, int rank, int world) {
  const bool receives = call.kind != MessageKind::kSend;
  const char* const or_any = receives ? ", or -1 for any" : "";
  const size_t element = dtype_bytes(call.dtype);
  std::string why;
  if (element == 0) {
    why = fmt::format("unknown dtype {}", static_cast<int>(call.dtype));
  } else if (call.count > kP2pMaxBytes / element) {
    why = fmt::format("{} elements of {} do not fit 64-bit byte counts", call.count, dtype_name(call.dtype));
  } else if (call.matched == 0 && (call.peer >= world || call.peer < (receives ? kAnySource : 0))) {
    why = fmt::format("the {} is {}; it must be a rank of the group, 0 to {}{}", receives ? "source" : "destination",
                      call.peer, world - 1, or_any);
  } else if (call.matched == 0 && call.tag < (receives ? kAnyTag : 0)) {
    why = fmt::format("tag is {}; it must be 0 to 2147483647{}", call.tag, or_any);
  } else if (call.count > 0 && call.data == nullptr) {
    why = fmt::format("data is null but {} bytes {}", call.count * element, receives ? "may come" : "are to be sent");
  } else {
    why =
        fmt::format("timeout is {} ms; it must be positive, or 0 for the configured one", call.options.timeout.count());
  }
  throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {}", message_kind_name(call.kind), rank, why));
}

// Checks what only some messages have: probes, matched receives, options.
[[gnu::noinline]] void check_special(const MessageCall& call, int rank) {
  const auto refuse = [&](const char* why) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: {}", message_kind_name(call.kind), rank, why));
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

// Checks a message and returns it as the state machine of messages takes it. Throws Exception(kInvalid) that
// names the argument, its value and this rank. It has no side effects.
P2pCall check_message(const MessageCall& call, int rank, int world) {
  static_assert(kAnySource == -1 && kAnyTag == -1);
  const CallOptions& options = call.options;
  const size_t element = dtype_bytes(call.dtype);
  uint64_t bytes = 0;
  const bool countable = element > 0 && !__builtin_mul_overflow(call.count, element, &bytes) && bytes <= kP2pMaxBytes;
  P2pCall made{call.kind, static_cast<std::byte*>(call.data), bytes, call.dtype, call.peer, call.tag};
  if (call.kind > MessageKind::kReceive || call.matched != 0 || options.synchronous || options.truncate ||
      options.recoverable) {
    check_special(call, rank);
    made.plain = call.kind <= MessageKind::kReceive && !options.synchronous && call.matched == 0;
    made.synchronous = options.synchronous;
    made.truncate = options.truncate;
    made.matched = call.matched;
    if (call.matched != 0) made.peer = kAnySource, made.tag = kAnyTag;
  }
  const int least = call.kind == MessageKind::kSend ? 0 : -1;
  const bool meets = made.peer >= least && made.peer < world && made.tag >= least;
  const bool has_memory = call.count == 0 || call.data != nullptr;
  if (!countable || !meets || !has_memory || options.timeout.count() < 0) refuse_arguments(call, rank, world);
  return made;
}

OperationRef<Operation> ended_operation(const std::shared_ptr<Messages>& flow) {
  auto ended = Operation::make<Operation>();
  ended->flow = flow;
  ended->end(nullptr);
  return ended;
}

}  // namespace

MessageCalls::MessageCalls(CommunicatorState& group, CommunicatorContext& context, std::shared_ptr<Messages> flow)
    : group_(group), context_(context), flow_(std::move(flow)), over_(ended_operation(flow_)) {}

P2pCall MessageCalls::checked(const MessageCall& call) const {
  context_.check_usable();
  return check_message(call, context_.rank, context_.world());
}

inline P2pCall MessageCalls::checked_on_host(const MessageCall& call) const {
  const P2pCall checked_call = checked(call);
  group_.check_on_host(message_kind_name(call.kind), call.data);
  context_.log.note_thread();
  return checked_call;
}

OperationRef<MessageOperation> MessageCalls::make(const MessageCall& call) const {
  if (call.kind > MessageKind::kReceive) {
    throw Exception(ErrorCode::kInvalid, fmt::format("{} on rank {}: not in a batch, whose calls start at its end",
                                                     message_kind_name(call.kind), context_.rank));
  }
  return flow_->make(checked_on_host(call), context_.limit_of(call.options.timeout));
}

void MessageCalls::submit(MessageOperation& operation, Waited waited) {
  operation.background = waited == Waited::kInBackground;
  flow_->submit(operation);
}

Message MessageCalls::run(const MessageCall& call) try {
  if (call.options.stream) return group_.device().run(call);
  const P2pCall checked[] = {checked_on_host(call)};
  return flow_->run(checked, context_.limit_of(call.options.timeout));
} catch (const std::bad_alloc&) {
  context_.fail_for_memory();
}

Message MessageCalls::run(const MessageCall& send, const MessageCall& receive) try {
  if (send.options.stream) return group_.device().run(send, receive);
  const P2pCall checked[] = {checked_on_host(send), checked_on_host(receive)};
  return flow_->run(checked, context_.limit_of(send.options.timeout));
} catch (const std::bad_alloc&) {
  context_.fail_for_memory();
}

std::optional<Message> MessageCalls::look(const MessageCall& probe) try {
  if (probe.kind != MessageKind::kProbe && probe.kind != MessageKind::kMatchedProbe) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("look on rank {}: a {} is no probe", context_.rank, message_kind_name(probe.kind)));
  }
  return flow_->look(checked_on_host(probe));
} catch (const std::bad_alloc&) {
  context_.fail_for_memory();
}

// A message that is over when this returns needs no operation of its own: its Work refers to over_'s, and has the
// message itself.
Work MessageCalls::start(const MessageCall& call) try {
  if (call.options.stream) {
    group_.ready_worker();
    Work work(OperationRef<Operation>(group_.device().start(call)).leave());
    flow_->notify();
    return work;
  }
  const P2pCall checked = checked_on_host(call);
  if (!flow_->worker().started()) group_.ready_worker();
  Message moved;
  auto operation = flow_->start(checked, context_.limit_of(call.options.timeout), over_, moved);
  return Work(operation.leave(), moved);
} catch (const std::bad_alloc&) {
  context_.fail_for_memory();
}

}  // namespace rondo
