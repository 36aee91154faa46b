#pragma once

#include <string>
#include <vector>

#include "tests/life/life.h"

namespace rondo::life {

bool is_of_python(const std::string& door);
// The life by these doors, without what one of them has not.
Life by_doors(Life life, const std::vector<std::string>& doors);

}  // namespace rondo::life
