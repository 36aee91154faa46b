#pragma once

#include <string>
#include <string_view>

namespace rondo {

// `text` as a string of JSON, with its quotation marks: also for values in messages, whose control characters show so.
std::string json_text(std::string_view text);

}  // namespace rondo
