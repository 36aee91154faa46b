#pragma once

#include <cstdint>
#include <string>

namespace rondo {

// Bytes that may be had before the kernel ends some process to get more: what the machine has (`meminfo`, as
// /proc/meminfo), and in a container what its own limit leaves (`control_group`, a directory as /sys/fs/cgroup of
// version 2; without a limit there, the machine counts). Pages of files that were read, and the kernel's caches, are
// available: it drops them first. UINT64_MAX: nothing says how much. Any thread.
uint64_t available_memory(const std::string& meminfo, const std::string& control_group);

}  // namespace rondo
