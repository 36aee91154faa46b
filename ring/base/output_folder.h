#pragma once

#include <sys/types.h>

#include <string>

#include "ring/base/descriptor.h"

namespace rondo {

// A folder that a setting names, for files that this process writes. Another user may have prepared it, with a
// link to a file of this user in it, and may change it at any time. So no link in it is followed, and no file
// that exists is opened.
class OutputFolder {
 public:
  enum class Missing { kMake, kRefuse };  // kMake: the folder, not its parents

  // what: the setting, "RONDO_METRICS"; it begins every error. Throws Exception(kSystem), which names the path.
  OutputFolder(std::string what, std::string path, Missing missing);

  // Makes a new, empty file "NAME.part" for reading and writing, in place of one of this name. Throws
  // Exception(kSystem).
  Descriptor create(const std::string& name, mode_t mode) const;
  // Gives "NAME.part" its name, in one step and in place of an earlier file. If that fails it removes the file
  // and throws Exception(kSystem).
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
