#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "ring/base/descriptor.h"

namespace asio {
class io_context;
}

namespace rondo {

// Where the ranks of an island connect to this one. Who is not the process of one of them, by the kernel's account, or
// does not greet as that rank of this start does, is shut out.
class IslandDoor {
 public:
  struct Settings {
    int rank = 0;
    uint64_t session = 0;          // only a rank of this start knows it
    std::map<int, pid_t> members;  // the other ranks of the island
  };
  // On the I/O thread.
  using OnMember = std::function<void(int rank, Descriptor socket)>;

  IslandDoor(asio::io_context& io, Descriptor listener, Settings settings, OnMember on_member);
  // The I/O thread must have been stopped.
  ~IslandDoor();

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
