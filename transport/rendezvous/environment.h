#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace rondo {

// Environment variables as a value, so that finding a launch is a pure function of them.
class Environment {
 public:
  Environment() = default;
  explicit Environment(std::map<std::string, std::string, std::less<>> variables) : variables_(std::move(variables)) {}
  // This process's.
  static Environment current();

  const std::map<std::string, std::string, std::less<>>& all() const { return variables_; }
  bool has(std::string_view name) const { return variables_.find(name) != variables_.end(); }
  // Empty if unset.
  std::string_view text(std::string_view name) const;
  // A decimal number least .. most; nullopt if unset. Throws Exception(kInvalid) naming variable, value and range.
  std::optional<int64_t> number(std::string_view name, int64_t least, int64_t most) const;
  // The same, but it must be set: `who` says whose variables lack it. Throws Exception(kInvalid).
  int64_t need(std::string_view name, int64_t least, int64_t most, std::string_view who) const;

 private:
  std::map<std::string, std::string, std::less<>> variables_;
};

// Throws Exception(kInvalid): name="value" is not allowed: it must be <allowed>.
[[noreturn]] void reject_variable(std::string_view name, std::string_view value, std::string_view allowed);

}  // namespace rondo
