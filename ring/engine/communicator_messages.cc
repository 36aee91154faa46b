// The messages of a communicator, from its calls into their flow.
#include <fmt/format.h>

#include <new>
#include <utility>

#include "ring/engine/communicator_state.h"
#include "ring/engine/device/device_side.h"
#include "ring/engine/message/check_message.h"

namespace rondo {

P2pCall CommunicatorState::checked(const MessageCall& call) const {
  check_usable();
  return check_message(call, rank(), size());
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
