#pragma once

#include <string>
#include <string_view>

namespace rondo {

// `text` as a string of JSON, with its quotation marks. Also for values in error messages: control characters
// are visible there.
std::string json_text(std::string_view text);

}  // namespace rondo
