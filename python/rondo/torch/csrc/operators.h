#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace rondo_torch {

// An operator of torch by its name, "rondo::all_gather". Some are defined here and others in Python, by
// rondo/torch/_group.py: no code of Python's is compiled into this library, so that one file serves every Python.
template <typename Function>
c10::TypedOperatorHandle<Function> operator_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

}  // namespace rondo_torch
