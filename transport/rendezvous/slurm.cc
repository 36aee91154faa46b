#include "transport/rendezvous/slurm.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>

#include "rondo/error.h"

namespace rondo {
namespace {

constexpr size_t kMaxNodes = 65'536;
constexpr size_t kMaxNameBytes = 255;  // of a host's name in DNS

[[noreturn]] void malformed(const char* what, std::string_view list) {
  throw Exception(ErrorCode::kInvalid, fmt::format("{} \"{}\" is malformed", what, list));
}

std::optional<uint32_t> parse(std::string_view text) {
  uint32_t value = 0;
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Splits at commas outside brackets.
std::vector<std::string_view> split(std::string_view list, const char* what) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    char c = i < list.size() ? list[i] : ',';
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (depth < 0 || depth > 1) malformed(what, list);
    if (c != ',' || (depth == 1 && i < list.size())) continue;
    if (i == begin || depth != 0) malformed(what, list);
    parts.push_back(list.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

// The values of "1-3,07": each as wide as its range's first number, with leading zeros.
std::vector<std::string> expand_ranges(std::string_view ranges, std::string_view list) {
  std::vector<std::string> values;
  for (std::string_view range : split(ranges, "the node list")) {
    size_t dash = range.find('-');
    std::string_view first_text = range.substr(0, dash);
    std::optional<uint32_t> first = parse(first_text);
    std::optional<uint32_t> last = dash == std::string_view::npos ? first : parse(range.substr(dash + 1));
    const bool sane = first && last && *last >= *first && first_text.size() <= kMaxNameBytes;
    if (!sane || *last - *first >= kMaxNodes - values.size()) malformed("the node list", list);
    for (uint64_t value = *first; value <= *last; ++value) {
      values.push_back(fmt::format("{:0{}}", value, first_text.size()));
    }
  }
  return values;
}

// One element: text and brackets in turn ("rack[1-2]n[1-4]"); each bracket multiplies the names.
std::vector<std::string> expand_element(std::string_view element, std::string_view list) {
  std::vector<std::string> names = {""};
  const auto extend = [list](std::string& name, std::string_view text) {
    if (name.size() + text.size() > kMaxNameBytes) malformed("the node list", list);
    name += text;
  };
  while (!element.empty()) {
    size_t open = element.find('[');
    for (std::string& name : names) extend(name, element.substr(0, open));
    if (open == std::string_view::npos) break;
    size_t close = element.find(']', open);
    if (close == std::string_view::npos) malformed("the node list", list);
    std::vector<std::string> values = expand_ranges(element.substr(open + 1, close - open - 1), list);
    if (names.size() * values.size() > kMaxNodes) malformed("the node list", list);
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const std::string& value : values) extend(longer.emplace_back(name), value);
    }
    names = std::move(longer);
    element.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view list) {
  std::vector<std::string> nodes;
  for (std::string_view element : split(list, "the node list")) {
    for (std::string& name : expand_element(element, list)) nodes.push_back(std::move(name));
    if (nodes.size() > kMaxNodes) malformed("the node list", list);
  }
  return nodes;
}

std::vector<int> expand_tasks_per_node(std::string_view list) {
  std::vector<int> tasks;
  for (std::string_view element : split(list, "the task list")) {
    size_t open = element.find('(');
    std::optional<uint32_t> count = parse(element.substr(0, open));
    std::optional<uint32_t> times = 1;
    if (open != std::string_view::npos) {
      if (element.substr(open, 2) != "(x" || element.back() != ')') malformed("the task list", list);
      times = parse(element.substr(open + 2, element.size() - open - 3));
    }
    if (!count || *count > kMaxNodes || !times || *times == 0 || *times > kMaxNodes ||
        tasks.size() + *times > kMaxNodes) {
      malformed("the task list", list);
    }
    tasks.insert(tasks.end(), *times, static_cast<int>(*count));
  }
  return tasks;
}

}  // namespace rondo
