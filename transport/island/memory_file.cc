#include "transport/island/memory_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "ring/base/control_groups.h"
#include "ring/base/file_space.h"
#include "ring/base/system_error.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// A peer that could shrink the file would make this process die of SIGBUS at its next access.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// errno says why.
[[noreturn]] void throw_system(const char* what, size_t bytes) {
  throw Exception(system_error(fmt::format("shared memory of {} bytes: {}", bytes, what), errno));
}

// The limit counts for memory files too, and what goes beyond it ends the process by a signal.
void refuse_beyond_file_limit(size_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return;
  throw Exception(ErrorCode::kSystem, fmt::format("shared memory of {} bytes: this process may make files of {} bytes "
                                                  "only (raise RLIMIT_FSIZE: ulimit -f)",
                                                  bytes, static_cast<uint64_t>(limit.rlim_cur)));
}

// The kernel reserves pages of a memfd until it kills some process to get more: so what is plainly too much is refused
// before.
void refuse_too_much(size_t bytes) {
  const uint64_t available = available_memory();
  if (bytes <= available) return;
  throw Exception(ErrorCode::kSystem,
                  fmt::format("shared memory of {} bytes: only {} bytes of memory are available", bytes, available));
}

// Up to here the look at what is available (30 us) is left out.
constexpr size_t kAlwaysThere = 1 << 20;

}  // namespace

size_t whole_pages(size_t bytes) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

Mapping::Mapping(int file, size_t bytes, Touch touch)
    : Mapping(whole_pages(bytes), MAP_SHARED | (touch == Touch::kNow ? MAP_POPULATE : 0), file) {}

Mapping::Mapping(size_t bytes) : Mapping(whole_pages(bytes), MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1) {}

Mapping::Mapping(size_t bytes, int flags, int file) : bytes_(bytes) {
  void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory == MAP_FAILED) throw_system("mmap", bytes_);
  data_ = static_cast<std::byte*>(memory);
}

// Failure is no error: the pages then come one by one, at the first touch of each.
void Mapping::populate() const {
#ifndef MADV_POPULATE_WRITE
  constexpr int MADV_POPULATE_WRITE = 23;  // of Linux 5.14; older headers
#endif
  static_cast<void>(::madvise(data_, bytes_, MADV_POPULATE_WRITE));
}

Mapping::~Mapping() { ::munmap(data_, bytes_); }

// Sealed last, since the seals forbid to set the size.
Descriptor make_memory_file(size_t bytes, Pages pages) {
  const size_t size = whole_pages(bytes);
  refuse_beyond_file_limit(size);
  if (pages == Pages::kReserved && size > kAlwaysThere) refuse_too_much(size);
  Descriptor file([&] { return ::memfd_create("rondo", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  if (!file.valid()) throw_system("memfd_create", size);
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0) throw_system("ftruncate", size);
  // Memory that runs out is an error here, and a SIGBUS later.
  if (pages == Pages::kReserved) {
    errno = take_file_space(file.get(), size);
    if (errno != 0) throw_system("fallocate", size);
  }
  if (::fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) throw_system("sealing", size);
  return file;
}

// A peer may send any descriptor. Without the seals it could shrink the file later, and an access here would be a
// SIGBUS.
std::string check_memory_file(int file, size_t bytes, Pages pages) {
  struct stat facts {};
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (seals < 0 || ::fstat(file, &facts) != 0) return "it is no memory file";
  if ((seals & kSeals) != kSeals) return "it is not sealed";
  if (facts.st_size < 0 || static_cast<size_t>(facts.st_size) != whole_pages(bytes)) {
    return fmt::format("it holds {} bytes, and {} were announced", facts.st_size, bytes);
  }
  constexpr uint64_t kBlockBytes = 512;
  if (pages == Pages::kReserved && static_cast<uint64_t>(facts.st_blocks) * kBlockBytes < whole_pages(bytes)) {
    return "not all of its pages are there";
  }
  return "";
}

}  // namespace rondo
