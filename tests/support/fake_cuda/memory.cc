#include "tests/support/fake_cuda/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "ring/base/check.h"

namespace rondo::testing {
namespace {

// The entry whose run holds all of it, or end().
template <class Map, class Size>
typename Map::const_iterator holding(const Map& runs, const void* address, size_t bytes, Size size_of) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto found = runs.upper_bound(at);
  if (found == runs.begin()) return runs.end();
  --found;
  const size_t size = size_of(found->second), offset = at - found->first;
  return offset <= size && bytes <= size - offset ? found : runs.end();
}
constexpr auto kRunBytes = [](const auto& run) { return run.bytes; };
constexpr auto kItself = [](size_t bytes) { return bytes; };

const std::string kName = "fake_cuda_";  // and the number of the device
constexpr size_t kPageBytes = 4096;
constexpr size_t kMostBytes = size_t{1} << 40;

size_t whole_pages(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Of a file: the memory, a page behind it, and 8 bytes for each word of 4.
size_t file_bytes(size_t bytes) { return 3 * whole_pages(bytes) + kPageBytes; }

// The memory's first page is not zeroed, as a GPU's may not be. -1: there is none.
int make_file(size_t bytes, int device) {
  if (bytes == 0 || bytes > kMostBytes) return -1;
  const int file = memfd_create((kName + std::to_string(device)).c_str(), MFD_CLOEXEC);
  RONDO_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(file_bytes(bytes))) == 0, "memfd_create");
  const std::string left(std::min(bytes, kPageBytes), '\xa5');
  RONDO_CHECK(pwrite(file, left.data(), left.size(), 0) == static_cast<ssize_t>(left.size()), "pwrite");
  return file;
}

int device_of(int file) {
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  char target[64] = {};
  if (readlink(link.c_str(), target, sizeof target - 1) < 0) return -1;
  const char* const name = std::strstr(target, kName.c_str());
  return name == nullptr ? -1 : std::atoi(name + kName.size());
}

// What a handle of IPC holds.
struct Told {
  int process, file, device;
  size_t bytes;
};
static_assert(sizeof(Told) <= sizeof(cuda::IpcHandle));
Told told_by(const cuda::IpcHandle& handle) {
  Told told;
  std::memcpy(&told, handle.reserved, sizeof told);
  return told;
}

std::byte* map_file(int file, size_t bytes) {
  void* const data = mmap(nullptr, file_bytes(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  RONDO_CHECK(data != MAP_FAILED, "mmap of device memory");
  return static_cast<std::byte*>(data);
}

}  // namespace

FakeMemory::File::~File() { close(file); }

std::atomic<uint32_t>& FakeMemory::Run::gone() const {
  return *reinterpret_cast<std::atomic<uint32_t>*>(data + whole_pages(bytes));
}

void* FakeMemory::add(Kind kind, std::shared_ptr<File> file, size_t bytes, int device) {
  auto* const data = map_file(file->file, bytes);
  void* const address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  RONDO_CHECK(address != MAP_FAILED, "mmap of an address");
  const int home = device_of(file->file);
  const std::lock_guard lock(mutex_);
  runs_[reinterpret_cast<uintptr_t>(address)] = {kind, data, bytes, home, 1u << device | 1u << home, std::move(file)};
  return address;
}

bool FakeMemory::remove(void* memory, Kind kind) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == runs_.end() || found->second.kind != kind) return false;
  const Run& run = found->second;
  RONDO_CHECK(kind == Kind::kAllocated || run.gone().load() == 0, "memory is released before others let go of it");
  run.gone().store(kind == Kind::kAllocated ? 1 : 0);
  munmap(run.data, file_bytes(run.bytes));
  munmap(memory, run.bytes);
  runs_.erase(found);
  return true;
}

void* FakeMemory::allocate(size_t bytes, int device) {
  const int file = make_file(bytes, device);
  return file < 0 ? nullptr : add(Kind::kAllocated, std::make_shared<File>(file), bytes, device);
}

bool FakeMemory::release(void* memory) { return remove(memory, Kind::kAllocated); }

bool FakeMemory::get_handle(void* memory, cuda::IpcHandle& handle) const {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == runs_.end() || found->second.kind != Kind::kAllocated) return false;
  const Told told{getpid(), found->second.file->file, found->second.home, found->second.bytes};
  handle = {};
  std::memcpy(handle.reserved, &told, sizeof told);
  return true;
}

int FakeMemory::home_of(const cuda::IpcHandle& handle) { return told_by(handle).device; }

void* FakeMemory::open_handle(const cuda::IpcHandle& handle, int device) {
  const Told told = told_by(handle);
  if (told.process == getpid()) return nullptr;
  const std::string path = "/proc/" + std::to_string(told.process) + "/fd/" + std::to_string(told.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  return file < 0 ? nullptr : add(Kind::kOpened, std::make_shared<File>(file), told.bytes, device);
}

bool FakeMemory::close_handle(void* memory) { return remove(memory, Kind::kOpened); }

// --- allocations that are mapped

cuda::Allocation FakeMemory::create(size_t bytes, int device) {
  const int file = make_file(bytes, device);
  if (file < 0) return 0;
  const std::lock_guard lock(mutex_);
  handles_[++last_] = {std::make_shared<File>(file), bytes};
  return last_;
}

int FakeMemory::hand_out(cuda::Allocation allocation) const {
  const std::lock_guard lock(mutex_);
  const auto found = handles_.find(allocation);
  return found == handles_.end() ? -1 : fcntl(found->second.file->file, F_DUPFD_CLOEXEC, 0);
}

cuda::Allocation FakeMemory::take_in(int descriptor) {
  struct stat what {};
  if (device_of(descriptor) < 0 || fstat(descriptor, &what) != 0) return 0;
  const std::lock_guard lock(mutex_);
  handles_[++last_] = {std::make_shared<File>(fcntl(descriptor, F_DUPFD_CLOEXEC, 0)),
                       (static_cast<size_t>(what.st_size) - kPageBytes) / 3};
  return last_;
}

bool FakeMemory::drop(cuda::Allocation allocation) {
  const std::lock_guard lock(mutex_);
  return handles_.erase(allocation) == 1;
}

void* FakeMemory::reserve(size_t bytes) {
  if (bytes == 0 || bytes % kGranularity != 0) return nullptr;
  void* const found =
      mmap(nullptr, bytes + kGranularity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(found);
  const size_t before = kGranularity - reinterpret_cast<uintptr_t>(begin) % kGranularity;
  munmap(begin, before);
  if (before < kGranularity) munmap(begin + before + bytes, kGranularity - before);
  const std::lock_guard lock(mutex_);
  ranges_[reinterpret_cast<uintptr_t>(begin + before)] = bytes;
  return begin + before;
}

bool FakeMemory::unreserve(void* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == ranges_.end() || found->second != bytes || runs_.count(found->first) != 0) return false;
  munmap(memory, bytes);
  ranges_.erase(found);
  return true;
}

bool FakeMemory::map(void* memory, size_t bytes, cuda::Allocation allocation) {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const auto found = handles_.find(allocation);
  const auto range = ranges_.find(address);
  if (found == handles_.end() || found->second.bytes != bytes || range == ranges_.end() || range->second != bytes ||
      runs_.count(address) != 0) {
    return false;
  }
  const int file = found->second.file->file;
  runs_[address] = {Kind::kMapped, map_file(file, bytes), bytes, device_of(file), 0, found->second.file};
  return true;
}

bool FakeMemory::unmap(void* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == runs_.end() || found->second.kind != Kind::kMapped || found->second.bytes != bytes) return false;
  munmap(found->second.data, file_bytes(bytes));
  runs_.erase(found);
  return true;
}

bool FakeMemory::give_access(void* memory, size_t bytes, int device) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(reinterpret_cast<uintptr_t>(memory));
  if (found == runs_.end() || found->second.kind != Kind::kMapped || found->second.bytes != bytes) return false;
  found->second.reaching |= 1u << device;
  return true;
}

// --- all of it

int FakeMemory::home_of(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto found = holding(runs_, address, 1, kRunBytes);
  return found == runs_.end() ? -1 : found->second.home;
}

bool FakeMemory::lock_host(void* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const auto next = locked_.lower_bound(begin + bytes);
  if (next != locked_.begin() && std::prev(next)->first + std::prev(next)->second > begin) return false;
  locked_[begin] = bytes;
  return true;
}

bool FakeMemory::unlock_host(void* memory) {
  const std::lock_guard lock(mutex_);
  return locked_.erase(reinterpret_cast<uintptr_t>(memory)) == 1;
}

bool FakeMemory::is_locked(const void* address) const {
  const std::lock_guard lock(mutex_);
  return holding(locked_, address, 1, kItself) != locked_.end();
}

int FakeMemory::locked() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(locked_.size());
}

int FakeMemory::held() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(runs_.size() + ranges_.size() + handles_.size());
}

void FakeMemory::enable_peer(int device, int other) {
  const std::lock_guard lock(mutex_);
  peers_[device] |= 1u << other;
}

std::byte* FakeMemory::reach(const void* address, size_t bytes, int device, By by) const {
  const std::lock_guard lock(mutex_);
  const auto found = holding(runs_, address, bytes, kRunBytes);
  if (found != runs_.end()) {
    const Run& run = found->second;
    RONDO_CHECK(run.kind == Kind::kMapped || run.gone().load() == 0,
                "a device reaches memory that its maker has released");
    const bool copied = by == By::kCopy && run.kind != Kind::kMapped;
    const bool peer = run.kind == Kind::kAllocated && (peers_[device] >> run.home & 1) != 0;
    RONDO_CHECK(copied || peer || (run.reaching >> device & 1) != 0,
                "a device reaches memory that it has no access to");
    return run.data + (reinterpret_cast<uintptr_t>(address) - found->first);
  }
  RONDO_CHECK(holding(locked_, address, bytes, kItself) != locked_.end(),
              "a device reaches memory that is neither a device's nor locked host memory");
  return static_cast<std::byte*>(const_cast<void*>(address));
}

FakeMemory::Times FakeMemory::times_of(const uint32_t* reached) const {
  const auto* const at = reinterpret_cast<const std::byte*>(reached);
  const std::lock_guard lock(mutex_);
  for (const auto& [address, run] : runs_) {
    if (at < run.data || at >= run.data + run.bytes) continue;
    std::byte* const times = run.data + whole_pages(run.bytes) + kPageBytes;
    return {reinterpret_cast<std::atomic<uint64_t>*>(times + (at - run.data) * 2), run.home};
  }
  return {nullptr, -1};
}

size_t FakeMemory::clear(void* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(reinterpret_cast<uintptr_t>(memory));
  const size_t pages = bytes / kPageBytes * kPageBytes;
  if (found == runs_.end() || pages == 0) return 0;
  RONDO_CHECK(fallocate(found->second.file->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        static_cast<off_t>(pages)) == 0,
              "fallocate");
  return pages;
}

}  // namespace rondo::testing
