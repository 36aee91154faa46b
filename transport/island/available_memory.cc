#include "transport/island/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

#include "ring/base/control_groups.h"
#include "ring/base/file_text.h"

namespace rondo {
namespace {

// Nothing if there is no such file, or no number in it ("max").
std::optional<uint64_t> number_in(const std::string& path) {
  uint64_t number = 0;
  if (std::ifstream(path) >> number) return number;
  return std::nullopt;
}

// Reads lines "name number ...".
std::optional<uint64_t> number_of(const std::string& path, std::string_view name) {
  std::ifstream facts(path);
  std::string found;
  for (uint64_t number = 0; facts >> found >> number; facts.ignore(64, '\n')) {
    if (found == name) return number;
  }
  return std::nullopt;
}

// UINT64_MAX: no limit.
uint64_t left_in(const ControlGroup& group) {
  const bool second = group.second_version;
  const std::optional<uint64_t> most = number_in(group.folder + (second ? "/memory.max" : "/memory.limit_in_bytes"));
  if (!most) return UINT64_MAX;
  uint64_t used = number_in(group.folder + (second ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  for (const std::string cache : {"inactive_file", "active_file", "slab_reclaimable"}) {
    // Version 1 has the first two of a group alone, and with those below it under this name.
    const std::string name = second ? cache : "total_" + cache;
    used -= std::min(used, number_of(group.folder + "/memory.stat", name).value_or(0));
  }
  return *most > used ? *most - used : 0;
}

}  // namespace

uint64_t available_memory(const MemoryFacts& facts) {
  const std::optional<uint64_t> kib = number_of(facts.meminfo, "MemAvailable:");
  uint64_t available = kib ? *kib * 1024 : UINT64_MAX;
  for (const ControlGroup& group : control_groups(file_text(facts.groups), facts.root, "memory")) {
    available = std::min(available, left_in(group));
  }
  return available;
}

}  // namespace rondo
