#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "ring/base/types.h"
#include "rondo/dtype.h"
#include "rondo/error.h"
#include "transport/fabric.h"

namespace rondo {

// A snapshot of what this rank does on one communicator, for status sockets (transport/control/status.h). Ranks
// are those of the communicator. Its parts are read one after the other.
struct CommunicatorStatus {
  uint64_t id = 0;
  uint64_t epoch = 0;
  int rank = 0;
  int size = 1;
  int in_shared_memory = 0;  // members, but for this rank, that it shares memory with
  bool destroyed = false;    // destroy() has begun
  Error failure;             // kOk: it has not failed
  struct Calls {
    uint64_t number = 0;
    uint64_t bytes = 0;  // of the whole buffers; 0 where this rank does not know them
  };
  std::array<Calls, kCollectives> made{};  // by Collective, without the opening
  uint64_t message_bytes = 0;              // CallState::p2p_moved

  // The call under way, the first of several; else the last one.
  uint64_t sequence = 0;
  Collective collective = Collective::kBarrier;
  DType dtype = DType::kFloat32;
  uint64_t bytes = 0;
  CallState call;
  CallState messages;  // of kMessagesSequence
  Waiting waits;
};

// An object of JSON. docs/traces.md has the fields. Those that mean what NCCL's RAS subsystem says in its JSON (NCCL
// 2.28, ncclras -f json) have its names.
std::string status_json(const CommunicatorStatus& status);

}  // namespace rondo
