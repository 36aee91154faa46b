#pragma once

#include <string>
#include <vector>

namespace rondo::bench {

// Replaces this process by a program in a network namespace of its own: only a loopback interface, and that under the
// given congestion control, which libraries without such a setting take as the system's default. Needs root, or user
// namespaces. Returns only on failure. Throws Exception(kSystem).
[[noreturn]] void run_in_network_namespace(const std::string& congestion, const std::vector<std::string>& program);

}  // namespace rondo::bench
