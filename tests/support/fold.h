#pragma once

#include "bench/loop/reference.h"

namespace rondo::testing {

using bench::fold_floats;
using bench::fold_integers;
using bench::is_logical;

}  // namespace rondo::testing
