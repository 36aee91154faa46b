#include "ring/engine/message_calls.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "ring/engine/communicator_state.h"
#include "ring/engine/device/device_side.h"
#include "ring/engine/message/check_message.h"

namespace rondo {

MessageCalls::MessageCalls(CommunicatorState& group, CommunicatorContext& context, std::shared_ptr<Messages> flow)
    : group_(group), context_(context), flow_(std::move(flow)), over_(Operation::make<Operation>()) {
  over_->flow = flow_;
  over_->end(nullptr);
}

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
  auto operation = flow_->start(checked, context_.limit_of(call.options.timeout), moved);
  if (operation) return Work(operation.leave());
  return Work(OperationRef(over_).leave(), moved);
} catch (const std::bad_alloc&) {
  context_.fail_for_memory();
}

}  // namespace rondo
