#include "tests/life/life.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace rondo::life {
namespace {

constexpr int kVersion = 1;

[[noreturn]] void wrong(int line, const std::string& what) {
  throw std::runtime_error("life: line " + std::to_string(line) + ": " + what);
}

Step parse_step(const std::vector<std::string>& words, int line) {
  Step step;
  step.verb = words[0];
  step.line = line;
  size_t first = 1;
  if (step.verb == "repeat") {  // repeat N
    if (words.size() != 2) wrong(line, "repeat needs a number");
    step.with("times", words[1]);
    first = 2;
  }
  for (size_t i = first; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos) wrong(line, "'" + words[i] + "' is no key=value");
    step.with(words[i].substr(0, equals), words[i].substr(equals + 1));
  }
  return step;
}

void parse_head(Life& life, const std::vector<std::string>& words, int line) {
  if (words.size() < 2) wrong(line, "'" + words[0] + "' needs a value");
  const std::string& value = words[1];
  if (words[0] == "life") {
    if (value != std::to_string(kVersion)) wrong(line, "version " + value + " is not known");
  } else if (words[0] == "seed") {
    life.seed = std::stoull(value);
  } else if (words[0] == "world") {
    life.world = std::stoi(value);
  } else if (words[0] == "rounds") {
    life.rounds = std::stoi(value);
  } else if (words[0] == "ranks") {
    life.ranks = value == "threads" ? Ranks::kThreads : Ranks::kProcesses;
  } else if (words[0] == "hosts") {
    for (const std::string& host : split_words(value, ',')) life.hosts.push_back(std::stoi(host));
  } else if (words[0] == "doors") {
    life.doors = split_words(value, ',');
  } else if (words[0] == "set") {
    life.settings.push_back(value);
  } else {
    wrong(line, "'" + words[0] + "' is not known before the first thread");
  }
}

void print_steps(std::string& text, const std::vector<Step>& steps, const std::string& indent) {
  for (const Step& step : steps) {
    text += indent + print(step) + "\n";
    if (!has_inner(step.verb)) continue;
    print_steps(text, step.inner, indent + "  ");
    text += indent + "end\n";
  }
}

}  // namespace

bool has_inner(std::string_view verb) { return verb == "repeat" || verb == "batch" || verb == "disagree"; }

std::vector<std::string> split_words(std::string_view text, char between) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(between, at), text.size());
    if (end > at) parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string join_words(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string Step::word(std::string_view key, const std::string& absent) const {
  const auto found = values.find(key);
  return found == values.end() ? absent : found->second;
}

int64_t Step::number(std::string_view key, int64_t absent) const {
  const auto found = values.find(key);
  return found == values.end() ? absent : std::stoll(found->second);
}

double Step::real(std::string_view key, double absent) const {
  const auto found = values.find(key);
  return found == values.end() ? absent : std::stod(found->second);
}

std::vector<std::string> Step::words(std::string_view key, char between) const {
  return split_words(word(key), between);
}

std::vector<uint64_t> Step::numbers(std::string_view key) const {
  std::vector<uint64_t> result;
  for (const std::string& text : words(key)) result.push_back(std::stoull(text));
  return result;
}

std::string Step::of_member(std::string_view key, int member, const std::string& absent) const {
  const std::vector<std::string> list = words(key);
  return list.empty() ? absent : list[static_cast<size_t>(member) % list.size()];
}

Step& Step::with(const std::string& key, const std::string& value) {
  values[key] = value;
  return *this;
}

bool Life::has_setting(const std::string& setting) const {
  return std::find(settings.begin(), settings.end(), setting) != settings.end();
}

bool Life::all_are(std::string_view door) const {
  return std::all_of(doors.begin(), doors.end(), [door](const std::string& each) { return each == door; });
}

int Life::newcomers() const {
  int all = 0;
  for (const Step& step : threads.empty() ? std::vector<Step>{} : threads[0]) {
    if (step.verb == "grow") all += static_cast<int>(step.number("newcomers"));
  }
  return all;
}

size_t Life::first_step(int process) const {
  size_t step = 0;
  for (int64_t known = world; known <= process; ++step) {
    if (threads[0][step].verb == "grow") known += threads[0][step].number("newcomers");
  }
  return step;
}

Step parse_step(const std::string& text) { return parse_step(split_words(text, ' '), 0); }

Life parse(const std::string& text) {
  Life life;
  std::istringstream lines(text);
  std::vector<std::vector<Step>*> open;  // the lists that a line may be added to, the innermost last
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::vector<std::string> words = split_words(line.substr(0, line.find('#')), ' ');
    if (words.empty()) continue;
    if (words[0] == "thread") {
      if (open.size() > 1) wrong(number, "an `end` is missing before it");
      life.threads.emplace_back();
      open = {&life.threads.back()};
    } else if (open.empty()) {
      parse_head(life, words, number);
    } else if (words[0] == "end") {
      if (open.size() < 2) wrong(number, "an end too many");
      open.pop_back();
    } else {
      open.back()->push_back(parse_step(words, number));
      if (has_inner(words[0])) open.push_back(&open.back()->back().inner);
    }
  }
  if (open.size() > 1) wrong(number, "an `end` is missing");
  if (life.doors.empty()) life.doors = {"cpp"};
  return life;
}

std::string print(const Step& step) {
  std::string text = step.verb;
  for (const auto& [key, value] : step.values) text += step.verb == "repeat" ? " " + value : " " + key + "=" + value;
  return text;
}

std::string print(const Life& life) {
  std::string text = "life " + std::to_string(kVersion) + "\nseed " + std::to_string(life.seed) + "\nworld " +
                     std::to_string(life.world) + "\nrounds " + std::to_string(life.rounds) + "\nranks " +
                     (life.ranks == Ranks::kThreads ? "threads" : "processes") + "\n";
  std::vector<std::string> hosts;
  for (int host : life.hosts) hosts.push_back(std::to_string(host));
  if (!hosts.empty()) text += "hosts " + join_words(hosts, ",") + "\n";
  text += "doors " + join_words(life.doors, ",") + "\n";
  for (const std::string& setting : life.settings) text += "set " + setting + "\n";
  for (const std::vector<Step>& steps : life.threads) {
    text += "thread\n";
    print_steps(text, steps, "");
  }
  return text;
}

}  // namespace rondo::life
