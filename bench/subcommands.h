#pragma once

#include <optional>
#include <string>
#include <vector>

namespace rondo::bench {

// What must fork and spin, each a process of its own that prints a line of JSON: rank 0 and tests/lab ask them.
//   machine                                        processor, cores, kernel, congestion controls, load
//   limit --ranks N --sizes S                      {"gbps": ...}: the best that raw TCP does
//   exchange --ranks N --sizes 8                   {"us": ...}: a bare exchange of 8 B over TCP
// Returns the exit code, or nullopt if args (without the program's name) name none of them. Throws Exception.
std::optional<int> run_subcommand(const std::vector<std::string>& args);

}  // namespace rondo::bench
