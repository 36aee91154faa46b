#pragma once

#include <string>

namespace rondo {

// The bytes of a file. If reading ends in an error (a folder, a process under /proc that has ended), the bytes
// before it; none if the file cannot be opened. Never throws for what the file is. Any thread.
std::string file_text(const std::string& path);

}  // namespace rondo
