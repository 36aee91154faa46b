#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace rondo {

// The whole page: page.html with page.css, the scripts and the data in it. runs: of plan_run_json(), equal but for the
// algorithm.
std::string page(const nlohmann::ordered_json& runs);

}  // namespace rondo
