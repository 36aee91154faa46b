// Where the control groups of a process have their files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo {

struct ControlGroup {
  std::string folder;
  bool second_version = true;
};

// The groups that a process is in, and those above them, whose limits count, too: of version 2, and of version 1 those
// with this controller ("cpu"). groups: text of /proc/thread-self/cgroup. root: the folder /sys/fs/cgroup. Some folders
// may not exist: a container's path below its own mount, then its groups are those at the mount.
std::vector<ControlGroup> control_groups(const std::string& groups, const std::string& root,
                                         std::string_view controller);

}  // namespace rondo
