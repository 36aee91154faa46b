#include "bench/limit/congestion.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "rondo/config.h"

namespace rondo::bench {
namespace {

// "" where the file cannot be read.
std::string read_first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

// The list of the kernel lacks the default where that is not allowed to everybody; a socket has it all the same.
std::vector<std::string> allowed_congestion_controls() {
  std::istringstream names(read_first_line("/proc/sys/net/ipv4/tcp_allowed_congestion_control"));
  std::vector<std::string> out;
  for (std::string name; names >> name;) out.push_back(name);
  const std::string fallback = default_congestion_control();
  if (std::find(out.begin(), out.end(), fallback) == out.end()) out.push_back(fallback);
  return out;
}

std::string default_congestion_control() {
  const std::string name = read_first_line("/proc/sys/net/ipv4/tcp_congestion_control");
  return name.empty() ? "cubic" : name;  // the kernel's own default where /proc does not say
}

// The same choice as in transport/tcp/socket_options.cc. Else raw TCP and Rondo would be compared under different
// congestion control.
std::string congestion_in_force() {
  const std::string wanted = Config::from_environment().congestion_control;
  const std::string system = default_congestion_control();
  if (wanted != "auto") return wanted.empty() ? system : wanted;
  if (system.rfind("bbr", 0) != 0) return system;
  const std::vector<std::string> allowed = allowed_congestion_controls();
  for (const char* unpaced : {"reno", "cubic"}) {
    if (std::find(allowed.begin(), allowed.end(), unpaced) != allowed.end()) return unpaced;
  }
  return system;
}

}  // namespace rondo::bench
