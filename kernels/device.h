#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device/device_fold.h"
#include "kernels/device/peer_places.h"

// The seam to GPUs: a table of functions that librondo_cuda.so fills. librondo.so has no CUDA in it; it opens that
// library when a communicator attaches to a device. tests/support/host_device fills the same table without a GPU.
namespace rondo {

// What a function of the table gives: 0, or an error of the device's runtime.
using DeviceStatus = int;

// A queue of work of a device, the caller's or one from make_stream(); an event; as the runtime has them.
using DeviceStream = void*;
using DeviceEvent = void*;

struct DeviceFacts {
  char name[64];
  uint8_t uuid[16];
  int32_t major, minor;    // compute capability
  int32_t driver;          // 13000: CUDA 13.0
  int32_t waits_on_words;  // 1: words() works
  int32_t shares_memory;   // kSharesBy...: how allocate_shared() and map_shared() may work
  uint64_t memory_bytes;
};

// How memory of a device gets to other processes: a descriptor of the driver's stands for it; or legacy CUDA IPC, whose
// handle lies in a file in memory.
enum class MemorySharing : int32_t { kDescriptor = 0, kIpc = 1 };
inline constexpr int32_t kSharesByDescriptor = 1, kSharesByIpc = 2;

enum class MemoryKind : int32_t {
  kHost = 0,    // host memory, page-locked or not
  kDevice = 1,  // memory of one device
  kManaged = 2  // moves between host and devices
};
struct PointerFacts {
  MemoryKind kind;
  int32_t device;  // -1: none
};
struct StreamFacts {
  int32_t device;
  int32_t capturing;  // 1: what is put into it is recorded for a graph, and not run
};

// What copies of blocks move: `rows` rows of `row_bytes`, whose starts lie `to_pitch` and `from_pitch` bytes apart.
struct DeviceCopy {
  void* to;
  const void* from;
  uint64_t to_pitch, from_pitch;
  uint64_t row_bytes, rows;
};

// What a stream does to a word of locked host memory.
enum class WordAction : int32_t {
  kWrite = 0,  // stores `value`, after all that was done before in the stream
  kAwait = 1   // until the word is at least `value`, as numbers that wrap around
};
struct WordOp {
  uint32_t* word;
  uint32_t value;
  WordAction action;
};
inline constexpr int kMaxWordOps = 128;

// A function of the host in a stream. It must not call the device's runtime.
using HostFunction = void (*)(void* argument);

// Raised whenever the table or a struct in it changes: the library that fills it is built from the same tree.
inline constexpr uint32_t kDeviceTableVersion = 5;

// What both sides must have been built with alike, beside the version: the layout of all that crosses the seam, and the
// numbers of dtypes and of folds. FNV-1a.
constexpr uint64_t device_build() {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](uint64_t number) { hash = (hash ^ number) * 0x100000001b3; };
  for (const uint64_t number :
       {uint64_t{kDeviceTableVersion}, uint64_t{sizeof(DeviceFacts)}, uint64_t{sizeof(PointerFacts)},
        uint64_t{sizeof(StreamFacts)}, uint64_t{sizeof(DeviceCopy)}, uint64_t{sizeof(WordOp)},
        uint64_t{sizeof(DeviceFold)}, uint64_t{offsetof(DeviceFold, arguments)}, uint64_t{offsetof(DeviceFold, fold)},
        uint64_t{sizeof(PeerPlaces)}, uint64_t{offsetof(PeerPlaces, length)}, uint64_t{offsetof(PeerPlaces, world)},
        uint64_t{sizeof(DeviceCard)}, uint64_t{sizeof(DeviceWindow)}, uint64_t{kMaxWordOps}, uint64_t{kMaxPlaceRanks},
        uint64_t{kDTypes}, uint64_t{kFolds}}) {
    add(number);
  }
  return hash;
}

// All functions may be called by any thread. "In the stream": returns at once, or when the runtime has room for it;
// done when what was put into the stream before is done. A thread's current device is left as it was, but by use().
struct DeviceTable {
  uint32_t version;  // kDeviceTableVersion
  uint32_t bytes;    // sizeof(DeviceTable)
  uint64_t build;    // device_build()

  // --- devices
  const char* (*error_text)(DeviceStatus status);
  DeviceStatus (*count)(int* devices);  // 0 devices is no error; an absent driver is
  DeviceStatus (*facts)(int device, DeviceFacts* facts);
  DeviceStatus (*current)(int* device);  // of this thread
  DeviceStatus (*use)(int device);
  // Before passes are put into streams beside which others wait: a kernel that is loaded at its first launch may wait
  // for all streams of the device. Cheap the second time.
  DeviceStatus (*load_kernels)(int device);

  // --- memory
  DeviceStatus (*allocate)(size_t bytes, void** memory);  // of the current device
  DeviceStatus (*release)(void* memory);
  // Memory of the current device that other processes can map, zeroed; `descriptor` stands for it, and is closed by the
  // caller. map_shared() maps it for the current device, which may be another one, also in the process that made it.
  // kDescriptor: it lives until all that have it have released it. kIpc: who has made it releases it last.
  // release_shared() does not wait for streams.
  DeviceStatus (*allocate_shared)(size_t bytes, MemorySharing sharing, void** memory, int* descriptor);
  DeviceStatus (*map_shared)(int descriptor, MemorySharing sharing, size_t bytes, void** memory);
  DeviceStatus (*release_shared)(void* memory);
  // Page-locks host memory, so that copies from and to it run in the stream, and kernels reach it. It may be locked
  // several times, and is unlocked as often.
  DeviceStatus (*lock_host)(void* memory, size_t bytes);
  DeviceStatus (*unlock_host)(void* memory);
  // Where kernels reach locked host memory.
  DeviceStatus (*kernel_address)(void* memory, void** address);
  DeviceStatus (*pointer_facts)(const void* pointer, PointerFacts* facts);

  // --- streams and events
  DeviceStatus (*make_stream)(DeviceStream* stream);  // does not wait for the legacy stream
  DeviceStatus (*destroy_stream)(DeviceStream stream);
  DeviceStatus (*synchronize)(DeviceStream stream);
  DeviceStatus (*stream_facts)(DeviceStream stream, StreamFacts* facts);
  DeviceStatus (*make_event)(int device, DeviceEvent* event);  // for streams of this device
  DeviceStatus (*destroy_event)(DeviceEvent event);
  DeviceStatus (*record)(DeviceEvent event, DeviceStream stream);
  DeviceStatus (*wait)(DeviceStream stream, DeviceEvent event);  // in the stream: for the event's last record()
  DeviceStatus (*synchronize_event)(DeviceEvent event);

  // --- in the stream
  DeviceStatus (*copy)(const DeviceCopy* copy, DeviceStream stream);
  DeviceStatus (*fold)(const DeviceFold* fold, DeviceStream stream);
  // fold() with pointers, and the length of a message, that it finds when it runs.
  DeviceStatus (*fold_at)(const DeviceFold* fold, const PeerPlaces* places, DeviceStream stream);
  DeviceStatus (*call_host)(HostFunction function, void* argument, DeviceStream stream);
  // In this order; 1 to kMaxWordOps.
  DeviceStatus (*words)(const WordOp* ops, int count, DeviceStream stream);
};

// What the library exports; nullptr: another version was asked for.
inline constexpr const char* kDeviceTableSymbol = "rondo_device_table";
using DeviceTableFunction = const DeviceTable* (*)(uint32_t version);

}  // namespace rondo
