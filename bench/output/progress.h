#pragma once

#include <string>

namespace rondo::bench {

// One line on standard error that is overwritten in place; nothing at all where that is no terminal.
class Progress {
 public:
  Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }
  // Shows `text` in place of what stands there. clear() before anything else is printed.
  void show(const std::string& text);
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
};

}  // namespace rondo::bench
