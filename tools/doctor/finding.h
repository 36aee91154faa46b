#pragma once

#include <string>
#include <vector>

namespace rondo::doctor {

// kNote: a job runs, but slower or with less than it could have. kWrong: it would not start.
enum class Level { kFine, kNote, kWrong };

// One line of the report. Texts are one line each, and name variables and commands as a user types them.
struct Finding {
  Level level = Level::kFine;
  std::string topic;  // "network"
  std::string text;   // what is there
  std::string mend;   // what to do; empty where nothing has to be done
};
using Findings = std::vector<Finding>;

bool would_stop_a_job(const Findings& findings);
// A line for each, and one that counts them.
std::string as_text(const Findings& findings);
// {"ok": bool, "findings": [{"level", "topic", "text", "mend"}]}, indented.
std::string as_json(const Findings& findings);

}  // namespace rondo::doctor
