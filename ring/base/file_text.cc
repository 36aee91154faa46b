#include "ring/base/file_text.h"

#include <fstream>
#include <sstream>

namespace rondo {

// A stream turns what its buffer throws into a bad state; iterators over the buffer would let it pass.
std::string file_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(text).str();
}

}  // namespace rondo
