#pragma once

#include <cstddef>
#include <cstdint>

// The part of libpmix.so.2's binary interface that we call, as the PMIx standard lays it down, so that the build needs
// no header of it. tests/launchers/pmix_abi.cc compares it with pmix.h.
namespace rondo::pmix {

using Status = int;
inline constexpr Status kSuccess = 0, kTimeout = -24;
inline constexpr uint8_t kGlobalScope = 3;
inline constexpr uint16_t kStringType = 3, kIntType = 6;
inline constexpr char kTimeoutKey[] = "pmix.timeout";  // int, seconds

struct Process {
  char name_space[256];
  uint32_t rank;
};

struct Value {
  uint16_t type;
  union {
    char* string;
    int integer;
    struct {
      void* pointers[2];
      char byte;
    } largest;
  } data;
};

struct Info {
  char key[512];
  uint32_t flags;
  Value value;
};

using Init = Status (*)(Process* self, Info* info, size_t infos);
using Finalize = Status (*)(const Info* info, size_t infos);
using Put = Status (*)(uint8_t scope, const char* key, Value* value);
using Commit = Status (*)();
using Get = Status (*)(const Process* owner, const char* key, const Info* info, size_t infos, Value** value);
using ErrorString = const char* (*)(Status status);

}  // namespace rondo::pmix
