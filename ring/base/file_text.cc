#include "ring/base/file_text.h"

#include <fstream>
#include <sstream>

namespace rondo {

// Reads through the stream: it turns what its buffer throws into a bad state. Iterators over the buffer would
// let the exception pass.
std::string file_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

}  // namespace rondo
