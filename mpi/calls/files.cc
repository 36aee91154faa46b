// Files: opening, views, positions; reading and writing, each blocking, with a request, or split in two calls. The
// calling thread does all the work before the call returns, also of a nonblocking or split one, which MPI permits. The
// default error handler of files is MPI_ERRORS_RETURN.

#include "mpi/core/file.h"

#include <cstring>
#include <filesystem>
#include <string>

#include "mpi/core/agreement.h"
#include "mpi/core/attributes.h"
#include "mpi/core/communicators.h"
#include "mpi/core/errors.h"
#include "mpi/core/request.h"
#include "mpi/core/type.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {
namespace {

using Way = File::Way;
using Place = File::Place;

// A share: another thread may end the handle. It keeps the object, and not the descriptor, which close() ends.
std::shared_ptr<File> file_of(MPI_File file) {
  auto found = world().files.share(file);
  require(found != nullptr, MPI_ERR_FILE, "the file is null or closed");
  return found;
}

// The arguments of any call that moves data.
struct Access {
  MPI_File file;
  Way way;
  Place place;
  MPI_Offset offset;
  const void* at;
  MPI_Count count;
  MPI_Datatype type;
};

File::Given given(const Access& a) {
  return [&a] { return data_of(a.at, a.count, a.type); };
}

// A collective call waits for no rank, but for the ordered ones, which exchange their lengths.
void now(const Access& a, MPI_Status* status) {
  set_status(status, file_of(a.file)->transfer(a.way, a.place, a.offset, given(a)));
}
// The data is there, or with the system, when this returns: the request is over. A file belongs to no communicator of
// the program, so the request has none: an error is thrown here, to the file's handler.
void later(const Access& a, MPI_Request* request) {
  auto made = make_request(Request::Kind::kCollective, nullptr);
  made->outcome = file_of(a.file)->transfer(a.way, a.place, a.offset, given(a));
  *request = add_request(std::move(made));
}
void begin(const Access& a) { file_of(a.file)->begin(a.way, a.place, a.offset, given(a)); }

}  // namespace

// At this rank's position or the shared one; Memory: const void for what is written.
#define NOW(name, way, place, Memory)                                                                            \
  void MPI_File_##name##_c(MPI_File file, Memory* buf, MPI_Count count, MPI_Datatype type, MPI_Status* status) { \
    now({file, way, place, 0, buf, count, type}, status);                                                        \
  }
#define LATER(name, way, place, Memory)                                                                             \
  void MPI_File_i##name##_c(MPI_File file, Memory* buf, MPI_Count count, MPI_Datatype type, MPI_Request* request) { \
    later({file, way, place, 0, buf, count, type}, request);                                                        \
  }
#define BEGIN(name, way, place, Memory)                                                            \
  void MPI_File_##name##_begin_c(MPI_File file, Memory* buf, MPI_Count count, MPI_Datatype type) { \
    begin({file, way, place, 0, buf, count, type});                                                \
  }
#define NOW_AT(name, way, Memory)                                                                             \
  void MPI_File_##name##_c(MPI_File file, MPI_Offset offset, Memory* buf, MPI_Count count, MPI_Datatype type, \
                           MPI_Status* status) {                                                              \
    now({file, way, Place::kOffset, offset, buf, count, type}, status);                                       \
  }
#define LATER_AT(name, way, Memory)                                                                            \
  void MPI_File_i##name##_c(MPI_File file, MPI_Offset offset, Memory* buf, MPI_Count count, MPI_Datatype type, \
                            MPI_Request* request) {                                                            \
    later({file, way, Place::kOffset, offset, buf, count, type}, request);                                     \
  }
#define BEGIN_AT(name, way, Memory)                                                                                   \
  void MPI_File_##name##_begin_c(MPI_File file, MPI_Offset offset, Memory* buf, MPI_Count count, MPI_Datatype type) { \
    begin({file, way, Place::kOffset, offset, buf, count, type});                                                     \
  }
// The buffer of the second half is not read: the first half has filled or taken it.
#define END(name, Memory) \
  void MPI_File_##name##_end(MPI_File file, Memory*, MPI_Status* status) { set_status(status, file_of(file)->end()); }

// The calls of one direction: 17 of MPI's, by place and by blocking.
#define WAY(name, way, Memory)                        \
  NOW(name, way, Place::kOwn, Memory)                 \
  NOW(name##_all, way, Place::kOwn, Memory)           \
  NOW(name##_shared, way, Place::kShared, Memory)     \
  NOW(name##_ordered, way, Place::kOrdered, Memory)   \
  LATER(name, way, Place::kOwn, Memory)               \
  LATER(name##_all, way, Place::kOwn, Memory)         \
  LATER(name##_shared, way, Place::kShared, Memory)   \
  BEGIN(name##_all, way, Place::kOwn, Memory)         \
  BEGIN(name##_ordered, way, Place::kOrdered, Memory) \
  NOW_AT(name##_at, way, Memory)                      \
  NOW_AT(name##_at_all, way, Memory)                  \
  LATER_AT(name##_at, way, Memory)                    \
  LATER_AT(name##_at_all, way, Memory)                \
  BEGIN_AT(name##_at_all, way, Memory)                \
  END(name##_all, Memory)                             \
  END(name##_ordered, Memory)                         \
  END(name##_at_all, Memory)
WAY(read, Way::kRead, void)
WAY(write, Way::kWrite, const void)

// --- Open and close

// Collective. Names are made absolute by each rank before anything is opened, so a later chdir() changes nothing.
int MPI_File_open(MPI_Comm comm, const char* filename, int amode, MPI_Info info, MPI_File* file) {
  return on_file(MPI_FILE_NULL, __func__, [&] {
    const std::shared_ptr<Comm> held = shared_comm(comm);  // as on() does
    Comm& of = intracomm_of(comm);
    Info::Entries hints;
    std::string path;
    agree(of, [&] {
      require(filename != nullptr && file != nullptr, MPI_ERR_ARG, "the file's name, or its handle, is null");
      path = std::filesystem::absolute(filename);
      hints = hints_of(info);
    });
    auto made = File::open(of, path, amode);
    take_hints(made->info, hints, kFileHints);
    *file = world().files.add(std::move(made));
  });
}
// Collective. The handle ends also after an error: the destructor then closes the descriptors that close() has not.
int MPI_File_close(MPI_File* file) {
  std::shared_ptr<File> of;
  const int code = on_file(*file, __func__, [&] {
    of = file_of(*file);
    of->close();
  });
  if (of == nullptr) return code;
  world().files.remove(*file);  // also if a rank has failed; the file's handler has had the handle
  *file = MPI_FILE_NULL;
  return code;
}
// Not collective. The file's other users keep it, as with any unlink().
int MPI_File_delete(const char* filename, MPI_Info) {
  return on_file(MPI_FILE_NULL, __func__, [&] { File::remove(filename); });
}
void MPI_File_get_amode(MPI_File file, int* amode) { *amode = file_of(file)->mode(); }
void MPI_File_get_group(MPI_File file, MPI_Group* group) {
  const auto of = file_of(file);
  *group = publish_group(of->comm().members, of->comm().session);
}
void MPI_File_set_info(MPI_File file, MPI_Info info) { take_hints(file_of(file)->info, hints_of(info), kFileHints); }
void MPI_File_get_info(MPI_File file, MPI_Info* info) { *info = new_info(file_of(file)->info.entries.get()); }

// --- The file as a whole

void MPI_File_get_size(MPI_File file, MPI_Offset* size) { *size = file_of(file)->size(); }
// Collective; the first rank sets it.
void MPI_File_set_size(MPI_File file, MPI_Offset size) { file_of(file)->resize(size); }
// Data that is there stays; the size only grows.
void MPI_File_preallocate(MPI_File file, MPI_Offset size) { file_of(file)->allocate(size); }
void MPI_File_sync(MPI_File file) { file_of(file)->sync(); }
// MPI calls it collective; here a rank sets its own mode and waits for no other.
void MPI_File_set_atomicity(MPI_File file, int flag) { file_of(file)->set_atomic(flag != 0); }
void MPI_File_get_atomicity(MPI_File file, int* flag) { *flag = file_of(file)->atomic(); }

// --- Views and positions

// Collective. Positions begin at 0 again.
void MPI_File_set_view(MPI_File file, MPI_Offset disp, MPI_Datatype etype, MPI_Datatype filetype, const char* datarep,
                       MPI_Info info) {
  const auto of = file_of(file);
  of->set_view(disp, etype, filetype, datarep);
  take_hints(of->info, hints_of(info), kFileHints);
}
// The program frees both handles, unless they are predefined ones.
void MPI_File_get_view(MPI_File file, MPI_Offset* disp, MPI_Datatype* etype, MPI_Datatype* filetype, char* datarep) {
  const auto view = file_of(file)->view();
  *disp = view->displacement();
  *etype = reveal(view->etype());
  *filetype = reveal(view->filetype());
  std::strcpy(datarep, view->representation().c_str());
}
void MPI_File_get_type_extent_c(MPI_File file, MPI_Datatype type, MPI_Count* extent) {
  *extent = file_of(file)->view()->extent_of(type_of(type));
}
// Local: each rank has a position of its own.
void MPI_File_seek(MPI_File file, MPI_Offset offset, int whence) { file_of(file)->seek(offset, whence); }
// Collective: all ranks give the same arguments.
void MPI_File_seek_shared(MPI_File file, MPI_Offset offset, int whence) { file_of(file)->seek_shared(offset, whence); }
void MPI_File_get_position(MPI_File file, MPI_Offset* offset) { *offset = file_of(file)->position(Place::kOwn); }
void MPI_File_get_position_shared(MPI_File file, MPI_Offset* offset) {
  *offset = file_of(file)->position(Place::kShared);
}
// From a position in the view to bytes of the file.
void MPI_File_get_byte_offset(MPI_File file, MPI_Offset offset, MPI_Offset* disp) {
  *disp = file_of(file)->offset_of(offset);
}

}  // namespace rondo_mpi::calls
