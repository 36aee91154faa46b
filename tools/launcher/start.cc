#include "tools/launcher/start.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <sstream>
#include <utility>

#include "ring/base/hash.h"
#include "tools/launcher/assignment.h"
#include "tools/launcher/host_ranks.h"
#include "tools/launcher/job.h"
#include "tools/launcher/mpi_libraries.h"

namespace rondo::launcher {
namespace {

// Below the system's ephemeral range (32768 on) and above the usual services; two jobs on one host rarely meet there.
constexpr uint16_t kFirstPort = 20'000;
constexpr uint16_t kPorts = 9'000;

// Words have no quotes: an agent's option cannot hold a space.
std::vector<std::string> split_words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// What ranks of other hosts get of this environment. A rank's place and the job's meeting are of this job alone, and
// are set there.
Environment forwarded(const Options& options) {
  Environment result;
  for (const std::string& entry : own_environment()) {
    if (entry.starts_with("RONDO_") || entry.starts_with("OMP_NUM_THREADS=")) result.push_back(entry);
  }
  for (const char* name : {"RONDO_RANK=", "RONDO_WORLD_SIZE=", "RONDO_LOCAL_RANK=", "RONDO_LOCAL_WORLD_SIZE=",
                           "RONDO_NODE=", "RONDO_NODES=", "RONDO_RENDEZVOUS=", "RONDO_JOB_ID=", "RONDO_MASTER_PORT=",
                           "RONDO_SECRET_FD=", "RONDO_RAISED="}) {
    std::erase_if(result, [&](const std::string& entry) { return entry.starts_with(name); });
  }
  for (const std::string& assignment : options.environment) set_variable(result, assignment);
  return result;
}

// What the ranks of several hosts know and nobody else; "" where the user has given one or wants none. On one host the
// ranks have their user's own.
std::string job_secret(const Options& options) {
  Environment environment = own_environment();
  for (const std::string& assignment : options.environment) set_variable(environment, assignment);
  const bool given =
      value_of(environment, "RONDO_INSECURE") == "1" || !value_of(environment, "RONDO_SECRET_FILE").empty();
  return given || options.hosts.size() < 2 ? "" : random_id() + random_id();
}

// The port is a guess by the job's id: whether it is free, only the first host can tell.
Assignment common_assignment(const Options& options) {
  Assignment a;
  const std::string id = random_id();
  a.world = options.ranks;
  a.nodes = static_cast<int>(options.hosts.size());
  a.job_id = kJobPrefix + id;
  a.master_host = address_of(options.hosts.front());
  a.master_port = options.master_port != 0
                      ? options.master_port
                      : static_cast<uint16_t>(kFirstPort + Hash64().add(std::string_view(id)).value() % kPorts);
  a.secret = job_secret(options);
  a.prefix = options.prefix;
  a.timeout_s = options.timeout_s;
  a.least = options.least;
  if (options.least > 0 && options.hosts.size() > 1) a.loss_marker = random_id();
  a.most = options.most;
  a.restarts = options.restarts;
  a.must_join = options.mpi && options.ranks > 1;
  a.environment = options.environment;
  a.command = options.command;
  return a;
}

// A fork without exec: this program serves the ranks of its own machine as it would on another. The body runs in the
// fork, so the copy of the assignment is the child's.
Member local_member(const Host& host, Assignment assignment) {
  Member member{host.name, "", "", {}, {}};
  member.settings.body = [assignment = std::move(assignment)](int control) -> int {
    try {
      return run_host_ranks(assignment, control);
    } catch (const std::exception& error) {
      fmt::print(stderr, "rondo-run: {}\n", error.what());
      return 1;
    }
  };
  return member;
}

// The launch agent starts rondo-run there. The assignment goes by standard input: it holds the job's secret, and every
// user can read a command line.
Member remote_member(const Host& host, const Assignment& assignment, const Options& options) {
  Member member{host.name, "", encode(assignment), {}, {}};
  member.settings.command = split_words(options.launch_agent);
  const std::string program =
      options.remote_path.empty() ? std::filesystem::read_symlink("/proc/self/exe").string() : options.remote_path;
  member.settings.command.push_back(host.name);
  member.settings.command.push_back(fmt::format("exec {} --host-ranks", quoted(program)));
  member.settings.environment = own_environment();
  return member;
}

}  // namespace

// A host gets as many ranks as it has slots, in the order of the list.
int run_job(const Options& options) {
  Assignment assignment = common_assignment(options);
  JobSettings settings;
  settings.noun = "host";
  const bool several = options.hosts.size() > 1;
  const bool remote = several || !is_this_machine(options.hosts.front());
  settings.explain = remote;
  settings.loss_marker = assignment.loss_marker;
  settings.ranks = options.ranks;
  settings.least = several ? static_cast<size_t>(options.least) : 0;
  // The ranks of all hosts run in the folder of the same path.
  const std::string folder = std::filesystem::current_path().string();
  for (const Host& host : options.hosts) {
    assignment.ranks = std::min(host.slots, options.ranks - assignment.first_rank);
    if (remote) {
      assignment.folder = folder;
      assignment.environment = forwarded(options);
    }
    settings.members.push_back(is_this_machine(host) ? local_member(host, assignment)
                                                     : remote_member(host, assignment, options));
    settings.members.back().first_rank = assignment.first_rank;
    settings.members.back().ranks = assignment.ranks;
    ChildSettings& child = settings.members.back().settings;
    child.controlled = true;
    child.capture_output = several;  // lines of several hosts must not mix
    child.keep_input = !remote;
    assignment.first_rank += assignment.ranks;
    ++assignment.node;
  }
  return Job(std::move(settings)).run();
}

}  // namespace rondo::launcher
