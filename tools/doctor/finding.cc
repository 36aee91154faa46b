#include "tools/doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace rondo::doctor {
namespace {

const char* name_of(Level level) { return level == Level::kFine ? "ok" : level == Level::kNote ? "note" : "WRONG"; }

long count_of(const Findings& findings, Level level) {
  return std::count_if(findings.begin(), findings.end(), [level](const Finding& f) { return f.level == level; });
}

}  // namespace

bool would_stop_a_job(const Findings& findings) { return count_of(findings, Level::kWrong) > 0; }

std::string as_text(const Findings& findings) {
  std::string text;
  for (const Finding& f : findings) {
    text += fmt::format("{:<6}{:<14}{}{}{}\n", name_of(f.level), f.topic, f.text, f.mend.empty() ? "" : ": ", f.mend);
  }
  return text + fmt::format("{} fine, {} to note, {} that would stop a job\n", count_of(findings, Level::kFine),
                            count_of(findings, Level::kNote), count_of(findings, Level::kWrong));
}

// Bytes that are no UTF-8, as in a variable, are replaced.
std::string as_json(const Findings& findings) {
  nlohmann::ordered_json document;
  document["ok"] = !would_stop_a_job(findings);
  document["findings"] = nlohmann::ordered_json::array();
  for (const Finding& f : findings) {
    document["findings"].push_back(
        {{"level", name_of(f.level)}, {"topic", f.topic}, {"text", f.text}, {"mend", f.mend}});
  }
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace rondo::doctor
