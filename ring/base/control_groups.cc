#include "ring/base/control_groups.h"

#include <fmt/format.h>

#include <sstream>

namespace rondo {
namespace {

// From the group at `path` below the mount up to the mount itself.
void add_upwards(const std::string& mount, std::string path, bool second_version, std::vector<ControlGroup>& found) {
  while (path.size() > 1) {
    found.push_back({mount + path, second_version});
    path.erase(path.find_last_of('/'));
  }
  found.push_back({mount, second_version});
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::string& groups, const std::string& root,
                                         std::string_view controller) {
  std::vector<ControlGroup> found;
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // "number:controllers:path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (!path.starts_with('/')) continue;
    if (controllers.empty()) {
      add_upwards(root, path, true, found);
      add_upwards(root + "/unified", path, true, found);  // beside hierarchies of the first version
    } else if (fmt::format(",{},", controllers).find(fmt::format(",{},", controller)) != std::string::npos) {
      add_upwards(fmt::format("{}/{}", root, controllers), path, false, found);
      if (controllers != controller) add_upwards(fmt::format("{}/{}", root, controller), path, false, found);
    }
  }
  return found;
}

}  // namespace rondo
