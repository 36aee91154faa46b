#include "tests/support/fake_cuda/memory.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "ring/base/check.h"
#include "tests/support/fake_cuda/fake.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kMagic = 0x6475632d656b6166;  // "fake-cud"
constexpr size_t kPageBytes = 4096;
constexpr size_t kMostBytes = size_t{1} << 40;

}  // namespace

FakeFile::FakeFile(int given) : descriptor(given) {
  struct stat what {};
  if (fstat(given, &what) != 0 || what.st_size == 0) return;
  mapped = static_cast<size_t>(what.st_size);
  void* const begin = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, given, 0);
  RONDO_CHECK(begin != MAP_FAILED, "mmap of device memory");
  data = static_cast<std::byte*>(begin) + kPageBytes;
  auto* const found = static_cast<Header*>(begin);
  if (found->magic == kMagic) header = found;
}

FakeFile::~FakeFile() {
  if (mapped > 0) munmap(data - kPageBytes, mapped);
  close(descriptor);
}

// The memory's first page is not zeroed, as a GPU's may not be.
std::shared_ptr<FakeFile> make_file(size_t bytes, int home) {
  require(bytes > 0);
  require(bytes <= kMostBytes, kOutOfMemory);
  const int file = memfd_create("fake_cuda", MFD_CLOEXEC);
  const FakeFile::Header header{kMagic, bytes, home};
  RONDO_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(kPageBytes + bytes)) == 0 &&
                  pwrite(file, &header, sizeof header, 0) == sizeof header,
              "memfd_create");
  auto made = std::make_shared<FakeFile>(file);
  std::memset(made->data, 0xa5, std::min(bytes, kPageBytes));
  return made;
}

FakeMemory::Run& FakeMemory::at(Pointer memory, Kind kind) {
  const auto found = runs.find(memory);
  require(found != runs.end() && found->second.kind == kind);
  return found->second;
}

Pointer FakeMemory::add(Run run) {
  void* const address = mmap(nullptr, run.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(address != MAP_FAILED, kOutOfMemory);
  const auto begin = reinterpret_cast<Pointer>(address);
  runs[begin] = std::move(run);
  return begin;
}

void FakeMemory::remove(Pointer memory, Kind kind) {
  const Run& run = at(memory, kind);
  munmap(writable(memory), run.bytes);
  runs.erase(memory);
}

const std::pair<const uintptr_t, FakeMemory::Run>* FakeMemory::holding(const void* address, size_t bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  auto found = runs.upper_bound(begin);
  if (found == runs.begin()) return nullptr;
  --found;
  const size_t size = found->second.bytes, offset = begin - found->first;
  return offset <= size && bytes <= size - offset ? &*found : nullptr;
}

int FakeMemory::home_of(const void* address) const {
  const std::lock_guard lock(mutex);
  const auto* const found = holding(address, 1);
  return found == nullptr ? -1 : found->second.home();
}

int FakeMemory::count(bool locked) const {
  const std::lock_guard lock(mutex);
  const auto pieces = std::ranges::count(runs, Kind::kHost, [](const auto& run) { return run.second.kind; });
  return static_cast<int>(locked ? static_cast<size_t>(pieces) : runs.size() - pieces + handles.size());
}

std::byte* FakeMemory::reach(const void* address, size_t bytes, int device, By by) const {
  const std::lock_guard lock(mutex);
  const auto* const found = holding(address, bytes);
  RONDO_CHECK(found != nullptr && found->second.kind != Kind::kReserved,
              "a device reaches memory that is neither a device's nor locked host memory");
  const Run& run = found->second;
  if (run.kind == Kind::kHost) return static_cast<std::byte*>(const_cast<void*>(address));
  const bool copied = by == By::kCopy && run.kind == Kind::kAllocated;
  RONDO_CHECK(copied || (run.reaching >> device & 1) != 0, "a device reaches memory that it has no access to");
  return run.file->data + (reinterpret_cast<uintptr_t>(address) - found->first);
}

}  // namespace rondo::testing
