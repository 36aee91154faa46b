#include "mpi/core/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>
#include <vector>

#include "mpi/core/agreement.h"
#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/external.h"
#include "mpi/core/type.h"
#include "mpi/core/world.h"

namespace rondo_mpi {
namespace {

// What a read of short runs takes from the file at once, in bytes: enough that a system call costs little beside the
// copy.
constexpr MPI_Offset kWindow = 1 << 18;  // 256 KiB

// errno as a class of MPI. What MPI has no class for is MPI_ERR_IO.
int class_of(int error) {
  constexpr std::pair<int, int> kClasses[] = {
      {ENOENT, MPI_ERR_NO_SUCH_FILE},   {EACCES, MPI_ERR_ACCESS},   {EPERM, MPI_ERR_ACCESS},
      {EEXIST, MPI_ERR_FILE_EXISTS},    {EROFS, MPI_ERR_READ_ONLY}, {ENOSPC, MPI_ERR_NO_SPACE},
      {EFBIG, MPI_ERR_NO_SPACE},        {EDQUOT, MPI_ERR_QUOTA},    {EBUSY, MPI_ERR_FILE_IN_USE},
      {ETXTBSY, MPI_ERR_FILE_IN_USE},   {EISDIR, MPI_ERR_BAD_FILE}, {ELOOP, MPI_ERR_BAD_FILE},
      {ENAMETOOLONG, MPI_ERR_BAD_FILE}, {ENOTDIR, MPI_ERR_BAD_FILE}};
  for (const auto& [number, error_class] : kClasses) {
    if (number == error) return error_class;
  }
  return MPI_ERR_IO;
}

// posix_fallocate() with signals blocked: in a file in memory each one would end the attempt, and undo it.
int take_space(int descriptor, MPI_Offset bytes) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = posix_fallocate(descriptor, 0, bytes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

// The class is MPI's, the sentence has the system's words.
[[noreturn]] void fail_with(int error, const char* what, const std::string& name) {
  fail(class_of(error), std::string(what) + " " + name + ": " + std::strerror(error));
}

// MPI-4, chapter 14: one way of access, and what does not go with it.
void check_mode(int mode) {
  const int ways = mode & (MPI_MODE_RDONLY | MPI_MODE_WRONLY | MPI_MODE_RDWR);
  require(ways == MPI_MODE_RDONLY || ways == MPI_MODE_WRONLY || ways == MPI_MODE_RDWR, MPI_ERR_AMODE,
          "a file is opened with one of MPI_MODE_RDONLY, MPI_MODE_WRONLY and MPI_MODE_RDWR");
  require(ways != MPI_MODE_RDONLY || (mode & (MPI_MODE_CREATE | MPI_MODE_EXCL)) == 0, MPI_ERR_AMODE,
          "MPI_MODE_RDONLY creates no file");
  require(ways != MPI_MODE_RDWR || (mode & MPI_MODE_SEQUENTIAL) == 0, MPI_ERR_AMODE,
          "MPI_MODE_SEQUENTIAL does not go with MPI_MODE_RDWR");
}

// A lock of bytes of a file against all other descriptors, until its end. Throws where the file system has none: what
// it is for, the shared position and atomic mode, would be wrong in silence. F_OFD_SETLKW: the lock belongs to the
// descriptor, so closing another descriptor of this process does not end it, as it would one of F_SETLKW.
class Lock {
 public:
  Lock(int descriptor, short type, MPI_Offset begin, MPI_Offset bytes, const std::string& name)
      : descriptor_(descriptor) {
    range_.l_type = type;
    range_.l_whence = SEEK_SET;
    range_.l_start = begin;
    range_.l_len = bytes;
    while (fcntl(descriptor_, F_OFD_SETLKW, &range_) != 0) {
      if (errno != EINTR) fail_with(errno, "cannot lock", name);
    }
  }
  Lock(const Lock&) = delete;
  ~Lock() {
    range_.l_type = F_UNLCK;
    fcntl(descriptor_, F_OFD_SETLK, &range_);
  }

 private:
  const int descriptor_;
  struct flock range_ {};
};

// Both return how many bytes they took, fewer at the file's end alone; -1: errno.
MPI_Offset read_at(int descriptor, std::byte* to, MPI_Offset bytes, MPI_Offset offset) {
  MPI_Offset done = 0;
  while (done < bytes) {
    const ssize_t now = pread(descriptor, to + done, static_cast<size_t>(bytes - done), offset + done);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return -1;
    if (now == 0) break;
    done += now;
  }
  return done;
}
// A file system may take a part of a write: then the rest is written, or gives the error.
MPI_Offset write_at(int descriptor, const std::byte* from, MPI_Offset bytes, MPI_Offset offset) {
  MPI_Offset done = 0;
  while (done < bytes) {
    const ssize_t now = pwrite(descriptor, from + done, static_cast<size_t>(bytes - done), offset + done);
    if (now < 0 && errno == EINTR) continue;
    if (now < 0) return -1;
    done += now;
  }
  return done;
}

}  // namespace

// MPI gives a new file the handler of MPI_FILE_NULL.
File::File(std::shared_ptr<Comm> comm, std::string name, int mode)
    : handler(world().file_handler), comm_(std::move(comm)), name_(std::move(name)), mode_(mode) {}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (shared_ >= 0) ::close(shared_);
}

void File::fail_by(int error, const char* what) const { fail_with(error, what, name_); }

// --- Open and close

std::shared_ptr<File> File::open(const Comm& comm, const std::string& path, int mode) {
  std::shared_ptr<File> file(new File(duplicate(comm), path, mode));
  file->open_all();
  return file;
}

void File::open_here(int flags) {
  flags |= (mode_ & MPI_MODE_RDWR) != 0 ? O_RDWR : (mode_ & MPI_MODE_WRONLY) != 0 ? O_WRONLY : O_RDONLY;
  descriptor_ = ::open(name_.c_str(), flags | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_by(errno, "cannot open");
}

// The first rank alone creates the file. The name of the shared position's file has the time of this opening in it:
// what a job that crashed has left beside the data has another name. If a rank cannot open it, all throw, and the
// destructors close what others have opened; a file that was created stays. With MPI_MODE_APPEND by_first() also keeps
// ranks from writing before all have the size.
void File::open_all() {
  const int64_t own[2] = {mode_, std::chrono::system_clock::now().time_since_epoch().count()};
  std::vector<int64_t> all(2 * comm_->members.size());
  comm_->engine->all_gather(own, all);
  for (size_t r = 0; r < all.size(); r += 2) {
    require(all[r] == mode_, MPI_ERR_NOT_SAME, "the ranks open the file in different modes");
  }
  check_mode(mode_);
  by_first([&] {
    open_here(((mode_ & MPI_MODE_CREATE) != 0 ? O_CREAT : 0) | ((mode_ & MPI_MODE_EXCL) != 0 ? O_CREAT | O_EXCL : 0));
  });
  const std::filesystem::path path(name_);
  shared_name_ = path.parent_path() / ("." + path.filename().string() + ".position-" + std::to_string(all[1]));
  agree(*comm_, [&] {
    if (comm_->rank != 0) open_here(0);
  });
  if ((mode_ & MPI_MODE_APPEND) == 0) return;
  position_ = size();
  by_first([&] { share(position_, false); });
}

// The barrier comes first: no rank deletes the file while another still uses it.
void File::close() {
  try {
    comm_->engine->barrier();
  } catch (...) {
    unlink(shared_name_.c_str());  // the first rank may be dead
    throw;
  }
  if (comm_->rank == 0) {
    unlink(shared_name_.c_str());
    if ((mode_ & MPI_MODE_DELETE_ON_CLOSE) != 0) unlink(name_.c_str());
  }
  if ((mode_ & MPI_MODE_DELETE_ON_CLOSE) != 0) comm_->engine->barrier();
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_by(errno, "cannot close");
}

void File::remove(const std::string& name) {
  if (unlink(name.c_str()) != 0) fail_with(errno, "cannot delete", name);
}

// The exchange behind it is a barrier: what the first rank has done is seen by all.
void File::by_first(const std::function<void()>& function) {
  agree(*comm_, [&] {
    if (comm_->rank == 0) function();
  });
}

// --- Data

void File::check(Way way, Place place) const {
  require(way == Way::kRead || (mode_ & MPI_MODE_RDONLY) == 0, MPI_ERR_READ_ONLY, "the file is open for reading alone");
  require(way == Way::kWrite || (mode_ & MPI_MODE_WRONLY) == 0, MPI_ERR_ACCESS, "the file is open for writing alone");
  require((mode_ & MPI_MODE_SEQUENTIAL) == 0 || place == Place::kShared || place == Place::kOrdered,
          MPI_ERR_UNSUPPORTED_OPERATION, "MPI_MODE_SEQUENTIAL allows the shared position alone");
}

// Atomic mode holds a lock of all bytes from the first to the last, gaps included. The shared positions have moved
// before the data does, so ranks that come later do not wait for the data. What fails later leaves them moved, which
// MPI permits.
Outcome File::transfer(Way way, Place place, MPI_Offset offset, const Given& given) {
  const std::shared_ptr<const View> view = this->view();
  const MPI_Offset unit = view->etype_bytes();
  Data data;
  MPI_Offset bytes = 0;
  const auto check_all = [&] {
    check(way, place);
    data = given();
    bytes = view->bytes_of(*data.type, data.count);
    require(bytes % unit == 0, MPI_ERR_IO, "the data is no whole number of the view's elementary type");
  };
  if (place == Place::kOrdered) {
    agree(*comm_, check_all);
  } else {
    check_all();
  }
  const MPI_Offset start = start_of(place, offset, bytes / unit);
  const MPI_Offset first = product(start, unit, MPI_ERR_ARG);
  Outcome outcome;
  if (bytes == 0 || view->empty()) return outcome;
  std::unique_lock alone(atomic_mutex_, std::defer_lock);
  std::optional<Lock> lock;
  if (atomic_) {
    const View::Run range = view->range(first, bytes);
    alone.lock();
    lock.emplace(descriptor_, way == Way::kRead ? F_RDLCK : F_WRLCK, range.offset, range.bytes, name_);
  }
  if (way == Way::kWrite) {
    write_data(*view, first, data, bytes);
    outcome.bytes = data.bytes();
    return outcome;
  }
  const MPI_Offset got = read_data(*view, first, data, bytes);
  // Whole elements of the call's type alone count.
  outcome.bytes = view->external() ? got / view->bytes_of(*data.type, 1) * data.type->size : got;
  if (place == Place::kOwn && got < bytes) {  // the position is where the file ends
    std::lock_guard guard(mutex_);
    if (position_ == start + bytes / unit) position_ = start + got / unit;
  }
  return outcome;
}

// Returns bytes of the view, as in the file.
MPI_Offset File::read_data(const View& view, MPI_Offset position, const Data& data, MPI_Offset bytes) const {
  if (data.type->dense && !view.external()) return read(view, position, static_cast<std::byte*>(data.data), bytes);
  std::vector<std::byte> packed(static_cast<size_t>(bytes));
  const MPI_Offset got = read(view, position, packed.data(), bytes);
  MPI_Count whole = got;
  if (view.external()) {
    const MPI_Count count = got / view.bytes_of(*data.type, 1);
    std::vector<std::byte> native(static_cast<size_t>(count * data.type->size));
    from_external(*data.type, packed.data(), count, native.data());
    packed = std::move(native);
    whole = static_cast<MPI_Count>(packed.size());
  }
  unpack(*data.type, data.data, data.count, packed.data(), whole);
  return got;
}

// It needs memory for the packed data, and for what is converted.
void File::write_data(const View& view, MPI_Offset position, const Data& data, MPI_Offset bytes) const {
  if (data.type->dense && !view.external()) {
    return write(view, position, static_cast<const std::byte*>(data.data), bytes);
  }
  std::vector<std::byte> packed(static_cast<size_t>(data.bytes()));
  pack(*data.type, data.data, data.count, packed.data());
  if (view.external()) {
    std::vector<std::byte> external(static_cast<size_t>(bytes));
    to_external(*data.type, packed.data(), data.count, external.data());
    packed = std::move(external);
  }
  write(view, position, packed.data(), bytes);
}

// Short runs near each other are read through a window: one system call for many. Writing must not do that: it would
// write back bytes between the runs that other ranks have changed meanwhile.
MPI_Offset File::read(const View& view, MPI_Offset position, std::byte* to, MPI_Offset bytes) const {
  const MPI_Offset end = view.at(sum(position, bytes - 1, MPI_ERR_ARG)).offset + 1;
  std::vector<std::byte> window;
  MPI_Offset window_begin = 0, window_end = 0, got = 0;
  while (got < bytes) {
    const View::Run run = view.at(position + got);
    const MPI_Offset length = std::min(run.bytes, bytes - got);
    MPI_Offset now = 0;
    if (length == bytes || length >= kWindow || !view.close()) {
      now = read_at(descriptor_, to + got, length, run.offset);
    } else {
      if (run.offset < window_begin || run.offset + length > window_end) {
        // Tiles that lie among each other have runs behind the last one.
        window.resize(static_cast<size_t>(std::max(length, std::min(kWindow, end - run.offset))));
        now = read_at(descriptor_, window.data(), static_cast<MPI_Offset>(window.size()), run.offset);
        window_begin = run.offset;
        window_end = run.offset + std::max<MPI_Offset>(now, 0);
      }
      if (now >= 0) {
        now = std::min(length, window_end - run.offset);
        std::memcpy(to + got, window.data() + (run.offset - window_begin), static_cast<size_t>(now));
      }
    }
    if (now < 0) fail_by(errno, "cannot read");
    got += now;
    if (now < length) break;
  }
  return got;
}

// Each run is a write of its own.
void File::write(const View& view, MPI_Offset position, const std::byte* from, MPI_Offset bytes) const {
  for (MPI_Offset done = 0; done < bytes;) {
    const View::Run run = view.at(position + done);
    const MPI_Offset length = std::min(run.bytes, bytes - done);
    if (write_at(descriptor_, from + done, length, run.offset) < 0) fail_by(errno, "cannot write");
    done += length;
  }
}

// The first half does all the work. MPI permits that, and the program sees no difference but in time.
void File::begin(Way way, Place place, MPI_Offset offset, const Given& given) {
  bool begun = false;
  const auto begin_and_give = [&] {
    std::lock_guard lock(mutex_);
    require(!split_.has_value(), MPI_ERR_IO, "a split call of this file is under way");
    split_.emplace();
    begun = true;
    return given();
  };
  try {
    const Outcome outcome = transfer(way, place, offset, begin_and_give);
    std::lock_guard lock(mutex_);
    split_ = outcome;
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (begun) split_.reset();
    throw;
  }
}
Outcome File::end() {
  std::lock_guard lock(mutex_);
  require(split_.has_value(), MPI_ERR_IO, "no split call of this file is under way");
  return *std::exchange(split_, std::nullopt);
}

// --- Views and positions

std::shared_ptr<const View> File::view() {
  std::lock_guard lock(mutex_);
  return view_;
}

std::shared_ptr<const View> File::made_view(MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                                            const char* representation) {
  require(representation != nullptr, MPI_ERR_ARG, "the data representation is null");
  if (displacement == MPI_DISPLACEMENT_CURRENT) {
    require((mode_ & MPI_MODE_SEQUENTIAL) != 0, MPI_ERR_ARG, "MPI_DISPLACEMENT_CURRENT is for MPI_MODE_SEQUENTIAL");
    displacement = offset_of(share(0, true));
  }
  return std::make_shared<View>(displacement, used_type(etype), used_type(filetype), representation,
                                (mode_ & MPI_MODE_RDONLY) == 0);
}

// Ranks may give different views. All exchange whether they have theirs, so one that is wrong is an error on all.
void File::set_view(MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype, const char* representation) {
  // The current displacement is the same for all: behind what any of them did before.
  if ((mode_ & MPI_MODE_SEQUENTIAL) != 0) comm_->engine->barrier();
  std::shared_ptr<const View> made;
  agree(*comm_, [&] { made = made_view(displacement, etype, filetype, representation); });
  by_first([&] {
    if (access(shared_name_.c_str(), F_OK) == 0) share(0, false);
  });
  std::lock_guard lock(mutex_);
  view_ = std::move(made);
  position_ = 0;
}

// Takes `etypes` elementary types from there on. The own position moves at once, so threads that share the file take
// different parts.
MPI_Offset File::start_of(Place place, MPI_Offset offset, MPI_Offset etypes) {
  switch (place) {
    case Place::kOffset:
      require(offset >= 0, MPI_ERR_ARG, "the offset is negative");
      return offset;
    case Place::kShared:
      return share(etypes, true);
    case Place::kOrdered:
      return ordered(etypes);
    case Place::kOwn:
      break;
  }
  std::lock_guard lock(mutex_);
  return std::exchange(position_, sum(position_, etypes, MPI_ERR_ARG));
}

// All ranks exchange how much they move. The first rank then moves the shared position once, for all. All throw if the
// first rank cannot.
MPI_Offset File::ordered(MPI_Offset etypes) {
  const int64_t own[1] = {etypes};
  std::vector<int64_t> all(static_cast<size_t>(comm_->size()));
  comm_->engine->all_gather(own, all);
  int64_t start[1] = {0};
  by_first([&] { start[0] = share(std::accumulate(all.begin(), all.end(), int64_t{0}), true); });
  comm_->engine->broadcast(start, 0);
  for (int r = 0; r < comm_->rank; ++r) start[0] += all[static_cast<size_t>(r)];
  return start[0];
}

// The shared position is in a small file beside the data. A lock of that file makes read and add one step. Both locks
// are needed: mutex_ for threads of this process, whose descriptor is one, the file's for other ranks. The file is made
// by the first rank that comes here; an empty one reads as 0.
MPI_Offset File::share(MPI_Offset value, bool add) {
  std::lock_guard guard(mutex_);
  if (shared_ < 0) shared_ = ::open(shared_name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (shared_ < 0) fail_with(errno, "cannot keep the shared position in", shared_name_);
  const Lock lock(shared_, F_WRLCK, 0, 1, shared_name_);
  int64_t before = 0;
  auto* bytes = reinterpret_cast<std::byte*>(&before);
  if (read_at(shared_, bytes, sizeof before, 0) < 0) fail_with(errno, "cannot read", shared_name_);
  int64_t after = add ? sum(before, value, MPI_ERR_ARG) : value;
  if (after != before && write_at(shared_, reinterpret_cast<std::byte*>(&after), sizeof after, 0) < 0) {
    fail_with(errno, "cannot write", shared_name_);
  }
  return before;
}

MPI_Offset File::position(Place place) {
  check((mode_ & MPI_MODE_WRONLY) != 0 ? Way::kWrite : Way::kRead, place);
  if (place == Place::kShared) return share(0, true);
  std::lock_guard lock(mutex_);
  return position_;
}

// MPI_SEEK_END is the first elementary type that begins at the end of the file or behind it.
MPI_Offset File::target(MPI_Offset offset, int whence, MPI_Offset from) {
  const std::shared_ptr<const View> view = this->view();
  const MPI_Offset unit = view->etype_bytes();
  require(whence == MPI_SEEK_SET || whence == MPI_SEEK_CUR || whence == MPI_SEEK_END, MPI_ERR_ARG,
          "a position is relative to MPI_SEEK_SET, MPI_SEEK_CUR or MPI_SEEK_END");
  if (whence == MPI_SEEK_SET) from = 0;
  if (whence == MPI_SEEK_END) from = (view->before(size()) + unit - 1) / unit;
  const MPI_Offset to = sum(from, offset, MPI_ERR_ARG);
  require(to >= 0, MPI_ERR_ARG, "the position is before the view's beginning");
  return to;
}
void File::seek(MPI_Offset offset, int whence) {
  const MPI_Offset to = target(offset, whence, position(Place::kOwn));
  std::lock_guard lock(mutex_);
  position_ = to;
}
void File::seek_shared(MPI_Offset offset, int whence) {
  comm_->engine->barrier();  // behind what any of them did before
  by_first([&] { share(target(offset, whence, position(Place::kShared)), false); });
}

MPI_Offset File::offset_of(MPI_Offset position) {
  require(position >= 0, MPI_ERR_ARG, "the offset is negative");
  const std::shared_ptr<const View> view = this->view();
  return view->at(product(position, view->etype_bytes(), MPI_ERR_ARG)).offset;
}

// --- The file as a whole

MPI_Offset File::size() const {
  struct stat status {};
  if (fstat(descriptor_, &status) != 0) fail_by(errno, "cannot ask for the size of");
  return status.st_size;
}

void File::check_size(MPI_Offset bytes) const {
  agree(*comm_, [&] {
    check(Way::kWrite, Place::kShared);
    require(bytes >= 0, MPI_ERR_ARG, "the size is negative");
  });
}

void File::resize(MPI_Offset bytes) {
  check_size(bytes);
  by_first([&] {
    if (ftruncate(descriptor_, bytes) != 0) fail_by(errno, "cannot set the size of");
  });
}

void File::allocate(MPI_Offset bytes) {
  check_size(bytes);
  by_first([&] {
    const int error = bytes == 0 ? 0 : take_space(descriptor_, bytes);
    if (error != 0) fail_by(error, "cannot allocate");
  });
}

// MPI_File_sync() is collective: each rank syncs its own descriptor, and none waits for another.
void File::sync() {
  if (fsync(descriptor_) != 0 && errno != EINVAL) fail_by(errno, "cannot sync");  // EINVAL: of a device, say
}

}  // namespace rondo_mpi
