#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "rondo/call.h"
#include "rondo/collective.h"
#include "rondo/communicator.h"
#include "rondo/error.h"
#include "rondo/rondo.h"

namespace rondo::c {

// What a pointer that must not be NULL points at. Throws Exception(kInvalid).
template <typename T>
T& given(T* pointer, const char* what) {
  if (pointer == nullptr) throw Exception(ErrorCode::kInvalid, std::string(what) + " is NULL");
  return *pointer;
}

// Turn the integers of the C API into enumerations, which hold a byte. Throw Exception(kInvalid) for values
// outside the list.
DType dtype_of(rondo_dtype_t dtype);
Op op_of(rondo_op_t op);
Collective collective_of(rondo_collective_t collective);
WireFormat wire_format_of(rondo_wire_format_t format);

// Turn the structures of the C API into those of C++. They are read during the call only: pointers inside (counts,
// residuals, the program's operation) still refer to the caller's memory. NULL options are the defaults. Throw
// Exception(kInvalid) before any side effect.
CallOptions options_of(const rondo_options_t* given);
Call call_of(const rondo_call_t* given, const Communicator& group);

// More than any structure of this API will have: one with a larger struct_bytes was not initialized.
inline constexpr size_t kMostStructBytes = 1024;

// Throws Exception(kInvalid). Outside of the template below, so that its text is compiled once.
[[noreturn]] void refuse_struct(const char* name, size_t bytes, const char* why);

// Reads a caller's structure, which may be that of an older or newer header. `defaults` supplies fields that
// the caller does not know. Fields that this library does not know must be zero.
template <typename T>
T read_struct(const T* given, T defaults, const char* name) {
  // Every structure begins with struct_bytes, so this field can be read whichever header the caller has.
  const size_t bytes = given->struct_bytes;
  if (bytes < sizeof(size_t) || bytes > kMostStructBytes || bytes % alignof(T) != 0) {
    refuse_struct(name, bytes, "no header has such a size: initialize the structure with its _INIT macro");
  }
  // Fields are only ever added at the end: the common prefix of two headers has equal offsets.
  std::memcpy(&defaults, given, std::min(bytes, sizeof(T)));
  const auto* raw = reinterpret_cast<const unsigned char*>(given);
  if (std::any_of(raw + std::min(bytes, sizeof(T)), raw + bytes, [](unsigned char byte) { return byte != 0; })) {
    refuse_struct(name, bytes, "it sets fields that this version of the library (" RONDO_VERSION ") does not have");
  }
  return defaults;
}

}  // namespace rondo::c
