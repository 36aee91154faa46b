#include "bench/limit_cache.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/json.h"
#include "bench/whole_file.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

constexpr int kVersion = 6;
constexpr uintmax_t kMaxFileBytes = 4 << 20;

Json read_file(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > kMaxFileBytes) return {};
  std::ifstream file(path);
  Json json = Json::parse(file, nullptr, false);
  const bool ours = json.is_object() && json.value("version", Json()) == kVersion && json.contains("machines") &&
                    json["machines"].is_object();
  return ours ? json : Json();
}

}  // namespace

LimitCache::LimitCache(std::string path, std::string machine_key)
    : path_(std::move(path)), machine_key_(std::move(machine_key)) {}

Limits LimitCache::load() const {
  try {
    const Json json = read_file(path_);
    if (json.is_null() || !json.at("machines").contains(machine_key_)) return {};
    return limits_from_json(json.at("machines").at(machine_key_));
  } catch (const std::exception&) {
    return {};
  }
}

bool LimitCache::save(const Limits& limits) const {
  if (path_.empty()) return false;
  Json json = read_file(path_);
  if (json.is_null()) json = {{"version", kVersion}, {"machines", Json::object()}};
  Limits all = load();
  for (const StreamLimit& limit : limits.streams) all.put(limit);
  for (const ExchangeLimit& limit : limits.exchanges) all.put(limit);
  json["machines"][machine_key_] = to_json(all);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  try {
    replace_file(path_, json.dump(1) + "\n");
  } catch (const Exception& failure) {
    fmt::print(stderr, "rondo-bench: limits are not kept: {}\n", failure.what());
    return false;
  }
  return true;
}

std::string default_cache_path(const char* xdg_cache_home, const char* home) {
  if (xdg_cache_home != nullptr && *xdg_cache_home == '/') return std::string(xdg_cache_home) + "/rondo/limits.json";
  if (home != nullptr && *home == '/') return std::string(home) + "/.cache/rondo/limits.json";
  return "";
}

}  // namespace rondo::bench
