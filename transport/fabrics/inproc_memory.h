#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/shared_memory.h"

namespace rondo {

// Zeroed memory that begins on a page; pages come as they are touched. Throws Exception(kSystem).
std::shared_ptr<std::byte> plain_memory(size_t bytes);

// What the ranks of one process share: where their windows are.
class InprocWindows;
std::shared_ptr<InprocWindows> make_inproc_windows();

// The shared memory of one rank that is a thread of this process: its peers' windows are its own memory, and pulling is
// copying.
std::unique_ptr<SharedMemory> make_inproc_memory(std::shared_ptr<InprocWindows> windows, int rank);

}  // namespace rondo
