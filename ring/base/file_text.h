#pragma once

#include <string>

namespace rondo {

// The bytes of a file; those before the first error, where it ends in one (a folder, a process under /proc that is
// gone meanwhile), and none where it cannot be opened. Never throws for what the file is. Any thread.
std::string file_text(const std::string& path);

}  // namespace rondo
