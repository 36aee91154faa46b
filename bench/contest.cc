#include "bench/contest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <set>

#include "bench/children.h"
#include "bench/output.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

// Settings that were so much slower than their library's best at a size are not asked it again: after one turn, in
// which chance may cost a factor of two, and after a run.
constexpr double kHopeless = 3, kFar = 1.25;
// Libraries with fewer settings at a size are asked so often in a turn, where another has as many.
constexpr size_t kMostChances = 4;
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kTimedOut = 124;  // Children::wait
constexpr size_t kLongestReason = 200;

std::string last_words(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" -\t") != std::string::npos) last = line;
  }
  return last.substr(0, kLongestReason);
}

bool right(const Row& row) { return row.wrong.value_or(0) == 0; }

}  // namespace

Contest::Contest(Question question, const std::vector<std::string>& libraries, const PeerPlaces& places, int cores,
                 double program_seconds, size_t settings)
    : question_(std::move(question)),
      libraries_(libraries),
      program_seconds_(program_seconds),
      outside_settings_(settings) {
  for (const std::string& library : libraries_) {
    std::string missing;
    for (const Entrant& entrant : entrants(library, question_, places, cores, missing)) {
      tried_.push_back({entrant, entrant.sizes, entrant.alone, ""});
    }
    if (!missing.empty()) missing_[library] = missing;
  }
}

void Contest::ask(Tried& tried, const std::vector<std::string>& sizes, Answers& answers) {
  const PrivateDirectory directory;
  const std::string json = directory.path() + "/rows.json", log = directory.path() + "/log";
  const std::string list = fmt::format("{}", fmt::join(sizes, ","));
  const Entrant& entrant = tried.entrant;
  Children::Program program{entrant.program, entrant.args, entrant.environment, log, log, true};
  program.args.insert(program.args.end(), {"--sizes", list, "--json", json});
  Children children;
  children.start(program);
  const int code = children.wait(program_seconds_);
  if (children.interrupted()) throw Exception(ErrorCode::kAborted, "interrupted");
  const std::vector<Row> rows = code == 0 ? read_rows(json) : std::vector<Row>{};
  if (code == kTimedOut) {
    tried.status = fmt::format("did not finish {} in {:.0f} s", list, program_seconds_);
  } else if (code != 0) {
    tried.status = fmt::format("ended with code {}: {}", code, last_words(log));
  } else if (rows.size() != sizes.size()) {
    tried.status = fmt::format("gave {} answers for {}", rows.size(), list);
  } else {
    for (size_t i = 0; i < rows.size(); ++i) {
      answers.push_back({&tried, sizes[i], rows[i]});
      Row& row = answers.back().row;
      row.library = entrant.library;
      if (row.library != "rondo") row.algorithm = entrant.setting;
    }
    return;
  }
  if (sizes.size() > 1) {
    tried.alone = true;
    return;
  }
  std::erase(tried.sizes, sizes.front());
}

void Contest::begin_run() {
  if (runs_.size() == 1) drop_slower_than(kFar);
  runs_.emplace_back();
}

void Contest::ask_all(Tried& tried, const Sizes& sizes, Answers& answers, const OnProgress& on_progress) {
  if (sizes.empty()) return;
  on_progress(fmt::format("{}: {}, {}", question_.text(), tried.entrant.library, tried.entrant.setting));
  if (!tried.alone) return ask(tried, sizes, answers);
  for (const std::string& size : sizes) ask(tried, {size}, answers);
}

Contest::Settings Contest::with_a_chance() {
  Settings settings;
  for (Tried& tried : tried_) {
    for (const std::string& size : tried.sizes) settings[{tried.entrant.library, size}].push_back(&tried);
  }
  return settings;
}

void Contest::take_turn(const OnProgress& on_progress) {
  Answers& answers = runs_.back();
  if (runs_.size() == 1 && answers.empty()) {
    for (Tried& tried : tried_) ask_all(tried, Sizes(tried.sizes), answers, on_progress);
    return drop_slower_than(kHopeless);
  }
  const Settings settings = with_a_chance();
  const size_t outside = std::min(outside_settings_, kMostChances);
  std::map<std::string, size_t> chances;  // by size
  size_t rounds = outside;
  for (const auto& [asked, some] : settings) {
    size_t& most = chances.try_emplace(asked.second, outside).first->second;
    most = std::max(most, std::min(some.size(), kMostChances));
    rounds = std::max(rounds, some.size());
  }
  // A round: every library one setting at each size.
  for (size_t round = 0; round < rounds; ++round) {
    for (const std::string& library : libraries_) {
      std::map<Tried*, Sizes> now;
      for (const auto& [asked, some] : settings) {
        const auto& [of, size] = asked;
        if (of == library && round < std::max(some.size(), chances[size]))
          now[some[round % some.size()]].push_back(size);
      }
      for (const auto& [tried, sizes] : now) ask_all(*tried, sizes, answers, on_progress);
    }
  }
}

void Contest::drop_slower_than(double factor) {
  std::map<std::pair<const Tried*, std::string>, double> fastest;  // a setting's times
  for (const Answer& answer : runs_.front()) {
    const double us = right(answer.row) ? answer.row.time_us : kNever;
    double& time = fastest.try_emplace({answer.tried, answer.size}, us).first->second;
    time = std::min(time, us);
  }
  std::map<std::pair<std::string, std::string>, double> best;  // a library's
  for (const auto& [key, time] : fastest) {
    double& least = best.try_emplace({key.first->entrant.library, key.second}, time).first->second;
    least = std::min(least, time);
  }
  for (Tried& tried : tried_) {
    bool answered = false;
    std::erase_if(tried.sizes, [&](const std::string& size) {
      const auto time = fastest.find({&tried, size});
      if (time == fastest.end()) return false;  // to be asked alone
      answered |= time->second < kNever;
      return time->second == kNever || time->second > best.at({tried.entrant.library, size}) * factor;
    });
    if (!tried.sizes.empty() || !tried.status.empty()) continue;
    tried.status = answered ? "slower than another setting at every size" : "no right answer";
  }
}

std::optional<Row> Contest::best(size_t run, const std::string& library, uint64_t bytes) const {
  std::optional<Row> best;
  for (const auto& [tried, size, row] : runs_.at(run)) {
    if (row.library != library || row.bytes != bytes || !right(row)) continue;
    if (!best || row.time_us < best->time_us) best = row;
  }
  return best;
}

size_t Contest::answers(const std::string& library, uint64_t bytes) const {
  if (runs_.empty()) return 0;
  return static_cast<size_t>(std::count_if(runs_.back().begin(), runs_.back().end(), [&](const Answer& answer) {
    return answer.row.library == library && answer.row.bytes == bytes && right(answer.row);
  }));
}

std::optional<Row> Contest::median(const std::string& library, uint64_t bytes) const {
  std::vector<Row> rows;
  for (size_t run = 0; run < runs(); ++run) {
    if (const std::optional<Row> row = best(run, library, bytes)) rows.push_back(*row);
  }
  if (rows.empty()) return std::nullopt;
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.time_us < b.time_us; });
  return rows[(rows.size() - 1) / 2];
}

std::vector<uint64_t> Contest::sizes() const {
  std::set<uint64_t> sizes;
  for (const Answers& answers : runs_) {
    for (const Answer& answer : answers) sizes.insert(answer.row.bytes);
  }
  return {sizes.begin(), sizes.end()};
}

std::string Contest::why_missing(const std::string& library) const {
  for (const Answers& answers : runs_) {
    for (const Answer& answer : answers) {
      if (answer.row.library == library && right(answer.row)) return "";
    }
  }
  const auto known = missing_.find(library);
  if (known != missing_.end()) return known->second;
  for (const Tried& tried : tried_) {
    if (tried.entrant.library == library && !tried.status.empty()) return tried.status;
  }
  return "no right answer";
}

}  // namespace rondo::bench
