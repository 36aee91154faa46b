#include "tools/view/page.h"

#include <string_view>

#include "ring/base/check.h"
#include "tools/view/page_parts.h"

namespace rondo {
namespace {

// The page's parts are this program's own, so a missing mark is our bug.
void fill_in(std::string& text, std::string_view mark, const std::string& with) {
  const size_t at = text.find(mark);
  RONDO_CHECK(at != std::string::npos, "page.html lacks a mark");
  text.replace(at, mark.size(), with);
}

// The text of a script element, which ends at the first "</".
std::string inside_script(const nlohmann::ordered_json& json) {
  std::string text;
  for (const char c : json.dump()) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

// The data goes in last: a mark inside of it would else be filled in.
std::string page(const nlohmann::ordered_json& runs) {
  std::string text = kPageHtml;
  fill_in(text, "@STYLE@", kPageStyle);
  fill_in(text, "@SCRIPT@", kPageScript);
  fill_in(text, "@DATA@", inside_script(runs));
  return text;
}

}  // namespace rondo
