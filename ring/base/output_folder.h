#pragma once

#include <sys/types.h>

#include <string>

#include "ring/base/descriptor.h"

namespace rondo {

// A folder that a setting names, for files that this process writes. Another user may have prepared it, with a link to
// a file of this user's in it, or may change it at any time: no link in it is followed, and no file that is there is
// opened.
class OutputFolder {
 public:
  enum class Missing { kMake, kRefuse };  // kMake: the folder, not its parents

  // what: whose folder it is, "RONDO_METRICS"; begins every error. Throws Exception(kSystem), which names the path.
  OutputFolder(std::string what, std::string path, Missing missing);

  // A new, empty file "NAME.part" for reading and writing, in place of what has this name. Throws Exception(kSystem).
  Descriptor create(const std::string& name, mode_t mode) const;
  // It gets its name, in one step and in place of an earlier file. Throws Exception(kSystem), and removes it.
  void publish(const std::string& name) const;
  void remove_part(const std::string& name) const;

  // Why files cannot be written there; "": they can. Changes nothing.
  static std::string problem(const std::string& path, Missing missing);

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;

  const std::string what_, path_;
  Descriptor folder_;  // the same folder whatever the path comes to mean
};

}  // namespace rondo
