#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/life/flight.h"

namespace rondo::life {

struct Message {
  int src, dst, tag;
  uint64_t count;
};

// rondo::Message::bytes of an API that says no length.
inline constexpr uint64_t kUnsaidBytes = UINT64_MAX;

// N of name=dN.
int name_number(const Step& step);

// The messages of one line, as one member of a group sees them.
class MessageList {
 public:
  // Those of the line, but those to oneself. Throws std::runtime_error.
  MessageList(const Step& step, const Seat& seat);
  MessageList(const Step& step, const Seat& seat, std::vector<Message> list);

  size_t size() const { return list_.size(); }
  const Message& operator[](size_t k) const { return list_[k]; }
  bool sends(size_t k) const { return list_[k].src == seat_.me; }
  bool receives(size_t k) const { return list_[k].dst == seat_.me; }

  // The call of message k in memory of its own for each slot and k. A receive has room for the longest of the list.
  Flight send(size_t k, int slot, Memory& memory) const;
  Flight receive(size_t k, int slot, Memory& memory) const;
  // What has come is what the memory must hold: the first message of this peer and tag that has not come yet. "" or
  // what is wrong.
  std::string arrived(Flight& flight, const rondo::Message& got);
  // The same as if the receive of message k had got it.
  std::string arrived(Flight& flight, size_t k);

 private:
  const Step* step_;
  Seat seat_;
  Kind kind_;
  std::vector<Message> list_;
  std::vector<bool> seen_;
};

}  // namespace rondo::life
