#include "tools/launcher/line_prefix.h"

namespace rondo::launcher {

// Memory is bounded: a line that never ends is passed on in parts. `room` leaves no line longer than kMaxLineBytes with
// its prefix; a newline may be the byte behind it.
void LinePrefix::append(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const size_t room = kMaxLineBytes - prefix_.size() - line_.size();
    const size_t newline = bytes.substr(0, room + 1).find('\n');
    if (newline != std::string_view::npos) {
      emit(bytes.substr(0, newline), out);
      bytes.remove_prefix(newline + 1);
    } else if (bytes.size() > room) {
      emit(bytes.substr(0, room), out);
      bytes.remove_prefix(room);
    } else {
      line_.append(bytes);
      return;
    }
  }
}

void LinePrefix::finish(std::string& out) {
  if (!line_.empty()) emit("", out);
}

void LinePrefix::emit(std::string_view end_of_line, std::string& out) {
  out.append(prefix_).append(line_).append(end_of_line).push_back('\n');
  line_.clear();
}

}  // namespace rondo::launcher
