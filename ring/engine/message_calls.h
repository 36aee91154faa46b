#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "ring/engine/communicator_context.h"
#include "ring/engine/message/messages.h"
#include "rondo/call.h"
#include "rondo/work.h"

namespace rondo {

class CommunicatorState;

// A communicator's messages: arguments are checked, and go into the flow of messages or into a stream.
// CommunicatorState owns it. Any thread.
class MessageCalls {
 public:
  // group has this as a member.
  MessageCalls(CommunicatorState& group, CommunicatorContext& context, std::shared_ptr<Messages> flow);

  // run() returns when the message has been moved; with a send and a receive, when both have; it gives what the
  // last one has moved. start() leaves it to the background, unless it is over when this returns. All throw
  // Exception.
  Message run(const MessageCall& call);
  Message run(const MessageCall& send, const MessageCall& receive);
  Work start(const MessageCall& call);
  std::optional<Message> look(const MessageCall& probe);

  // Throws what stands against any call (check_usable()), and what is wrong with this one.
  P2pCall checked(const MessageCall& call) const;
  // A checked message of a batch; submit() starts it.
  OperationRef<MessageOperation> make(const MessageCall& call) const;
  // Whether the calling thread does nothing else until the message has gone.
  enum class Waited { kByCaller, kInBackground };
  void submit(MessageOperation& operation, Waited waited);

  const std::shared_ptr<Messages>& flow() const { return flow_; }

 private:
  P2pCall checked_on_host(const MessageCall& call) const;

  CommunicatorState& group_;
  CommunicatorContext& context_;
  const std::shared_ptr<Messages> flow_;  // shared with Works, which may outlive the group
  ReferenceStock<Operation> over_;        // stands for every message that was over when its call returned
};

}  // namespace rondo
