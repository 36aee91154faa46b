#include "tests/api/folder_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "ring/base/file_text.h"

namespace rondo::testing {
namespace {

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

}  // namespace

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

}  // namespace rondo::testing
