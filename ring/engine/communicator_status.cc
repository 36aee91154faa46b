#include "ring/engine/communicator_status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cctype>
#include <string_view>

#include "ring/base/host_name.h"
#include "ring/base/json_text.h"

namespace rondo {
namespace {

// NCCL's names: "AllReduce" for all_reduce.
std::string counted_name(Collective collective) {
  std::string name;
  bool begins = true;
  for (const char c : std::string_view(collective_name(collective))) {
    if (c != '_') name += begins ? static_cast<char>(std::toupper(c)) : c;
    begins = c == '_';
  }
  return name;
}

template <typename Value>
std::string by_collective(const CommunicatorStatus& status, Value value) {
  std::string text;
  for (size_t i = 0; i < status.made.size(); ++i) {
    if (status.made[i].number == 0) continue;
    text += fmt::format("{}\"{}\":{}", text.empty() ? "" : ",", counted_name(static_cast<Collective>(i)),
                        value(status.made[i]));
  }
  return "{" + text + "}";
}

// null: no call has been made.
std::string call_json(const CommunicatorStatus& status) {
  if (status.sequence <= kMeetingSequence || status.call.text.empty()) return "null";
  return fmt::format(
      R"({{"number":{},"text":{},"collective":"{}","dtype":"{}","bytes":{},"finished":{},"since_ms":{}}})",
      status.sequence - kMeetingSequence, json_text(status.call.text), counted_name(status.collective),
      dtype_name(status.dtype), status.bytes, status.call.finished, status.call.since_ms);
}

// null: no thread has slept in a message for long.
std::string message_json(const CallState& messages) {
  if (!messages.in_p2p) return "null";
  return fmt::format(R"({{"text":{},"since_ms":{}}})", json_text(messages.p2p_text), messages.since_ms);
}

}  // namespace

// "ranks" has this rank alone: a program that reads the sockets of all ranks joins the lists.
std::string status_json(const CommunicatorStatus& status) {
  const ErrorCode code = status.failure.code;
  return fmt::format(
      R"({{"hash":"0x{:x}","size":{},"epoch":{},"ranks":[{{"rank":{},"host":{},"pid":{},)"
      R"("status":{{"async_error":{},"finalize_called":{},"abort_flag":{}}},"error":{},)"
      R"("collective_counts":{},"collective_bytes":{},"message_bytes":{},"links":{{"shared_memory":{},"tcp":{}}},)"
      R"("call":{},"message":{},"waits_for":[{}],"blame":{}}}]}})",
      status.id, status.size, status.epoch, status.rank, json_text(host_name()), ::getpid(), static_cast<int>(code),
      status.destroyed, code == ErrorCode::kAborted, json_text(status.failure.message),
      by_collective(status, [](const CommunicatorStatus::Calls& calls) { return calls.number; }),
      by_collective(status, [](const CommunicatorStatus::Calls& calls) { return calls.bytes; }), status.message_bytes,
      status.in_shared_memory, status.size - 1 - status.in_shared_memory, call_json(status),
      message_json(status.messages), fmt::join(status.waits.ranks, ","), json_text(status.waits.sentence));
}

}  // namespace rondo
