#pragma once

#include <string>

namespace rondo {

// Replaces a file by `text`, whole or not at all: who reads it meanwhile sees the old text or the new one. What is no
// regular file (/dev/stdout, a pipe) is written as it is. Throws Exception(kSystem): "cannot write PATH: why".
void replace_file(const std::string& path, const std::string& text);

}  // namespace rondo
