#pragma once

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "tests/support/temp_folder.h"
#include "transport/auth/authenticator.h"

namespace rondo::testing {

// The authenticator of a process that knows this secret, of 16 bytes at least, by a file.
inline Authenticator knowing(const std::string& secret) {
  return Authenticator(Secret{Secret::Source::kFile, secret, "RONDO_SECRET_FILE=\"/a\""});
}

// A file that RONDO_SECRET_FILE may name, unless its mode is another. Returns its path.
inline std::string make_secret(const TempFolder& folder, const std::string& name, const std::string& content,
                               mode_t mode = 0600) {
  const std::string path = folder.path(name);
  std::ofstream(path) << content;
  REQUIRE(::chmod(path.c_str(), mode) == 0);
  return path;
}

}  // namespace rondo::testing
