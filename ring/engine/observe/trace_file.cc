#include "ring/engine/observe/trace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "rondo/error.h"

namespace rondo {
namespace {

constexpr size_t kPageBytes = 4096;

[[noreturn]] void refuse(const std::string& path, int number) {
  throw Exception(ErrorCode::kSystem, fmt::format("the trace {} cannot be written: {} (RONDO_TRACE names a folder on a "
                                                  "file system with room)",
                                                  path, std::generic_category().message(number)));
}

// A file of that many bytes, all allocated, under a name that no reader looks for.
int create(const std::string& part, size_t bytes) {
  const int file = open(part.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) refuse(part, errno);
  if (const int failed = posix_fallocate(file, 0, static_cast<off_t>(bytes)); failed != 0) {
    close(file);
    unlink(part.c_str());
    refuse(part, failed);
  }
  return file;
}

}  // namespace

TraceFile::TraceFile(const std::string& folder, int rank, uint64_t bytes) {
  const uint64_t records = std::bit_floor(std::max<uint64_t>(bytes / sizeof(TracePlace), 1));
  mask_ = records - 1;
  bytes_ = kTraceHeaderBytes + kTraceTextBytes + records * sizeof(TracePlace);
  const std::string path = fmt::format("{}/rank-{}.rondo-trace", folder, rank);
  const std::string part = path + ".part";
  if (mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) refuse(path, errno);
  const int file = create(part, bytes_);
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  const int failed = memory == MAP_FAILED ? errno : 0;
  close(file);
  if (failed != 0) {
    unlink(part.c_str());
    refuse(path, failed);
  }
  header_ = static_cast<TraceHeader*>(memory);
  text_ = static_cast<char*>(memory) + kTraceHeaderBytes;
  places_ = reinterpret_cast<TracePlace*>(text_ + kTraceTextBytes);
  // The first write to a page of a file is a page fault of some microseconds: here, not in an operation.
  for (size_t at = 0; at < bytes_; at += kPageBytes) static_cast<volatile char*>(memory)[at] = 0;
  header_->records = records;
  std::memcpy(header_->magic, kTraceMagic, sizeof(kTraceMagic));
  if (std::rename(part.c_str(), path.c_str()) != 0) {
    const int why = errno;
    unlink(part.c_str());
    munmap(memory, bytes_);
    refuse(path, why);
  }
}

TraceFile::~TraceFile() { munmap(header_, bytes_); }

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
