#pragma once

#include <cstdint>
#include <string>

namespace rondo {

// Where the kernel says it.
struct MemoryFacts {
  std::string meminfo = "/proc/meminfo";
  std::string groups = "/proc/thread-self/cgroup";
  std::string root = "/sys/fs/cgroup";
};

// Bytes that may be had before the kernel ends some process to get more: what the machine has, and what the limits of
// this process's control groups and of those above them leave, of both versions. Pages of files that were read, and the
// kernel's caches, are available: it drops them first. UINT64_MAX: nothing says how much. Any thread.
uint64_t available_memory(const MemoryFacts& facts = {});

}  // namespace rondo
