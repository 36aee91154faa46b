// Plays lives (README.md): life --seed=N | --seeds=A-B | --seconds=S | --play=FILE | --print=N
// --doors=numpy,cpp/torch: of each life, one of these lists. --python=COMMAND: starts ranks of numpy and torch.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "ring/base/file_text.h"
#include "tests/life/doors.h"
#include "tests/life/generate.h"
#include "tests/life/player.h"
#include "tests/life/rank.h"
#include "tests/life/shrink.h"

namespace rondo::life {
namespace {

using Arguments = std::map<std::string, std::string>;

std::string value_of(const Arguments& arguments, const std::string& name, const std::string& absent = "") {
  const auto found = arguments.find(name);
  return found == arguments.end() ? absent : found->second;
}

std::string read_file(const std::string& path) {
  if (!std::filesystem::exists(path)) throw std::runtime_error("cannot read " + path);
  return file_text(path);
}

PlayerOptions player_options(const Arguments& arguments) {
  PlayerOptions options;
  options.patience = std::chrono::seconds(std::stoi(value_of(arguments, "patience", "10")));
  if (std::string command = value_of(arguments, "python"); !command.empty()) {
    command += " --library=" + std::filesystem::read_symlink("/proc/self/exe").replace_filename("ranks.so").string();
    options.doors = {{"numpy", command}, {"torch", command}};
  }
  return options;
}

// True if it is right. Else prints it, reduced unless --shrink=0.
bool play_and_tell(const Life& life, const Arguments& arguments) {
  const PlayerOptions options = player_options(arguments);
  for (const std::string& door : life.doors) {
    if (is_of_python(door) && options.doors.count(door) == 0) {
      throw std::runtime_error("life: nothing plays the door " + door + ": pass --python=COMMAND (README.md)");
    }
  }
  const Verdict verdict = play(life, options);
  if (verdict.outcome == Outcome::kRight) return true;
  std::cout << "seed " << life.seed << ": " << outcome_name(verdict.outcome) << "\n" << verdict.text << std::flush;
  if (value_of(arguments, "shrink", "1") == "0") {
    std::cout << "--- the life\n" << print(life) << std::flush;
    return false;
  }
  shrink_and_tell(life, verdict, options, std::stoi(value_of(arguments, "shrink-seconds", "120")));
  return false;
}

// The life by one of the lists of --doors, where there are any.
Life by_doors(Life life, const Arguments& arguments) {
  const std::vector<std::string> lists = split_words(value_of(arguments, "doors"), '/');
  if (lists.empty()) return life;
  return by_doors(std::move(life), split_words(lists[life.seed % lists.size()], ','));
}

// How often each kind of step stands in the lives that were played.
using Coverage = std::map<std::string, int>;

void count_steps(const std::vector<Step>& steps, Coverage& coverage) {
  for (const Step& step : steps) {
    ++coverage[step.verb];
    count_steps(step.inner, coverage);
  }
}

// --hosts=none: all ranks on this host; --hosts=only: lives that have several.
bool play_seed(uint64_t seed, const Arguments& arguments, Coverage& coverage) {
  Life life = by_doors(generate(seed), arguments);
  const std::string hosts = value_of(arguments, "hosts");
  if (hosts == "only" && life.hosts.empty()) return true;
  if (hosts == "none") life.hosts.clear();
  std::cout << "seed " << seed << std::endl;
  for (const std::vector<Step>& steps : life.threads) count_steps(steps, coverage);
  if (!life.hosts.empty()) ++coverage["(hosts)"];
  return play_and_tell(life, arguments);
}

int run(const Arguments& arguments) {
  if (arguments.count("rank") != 0) {
    return play_life(parse(read_file(value_of(arguments, "life"))), std::stoi(value_of(arguments, "rank")),
                     value_of(arguments, "meeting"), value_of(arguments, "folder"));
  }
  if (arguments.count("print") != 0) {
    std::cout << print(by_doors(generate(std::stoull(value_of(arguments, "print"))), arguments));
    return 0;
  }
  bool right = true;
  Coverage coverage;
  if (arguments.count("play") != 0) {
    const Life life = by_doors(parse(read_file(value_of(arguments, "play"))), arguments);
    right = play_and_tell(parse(print(life)), arguments);
  } else if (arguments.count("seconds") != 0) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::stoi(value_of(arguments, "seconds")));
    std::random_device draw;
    while (std::chrono::steady_clock::now() < end) {
      right = play_seed(draw() % 1'000'000'000, arguments, coverage) && right;
      if (!right && value_of(arguments, "go-on", "0") == "0") break;
    }
  } else {
    const std::string seeds = value_of(arguments, "seeds", value_of(arguments, "seed", "1"));
    const size_t dash = seeds.find('-');
    const uint64_t first = std::stoull(seeds),
                   last = dash == std::string::npos ? first : std::stoull(seeds.substr(dash + 1));
    for (uint64_t seed = first; seed <= last; ++seed) right = play_seed(seed, arguments, coverage) && right;
  }
  for (const auto& [verb, steps] : coverage) std::cout << verb << " " << steps << "; ";
  std::cout << "\n" << (right ? "all lives were right" : "a life was wrong") << std::endl;
  return right ? 0 : 1;
}

}  // namespace
}  // namespace rondo::life

int main(int count, char** words) {
  rondo::life::Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const size_t equals = word.find('=');
    if (word.compare(0, 2, "--") != 0) {
      std::cerr << "life: '" << word << "' is no --option\n";
      return 2;
    }
    arguments[word.substr(2, equals == std::string::npos ? equals : equals - 2)] =
        equals == std::string::npos ? "1" : word.substr(equals + 1);
  }
  try {
    return rondo::life::run(arguments);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
