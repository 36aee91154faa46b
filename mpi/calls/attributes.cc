// Attributes of communicators and types, their names and infos. Windows have attributes and names, too. All calls are
// local. Functions of the program run with no lock held, on the thread of the call. Values belong to the program; only
// its delete function frees them.

#include "mpi/core/attributes.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>

#include "mpi/core/errors.h"
#include "mpi/core/world.h"

namespace rondo_mpi::calls {

int last_used_code();  // calls/errors.cc

namespace {

// Keyvals of all kinds of objects, by number. One that was freed stays as long as attributes have it: MPI calls its
// delete function for them. The lock guards all keyvals and their `freed`. No function of the program runs under it.
class Keyvals {
 public:
  // Forgets here those that no attribute has any more: nothing tells when the last one goes.
  int create(Holder holder, void* copy, void* remove, void* state) {
    std::lock_guard lock(mutex_);
    std::erase_if(known_, [](const auto& entry) { return entry.second->freed && entry.second.use_count() == 1; });
    known_[next_] = std::make_shared<Keyval>(Keyval{holder, copy, remove, state});
    return next_++;
  }
  // For a new value: a keyval that was freed gets none.
  std::shared_ptr<Keyval> find(Holder holder, int id) {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Keyval> found = of(holder, id);
    require(!found->freed, MPI_ERR_KEYVAL, "the keyval is not valid");
    return found;
  }
  void free(Holder holder, int* id) {
    std::lock_guard lock(mutex_);
    // A keyval that attributes still have may be freed again: a delete function may do so for each of them.
    const std::shared_ptr<Keyval> found = of(holder, *id);
    require(!found->freed || found.use_count() > 2, MPI_ERR_KEYVAL, "the keyval is not valid");  // known_ and this
    found->freed = true;
    *id = MPI_KEYVAL_INVALID;
  }

 private:
  std::shared_ptr<Keyval> of(Holder holder, int id) {
    const auto found = known_.find(id);
    require(found != known_.end(), MPI_ERR_KEYVAL, "the keyval is not valid");
    require(found->second->holder == holder, MPI_ERR_KEYVAL, "the keyval is for another kind of object");
    return found->second;
  }

  std::mutex mutex_;
  std::map<int, std::shared_ptr<Keyval>> known_;
  int next_ = 0x1000000;  // above those that the ABIs predefine, but for MPICH's, which are larger
};
Keyvals& keyvals() {
  static Keyvals* made = new Keyvals;
  return *made;
}

template <typename Copy, typename Delete>
int create_keyval(Holder holder, Copy* copy_fn, Delete* delete_fn, void* state) {
  return keyvals().create(holder, reinterpret_cast<void*>(copy_fn), reinterpret_cast<void*>(delete_fn), state);
}

// What the ABI predefines on MPI_COMM_WORLD and all others; nullptr: `id` is none of it. The memory lives to the end of
// the process, since a program may keep the addresses.
const int* predefined(int id) {
  static const int tag_ub = 0x7fffffff, host = MPI_PROC_NULL, io = MPI_ANY_SOURCE, local_clock = 0, app = 0;
  // The program gets their addresses. Another thread may read while they are set: each store is atomic.
  static int universe, last_code;
  std::atomic_ref(universe).store(world().engine == nullptr ? 1 : world().engine->size());
  std::atomic_ref(last_code).store(last_used_code());
  const std::pair<int, const int*> all[] = {{MPI_TAG_UB, &tag_ub},
                                            {MPI_HOST, &host},
                                            {MPI_IO, &io},
                                            {MPI_WTIME_IS_GLOBAL, &local_clock},
                                            {MPI_UNIVERSE_SIZE, &universe},
                                            {MPI_LASTUSEDCODE, &last_code},
                                            {MPI_APPNUM, &app}};
  for (const auto& [known, value] : all) {
    if (known == id) return value;
  }
  return nullptr;
}

std::optional<Attribute> find(Attributes& attributes, int id) {
  std::optional<Attribute> found;
  attributes.with([&](const std::vector<Attribute>& all) {
    const auto one = std::find_if(all.begin(), all.end(), [&](const Attribute& each) { return each.id == id; });
    if (one != all.end()) found = *one;
  });
  return found;
}

// The old value's delete function runs before the new value is there, as MPI says; where it refuses, the old one stays.
template <typename Handle>
void set(Holder holder, Handle handle, Attributes& attributes, int id, void* value) {
  require(predefined(id) == nullptr, MPI_ERR_KEYVAL, "the keyval is predefined");
  auto keyval = keyvals().find(holder, id);
  if (const auto old = find(attributes, id)) delete_attribute(handle, attributes, *old);
  attributes.with([&](auto& all) { all.push_back({id, std::move(keyval), value}); });
}

// The value of a keyval that was freed can still be read.
void get(Holder holder, Attributes& attributes, int id, void* value, int* flag) {
  const auto found = find(attributes, id);
  if (!found) keyvals().find(holder, id);
  *flag = found.has_value();
  if (*flag) *static_cast<void**>(value) = found->value;
}

template <typename Handle>
void remove(Handle handle, Attributes& attributes, int id) {
  const auto found = find(attributes, id);
  require(found.has_value(), MPI_ERR_KEYVAL, "no such attribute is set");
  delete_attribute(handle, attributes, *found);
}

// MPI cuts names that are too long.
std::string cut_name(const char* name) { return std::string(name).substr(0, MPI_MAX_OBJECT_NAME - 1); }

}  // namespace

void MPI_Comm_create_keyval(MPI_Comm_copy_attr_function* copy_fn, MPI_Comm_delete_attr_function* delete_fn, int* keyval,
                            void* extra_state) {
  *keyval = create_keyval(Holder::kComm, copy_fn, delete_fn, extra_state);
}
void MPI_Type_create_keyval(MPI_Type_copy_attr_function* copy_fn, MPI_Type_delete_attr_function* delete_fn, int* keyval,
                            void* extra_state) {
  *keyval = create_keyval(Holder::kType, copy_fn, delete_fn, extra_state);
}
// Values that are set stay, and their functions are still called.
void MPI_Comm_free_keyval(int* keyval) { keyvals().free(Holder::kComm, keyval); }
void MPI_Type_free_keyval(int* keyval) { keyvals().free(Holder::kType, keyval); }
// A second value for one keyval replaces the first, whose delete function runs.
void MPI_Comm_set_attr(MPI_Comm comm, int keyval, void* value) {
  set(Holder::kComm, comm, comm_of(comm).attributes, keyval, value);
}
void MPI_Type_set_attr(MPI_Datatype type, int keyval, void* value) {
  set(Holder::kType, type, type_of(type).attributes, keyval, value);
}
// MPI has the predefined attributes on MPI_COMM_WORLD; here every communicator has them.
void MPI_Comm_get_attr(MPI_Comm comm, int keyval, void* value, int* flag) {
  Comm& of = comm_of(comm);
  if (const int* fixed = predefined(keyval); fixed != nullptr) {
    *static_cast<const int**>(value) = fixed;
    *flag = 1;
    return;
  }
  get(Holder::kComm, of.attributes, keyval, value, flag);
}
void MPI_Type_get_attr(MPI_Datatype type, int keyval, void* value, int* flag) {
  get(Holder::kType, type_of(type).attributes, keyval, value, flag);
}
void MPI_Comm_delete_attr(MPI_Comm comm, int keyval) { remove(comm, comm_of(comm).attributes, keyval); }
void MPI_Type_delete_attr(MPI_Datatype type, int keyval) { remove(type, type_of(type).attributes, keyval); }

void MPI_Win_create_keyval(MPI_Win_copy_attr_function* copy_fn, MPI_Win_delete_attr_function* delete_fn, int* keyval,
                           void* extra_state) {
  *keyval = create_keyval(Holder::kWin, copy_fn, delete_fn, extra_state);
}
void MPI_Win_free_keyval(int* keyval) { keyvals().free(Holder::kWin, keyval); }
void MPI_Win_set_attr(MPI_Win win, int keyval, void* value) {
  set(Holder::kWin, win, object(world().windows, win).attributes, keyval, value);
}
// MPI_WIN_BASE gives an address itself; the others give the address of a value, which lives as long as the window.
void MPI_Win_get_attr(MPI_Win win, int keyval, void* value, int* flag) {
  Window& of = object(world().windows, win);
  void* fixed = nullptr;
  if (keyval == MPI_WIN_SIZE) fixed = &of.size;
  if (keyval == MPI_WIN_DISP_UNIT) fixed = &of.unit;
  if (keyval == MPI_WIN_CREATE_FLAVOR) fixed = &of.flavor;
  if (keyval == MPI_WIN_MODEL) fixed = &of.model;
  if (fixed == nullptr && keyval != MPI_WIN_BASE) return get(Holder::kWin, of.attributes, keyval, value, flag);
  *static_cast<void**>(value) = keyval == MPI_WIN_BASE ? of.part(of.comm().rank).base : fixed;
  *flag = 1;
}
void MPI_Win_delete_attr(MPI_Win win, int keyval) { remove(win, object(world().windows, win).attributes, keyval); }
void MPI_Win_set_name(MPI_Win win, const char* name) { object(world().windows, win).name = cut_name(name); }
void MPI_Win_get_name(MPI_Win win, char* name, int* resultlen) {
  if (win == MPI_WIN_NULL) return copy_text("MPI_WIN_NULL", name, resultlen);
  copy_text(object(world().windows, win).name.get(), name, resultlen);
}

void MPI_Comm_set_name(MPI_Comm comm, const char* name) { comm_of(comm).name = cut_name(name); }
void MPI_Comm_get_name(MPI_Comm comm, char* name, int* resultlen) {
  if (comm == MPI_COMM_NULL) return copy_text("MPI_COMM_NULL", name, resultlen);
  copy_text(comm_of(comm).name.get(), name, resultlen);
}
void MPI_Type_set_name(MPI_Datatype type, const char* name) { type_of(type).name = cut_name(name); }
void MPI_Type_get_name(MPI_Datatype type, char* name, int* resultlen) {
  if (type == MPI_DATATYPE_NULL) return copy_text("MPI_DATATYPE_NULL", name, resultlen);
  copy_text(type_of(type).name.get(), name, resultlen);
}

}  // namespace rondo_mpi::calls

// --- Infos

namespace rondo_mpi {
namespace {

// Throws MPI_ERR_INFO_KEY.
std::string key_of(const char* key) {
  require(key != nullptr && *key != 0 && std::strlen(key) <= MPI_MAX_INFO_KEY, MPI_ERR_INFO_KEY,
          "the key is empty, or longer than MPI_MAX_INFO_KEY");
  return key;
}
auto entry_of(Info::Entries& entries, const std::string& key) {
  return std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == key; });
}
void put(Info::Entries& entries, const std::string& key, const std::string& value) {
  if (const auto entry = entry_of(entries, key); entry != entries.end()) {
    entry->second = value;
  } else {
    entries.emplace_back(key, value);
  }
}

}  // namespace

void copy_text(const std::string& text, char* to, int* length) {
  std::memcpy(to, text.c_str(), text.size() + 1);
  *length = static_cast<int>(text.size());
}
void copy_beginning(const std::string& text, char* to, int* room) {
  if (*room > 0) {
    const size_t length = std::min(text.size(), static_cast<size_t>(*room) - 1);
    std::memcpy(to, text.data(), length);
    to[length] = 0;
  }
  *room = static_cast<int>(text.size()) + 1;
}
MPI_Info new_info(const Info::Entries& entries) {
  auto info = std::make_shared<Info>();
  info->entries = entries;
  return world().infos.add(std::move(info));
}
Info::Entries hints_of(MPI_Info info) { return info == MPI_INFO_NULL ? Info::Entries{} : info_of(info).entries.get(); }
void take_hints(Info& into, const Info::Entries& from, Hints known) {
  for (const auto& [key, value] : from) {
    if (std::find(known.begin(), known.end(), key) == known.end()) continue;
    into.entries.with([&, key = key, value = value](Info::Entries& entries) { put(entries, key, value); });
  }
}

}  // namespace rondo_mpi

namespace rondo_mpi::calls {

void MPI_Info_create(MPI_Info* info) { *info = new_info({}); }
// MPI_INFO_ENV is empty, too: Rondo tells nothing about how it was started.
void MPI_Info_create_env(int, char*[], MPI_Info* info) { calls::MPI_Info_create(info); }
// The copy is independent from then on.
void MPI_Info_dup(MPI_Info info, MPI_Info* newinfo) { *newinfo = new_info(info_of(info).entries.get()); }
// Objects have taken copies of its hints.
void MPI_Info_free(MPI_Info* info) {
  info_of(*info);
  require(!world().infos.predefined(*info), MPI_ERR_INFO, "a predefined info cannot be freed");
  world().infos.remove(*info);
  *info = MPI_INFO_NULL;
}
void MPI_Info_set(MPI_Info info, const char* key, const char* value) {
  Info& of = info_of(info);
  const std::string name = key_of(key);
  require(value != nullptr && std::strlen(value) <= MPI_MAX_INFO_VAL, MPI_ERR_INFO_VALUE,
          "the value is longer than MPI_MAX_INFO_VAL");
  of.entries.with([&](Info::Entries& entries) { put(entries, name, value); });
}
// MPI_ERR_INFO_NOKEY is an error here, where MPI_Info_get() gives a flag.
void MPI_Info_delete(MPI_Info info, const char* key) {
  const std::string name = key_of(key);
  info_of(info).entries.with([&](Info::Entries& entries) {
    const auto entry = entry_of(entries, name);
    require(entry != entries.end(), MPI_ERR_INFO_NOKEY, "the info has no such key");
    entries.erase(entry);
  });
}
// *buflen becomes what the whole value takes, with its zero byte.
void MPI_Info_get_string(MPI_Info info, const char* key, int* buflen, char* value, int* flag) {
  Info::Entries entries = info_of(info).entries.get();
  const auto entry = entry_of(entries, key_of(key));
  *flag = entry != entries.end();
  if (!*flag) return;
  copy_beginning(entry->second, value, buflen);
}
// valuelen is without the zero byte, and the buffer has one byte more.
void MPI_Info_get(MPI_Info info, const char* key, int valuelen, char* value, int* flag) {
  int length = valuelen + 1;
  calls::MPI_Info_get_string(info, key, &length, value, flag);
}
void MPI_Info_get_valuelen(MPI_Info info, const char* key, int* valuelen, int* flag) {
  Info::Entries entries = info_of(info).entries.get();
  const auto entry = entry_of(entries, key_of(key));
  *flag = entry != entries.end();
  if (*flag) *valuelen = static_cast<int>(entry->second.size());
}
void MPI_Info_get_nkeys(MPI_Info info, int* nkeys) { *nkeys = static_cast<int>(info_of(info).entries.get().size()); }
// Keys are in the order of their first setting, which stays until one is deleted.
void MPI_Info_get_nthkey(MPI_Info info, int n, char* key) {
  const Info::Entries entries = info_of(info).entries.get();
  require(n >= 0 && static_cast<size_t>(n) < entries.size(), MPI_ERR_ARG, "the info has fewer keys");
  std::strcpy(key, entries[static_cast<size_t>(n)].first.c_str());
}
// A local call here: no hint changes what ranks do together.
void MPI_Comm_set_info(MPI_Comm comm, MPI_Info info) { take_hints(comm_of(comm).info, hints_of(info), kCommHints); }
void MPI_Comm_get_info(MPI_Comm comm, MPI_Info* info) { *info = new_info(comm_of(comm).info.entries.get()); }

}  // namespace rondo_mpi::calls
