#pragma once

#include <memory>

#include "rondo/rondo.h"
#include "rondo/store.h"

namespace rondo::c {

// A Store that calls the program's functions. Throws Exception(kInvalid) if one is missing.
std::shared_ptr<Store> program_store(const rondo_store_t* given);

}  // namespace rondo::c
