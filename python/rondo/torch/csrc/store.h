#pragma once

#include <rondo/rondo.h>

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace rondo_torch {

struct NamedStore {
  c10::intrusive_ptr<c10d::Store> store;
  std::string prefix;  // of the keys
};
// torch's store as rondo_join takes it: no second port, and every kind of store serves. Valid as long as `named`.
rondo_store_t functions_of(const NamedStore& named);

}  // namespace rondo_torch
