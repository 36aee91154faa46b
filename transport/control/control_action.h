#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "rondo/error.h"
#include "transport/control/control_message.h"

namespace rondo::control {

// What the control machines of a rank want done. Their owner takes the actions under its lock, and carries them out in
// order without it, on one thread: the I/O thread (ControlPlane::carry_out(), InprocHub::carry_out()).
struct Send {
  int peer = -1;
  ControlBody body;
};
struct Fail {  // CommunicatorEvents::on_failure; after a loss again for each further death, with all of them
  uint64_t communicator = 0;
  Error error;
  Stage stage = Stage::kMaking;
};
struct PeerLeft {  // CommunicatorEvents::on_peer_left
  uint64_t communicator = 0;
  int peer = -1;
  uint64_t last_sequence = 0;
};
struct Note {  // for the log: a warning
  std::string text;
};
// After what was sent to it: nothing is said to this rank any more, nor heard of it.
struct Drop {
  int peer = -1;
};
// It passes no messages on any more. lost: ControlLogic::ended(), once the kernel says that its process has ended.
struct Gone {
  int peer = -1;
  bool lost = false;
};
// Those two pass no messages to each other any more.
struct Cut {
  int one = -1, other = -1;
};
using Action = std::variant<Send, Fail, PeerLeft, Note, Drop, Gone, Cut>;
using Actions = std::vector<Action>;

}  // namespace rondo::control
