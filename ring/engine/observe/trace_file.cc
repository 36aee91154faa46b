#include "ring/engine/observe/trace_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "ring/base/descriptor.h"
#include "ring/base/file_space.h"
#include "ring/base/output_folder.h"
#include "rondo/error.h"

namespace rondo {
namespace {

constexpr size_t kPageBytes = 4096;

// Begins every error: the setting that the user can change.
constexpr const char* kWhat = "the trace (RONDO_TRACE)";

// Allocates all blocks of the file, so that a full disk is an error now, and not SIGBUS in an operation.
void allocate(int file, size_t bytes) {
  if (const int failed = take_file_space(file, bytes); failed != 0) {
    throw Exception(ErrorCode::kSystem,
                    fmt::format("{}: {} MiB: {}", kWhat, bytes >> 20, std::generic_category().message(failed)));
  }
}

// MAP_POPULATE: the pages are there before the first record.
void* map(int file, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (memory == MAP_FAILED) {
    throw Exception(ErrorCode::kSystem, fmt::format("{}: mmap: {}", kWhat, std::generic_category().message(errno)));
  }
  return memory;
}

}  // namespace

// The file gets its name when it is complete, so a reader never finds half a header.
TraceFile::TraceFile(const std::string& path, int rank, uint64_t bytes) {
  const uint64_t records = std::bit_floor(std::max<uint64_t>(bytes / sizeof(TraceSlot), 1));
  mask_ = records - 1;
  bytes_ = kTraceHeaderBytes + kTraceTextBytes + records * sizeof(TraceSlot);
  const OutputFolder folder(kWhat, path, OutputFolder::Missing::kMake);
  const std::string name = fmt::format("rank-{}.rondo-trace", rank);
  const Descriptor file = folder.create(name, 0644);
  try {
    allocate(file.get(), bytes_);
    prepare(map(file.get(), bytes_), records);
    folder.publish(name);
  } catch (...) {
    folder.remove_part(name);
    if (header_ != nullptr) munmap(header_, bytes_);
    throw;
  }
}

// Touches every page. The first write to a page of a file is a page fault of some microseconds, which must not
// come in an operation.
void TraceFile::prepare(void* memory, uint64_t records) {
  header_ = static_cast<TraceHeader*>(memory);
  text_ = static_cast<char*>(memory) + kTraceHeaderBytes;
  slots_ = reinterpret_cast<TraceSlot*>(text_ + kTraceTextBytes);
  for (size_t at = 0; at < bytes_; at += kPageBytes) static_cast<volatile char*>(memory)[at] = 0;
  // The file has no name yet, so nothing reads it while it is filled.
  header_->records = records;
  std::memcpy(header_->magic, kTraceMagic, sizeof(kTraceMagic));
}

TraceFile::~TraceFile() { munmap(header_, bytes_); }

// Puts empty shared memory in the place of the mapping: the kernel counts its pages only when they are written.
// If that cannot be had, the file stays mapped.
void TraceFile::let_go() {
  const Descriptor empty([] { return memfd_create("rondo-ended-trace", MFD_CLOEXEC); });
  if (!empty.valid() || ftruncate(empty.get(), static_cast<off_t>(bytes_)) != 0) return;
  mmap(header_, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, empty.get(), 0);
}

// The length is stored after the bytes, with release: a reader of the mapped file sees whole lines.
void TraceFile::say(std::string_view line) {
  std::lock_guard lock(text_mutex_);
  const uint64_t at = header_->text_bytes.load(std::memory_order_relaxed);
  if (line.size() + 1 > kTraceTextBytes - at) {
    header_->text_lost.fetch_add(line.size() + 1, std::memory_order_relaxed);
    return;
  }
  std::memcpy(text_ + at, line.data(), line.size());
  text_[at + line.size()] = '\n';
  header_->text_bytes.store(at + line.size() + 1, std::memory_order_release);
}

}  // namespace rondo
