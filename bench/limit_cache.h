#pragma once

#include <string>

#include "bench/limit.h"

namespace rondo::bench {

// Limits kept in a file between runs, for each machine that shares the home directory. A file that is missing, broken
// or of another version is an empty one.
class LimitCache {
 public:
  // machine_key: Machine::key().
  LimitCache(std::string path, std::string machine_key);

  Limits load() const;
  // Adds to what the file holds for this machine and keeps the rest; the file is replaced at once, so a reader sees the
  // old or the new one. False (and a line on standard error) if it cannot be written.
  // An empty path keeps nothing.
  bool save(const Limits& limits) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string machine_key_;
};

// $XDG_CACHE_HOME/rondo/limits.json, else $HOME/.cache/rondo/limits.json; "" without either.
std::string default_cache_path(const char* xdg_cache_home, const char* home);

}  // namespace rondo::bench
