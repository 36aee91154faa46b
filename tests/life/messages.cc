#include "tests/life/messages.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace rondo::life {
namespace {

std::vector<Message> messages_of(const Step& step, int members) {
  std::vector<Message> list;
  for (const std::string& text : step.words("messages", ';')) {
    Message message{};
    unsigned long long count = 0;
    if (std::sscanf(text.c_str(), "%d>%d:%d:%llu", &message.src, &message.dst, &message.tag, &count) != 4) {
      throw std::runtime_error("a message is SRC>DST:TAG:COUNT, not " + text);
    }
    message.count = count;
    // Until they are received, no other message has their tags.
    if (step.word("mode") == "defer") message.tag += 1000 * (1 + name_number(step));
    message.src %= members;
    message.dst %= members;
    if (message.src != message.dst) list.push_back(message);
  }
  return list;
}

}  // namespace

int name_number(const Step& step) { return std::stoi("0" + step.word("name", "d").substr(1)); }

MessageList::MessageList(const Step& step, const Seat& seat)
    : MessageList(step, seat, messages_of(step, seat.members)) {}

MessageList::MessageList(const Step& step, const Seat& seat, std::vector<Message> list)
    : step_(&step),
      seat_(seat),
      kind_{dtype_named(step.word("dtype", "uint8")), Op::kSum, seat.members, false},
      list_(std::move(list)),
      seen_(list_.size(), false) {}

Flight MessageList::send(size_t k, int slot, Memory& memory) const {
  const Message& message = list_[k];
  Flight flight(*step_);
  const size_t bytes = message.count * dtype_bytes(kind_.dtype);
  Watched in = memory.take({slot, static_cast<int>(k), 0}, step_->of_member("in", seat_.me, "p"), bytes, flight.fresh);
  in.dtype = kind_.dtype;
  fill(input_cycle(kind_), phase_of(message.src, seat_.salt) + 37 * k, in.data, message.count);
  in.snapshot(bytes);
  Call& call = flight.call;
  call.verb = Verb::kSend;
  call.in = in.data;
  call.count = message.count;
  call.dtype = kind_.dtype;
  call.root = message.dst;
  call.tag = message.tag;
  call.options.synchronous = step_->number("synchronous") != 0;
  flight.watched.push_back(std::move(in));
  return flight;
}

Flight MessageList::receive(size_t k, int slot, Memory& memory) const {
  Flight flight(*step_);
  Call& call = flight.call;
  call.verb = Verb::kRecv;
  call.dtype = kind_.dtype;
  for (const Message& message : list_) call.count = std::max(call.count, message.count);
  call.root = list_[k].src;
  call.tag = list_[k].tag;
  const size_t bytes = call.count * dtype_bytes(call.dtype);
  Watched out =
      memory.take({slot, static_cast<int>(k), 1}, step_->of_member("out", seat_.me, "p"), bytes, flight.fresh);
  out.name = "message";
  if (call.dtype == DType::kBool) std::memset(out.data, 1, bytes);  // other bytes of a bool need not stay
  out.dtype = call.dtype;
  out.snapshot(bytes);
  call.out = out.data;
  flight.watched.push_back(std::move(out));
  return flight;
}

std::string MessageList::arrived(Flight& flight, const rondo::Message& got) {
  const std::string text = "a message from " + std::to_string(got.peer) + " with tag " + std::to_string(got.tag);
  for (size_t k = 0; k < list_.size(); ++k) {
    const Message& message = list_[k];
    if (seen_[k] || message.src != got.peer || message.tag != got.tag || !receives(k)) continue;
    seen_[k] = true;
    const uint64_t bytes = message.count * dtype_bytes(kind_.dtype);
    if (got.bytes != kUnsaidBytes && got.bytes != bytes) {
      return text + " has " + std::to_string(got.bytes) + " bytes instead of " + std::to_string(bytes);
    }
    Watched& out = flight.watched[0];
    fill(input_cycle(kind_), phase_of(message.src, seat_.salt) + 37 * k, out.expected.data() + out.at(out.data),
         message.count);
    return "";
  }
  return text + " that nobody sent: " + print(*step_);
}

std::string MessageList::arrived(Flight& flight, size_t k) {
  return arrived(flight, {list_[k].src, list_[k].tag, list_[k].count * dtype_bytes(kind_.dtype)});
}

}  // namespace rondo::life
