#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::life {

// One line of the text (README.md), and the lines between it and its `end`.
struct Step {
  std::string verb;
  std::map<std::string, std::string, std::less<>> values;
  std::vector<Step> inner;
  int line = 0;  // of the text as print() writes it, from 1

  bool has(std::string_view key) const { return values.find(key) != values.end(); }
  std::string word(std::string_view key, const std::string& absent = "") const;
  int64_t number(std::string_view key, int64_t absent = 0) const;
  double real(std::string_view key, double absent = 0) const;
  std::vector<std::string> words(std::string_view key, char between = ',') const;
  std::vector<uint64_t> numbers(std::string_view key) const;
  // The member's value from a list, which is repeated when it is shorter.
  std::string of_member(std::string_view key, int member, const std::string& absent) const;
  Step& with(const std::string& key, const std::string& value);
  Step& with(const std::string& key, int64_t value) { return with(key, std::to_string(value)); }

  bool operator==(const Step& other) const {
    return verb == other.verb && values == other.values && inner == other.inner;
  }
};

enum class Ranks { kThreads, kProcesses };

struct Life {
  uint64_t seed = 0;
  int world = 2;
  int rounds = 1;
  Ranks ranks = Ranks::kThreads;
  std::vector<int> hosts;          // network namespace of each rank; empty: none
  std::vector<std::string> doors;  // of each rank; one: of all
  std::vector<std::string> settings;
  std::vector<std::vector<Step>> threads;

  bool has_setting(const std::string& setting) const;
  bool all_are(std::string_view door) const;
  const std::string& door(int rank) const { return doors[static_cast<size_t>(rank) % doors.size()]; }
  // Processes that the first thread's lines `grow` take in, numbered from `world` on; where such a one begins to play.
  int newcomers() const;
  size_t first_step(int process) const;
  bool operator==(const Life&) const = default;
};

// Verbs whose lines have lines inside.
bool has_inner(std::string_view verb);
// Throws std::runtime_error with the line that is wrong.
Life parse(const std::string& text);
// "verb key=value ..."
Step parse_step(const std::string& text);
// parse(print(life)) == life, whose lines are numbered.
std::string print(const Life& life);
std::string print(const Step& step);
// Splits at `between`; "" has no parts.
std::vector<std::string> split_words(std::string_view text, char between);
std::string join_words(const std::vector<std::string>& words, const std::string& between);

}  // namespace rondo::life
