#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo::launcher {

// A machine that ranks start on, and how many it takes.
struct Host {
  std::string name;  // "host-a", "user@host-a", "localhost"
  int slots = 1;
};

// "a:2,b:2". A host without a number takes one rank; one that is named twice takes both numbers. Throws
// std::invalid_argument naming the entry.
std::vector<Host> parse_hosts(std::string_view list);

// One host a line: "a", "a:2" or "a slots=2"; what follows # is a comment. Throws std::invalid_argument naming file and
// line, std::system_error if the file cannot be read.
std::vector<Host> read_hostfile(const std::string& path);

// Where the other hosts reach it: the name without its user.
std::string address_of(const Host& host);

// "localhost" and 127.0.0.1: no agent is needed to start a process there.
bool is_this_machine(const Host& host);

}  // namespace rondo::launcher
