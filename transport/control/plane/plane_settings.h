#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ring/base/log.h"
#include "rondo/config.h"
#include "transport/auth/authenticator.h"
#include "transport/tcp/listener.h"

namespace rondo {

// What a rank's control plane is made with. Constant.
struct PlaneSettings {
  int rank = 0;
  int world = 1;
  std::string job_id;  // bounded
  int ended = -1;      // Launch::ended
  Config config;
  std::vector<std::string> addresses;
  PortRange ports;
  Logger logger;
  Authenticator auth;
  size_t max_pending = 128;  // connections that have not said who they are
  size_t max_known = 1024;   // and those that have, and are not through yet
  size_t max_early = 1024;   // data sockets of communicators that are not open here yet
};

}  // namespace rondo
