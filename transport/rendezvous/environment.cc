#include "transport/rendezvous/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include "ring/base/figures.h"
#include "rondo/error.h"

namespace rondo {

// Reads environ once. Setting a variable at the same time in another thread is a race of the program's.
Environment Environment::current() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string_view text = *entry;
    size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.variables_.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::string_view Environment::text(std::string_view name) const {
  auto entry = variables_.find(name);
  return entry == variables_.end() ? std::string_view() : std::string_view(entry->second);
}

// The whole text must be the number: "4 " or "4x" is a mistake of a script, and is named.
std::optional<int64_t> Environment::number(std::string_view name, int64_t least, int64_t most) const {
  if (!has(name)) return std::nullopt;
  std::string_view value = text(name);
  const std::optional<int64_t> number = parse_number<int64_t>(value);
  if (!number || *number < least || *number > most) {
    reject_variable(name, value, fmt::format("a whole number {} .. {}", least, most));
  }
  return number;
}

int64_t Environment::need(std::string_view name, int64_t least, int64_t most, std::string_view who) const {
  std::optional<int64_t> value = number(name, least, most);
  if (!value)
    throw Exception(
        ErrorCode::kInvalid,
        fmt::format("{} is not set, although {} is: start the ranks by a launcher, such as rondo-run, or set both",
                    name, who));
  return *value;
}

void reject_variable(std::string_view name, std::string_view value, std::string_view allowed) {
  throw Exception(ErrorCode::kInvalid, fmt::format("{}=\"{}\" is not allowed: it must be {}", name, value, allowed));
}

}  // namespace rondo
