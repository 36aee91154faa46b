#include "tests/simulation/kernel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rondo::testing::sim {

long File::fail(int number) {
  errno = number;
  return -1;
}

void File::told() { process.machine->changed(process); }

namespace {

Kernel* current_kernel = nullptr;

}  // namespace

Kernel::Kernel(Machine& of, Network shape) : machine(of), network(shape) { current_kernel = this; }
Kernel::~Kernel() { current_kernel = nullptr; }
Kernel& Kernel::of_process() { return *current_kernel; }

// --- descriptors

int Kernel::add(std::shared_ptr<File> file) {
  int descriptor = kFirst;
  for (const auto& [taken, known] : files_) {
    if (taken != descriptor) break;
    ++descriptor;
  }
  files_[descriptor] = std::move(file);
  return descriptor;
}

std::shared_ptr<File> Kernel::find(int descriptor) {
  const auto found = files_.find(descriptor);
  if (found != files_.end() && &found->second->process == Machine::process()) return found->second;
  ++misuses_;
  errno = EBADF;
  return nullptr;
}

int Kernel::duplicate(int descriptor) {
  auto file = find(descriptor);
  if (!file) return -1;
  ++file->references;
  return add(std::move(file));
}

int Kernel::close(int descriptor) {
  const auto file = find(descriptor);
  if (!file) return -1;
  files_.erase(descriptor);
  if (--file->references == 0) file->close();
  return 0;
}

size_t Kernel::open_descriptors(const Process& process) const {
  return static_cast<size_t>(std::count_if(files_.begin(), files_.end(),
                                           [&](const auto& entry) { return &entry.second->process == &process; }));
}

void Kernel::adopt(Process& process) {
  process.on_end.push_back([this, &process] {
    std::vector<std::shared_ptr<File>> all;
    for (auto entry = files_.begin(); entry != files_.end();) {
      if (&entry->second->process == &process) {
        if (--entry->second->references == 0) all.push_back(entry->second);
        entry = files_.erase(entry);
      } else {
        ++entry;
      }
    }
    for (const auto& file : all) file->close();
  });
}

// --- small files

short Event::events() { return static_cast<short>((count > 0 ? POLLIN : 0) | POLLOUT); }
long Event::read(char* target, size_t size) {
  if (size < sizeof count) return fail(EINVAL);
  if (count == 0) return fail(EAGAIN);
  std::memcpy(target, &count, sizeof count);
  count = 0;
  return sizeof count;
}
long Event::write(const char* source, size_t size) {
  uint64_t more = 0;
  if (size < sizeof more) return fail(EINVAL);
  std::memcpy(&more, source, sizeof more);
  count += more;
  turned_readable();
  return sizeof more;
}

short PairEnd::events() { return static_cast<short>((!unread.empty() || ended ? POLLIN : 0) | POLLOUT); }
long PairEnd::read(char* target, size_t size) {
  if (unread.empty()) return ended ? 0 : fail(EAGAIN);
  const size_t moved = std::min(size, unread.size());
  std::memcpy(target, unread.data(), moved);
  unread.erase(0, moved);
  return static_cast<long>(moved);
}
long PairEnd::write(const char* source, size_t size) {
  const auto to = other.lock();
  if (!to) return fail(EPIPE);
  if (to->unread.size() > 65536) return fail(EAGAIN);
  to->unread.append(source, size);
  to->turned_readable();
  return static_cast<long>(size);
}
void PairEnd::close() {
  if (const auto to = other.lock()) {
    to->ended = true;
    to->turned_readable();
  }
}

ProcessFile::ProcessFile(Process& of, Process& watches) : File(of), watched(watches) {}
short ProcessFile::events() { return watched.ended ? POLLIN : 0; }

// --- epoll

uint32_t Epoll::report(const Entry& entry) {
  const auto file = entry.file.lock();
  if (!file) return 0;
  const uint32_t wanted = entry.event.events;
  if ((wanted & EPOLLET) != 0) {
    const bool inward = file->inward != entry.inward;
    const bool outward = (wanted & EPOLLOUT) != 0 && file->outward != entry.outward;
    if (!inward && !outward) return 0;
  }
  const auto now = static_cast<uint32_t>(static_cast<unsigned short>(file->events()));
  return now & ((wanted & (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI)) | EPOLLERR | EPOLLHUP);
}

short Epoll::events() {
  const bool any =
      std::any_of(entries_.begin(), entries_.end(), [](const auto& entry) { return report(entry.second) != 0; });
  return any ? POLLIN : 0;
}

int Epoll::control(int operation, int descriptor, const epoll_event* event) {
  const auto file = kernel_.find(descriptor);
  if (!file) return -1;
  const auto known = entries_.find(descriptor);
  const bool there = known != entries_.end() && known->second.file.lock() == file;
  if (operation == EPOLL_CTL_ADD ? there : !there) {
    return static_cast<int>(fail(operation == EPOLL_CTL_ADD ? EEXIST : ENOENT));
  }
  if (operation == EPOLL_CTL_DEL) {
    entries_.erase(descriptor);
    return 0;
  }
  entries_[descriptor] = {file, *event, 0, 0};
  if (report(entries_[descriptor]) != 0) turned_readable();
  return 0;
}

int Epoll::take(epoll_event* found, int most) {
  std::erase_if(entries_, [](const auto& entry) { return entry.second.file.expired(); });
  int count = 0;
  const auto take_one = [&](auto& entry) {
    if (count == most) return;
    const uint32_t events = report(entry.second);
    if (events == 0) return;
    const auto file = entry.second.file.lock();
    entry.second.inward = file->inward;
    entry.second.outward = file->outward;
    found[count++] = {events, entry.second.event.data};
    first_ = entry.first;
  };
  const int begin = first_;
  for (auto& entry : entries_) {
    if (entry.first > begin) take_one(entry);
  }
  for (auto& entry : entries_) {
    if (entry.first <= begin) take_one(entry);
  }
  return count;
}

int wait_epoll(Epoll& epoll, epoll_event* found, int most, Time deadline) {
  Machine::current()->point();
  Machine::current()->wait([&epoll] { return epoll.events() != 0; }, deadline);
  return epoll.take(found, most);
}

int poll_files(pollfd* entries, size_t count, Time deadline) {
  Machine& machine = *Machine::current();
  machine.point();
  Kernel& kernel = Kernel::of_process();
  std::vector<std::shared_ptr<File>> files(count);
  for (size_t i = 0; i < count; ++i) {
    entries[i].revents = 0;
    if (entries[i].fd < 0) continue;
    files[i] = kernel.find(entries[i].fd);
    if (!files[i]) entries[i].revents = POLLNVAL;
  }
  const auto look = [&] {
    int ready = 0;
    for (size_t i = 0; i < count; ++i) {
      if (files[i]) {
        const short asked = static_cast<short>(entries[i].events | POLLERR | POLLHUP);
        entries[i].revents = static_cast<short>(files[i]->events() & asked);
      }
      ready += entries[i].revents != 0;
    }
    return ready;
  };
  machine.wait([&] { return look() > 0; }, deadline);
  return look();
}

}  // namespace rondo::testing::sim
