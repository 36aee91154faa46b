#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ring/api/c/arguments.h"
#include "ring/api/c/handles.h"
#include "ring/api/c/program_store.h"
#include "ring/api/c/result.h"
#include "rondo/rondo.h"
#include "rondo/unique_id.h"

using namespace rondo::c;
using rondo::Communicator;

// Opaque to callers.
struct rondo_id_server {
  rondo::UniqueIdServer server;
};

namespace {

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
  return guarded([&] {
    given(comm, "comm") = nullptr;
    *comm = hand_out(Communicator::join(join_options_of(options)));
  });
}

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
