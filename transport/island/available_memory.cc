#include "transport/island/available_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

namespace rondo {
namespace {

// Nothing if there is no such file, or no number in it ("max").
std::optional<uint64_t> number_in(const std::string& path) {
  uint64_t number = 0;
  if (std::ifstream(path) >> number) return number;
  return std::nullopt;
}

// Of lines "name number ...".
std::optional<uint64_t> number_of(const std::string& path, std::string_view name) {
  std::ifstream facts(path);
  std::string found;
  for (uint64_t number = 0; facts >> found >> number; facts.ignore(64, '\n')) {
    if (found == name) return number;
  }
  return std::nullopt;
}

uint64_t available_in(const std::string& control_group) {
  const std::optional<uint64_t> most = number_in(control_group + "/memory.max");
  if (!most) return UINT64_MAX;
  uint64_t used = number_in(control_group + "/memory.current").value_or(0);
  for (const char* cache : {"inactive_file", "active_file", "slab_reclaimable"}) {
    used -= std::min(used, number_of(control_group + "/memory.stat", cache).value_or(0));
  }
  return *most > used ? *most - used : 0;
}

}  // namespace

uint64_t available_memory(const std::string& meminfo, const std::string& control_group) {
  const std::optional<uint64_t> kib = number_of(meminfo, "MemAvailable:");
  return std::min(kib ? *kib * 1024 : UINT64_MAX, available_in(control_group));
}

}  // namespace rondo
