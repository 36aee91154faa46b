#include "transport/rendezvous/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ring/base/hash.h"
#include "ring/base/json_text.h"
#include "rondo/error.h"
#include "transport/rendezvous/address.h"
#include "transport/rendezvous/door.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/rendezvous/slurm.h"
#include "transport/store/store_wire.h"
#include "transport/tcp/listener.h"

namespace rondo {
namespace {

// Slurm gives no port: one below the system's ephemeral range (32768 on) and above the usual services, so that two jobs
// on one node rarely meet; if they do, the job ids tell them apart and the error says what to set.
constexpr uint16_t kSlurmFirstPort = 20'000;
constexpr uint16_t kSlurmPorts = 9'000;

// invalid(): the variables or arguments contradict each other. no_meeting_point(): they do not suffice.
[[noreturn]] void invalid(std::string message) { throw Exception(ErrorCode::kInvalid, std::move(message)); }
[[noreturn]] void no_meeting_point(std::string message) { throw Exception(ErrorCode::kBootstrap, std::move(message)); }

// The names under which one launcher gives the facts; "" where it has none.
struct PlaceNames {
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;
  const char* node;
  const char* nodes;
};

// Facts that are not given are -1, and then nothing is compared.
void check_below(const Environment& env, const char* name, int value, const char* bound_name, int bound) {
  if (value < 0 || bound < 0 || value < bound) return;
  invalid(fmt::format("{}={} is not below {}={}", name, env.text(name), bound_name, env.text(bound_name)));
}

// nullopt if neither rank nor world is set. Facts that are not given are -1.
std::optional<Place> read_place(const Environment& env, const PlaceNames& names) {
  if (!env.has(names.rank) && !env.has(names.world)) return std::nullopt;
  Place place;
  place.rank = static_cast<int>(env.need(names.rank, 0, kMaxWorld - 1, names.world));
  place.world = static_cast<int>(env.need(names.world, 1, kMaxWorld, names.rank));
  place.local_rank = static_cast<int>(env.number(names.local_rank, 0, kMaxWorld - 1).value_or(-1));
  place.local_world = static_cast<int>(env.number(names.local_world, 1, kMaxWorld).value_or(-1));
  place.node = static_cast<int>(env.number(names.node, 0, kMaxWorld - 1).value_or(-1));
  place.nodes = static_cast<int>(env.number(names.nodes, 1, kMaxWorld).value_or(-1));
  check_below(env, names.rank, place.rank, names.world, place.world);
  check_below(env, names.local_rank, place.local_rank, names.local_world, place.local_world);
  check_below(env, names.node, place.node, names.nodes, place.nodes);
  check_below(env, names.local_world, place.local_world - 1, names.world, place.world);
  return place;
}

bool all_local(const Place& place) { return place.nodes == 1 || place.local_world == place.world; }

// On one host the local facts follow from the global ones and the other way round.
void fill_one_host(Place* place) {
  place->local_world = place->world;
  if (place->local_rank < 0) place->local_rank = place->rank;
  place->node = 0;
  place->nodes = 1;
}

// A socket that only the processes of one job derive the name of.
std::string private_socket(const char* launcher, const std::string& name) {
  return fmt::format("unix://{}/{}-{:016x}.sock", private_directory(), launcher, Hash64().add(name).value());
}

uint16_t port_of(const Environment& env, const char* name) {
  return static_cast<uint16_t>(env.need(name, 1, 65535, "MASTER_ADDR"));
}

// A space before or behind it would be a name that cannot be found, on some ranks only where others need no name.
std::string_view master_host(const Environment& env) {
  const std::string_view host = env.text("MASTER_ADDR");
  const auto is_blank = [](unsigned char letter) { return letter <= ' ' || letter == 0x7f; };
  if (std::any_of(host.begin(), host.end(), is_blank)) {
    reject_variable("MASTER_ADDR", host, "a host's name or address, without spaces");
  }
  return host;
}

// MASTER_ADDR with RONDO_MASTER_PORT or MASTER_PORT; "" without MASTER_ADDR.
std::string master_rendezvous(const Environment& env, const Launch& launch) {
  std::string_view host = master_host(env);
  if (host.empty()) return "";
  const char* port_name = env.has("RONDO_MASTER_PORT") ? "RONDO_MASTER_PORT" : "MASTER_PORT";
  if (!env.has(port_name)) invalid("MASTER_ADDR is set, but neither RONDO_MASTER_PORT nor MASTER_PORT is");
  uint16_t port = port_of(env, port_name);
  return tcp_url(all_local(launch.place) ? loopback_address() : std::string(host), port);
}

// --- one function a launcher: nullopt if it did not start us

// rondo-run, or RONDO_RANK and RONDO_WORLD_SIZE set by hand.
std::optional<Launch> read_rondo(const Environment& env) {
  std::optional<Place> place = read_place(env, {"RONDO_RANK", "RONDO_WORLD_SIZE", "RONDO_LOCAL_RANK",
                                                "RONDO_LOCAL_WORLD_SIZE", "RONDO_NODE", "RONDO_NODES"});
  if (!place) return std::nullopt;
  Launch launch{*place, "", "", "rondo", false};
  launch.rendezvous = master_rendezvous(env, launch);
  return launch;
}

// Variables that torchrun alone sets, beside those that it shares with programs.
bool is_torchrun(const Environment& env) {
  return env.has("TORCHELASTIC_RUN_ID") || env.has("TORCHELASTIC_USE_AGENT_STORE");
}

// torchrun's agent holds MASTER_PORT for its own store, also when the port was given by hand. On one host the ranks
// meet at a socket instead; between hosts at the port after it.
std::string torchrun_rendezvous(const Environment& env, const Launch& launch) {
  if (env.has("RONDO_MASTER_PORT")) return master_rendezvous(env, launch);
  if (!env.has("MASTER_ADDR")) invalid("MASTER_ADDR is not set, although torchrun's other variables are");
  uint16_t port = port_of(env, "MASTER_PORT");
  if (all_local(launch.place)) {
    return private_socket("torchrun", fmt::format("{}:{} {}", master_host(env), port, launch.job_id));
  }
  if (port == 65535) reject_variable("MASTER_PORT", "65535", "below 65535 under torchrun, or RONDO_MASTER_PORT set");
  return tcp_url(master_host(env), static_cast<uint16_t>(port + 1));
}

// RANK and WORLD_SIZE, which torchrun sets and which programs set by hand.
std::optional<Launch> read_plain(const Environment& env) {
  std::optional<Place> place =
      read_place(env, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"});
  if (!place) return std::nullopt;
  Launch launch{*place, "", "", "environment", false};
  if (is_torchrun(env)) {
    launch.launcher = "torchrun";
    launch.job_id = fmt::format("{}.{}", env.text("TORCHELASTIC_RUN_ID"),
                                env.number("TORCHELASTIC_RESTART_COUNT", 0, kMaxWorld).value_or(0));
    launch.rendezvous = torchrun_rendezvous(env, launch);
  } else {
    launch.rendezvous = master_rendezvous(env, launch);
  }
  return launch;
}

// Open MPI's mpirun. On one host a socket named by its job; on several its PMIx server says where rank 0 is.
std::optional<Launch> read_openmpi(const Environment& env) {
  std::optional<Place> place = read_place(env, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                                "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "", ""});
  if (!place) return std::nullopt;
  Launch launch{*place, std::string(env.text("PMIX_NAMESPACE")), "", "openmpi", false};
  launch.rendezvous = master_rendezvous(env, launch);
  if (launch.rendezvous.empty() && all_local(*place) && !launch.job_id.empty()) {
    launch.rendezvous = private_socket("openmpi", launch.job_id);
  } else if (launch.rendezvous.empty() && env.number("PMIX_RANK", 0, kMaxWorld - 1) == place->rank) {
    launch.rendezvous = "pmix:";
  }
  return launch;
}

// The best meeting point that Slurm's variables allow: an address of the user's, a socket on one host, a PMI server, or
// a port that all tasks compute from the job's id on the first node.
std::string slurm_rendezvous(const Environment& env, const Launch& launch) {
  std::string master = master_rendezvous(env, launch);
  if (!master.empty()) return master;
  if (all_local(launch.place)) return private_socket("slurm", launch.job_id);
  if (env.has("PMI_FD")) return "pmi:";
  const char* list = env.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_NODELIST";
  if (!env.has(list)) return "";
  uint16_t port = static_cast<uint16_t>(kSlurmFirstPort + Hash64().add(launch.job_id).value() % kSlurmPorts);
  if (std::optional<int64_t> given = env.number("RONDO_MASTER_PORT", 1, 65535)) port = static_cast<uint16_t>(*given);
  return tcp_url(first_node(env.text(list)), port);
}

// srun's tasks only: a batch script sees SLURM_PROCID too, but no step.
std::optional<Place> read_slurm_place(const Environment& env) {
  if (!env.has("SLURM_STEP_ID") || !env.has("SLURM_PROCID")) return std::nullopt;
  bool step = env.has("SLURM_STEP_NUM_TASKS");
  std::optional<Place> place =
      read_place(env, {"SLURM_PROCID", step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID", "",
                       "SLURM_NODEID", env.has("SLURM_STEP_NUM_NODES") ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES"});
  const char* tasks = env.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  if (env.has(tasks) && place->node >= 0) {
    std::vector<int> counts = expand_tasks_per_node(env.text(tasks));
    if (static_cast<size_t>(place->node) < counts.size()) place->local_world = counts[place->node];
  }
  return place;
}

// srun without a PMI server, which read_pmi() has looked for before.
std::optional<Launch> read_slurm(const Environment& env) {
  std::optional<Place> place = read_slurm_place(env);
  if (!place) return std::nullopt;
  Launch launch{*place, "", "", "slurm", false};
  launch.job_id = fmt::format("{}.{}", env.text("SLURM_JOB_ID"), env.text("SLURM_STEP_ID"));
  launch.rendezvous = slurm_rendezvous(env, launch);
  return launch;
}

// A PMI-1 server's ranks: MPICH's, or those of srun --mpi=pmi2, which says in Slurm's variables who is on this host.
std::optional<Launch> read_pmi(const Environment& env) {
  std::optional<Place> place = read_place(env, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "", ""});
  if (!place) return std::nullopt;
  // mpiexec within a Slurm job has Slurm's variables from the task that started its ranks: those are about another
  // rank.
  std::optional<Place> task = read_slurm_place(env);
  if (task && task->rank == place->rank && task->world == place->world) place = task;
  Launch launch{*place, "", "", "mpich", false};
  launch.rendezvous = master_rendezvous(env, launch);
  if (launch.rendezvous.empty() && env.number("PMI_FD", 0, 1 << 20)) launch.rendezvous = "pmi:";
  return launch;
}

// The order matters: a launcher inside another one's job sees both sets of variables, and the inner one started us.
std::optional<Launch> read_launcher(const Environment& env) {
  for (auto read : {read_rondo, read_plain, read_openmpi, read_pmi, read_slurm}) {
    if (std::optional<Launch> launch = read(env)) return launch;
  }
  return std::nullopt;
}

// --- putting the program's wishes and the environment together

// A program that numbers its ranks itself does not need the environment: variables that are half set or wrong are
// nothing to it. torch's programs set WORLD_SIZE alone.
std::optional<Launch> read_launcher_if_whole(const Environment& env) {
  try {
    return read_launcher(env);
  } catch (const Exception&) {
    return std::nullopt;
  }
}

// A world of one of the program's own: it meets nobody, though the environment says where the ranks of its job do.
bool is_apart(const LaunchRequest& request, const std::optional<Launch>& found) {
  return request.rank == 0 && request.world == 1 &&
         !(found && found->place.rank == request.rank && found->place.world == request.world);
}

// What the program gives overrules the environment; facts about places are kept only if they are about the same rank.
Launch apply_request(const LaunchRequest& request, const Environment& env) {
  bool whole = request.rank >= 0 && request.world >= 0;
  std::optional<Launch> found = whole ? read_launcher_if_whole(env) : read_launcher(env);
  Launch launch = found.value_or(Launch{Place{}, "", "", "program", false});
  if (request.rank < 0 && request.world < 0) return launch;
  if (!whole && !found) {
    invalid(request.rank < 0 ? "the world size was given without a rank, and no launcher's variables say it"
                             : "the rank was given without a world size, and no launcher's variables say it");
  }
  Place given = launch.place;
  if (request.rank >= 0) given.rank = request.rank;
  if (request.world >= 0) given.world = request.world;
  bool same = found && given.rank == found->place.rank && given.world == found->place.world;
  if (!same) given = Place{given.rank, given.world, -1, -1, -1, -1};  // the launcher's facts are about another rank
  launch.place = given;
  launch.launcher = found ? launch.launcher : "program";
  if (is_apart(request, found)) launch.rendezvous.clear();
  return launch;
}

// The launcher's numbers have been compared by read_place(); these may be the program's.
void check_place(const LaunchRequest& request, const Place& place) {
  if (place.world < 1 || place.world > kMaxWorld) {
    invalid(fmt::format("world={} is not allowed: it must be a whole number 1 .. {}", request.world, kMaxWorld));
  }
  if (place.rank < 0 || place.rank >= place.world) {
    invalid(fmt::format("rank {} is not below the world size {}", place.rank, place.world));
  }
}

// There are several ranks, and no place to meet: what to set under this launcher.
[[noreturn]] void explain_missing(const Launch& launch) {
  if (launch.launcher == "openmpi") {
    no_meeting_point(
        "Open MPI's variables give no address to meet at when the ranks are on several hosts: start with "
        "mpirun -x MASTER_ADDR=<rank 0's host> -x MASTER_PORT=<a free port there>");
  }
  if (launch.launcher == "mpich") {
    no_meeting_point("PMI_RANK is set, but PMI_FD and MASTER_ADDR are not: set MASTER_ADDR and MASTER_PORT");
  }
  no_meeting_point(
      fmt::format("this is rank {} of {}, but nothing says where the ranks meet: set MASTER_ADDR and "
                  "MASTER_PORT, or RONDO_RENDEZVOUS",
                  launch.place.rank, launch.place.world));
}

// RONDO_ENDED="descriptor:rendezvous". It is of the launcher's ranks: the program may have numbered its own, or started
// another job.
int ended_file(const LaunchRequest& request, const Launch& launch, const Environment& env) {
  const std::string_view text = env.text("RONDO_ENDED");
  const size_t colon = text.find(':');
  if (request.rank >= 0 || colon == std::string_view::npos || text.substr(colon + 1) != launch.rendezvous) return -1;
  const Environment one({{"RONDO_ENDED", std::string(text.substr(0, colon))}});
  return static_cast<int>(one.need("RONDO_ENDED", 0, 1 << 20, "rondo-run"));
}

// Neither the program nor a launcher has numbered this process, so it may be a newcomer.
bool has_no_rank(const LaunchRequest& request, const Environment& env) {
  return request.rank < 0 && request.world < 0 && request.rendezvous.empty() && !read_launcher(env);
}

// Else a process that was to join a job would run as a job of its own, and its sums would be wrong in silence.
void check_not_half_set(const LaunchRequest& request, const Environment& env) {
  if (request.rank >= 0 || request.world >= 0 || read_launcher(env)) return;
  if (!request.rendezvous.empty()) {
    invalid(
        fmt::format("the rendezvous {} was given, but nothing says this process's rank: give rank and world, or "
                    "set RANK and WORLD_SIZE",
                    json_text(without_key(request.rendezvous))));
  }
  for (const char* name : {"RONDO_RENDEZVOUS", "MASTER_ADDR"}) {
    if (env.has(name)) {
      invalid(fmt::format("{}={} is set, but nothing says this process's rank: set RANK and WORLD_SIZE, or unset it",
                          name, json_text(without_key(env.text(name)))));
    }
  }
}

}  // namespace

// What the program says goes before variables of Rondo's, these before the launcher's.
Launch find_launch_in(const LaunchRequest& request, const Environment& env) {
  if (request.rank < -1 || request.world < -1) {
    invalid(fmt::format("rank {} of {} is not allowed: -1 leaves it to the environment", request.rank, request.world));
  }
  Launch launch;
  const std::optional<Launch> job = read_launcher_if_whole(env);
  const bool apart = is_apart(request, job);
  const std::string newcomers(request.newcomers.empty() && !(apart && job) ? env.text("RONDO_JOIN")
                                                                           : request.newcomers);
  check_door_addresses(newcomers);
  if (!newcomers.empty() && has_no_rank(request, env)) {
    launch = Launch{Place{-1, -1, -1, -1, -1, -1}, "", "", "newcomer", false};
  } else {
    check_not_half_set(request, env);
    launch = apply_request(request, env);
    check_place(request, launch.place);
  }
  launch.newcomers = newcomers;

  if (!request.rendezvous.empty()) {
    launch.rendezvous = request.rendezvous;
  } else if (env.has("RONDO_RENDEZVOUS") && !apart) {
    launch.rendezvous = env.text("RONDO_RENDEZVOUS");
  } else if (launch.launcher == "program" && launch.place.world > 1) {
    launch.rendezvous = master_rendezvous(env, launch);
  }
  if (launch.rendezvous.empty() && launch.place.world > 1) explain_missing(launch);
  RendezvousUrl url = parse_rendezvous(launch.rendezvous);

  if (env.has("RONDO_JOB_ID")) launch.job_id = env.text("RONDO_JOB_ID");
  if (!request.job_id.empty()) launch.job_id = request.job_id;
  if (launch.job_id.empty() && url.kind != RendezvousUrl::Kind::kPmi) launch.job_id = "default";
  if (launch.job_id.size() > kMaxJobIdBytes) {
    invalid(fmt::format("the job id has {} bytes: at most {} are allowed", launch.job_id.size(), kMaxJobIdBytes));
  }

  bool loopback = (url.kind == RendezvousUrl::Kind::kTcp || url.kind == RendezvousUrl::Kind::kUnique) &&
                  (url.host == "localhost" || url.host == "::1" || url.host.rfind("127.", 0) == 0);
  if (is_newcomer(launch)) return launch;
  launch.ended = ended_file(request, launch, env);
  launch.one_host =
      launch.place.world == 1 || all_local(launch.place) || loopback || url.kind == RendezvousUrl::Kind::kUnix;
  if (launch.one_host) fill_one_host(&launch.place);
  return launch;
}

}  // namespace rondo
