#include "tools/launcher/environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "ring/base/cores.h"
#include "ring/base/descriptor.h"
#include "tools/launcher/check_call.h"

namespace rondo::launcher {
namespace {

// port: of the address. 0: this machine has no such address.
template <typename Address>
uint16_t any_port(Address& address, const in_port_t& port) {
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t bytes = sizeof(address);
  const Descriptor socket(::socket(generic->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid() || ::bind(socket.get(), generic, bytes) != 0) return 0;
  check_call("getsockname", ::getsockname(socket.get(), generic, &bytes));
  return ntohs(port);
}

}  // namespace

void unset_variable(Environment& environment, const std::string& name) {
  std::erase_if(environment, [&](const std::string& entry) { return entry.starts_with(name); });
}

void set_variable(Environment& environment, const std::string& assignment) {
  unset_variable(environment, assignment.substr(0, assignment.find('=') + 1));
  environment.push_back(assignment);
}

Environment own_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  if (value_of(environment, "RONDO_JOB_ID").starts_with(kJobPrefix)) {
    for (const char* name : {"RONDO_JOIN=", "RONDO_ENDED=", "RONDO_SECRET_FD="}) unset_variable(environment, name);
  }
  return environment;
}

std::string value_of(const Environment& environment, const std::string& name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) {
      return entry.substr(name.size() + 1);
    }
  }
  return "";
}

// A program that has RONDO_JOIN set already keeps it.
void set_place(Environment& environment, const Meeting& meeting, const RankPlace& place) {
  for (const char* prefix : {"", "RONDO_"}) {
    set_variable(environment, fmt::format("{}RANK={}", prefix, place.rank));
    set_variable(environment, fmt::format("{}WORLD_SIZE={}", prefix, place.world));
    set_variable(environment, fmt::format("{}LOCAL_RANK={}", prefix, place.local_rank));
    set_variable(environment, fmt::format("{}LOCAL_WORLD_SIZE={}", prefix, place.local_world));
  }
  for (const char* name : {"RONDO_NODE", "GROUP_RANK"}) {
    set_variable(environment, fmt::format("{}={}", name, place.node));
  }
  for (const char* name : {"RONDO_NODES", "GROUP_WORLD_SIZE"}) {
    set_variable(environment, fmt::format("{}={}", name, place.nodes));
  }
  set_variable(environment, fmt::format("MASTER_ADDR={}", meeting.master_host));
  set_variable(environment, fmt::format("MASTER_PORT={}", meeting.master_port));
  set_variable(environment, fmt::format("RONDO_RENDEZVOUS={}", meeting.rendezvous));
  set_variable(environment, fmt::format("RONDO_JOB_ID={}", meeting.job_id));
  const bool known = !value_of(environment, "RONDO_JOIN").empty();
  if (!known && !meeting.newcomers.empty()) set_variable(environment, fmt::format("RONDO_JOIN={}", meeting.newcomers));
}

void unset_rank(Environment& environment) {
  for (const char* name :
       {"RANK=", "WORLD_SIZE=", "RONDO_RANK=", "RONDO_WORLD_SIZE=", "RONDO_RAISED=",
        // Those of a launcher that has started rondo-run.
        "OMPI_COMM_WORLD_RANK=", "OMPI_COMM_WORLD_SIZE=", "PMI_RANK=", "PMI_SIZE=", "SLURM_PROCID="}) {
    unset_variable(environment, name);
  }
}

void limit_threads(Environment& environment, int local_world) {
  if (!value_of(environment, "OMP_NUM_THREADS").empty()) return;
  const cpu_set_t cores = allowed_cores();
  set_variable(environment, fmt::format("OMP_NUM_THREADS={}", std::max(1, CPU_COUNT(&cores) / local_world)));
}

// Free at this moment only: another process may take it before rank 0 listens.
LoopbackPort free_port() {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (const uint16_t port = any_port(v4, v4.sin_port)) return {"127.0.0.1", port};
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_loopback;
  if (const uint16_t port = any_port(v6, v6.sin6_port)) return {"::1", port};
  throw std::runtime_error("no port of 127.0.0.1 or ::1 can be had: the loopback interface is down or has no address");
}

std::string random_id() {
  std::array<uint64_t, 2> bits{};
  check_call("getrandom", static_cast<int>(::getrandom(bits.data(), sizeof(bits), 0)));
  return fmt::format("{:016x}{:016x}", bits[0], bits[1]);
}

}  // namespace rondo::launcher
