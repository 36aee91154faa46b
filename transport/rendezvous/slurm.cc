#include "transport/rendezvous/slurm.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "ring/base/figures.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// Bounds of what a list of the environment can make this process build.
constexpr size_t kMaxNodes = 65'536;
constexpr size_t kMaxNameBytes = 255;  // of a host's name in DNS

[[noreturn]] void malformed(const char* what, std::string_view list) {
  throw Exception(ErrorCode::kInvalid, fmt::format("{} \"{}\" is malformed", what, list));
}

// Brackets hold numbers and ranges, are closed and not nested, and nothing between commas is empty.
bool well_formed(std::string_view list) {
  constexpr std::string_view kInside = "0123456789-,]";
  bool inside = false;
  char last = ',';
  for (const char c : std::string(list) + ',') {
    if (inside ? kInside.find(c) == std::string_view::npos : c == ']') return false;
    const bool ends = c == ',' || c == ']' || (inside && c == '-');
    if (ends && (last == ',' || last == '[' || (inside && last == '-'))) return false;
    inside = c == '[' || (inside && c != ']');
    last = c;
  }
  return !inside;
}

}  // namespace

// Each bracket gives its first number, with its leading zeros, which are part of the name.
std::string first_node(std::string_view list) {
  constexpr const char* kWhat = "the node list";
  if (!well_formed(list)) malformed(kWhat, list);
  std::string name;
  for (size_t at = 0; at < list.size() && list[at] != ',';) {
    const size_t open = list.find_first_of("[,", at);
    name += list.substr(at, open - at);
    if (open == std::string_view::npos || list[open] == ',') break;
    const size_t close = list.find(']', open);
    const std::string_view ranges = list.substr(open + 1, close - open - 1);
    const std::string_view first = ranges.substr(0, ranges.find_first_of("-,"));
    if (!parse_number<uint32_t>(first)) malformed(kWhat, list);
    name += first;
    at = close + 1;
  }
  if (name.size() > kMaxNameBytes) malformed(kWhat, list);
  return name;
}

// The text is the environment's: counts and their sum are bounded before anything is built by them.
std::vector<int> expand_tasks_per_node(std::string_view list) {
  std::vector<int> tasks;
  while (true) {
    const size_t comma = list.find(',');
    const std::string_view element = list.substr(0, comma);
    size_t open = element.find('(');
    std::optional<uint32_t> count = parse_number<uint32_t>(element.substr(0, open));
    std::optional<uint32_t> times = 1;
    if (open != std::string_view::npos) {
      if (element.substr(open, 2) != "(x" || element.back() != ')') malformed("the task list", list);
      times = parse_number<uint32_t>(element.substr(open + 2, element.size() - open - 3));
    }
    if (!count || *count > kMaxNodes || !times || *times == 0 || *times > kMaxNodes ||
        tasks.size() + *times > kMaxNodes) {
      malformed("the task list", list);
    }
    tasks.insert(tasks.end(), *times, static_cast<int>(*count));
    if (comma == std::string_view::npos) return tasks;
    list.remove_prefix(comma + 1);
  }
}

}  // namespace rondo
