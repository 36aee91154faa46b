// Frames of control connections: refused, or decoded; a message has one encoding only, and a header promises no more
// than the bound.
#include "transport/control/control_message.h"

#include "tests/fuzz/target.h"

namespace rondo::fuzz {

std::vector<std::string> seeds() {
  const auto frame = [](ControlBody body) { return encode(ControlFrame{1, 2, std::move(body)}); };
  AnswerMessage answer;
  answer.communicator = 7;
  answer.sequence = 3;
  answer.state.text = "all_reduce(count=8, float32, sum)";
  answer.state.p2p_text = "send to rank 2";
  return {
      frame(AbortMessage{7, Stage::kUse, {ErrorCode::kPeerLost, "rank 3 died", {3, 4}}}),
      frame(QueryMessage{7, 3}),
      frame(answer),
      frame(ByeMessage{7, 12, true}),
      frame(ConnectMessage{7}),
      frame(LeaveMessage{}),
      frame(LostMessage{5, 5, LostMessage::Fate::kLeft, "it left"}),
      frame(AliveMessage{}),
      frame(BlameMessage{1, 9, "the ranks waited"}),
      frame(MembershipMessage{
          7, MembershipMessage::Kind::kPromise, {3, 1}, {2, 0}, Decision{MemberSet(9, true), true}, MemberSet(9), {}})};
}

void try_input(std::string_view input) {
  if (input.size() < kControlHeaderBytes) return;
  const std::optional<ControlHeader> header = decode_control_header(input.substr(0, kControlHeaderBytes));
  if (!header) return;
  RONDO_CHECK(header->body_bytes <= kMaxControlBodyBytes, "a body has a bound");
  const std::string_view bytes = input.substr(kControlHeaderBytes);
  std::optional<ControlBody> body = decode_control_body(header->type, bytes);
  if (!body || bytes.size() != header->body_bytes) return;
  RONDO_CHECK(body->index() + 1 == header->type, "a body is of the type that its header says");
  RONDO_CHECK(encode(ControlFrame{header->source, header->destination, std::move(*body), header->hops}) == input,
              "a message has one encoding");
}

}  // namespace rondo::fuzz
