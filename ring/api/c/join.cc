#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ring/api/c/arguments.h"
#include "ring/api/c/handles.h"
#include "ring/api/c/result.h"
#include "rondo/rondo.h"
#include "rondo/store.h"
#include "rondo/unique_id.h"

using namespace rondo::c;
using rondo::Communicator;

// Opaque to callers.
struct rondo_id_server {
  rondo::UniqueIdServer server;
};
// What a function of the program's store answers; it lives for one call of that.
struct rondo_reply {
  std::optional<std::string> bytes;
};

namespace {

// A store of the program's, by its six functions. Its keys begin with "rondo/", so that the program's own are
// not touched.
class ProgramStore : public rondo::Store {
 public:
  explicit ProgramStore(const rondo_store_t& functions) : on_(functions) {}

  void put(std::string_view key, std::string_view value, Deadline deadline) override {
    ask("put", key, [&](const char* name, rondo_reply_t reply) {
      return on_.put(on_.context, name, value.data(), value.size(), left_ms(deadline), reply);
    });
  }
  std::string get(std::string_view key, Deadline deadline) override {
    const auto value = ask("get", key, [&](const char* name, rondo_reply_t reply) {
      return on_.get(on_.context, name, left_ms(deadline), reply);
    });
    return value.value_or("");
  }
  std::optional<std::string> try_get(std::string_view key, Deadline deadline) override {
    return ask("try_get", key, [&](const char* name, rondo_reply_t reply) {
      return on_.try_get(on_.context, name, left_ms(deadline), reply);
    });
  }
  int64_t add(std::string_view key, int64_t amount, Deadline deadline) override {
    int64_t sum = 0;
    ask("add", key, [&](const char* name, rondo_reply_t reply) {
      return on_.add(on_.context, name, amount, left_ms(deadline), &sum, reply);
    });
    return sum;
  }
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                          Deadline deadline) override {
    const auto value = ask("compare_set", key, [&](const char* name, rondo_reply_t reply) {
      return on_.compare_set(on_.context, name, expected.data(), expected.size(), desired.data(), desired.size(),
                             left_ms(deadline), reply);
    });
    return value.value_or("");
  }
  bool remove(std::string_view key, Deadline deadline) override {
    int removed = 0;
    ask("remove", key, [&](const char* name, rondo_reply_t reply) {
      return on_.remove(on_.context, name, left_ms(deadline), &removed, reply);
    });
    return removed != 0;
  }

 private:
  // At least 1: a function of the program's must not take 0 for "no limit" after the deadline has passed.
  static int64_t left_ms(Deadline deadline) {
    const auto left = deadline - std::chrono::steady_clock::now();
    return std::max<int64_t>(1, std::chrono::duration_cast<std::chrono::milliseconds>(left).count());
  }

  // Calls a function of the program and returns its reply. Throws what the function's result says.
  template <typename Function>
  static std::optional<std::string> ask(const char* function, std::string_view key, const Function& call) {
    const std::string name = "rondo/" + std::string(key);
    rondo_reply reply;
    const rondo_result_t result = call(name.c_str(), &reply);
    if (result == RONDO_OK) return std::move(reply.bytes);
    std::string text =
        std::string("the program's store failed in ") + function + "(\"" + name + "\"): " + rondo_result_name(result);
    if (reply.bytes && !reply.bytes->empty()) text += ", " + *reply.bytes;
    throw rondo::Exception(result == RONDO_TIMEOUT ? rondo::ErrorCode::kTimeout : rondo::ErrorCode::kBootstrap, text);
  }

  // The functions and their context are the program's, called during rondo_join() only.
  const rondo_store_t on_;
};

// Copies the structure, which the caller may drop after rondo_join. Throws Exception(kInvalid) if a function is
// missing.
std::shared_ptr<rondo::Store> program_store(const rondo_store_t* from) {
  const rondo_store_t store = read_struct(from, rondo_store_t RONDO_STORE_INIT, "store");
  given(store.put, "store->put");
  given(store.get, "store->get");
  given(store.try_get, "store->try_get");
  given(store.add, "store->add");
  given(store.compare_set, "store->compare_set");
  given(store.remove, "store->remove");
  return std::make_shared<ProgramStore>(store);
}

// Throws Exception(kInvalid) for a NULL entry, a text that is no setting, and a value out of range. Settings of the
// program come before the environment's.
rondo::Config config_of(const rondo_join_options_t& options) {
  std::vector<std::string> settings;
  if (options.setting_count > 0) given(options.settings, "options->settings");
  for (size_t i = 0; i < options.setting_count; ++i) {
    settings.emplace_back(&given(options.settings[i], "an entry of options->settings"));
  }
  return rondo::Config::from_environment(settings);
}

rondo::JoinOptions join_options_of(const rondo_join_options_t* from) {
  const rondo_join_options_t defaults = RONDO_JOIN_OPTIONS_INIT;
  const rondo_join_options_t options = from == nullptr ? defaults : read_struct(from, defaults, "options");
  rondo::JoinOptions made{.rank = options.rank,
                          .world = options.world,
                          .rendezvous = {},
                          .job_id = {},
                          .store = {},
                          .config = config_of(options)};
  if (options.rendezvous != nullptr) made.rendezvous = options.rendezvous;
  if (options.job_id != nullptr) made.job_id = options.job_id;
  if (options.store != nullptr) made.store = program_store(options.store);
  return made;
}

}  // namespace

extern "C" {

rondo_result_t rondo_init(rondo_comm_t* comm) { return rondo_join(comm, nullptr); }

rondo_result_t rondo_join(rondo_comm_t* comm, const rondo_join_options_t* options) {
  return make(comm, "comm", [&] { return Communicator::join(join_options_of(options)); });
}

rondo_result_t rondo_reply_set(rondo_reply_t reply, const void* data, size_t bytes) {
  return guarded([&] {
    const auto* text = static_cast<const char*>(data);
    if (bytes > 0) given(text, "data");
    given(reply, "reply").bytes.emplace(text, bytes);
  });
}

// All handles are made before the first is given out: the caller gets all or none.
rondo_result_t rondo_init_inproc(rondo_comm_t* comms, int world) {
  return guarded([&] {
    given(comms, "comms");
    std::vector<std::unique_ptr<rondo_comm>> handles;
    for (Communicator& made : Communicator::inproc(world, rondo::Config::from_environment())) {
      std::unique_ptr<rondo_comm> handle(hand_out(std::move(made)));
      handles.push_back(std::move(handle));
    }
    for (auto& handle : handles) *comms++ = handle.release();
  });
}

rondo_result_t rondo_id_server_create(rondo_id_server_t* server, const char* host, const char** id) {
  return guarded([&] {
    given(server, "server") = nullptr;
    given(id, "id") = nullptr;
    auto made =
        std::unique_ptr<rondo_id_server>(new rondo_id_server{rondo::UniqueIdServer(host != nullptr ? host : "")});
    *id = made->server.id().c_str();
    *server = made.release();
  });
}

rondo_result_t rondo_id_server_destroy(rondo_id_server_t server) {
  return guarded([&] { delete server; });
}

}  // extern "C"
