#include "tools/launcher/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "ring/base/figures.h"

namespace rondo::launcher {
namespace {

constexpr int kMaxSlots = 4096;  // as many ranks as rondo-run starts at most

int parse_slots(std::string_view digits, std::string_view entry) {
  const std::optional<int> slots = parse_number<int>(digits);
  if (slots && *slots >= 1 && *slots <= kMaxSlots) return *slots;
  throw std::invalid_argument(fmt::format("'{}' is not HOST or HOST:N with N from 1 to {}", entry, kMaxSlots));
}

// "a", "a:2", "[fd00::1]:2"; more colons than one without brackets are an IPv6 address. "user@host" stays one name:
// address_of() takes the user away.
Host parse_host(std::string_view entry) {
  Host host;
  std::string_view name = entry;
  const size_t colon = entry.rfind(':');
  const bool bracketed = entry.starts_with('[');
  const bool has_slots =
      colon != std::string_view::npos && (bracketed ? entry.rfind(']') + 1 == colon : entry.find(':') == colon);
  if (has_slots) {
    name = entry.substr(0, colon);
    host.slots = parse_slots(entry.substr(colon + 1), entry);
  }
  if (bracketed && name.size() > 2 && name.back() == ']') name = name.substr(1, name.size() - 2);
  // A name that begins with a dash would be an option of the launch agent.
  if (name.empty() || name.front() == '-') throw std::invalid_argument(fmt::format("'{}' is not a host", entry));
  host.name = name;
  return host;
}

// A host keeps the place of its first entry.
void add_host(std::vector<Host>& hosts, const Host& host) {
  const auto same = std::find_if(hosts.begin(), hosts.end(), [&](const Host& h) { return h.name == host.name; });
  if (same == hosts.end()) {
    hosts.push_back(host);
  } else {
    same->slots += host.slots;
  }
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view list) {
  std::vector<Host> hosts;
  while (true) {
    const size_t comma = list.find(',');
    add_host(hosts, parse_host(list.substr(0, comma)));
    if (comma == std::string_view::npos) return hosts;
    list.remove_prefix(comma + 1);
  }
}

// Lines that are empty, or have a comment alone, are skipped.
std::vector<Host> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::system_error(errno, std::generic_category(), path);
  std::vector<Host> hosts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string entry, slots;
    if (!(words >> entry)) continue;
    try {
      Host host = parse_host(entry);
      if (words >> slots) {
        if (!slots.starts_with("slots=")) throw std::invalid_argument(fmt::format("'{}' is not slots=N", slots));
        host.slots = parse_slots(std::string_view(slots).substr(6), slots);
      }
      add_host(hosts, host);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("{}, line {}: {}", path, number, error.what()));
    }
  }
  if (hosts.empty()) throw std::invalid_argument(fmt::format("{} names no host", path));
  return hosts;
}

std::string address_of(const Host& host) { return host.name.substr(host.name.rfind('@') + 1); }

bool is_this_machine(const Host& host) { return host.name == "localhost" || host.name == "127.0.0.1"; }

}  // namespace rondo::launcher
