#pragma once

#include <string>

#include "rondo/rondo.h"

namespace rondo::testing {

// A store as a program could bring one, in C: a folder with a file a key, which the processes of a test share. Must
// outlive its structure.
class FolderStore {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}
  rondo_store_t functions();
  const std::string& folder() const { return folder_; }

 private:
  const std::string folder_;
};

}  // namespace rondo::testing
