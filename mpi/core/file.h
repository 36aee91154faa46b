#pragma once

#include <mpi.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "mpi/core/objects.h"
#include "mpi/core/view.h"

namespace rondo_mpi {

// A file that the ranks of a communicator have open, each by a descriptor of its own, on a file system that they share.
// Each rank reads and writes what it asks for, also in collective calls: those wait for no rank, but for the ordered
// ones. Any thread may call, but for close(), which MPI allows only when no other call is under way. All work is done
// by the calling thread before the call returns. Offsets and positions count elementary types of the view, unless they
// say bytes; sizes are bytes.
class File {
 public:
  MPI_File handle{};
  Handler handler;
  Info info;

  enum class Way : uint8_t { kRead, kWrite };
  // Where data lies: at an offset that the call gives, at this rank's position, at the one that all ranks share, or
  // there in the order of ranks.
  enum class Place : uint8_t { kOffset, kOwn, kShared, kOrdered };

  // Opens the file on all ranks of `comm`, or throws on all. path: absolute.
  static std::shared_ptr<File> open(const Comm& comm, const std::string& path, int mode);
  // MPI_File_delete(): one rank's call, without a communicator.
  static void remove(const std::string& name);
  ~File();
  void close();  // by all ranks; after a failure it is over, too, and the destructor closes the descriptors

  // What was read or written; less than `data` only at the file's end. offset: elementary types, of kOffset.
  // data: of the call, checked when it is asked for. kOrdered: by all ranks; all throw if one refuses.
  using Given = std::function<Data()>;
  Outcome transfer(Way way, Place place, MPI_Offset offset, const Given& given);
  // The same as the first half of a split call, and its second half. MPI_ERR_IO where a split call of this file is
  // under way: MPI allows one at a time on each rank.
  void begin(Way way, Place place, MPI_Offset offset, const Given& given);
  Outcome end();

  // By all ranks: all throw if one does.
  void set_view(MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype, const char* representation);
  std::shared_ptr<const View> view();
  MPI_Offset position(Place place);  // kOwn or kShared
  void seek(MPI_Offset offset, int whence);
  void seek_shared(MPI_Offset offset, int whence);  // by all ranks
  MPI_Offset offset_of(MPI_Offset position);        // in bytes of the file

  MPI_Offset size() const;
  void resize(MPI_Offset bytes);    // by all ranks
  void allocate(MPI_Offset bytes);  // by all ranks
  void sync();                      // this rank's data goes to the device
  void set_atomic(bool atomic) { atomic_ = atomic; }
  bool atomic() const { return atomic_; }
  int mode() const { return mode_; }
  const Comm& comm() const { return *comm_; }

 private:
  File(std::shared_ptr<Comm> comm, std::string name, int mode);
  // Both are for open().
  void open_all();
  void open_here(int flags);
  // The first rank calls it, and all throw if it does. It is over when any goes on.
  void by_first(const std::function<void()>& function);
  [[noreturn]] void fail_by(int error, const char* what) const;
  // Whether the mode of opening allows it.
  void check(Way way, Place place) const;
  void check_size(MPI_Offset bytes) const;  // by all ranks, which have come when it returns

  std::shared_ptr<const View> made_view(MPI_Offset displacement, MPI_Datatype etype, MPI_Datatype filetype,
                                        const char* representation);
  MPI_Offset start_of(Place place, MPI_Offset offset, MPI_Offset etypes);
  MPI_Offset ordered(MPI_Offset etypes);
  MPI_Offset target(MPI_Offset offset, int whence, MPI_Offset from);
  // Sets the position that all ranks share, or adds to it; returns what it was.
  MPI_Offset share(MPI_Offset value, bool add);
  // These four move bytes of the view from a position in it on, counted in bytes. read() returns fewer at the file's
  // end.
  MPI_Offset read(const View& view, MPI_Offset position, std::byte* to, MPI_Offset bytes) const;
  void write(const View& view, MPI_Offset position, const std::byte* from, MPI_Offset bytes) const;
  MPI_Offset read_data(const View& view, MPI_Offset position, const Data& data, MPI_Offset bytes) const;
  void write_data(const View& view, MPI_Offset position, const Data& data, MPI_Offset bytes) const;

  const std::shared_ptr<Comm> comm_;  // of this file alone
  const std::string name_;            // absolute
  const int mode_;
  int descriptor_ = -1;      // set by open(), closed by close() or the destructor
  std::string shared_name_;  // of a file beside it with the shared position, made when that is first used
  std::atomic<bool> atomic_ = false;
  std::mutex atomic_mutex_;  // for a transfer in atomic mode: a Lock does not exclude other threads of its descriptor

  std::mutex mutex_;  // for what follows
  std::shared_ptr<const View> view_ = std::make_shared<View>();
  MPI_Offset position_ = 0;       // in elementary types
  std::optional<Outcome> split_;  // begin() was called, and end() was not
  int shared_ = -1;               // descriptor of the shared position
};

}  // namespace rondo_mpi
