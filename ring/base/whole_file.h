#pragma once

#include <string>

namespace rondo {

// Replaces a file by `text`, completely or not at all: a reader sees the old text or the new one. A path that
// is no regular file (/dev/stdout, a pipe) is written in place. Throws Exception(kSystem): "cannot write PATH:
// why".
void replace_file(const std::string& path, const std::string& text);

}  // namespace rondo
