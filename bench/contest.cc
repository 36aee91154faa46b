#include "bench/contest.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "bench/children.h"
#include "bench/output.h"
#include "ring/base/error.h"

namespace rondo::bench {
namespace {

// A setting that was so much slower than its library's best in the first run is not asked again.
constexpr double kNear = 1.25;
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

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) out.push_back(part);
  return out;
}

std::string sizes_of(const std::vector<std::string>& args) {
  const auto at = std::find(args.begin(), args.end(), "--sizes");
  return at != args.end() && at + 1 != args.end() ? *(at + 1) : "";
}

// The entrant's arguments with other sizes.
std::vector<std::string> with_sizes(std::vector<std::string> args, const std::string& sizes) {
  const auto at = std::find(args.begin(), args.end(), "--sizes");
  if (at != args.end() && at + 1 != args.end()) *(at + 1) = sizes;
  return args;
}

// One driver's run holds all of Gloo's algorithms, and its pairs that block or spin may wait for ever in some.
bool is_gloo(const std::string& library) { return library.rfind("gloo", 0) == 0; }

bool right(const Row& row) { return row.wrong.value_or(0) == 0; }

}  // namespace

Contest::Contest(Question question, const std::vector<std::string>& libraries, const PeerPlaces& places, int cores,
                 double program_seconds)
    : question_(std::move(question)),
      libraries_(libraries),

      crowded_(question_.world > cores),
      program_seconds_(program_seconds) {
  for (const std::string& library : libraries_) {
    std::string missing;
    for (Entrant& entrant : entrants(library, question_, places, cores, missing)) tried_.push_back({entrant, ""});
    if (!missing.empty()) missing_[library] = missing;
  }
}

void Contest::ask(Tried& tried, Answers& answers) {
  const bool alone = crowded_ || is_gloo(tried.entrant.library);
  const std::string asked = sizes_of(tried.entrant.args);  // maybe fewer than the question's
  const std::vector<std::string> portions = alone ? split(asked) : std::vector{asked};
  for (const std::string& sizes : portions) {
    const PrivateDirectory directory;
    const std::string json = directory.path() + "/rows.json", log = directory.path() + "/log";
    Children::Program program{
        tried.entrant.program, with_sizes(tried.entrant.args, sizes), tried.entrant.environment, log, log, true};
    program.args.insert(program.args.end(), {"--json", json});
    Children children;
    children.start(program);
    const int code = children.wait(program_seconds_);
    if (children.interrupted()) throw Exception(ErrorCode::kAborted, "interrupted");
    if (code == kTimedOut) {
      tried.status = fmt::format("did not finish {} in {:.0f} s", sizes, program_seconds_);
      continue;
    }
    if (code != 0) {
      tried.status = fmt::format("ended with code {}: {}", code, last_words(log));
      continue;
    }
    for (Row row : read_rows(json)) {
      row.library = tried.entrant.library;
      if (!is_gloo(row.library) && row.library != "rondo") row.algorithm = tried.entrant.setting;
      answers.push_back(std::move(row));
    }
  }
}

void Contest::run_once(const std::function<void(const std::string&)>& on_progress) {
  Answers answers;
  for (Tried& tried : tried_) {
    if (!tried.status.empty()) continue;
    on_progress(fmt::format("{}: {}, {}", question_.text(), tried.entrant.library, tried.entrant.setting));
    ask(tried, answers);
  }
  runs_.push_back(std::move(answers));
  if (runs_.size() == 1) narrow();
}

void Contest::narrow() {
  std::set<std::string> near;
  for (const Row& row : runs_.front()) {
    const std::optional<Row> fastest = best(0, row.library, row.bytes);
    if (fastest && right(row) && row.time_us <= fastest->time_us * kNear)
      near.insert(row.library + "/" + row.algorithm);
  }
  for (Tried& tried : tried_) {
    const bool one = tried.entrant.library == "rondo" || is_gloo(tried.entrant.library);
    const bool slow = near.count(tried.entrant.library + "/" + tried.entrant.setting) == 0;
    if (!one && slow && tried.status.empty()) tried.status = "slower than another setting at every size; asked once";
  }
}

std::optional<Row> Contest::best(size_t run, const std::string& library, uint64_t bytes) const {
  std::optional<Row> best;
  for (const Row& row : runs_.at(run)) {
    if (row.library != library || row.bytes != bytes || !right(row)) continue;
    if (!best || row.time_us < best->time_us) best = row;
  }
  return best;
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
    for (const Row& row : answers) sizes.insert(row.bytes);
  }
  return {sizes.begin(), sizes.end()};
}

std::string Contest::why_missing(const std::string& library) const {
  for (const Answers& answers : runs_) {
    for (const Row& row : answers) {
      if (row.library == library && right(row)) return "";
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
