// rondo_join: a store of the program's, settings before the environment's, and what is refused.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ring/base/file_text.h"
#include "rondo/rondo.h"
#include "tests/api/c_ranks.h"
#include "tests/support/temp_folder.h"

namespace rondo::testing {
namespace {

// A store as a program could bring one, in C: a folder with a file a key, which the processes of a test share. Must
// outlive its structure.
class FolderStore {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}
  rondo_store_t functions();
  const std::string& folder() const { return folder_; }

 private:
  const std::string folder_;
};

using Clock = std::chrono::steady_clock;

// One process at a time.
class Lock {
 public:
  explicit Lock(const std::string& folder) : file_(::open((folder + "/lock").c_str(), O_CREAT | O_RDWR, 0600)) {
    ::flock(file_, LOCK_EX);
  }
  ~Lock() { ::close(file_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int file_;
};

const std::string& folder_of(void* context) { return static_cast<const FolderStore*>(context)->folder(); }

std::string path_of(void* context, std::string key) {
  std::replace(key.begin(), key.end(), '/', '%');
  return folder_of(context) + "/" + key;
}

std::optional<std::string> read(void* context, const char* key) {
  const std::string path = path_of(context, key);
  if (!std::filesystem::exists(path)) return std::nullopt;
  return file_text(path);
}

void write(void* context, const char* key, std::string_view value) {
  std::ofstream(path_of(context, key), std::ios::binary) << value;
}

void reply(rondo_reply_t to, const std::string& value) { rondo_reply_set(to, value.data(), value.size()); }

rondo_result_t put(void* context, const char* key, const void* value, size_t bytes, int64_t, rondo_reply_t) {
  const Lock lock(folder_of(context));
  write(context, key, {static_cast<const char*>(value), bytes});
  return RONDO_OK;
}

rondo_result_t try_get(void* context, const char* key, int64_t, rondo_reply_t value) {
  const Lock lock(folder_of(context));
  if (const auto found = read(context, key)) reply(value, *found);
  return RONDO_OK;
}

rondo_result_t get(void* context, const char* key, int64_t timeout_ms, rondo_reply_t value) {
  const auto until = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    {
      const Lock lock(folder_of(context));
      if (const auto found = read(context, key)) return reply(value, *found), RONDO_OK;
    }
    if (Clock::now() >= until) return RONDO_TIMEOUT;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

rondo_result_t add(void* context, const char* key, int64_t amount, int64_t, int64_t* sum, rondo_reply_t) {
  const Lock lock(folder_of(context));
  *sum = std::stoll(read(context, key).value_or("0")) + amount;
  write(context, key, std::to_string(*sum));
  return RONDO_OK;
}

rondo_result_t compare_set(void* context, const char* key, const void* expected, size_t expected_bytes,
                           const void* desired, size_t desired_bytes, int64_t, rondo_reply_t value) {
  const Lock lock(folder_of(context));
  std::string now = read(context, key).value_or("");
  if (now == std::string_view(static_cast<const char*>(expected), expected_bytes)) {
    now.assign(static_cast<const char*>(desired), desired_bytes);
    write(context, key, now);
  }
  return reply(value, now), RONDO_OK;
}

rondo_result_t remove(void* context, const char* key, int64_t, int* removed, rondo_reply_t) {
  const Lock lock(folder_of(context));
  *removed = ::unlink(path_of(context, key).c_str()) == 0 ? 1 : 0;
  return RONDO_OK;
}

rondo_store_t FolderStore::functions() {
  rondo_store_t store = RONDO_STORE_INIT;
  store.context = this;
  store.put = put;
  store.get = get;
  store.try_get = try_get;
  store.add = add;
  store.compare_set = compare_set;
  store.remove = remove;
  return store;
}

constexpr std::chrono::seconds kDeadline{60};

// Every rank has summed what all have, and has left.
void use(rondo_comm_t comm, int world) {
  int64_t x = 1;
  want(rondo_all_reduce(comm, &x, &x, 1, RONDO_INT64, RONDO_SUM, nullptr));
  expect(x == world, "the sum is " + std::to_string(x));
  want(rondo_destroy(comm));
}

}  // namespace

TEST_CASE("ranks join by a store of the program's, and nothing of the environment is needed") {
  const TempFolder folder;
  CHECK(run_bare_processes(3, kDeadline, [&](int rank) {
          for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "RONDO_RENDEZVOUS", "RONDO_INSECURE"})
            ::unsetenv(name);
          FolderStore folder_store(folder.path());
          const rondo_store_t store = folder_store.functions();
          rondo_join_options_t options = RONDO_JOIN_OPTIONS_INIT;
          options.rank = rank;
          options.world = 3;
          options.store = &store;
          rondo_comm_t comm = nullptr;
          want(rondo_join(&comm, &options));
          use(comm, 3);
        }) == "");
}

TEST_CASE("rank and world of the environment, the store of the program") {
  const TempFolder folder;
  CHECK(run_bare_processes(2, kDeadline, [&](int rank) {
          ::setenv("RANK", std::to_string(rank).c_str(), 1);
          ::setenv("WORLD_SIZE", "2", 1);
          FolderStore folder_store(folder.path());
          const rondo_store_t store = folder_store.functions();
          rondo_join_options_t options = RONDO_JOIN_OPTIONS_INIT;
          options.store = &store;
          rondo_comm_t comm = nullptr;
          want(rondo_join(&comm, &options));
          use(comm, 2);
        }) == "");
}

TEST_CASE("a launcher's variables on some ranks only change nothing") {
  const TempFolder folder;
  CHECK(run_bare_processes(3, kDeadline, [&](int rank) {
          FolderStore folder_store(folder.path());
          const rondo_store_t store = folder_store.functions();
          rondo_join_options_t options = RONDO_JOIN_OPTIONS_INIT;
          options.rank = rank;
          options.world = 3;
          options.store = &store;
          if (rank < 2) {  // rank 0: all of it; rank 1: what does not fit together; rank 2: nothing
            ::setenv("RANK", std::to_string(rank).c_str(), 1);
            ::setenv("WORLD_SIZE", "3", 1);
            ::setenv("LOCAL_RANK", rank == 0 ? "0" : "5", 1);
            ::setenv("LOCAL_WORLD_SIZE", rank == 0 ? "3" : "2", 1);
          }
          rondo_comm_t comm = nullptr;
          want(rondo_join(&comm, &options));
          rondo_place_t place;
          want(rondo_place(comm, &place));
          expect(place.local_rank == rank && place.local_world == 3, "the place");
          use(comm, 3);
        }) == "");
}

TEST_CASE("ranks that meet in a file find out that they are on one host, and share memory") {
  const TempFolder folder;
  const std::string rendezvous = "file://" + folder.path("job");
  CHECK(run_bare_processes(3, kDeadline, [&](int rank) {
          ::unsetenv("RONDO_INSECURE");
          rondo_join_options_t options = RONDO_JOIN_OPTIONS_INIT;
          options.rank = rank;
          options.world = 3;
          options.rendezvous = rendezvous.c_str();
          rondo_comm_t comm = nullptr;
          want(rondo_join(&comm, &options));
          rondo_place_t place = {-1, -1, -1, -1, -1, -1};
          want(rondo_place(comm, &place));
          expect(place.local_rank == rank && place.local_world == 3 && place.node == 0 && place.nodes == 1, "place");
          int host[3], island[3];
          want(rondo_topology(comm, host, island, nullptr));
          expect(host[0] == 0 && host[2] == 0 && island[0] == 0 && island[2] == 0, "one host, one island");
          use(comm, 3);
        }) == "");
}

TEST_CASE("settings come before the environment, and are checked") {
  CHECK(run_bare_processes(1, kDeadline, [](int) {
          ::setenv("RONDO_ALGORITHM", "ring", 1);
          ::setenv("RONDO_CONNECTIONS", "many", 1);  // would be refused
          const char* settings[] = {"RONDO_CONNECTIONS=2", "RONDO_ALGORITHM=tree"};
          rondo_join_options_t options = RONDO_JOIN_OPTIONS_INIT;
          options.rank = 0;
          options.world = 1;
          options.settings = settings;
          options.setting_count = 2;
          rondo_comm_t comm = nullptr;
          want(rondo_join(&comm, &options));
          const char* name = nullptr;
          want(rondo_algorithm_for(comm, RONDO_ALL_REDUCE, 1000, RONDO_FLOAT32, RONDO_SUM, 0, &name));
          expect(std::string(name) == "tree", std::string("algorithm ") + name);
          want(rondo_destroy(comm));

          const auto refused = [&](const char* setting, const char* text) {
            settings[1] = setting;
            want_text(rondo_join(&comm, &options), RONDO_INVALID, text);
            expect(comm == nullptr, "a handle of a refused call");
          };
          refused("RONDO_ALGORITHM", "of the form");
          refused("=ring", "of the form");
          refused("RONDO_ALGORITHM=spiral", "RONDO_ALGORITHM=\"spiral\" is not allowed");
          refused("RONDO_ALGORYTHM=ring", "RONDO_ALGORYTHM=ring is unknown");
          refused("RONDO_RANK=1", "RONDO_RANK=1 is unknown");
          refused("RONDO_CONNECTIONS=3", "RONDO_CONNECTIONS is set twice");
          refused(nullptr, "options->settings is NULL");
          options.settings = nullptr;
          want_text(rondo_join(&comm, &options), RONDO_INVALID, "options->settings is NULL");
        }) == "");
}

TEST_CASE("a store that lacks a function, or fails, is an error that says which") {
  const TempFolder folder;
  CHECK(run_bare_processes(1, kDeadline, [&](int) {
          FolderStore folder_store(folder.path());
          rondo_store_t store = folder_store.functions();
          rondo_join_options_t options = RONDO_JOIN_OPTIONS_INIT;
          options.rank = 0;
          options.world = 2;
          options.store = &store;
          rondo_comm_t comm = nullptr;
          store.compare_set = nullptr;
          want_text(rondo_join(&comm, &options), RONDO_INVALID, "store->compare_set is NULL");
          store = folder_store.functions();
          store.struct_bytes = 0;
          want_text(rondo_join(&comm, &options), RONDO_INVALID, "store->struct_bytes is 0");
          store = folder_store.functions();
          store.put = [](void*, const char*, const void*, size_t, int64_t, rondo_reply_t failure) {
            rondo_reply_set(failure, "disk full", 9);
            return rondo_result_t{RONDO_SYSTEM};
          };
          want_text(rondo_join(&comm, &options), RONDO_BOOTSTRAP, "SYSTEM, disk full");
          expect(std::string(rondo_last_error()).find("the program's store failed in put(\"rondo/") == 0,
                 rondo_last_error());
          expect(comm == nullptr, "a handle of a refused call");
        }) == "");
}

}  // namespace rondo::testing
