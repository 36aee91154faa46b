#include "bench/output/progress.h"

#include <unistd.h>

#include <cstdio>

namespace rondo::bench {

Progress::Progress() : terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& text) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r\033[K%s", text.c_str());  // to the first column; erase the line
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
  shown_ = false;
}

}  // namespace rondo::bench
