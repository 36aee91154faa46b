// NCCL's communicators: how they are made, what they say of themselves, and their end.
#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nccl/group.h"

namespace rondo::nccl {
namespace {

// NCCL 2.27.7: the newest version that programs may take this for.
constexpr int kVersion = 22707;
// The magic number of NCCL_CONFIG_INITIALIZER.
constexpr unsigned kConfigMagic = 0xcafebeef;
// The most that RONDO_DEVICE_BLOCKS takes. A program that asks for more gets these.
constexpr int kMostBlocks = 128;

// Each serves its ranks until they have met; they are kept, since their threads may serve at exit. The id is kept by
// its server, which this returns a copy of.
std::string make_unique_id() {
  static std::mutex mutex;
  static auto* const servers = new std::vector<rondo_id_server_t>;
  rondo_id_server_t server = nullptr;
  const char* id = nullptr;
  check(rondo_id_server_create(&server, nullptr, &id));
  const std::lock_guard lock(mutex);
  servers->push_back(server);
  return id;
}

// What of a configuration counts here. Other fields are hints for NCCL's own kernels and networks.
struct Settings {
  bool blocks = true;
  int most_blocks = 0;  // of a kernel; 0: RONDO_DEVICE_BLOCKS
};

bool is_set(int value) { return value != INT_MIN; }

// A structure of an older NCCL ends earlier: `size` bounds what is read. `settings`: what holds where the program
// leaves a field open.
Settings read(const ncclConfig_t* config, Settings settings = {}) {
  if (config == nullptr) return settings;
  if (config->magic != kConfigMagic || config->size < offsetof(ncclConfig_t, cgaClusterSize)) {
    refuse(ncclInvalidArgument, "the configuration was not made by NCCL_CONFIG_INITIALIZER");
  }
  const auto has = [&](size_t offset) { return config->size >= offset + sizeof(int); };
  if (is_set(config->blocking)) settings.blocks = config->blocking != 0;
  if (has(offsetof(ncclConfig_t, maxCTAs)) && is_set(config->maxCTAs) && config->maxCTAs > 0) {
    settings.most_blocks = std::min(config->maxCTAs, kMostBlocks);
  }
  return settings;
}

// Finds out what the devices of the ranks can do. Where it throws, it has ended Rondo's communicator. Collective: all
// ranks throw if one has no device.
void attach(rondo_comm_t made) {
  const rondo_result_t attached = rondo_attach_device(made);
  if (attached == RONDO_OK) return;
  const Failure why{attached == RONDO_UNSUPPORTED ? ncclUnhandledCudaError : result_of(attached), rondo_last_error()};
  rondo_destroy(made);
  throw Failure(why);
}

// It waits for all ranks. The setting goes to this communicator alone, not into the environment.
rondo_comm_t join(const std::string& id, int ranks, int rank, const Settings& settings) {
  const std::string blocks = "RONDO_DEVICE_BLOCKS=" + std::to_string(settings.most_blocks);
  const char* const texts[] = {blocks.c_str()};
  rondo_join_options_t options = RONDO_JOIN_OPTIONS_INIT;
  options.rank = rank;
  options.world = ranks;
  options.rendezvous = id.c_str();
  options.settings = texts;
  options.setting_count = settings.most_blocks > 0 ? 1 : 0;
  rondo_comm_t made = nullptr;
  check(rondo_join(&made, &options));
  attach(made);
  return made;
}

// Communicators that are there, and ends of some that wait for ranks of this process: one thread may end them one after
// the other, so that the last one waits for all. Any thread. NCCL lets one thread destroy the communicators of several
// ranks in turn; Rondo's destroy() waits for the other ranks, so each runs on a thread of its own.
class Living {
 public:
  // Not owned.
  void add(ncclComm* comm) {
    const std::lock_guard lock(mutex_);
    all_.push_back(comm);
  }
  // Ends Rondo's communicator, if there is one; frees comm. Waits for calls of it that are under way, its making too.
  void end(ncclComm* comm) {
    const ncclComm::Seat seat = comm->seat();
    const rondo_comm_t group = comm->leave();
    {
      const std::lock_guard lock(mutex_);
      std::erase(all_, comm);
    }
    delete comm;
    for (std::thread& ending : begin_to_end(seat, group)) ending.join();
  }

 private:
  // What the caller must wait for: nothing, while another rank of the job is there. One whose making has failed is
  // none: a program need not end it. Joins happen in end(), without the lock.
  std::vector<std::thread> begin_to_end(const ncclComm::Seat& seat, rondo_comm_t group) {
    const std::lock_guard lock(mutex_);
    ending_.emplace_back(seat.job, [group] {
      if (group != nullptr) rondo_destroy(group);
    });
    std::vector<std::thread> waits;
    const auto beside = [&](ncclComm* other) {
      return other->seat().job == seat.job && other->seat().rank != seat.rank && !other->came_to_nothing();
    };
    if (std::ranges::any_of(all_, beside)) return waits;
    for (auto& [job, thread] : ending_) {
      if (job == seat.job) waits.push_back(std::move(thread));
    }
    std::erase_if(ending_, [](const auto& one) { return !one.second.joinable(); });
    return waits;
  }

  std::mutex mutex_;
  std::vector<ncclComm*> all_;
  std::vector<std::pair<std::string, std::thread>> ending_;  // by job
};

Living& living() {
  static auto* const all = new Living;  // never freed: other threads may run at exit
  return *all;
}

// The caller's thread has the device that it gets. The program owns it, also where its making fails.
ncclComm* add(const ncclComm::Seat& seat, bool blocks) {
  auto made = std::make_unique<ncclComm>(seat, blocks);
  living().add(made.get());
  return made.release();
}

// Puts a communicator into *comm, and has it made.
ncclResult_t make(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  if (comm == nullptr) refuse(ncclInvalidArgument, "comm is NULL");
  *comm = nullptr;
  const Settings settings = read(config);
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    refuse(ncclInvalidArgument, "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " ranks");
  }
  const std::string meeting(id.internal, strnlen(id.internal, sizeof id.internal));
  if (meeting.rfind("unique:", 0) != 0) refuse(ncclInvalidArgument, "the id is none of ncclGetUniqueId()");
  ncclComm* const made = *comm = add({meeting, rank}, settings.blocks);
  return submit(
      Job{made, Job::Kind::kMaking,
          [made, meeting, ranks, rank, settings] { made->make([&] { return join(meeting, ranks, rank, settings); }); },
          made});
}

// Puts into *made what `maker` makes of comm, on those of its ranks that call it. The maker is copied into the job, and
// runs with Rondo's communicator of comm, once that is made.
template <typename Maker>
ncclResult_t make_of(ncclComm& comm, ncclComm_t* made, const ncclConfig_t* config, Maker maker) {
  ncclComm* const part = *made = add(comm.seat(), read(config, {comm.blocks()}).blocks);
  return submit(Job{&comm, Job::Kind::kMaking,
                    [&comm, part, maker] {
                      part->make([&] {
                        rondo_comm_t group = nullptr;
                        check(maker(comm.group(), &group));
                        attach(group);
                        return group;
                      });
                    },
                    part});
}

// Called by the ranks that stay, in one order.
rondo_result_t new_group_without(rondo_comm_t group, const std::vector<int>& excluded, rondo_comm_t* made) {
  int size = 0;
  check(rondo_size(group, &size));
  std::vector<int> rest;
  for (int rank = 0; rank < size; ++rank) {
    if (std::ranges::find(excluded, rank) == excluded.end()) rest.push_back(rank);
  }
  return rondo_new_group(group, rest.data(), rest.size(), made);
}

}  // namespace
}  // namespace rondo::nccl

using namespace rondo::nccl;

ncclResult_t ncclGetVersion(int* version) {
  return guarded("ncclGetVersion", [&] {
    if (version == nullptr) refuse(ncclInvalidArgument, "version is NULL");
    *version = kVersion;
    return ncclSuccess;
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "unhandled cuda error (NCCL_DEBUG=WARN says more)",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited, does not answer or does not come",
                                    "in progress"};
  return result >= ncclSuccess && result <= ncclInProgress ? kTexts[result] : "unknown result code";
}

// NCCL's is of the process, too, whatever communicator is given.
const char* ncclGetLastError(ncclComm_t) {
  thread_local std::string text;
  try {
    text = last_told();
  } catch (const std::bad_alloc&) {
    return "out of memory";
  }
  return text.c_str();
}

void ncclResetDebugInit() {}

// An id is at most 127 bytes and a zero.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return guarded("ncclGetUniqueId", [&] {
    if (id == nullptr) refuse(ncclInvalidArgument, "the id is NULL");
    const std::string made = make_unique_id();
    if (made.size() >= sizeof id->internal)
      refuse(ncclInternalError, "an id of " + std::to_string(made.size()) + " bytes");
    *id = {};
    std::memcpy(id->internal, made.data(), made.size());
    return ncclSuccess;
  });
}

// A call outside of a group waits for all ranks; one of several ranks of a process belongs into a group.
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return guarded("ncclCommInitRank", [&] { return make(comm, ranks, id, rank, nullptr); });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return guarded("ncclCommInitRankConfig", [&] { return make(comm, ranks, id, rank, config); });
}

// All ranks meet at the first id; the others are served in vain.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int ranks, int rank, int id_count, ncclUniqueId* ids,
                                      ncclConfig_t* config) {
  return guarded("ncclCommInitRankScalable", [&] {
    if (id_count < 1 || ids == nullptr) refuse(ncclInvalidArgument, "there is no id");
    return make(comm, ranks, ids[0], rank, config);
  });
}

// Ranks of one process wait for each other, so all are made in one group.
ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  return guarded("ncclCommInitAll", [&] {
    if (comms == nullptr || count < 1) refuse(ncclInvalidArgument, "no communicators are asked for");
    ncclUniqueId id{};
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) return result;
    std::vector<rondo::cuda::Context> contexts;
    for (int rank = 0; rank < count; ++rank) {
      contexts.push_back(primary_context(devices == nullptr ? rank : devices[rank]));
    }
    Group group;
    for (int rank = 0; rank < count; ++rank) {
      const InContext on(contexts[static_cast<size_t>(rank)]);
      make(&comms[rank], count, id, rank, nullptr);
    }
    return group.end();
  });
}

// A rank with a negative color takes part, and gets NULL.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  return guarded("ncclCommSplit", [&] {
    if (made == nullptr) refuse(ncclInvalidArgument, "the new communicator's place is NULL");
    *made = nullptr;
    if (color < 0) {
      ncclComm& of = there(comm);
      return submit(Job{&of, Job::Kind::kMaking, [&of, key] {
                          rondo_comm_t none = nullptr;
                          check(rondo_split(of.group(), -1, key, &none));
                        }});
    }
    return make_of(there(comm), made, config, [color, key](rondo_comm_t group, rondo_comm_t* part) {
      return rondo_split(group, color, key, part);
    });
  });
}

// After an abort the living ranks find out who they are. Else the program names those to leave out.
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config,
                            int flags) {
  constexpr int kAfterAbort = 1;
  return guarded("ncclCommShrink", [&] {
    if (made == nullptr || count < 0 || (count > 0 && excluded == nullptr)) {
      refuse(ncclInvalidArgument, "the excluded ranks or the new communicator's place are NULL");
    }
    *made = nullptr;
    if (flags == kAfterAbort || there(comm).revoked()) {
      return make_of(there(comm), made, config,
                     [](rondo_comm_t group, rondo_comm_t* next) { return rondo_shrink(group, 0, next); });
    }
    const std::vector<int> without(excluded, excluded + count);
    return make_of(there(comm), made, config, [without](rondo_comm_t group, rondo_comm_t* next) {
      return new_group_without(group, without, next);
    });
  });
}

// It waits until the communicator is made.
ncclResult_t ncclCommRevoke(ncclComm_t comm, int) {
  return guarded("ncclCommRevoke", [&] {
    InUse(comm)->revoke();
    return ncclSuccess;
  });
}

// It waits until the streams have passed all calls. The communicator stays until it is destroyed.
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return guarded("ncclCommFinalize", [&] {
    const InUse finalized(comm);
    finalized->group();
    finalized->finish();
    return ncclSuccess;
  });
}

// It may return before Rondo's communicator has ended, while other ranks of this process are there (Living).
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return guarded("ncclCommDestroy", [&] {
    if (comm == nullptr) return ncclSuccess;
    there(comm).await_beside();
    comm->finish();
    living().end(comm);
    return ncclSuccess;
  });
}

// Without finish(): after an abort the streams may never pass the calls.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return guarded("ncclCommAbort", [&] {
    if (comm == nullptr) return ncclSuccess;
    there(comm).abort("ncclCommAbort was called");
    living().end(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return guarded("ncclCommGetAsyncError", [&] {
    if (error == nullptr) refuse(ncclInvalidArgument, "the error's place is NULL");
    *error = there(comm).async_error();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  return guarded("ncclCommCount", [&] {
    if (count == nullptr) refuse(ncclInvalidArgument, "the count's place is NULL");
    check(rondo_size(InUse(comm)->group(), count));
    return ncclSuccess;
  });
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  return guarded("ncclCommUserRank", [&] {
    if (rank == nullptr) refuse(ncclInvalidArgument, "the rank's place is NULL");
    check(rondo_rank(InUse(comm)->group(), rank));
    return ncclSuccess;
  });
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  return guarded("ncclCommCuDevice", [&] {
    if (device == nullptr) refuse(ncclInvalidArgument, "the device's place is NULL");
    *device = there(comm).device();
    return ncclSuccess;
  });
}

// --- memory. Registration is a hint of NCCL's: calls take any memory of the device.

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return guarded("ncclMemAlloc", [&] {
    if (memory == nullptr || bytes == 0) refuse(ncclInvalidArgument, "memory is NULL, or 0 bytes are asked for");
    *memory = allocate(bytes);
    return ncclSuccess;
  });
}

ncclResult_t ncclMemFree(void* memory) {
  return guarded("ncclMemFree", [&] {
    release(memory);
    return ncclSuccess;
  });
}

// The handle is the buffer's address, and owns nothing.
ncclResult_t ncclCommRegister(ncclComm_t comm, void* buffer, size_t, void** handle) {
  return guarded("ncclCommRegister", [&] {
    there(comm);
    if (handle == nullptr) refuse(ncclInvalidArgument, "the handle's place is NULL");
    *handle = buffer;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void*) {
  return guarded("ncclCommDeregister", [&] {
    there(comm);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* buffer, size_t, ncclWindow_t* window, int) {
  return guarded("ncclCommWindowRegister", [&] {
    there(comm);
    if (window == nullptr) refuse(ncclInvalidArgument, "the window's place is NULL");
    *window = reinterpret_cast<ncclWindow_t>(buffer);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t) {
  return guarded("ncclCommWindowDeregister", [&] {
    there(comm);
    return ncclSuccess;
  });
}
