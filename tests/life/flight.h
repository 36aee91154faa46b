#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/life/door.h"
#include "tests/life/life.h"
#include "tests/life/memory.h"
#include "tests/life/shape.h"

namespace rondo::life {

// A call and all of its memory.
struct Flight {
  explicit Flight(const Step& line) : step(&line) {}

  const Step* step;
  Call call;
  std::vector<Watched> watched;
  std::vector<std::unique_ptr<std::byte[]>> fresh;
  bool gets_data = false;  // some of what it is to hold comes from another rank
  bool in_batch = false;
  // The first result, where it is not exact; everywhere: all members get it.
  struct Rounded {
    const std::byte* data = nullptr;
    uint64_t bytes = 0;
    bool everywhere = false;
  } rounded;
  // "" or what is wrong.
  std::string check();
};

// The call of a line for one member, its buffers filled. slot, index: of the memory; index 0: in no batch.
Flight make_flight(const Step& step, const Seat& seat, int slot, int index, Memory& memory);

}  // namespace rondo::life
