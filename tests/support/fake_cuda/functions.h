#pragma once

#include "tests/support/fake_cuda/fake.h"

// The driver's functions, by their names; fake_cuda.cc counts who calls them, asks for a current context, and returns
// what they refuse.
namespace rondo::testing::functions {

#define FAKE_CUDA_DECLARED(version, name, parameters) void name parameters;
RONDO_DRIVER_FUNCTIONS(FAKE_CUDA_DECLARED)
#undef FAKE_CUDA_DECLARED

}  // namespace rondo::testing::functions
