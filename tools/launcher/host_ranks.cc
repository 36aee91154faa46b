#include "tools/launcher/host_ranks.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>

#include "tools/launcher/check_call.h"
#include "tools/launcher/job.h"
#include "tools/launcher/job_folder.h"

namespace rondo::launcher {
namespace {

Meeting meeting_of(const Assignment& a, const JobFolder& folder) {
  if (a.nodes == 1) return Meeting{fmt::format("unix://{}/store", folder.path()), a.job_id, "127.0.0.1", free_port()};
  const bool ipv6 = a.master_host.find(':') != std::string::npos;
  const std::string host = ipv6 ? fmt::format("[{}]", a.master_host) : a.master_host;
  return Meeting{fmt::format("tcp://{}:{}", host, a.master_port), a.job_id, a.master_host, a.master_port};
}

Member rank_member(const Assignment& a, const Meeting& meeting, int local_rank) {
  const int rank = a.first_rank + local_rank;
  Member member{std::to_string(rank), fmt::format("[{}] ", rank), "", {}};
  Environment& environment = member.settings.environment = own_environment();
  set_place(environment, meeting, RankPlace{rank, a.world, local_rank, a.ranks, a.node, a.nodes});
  for (const std::string& assignment : a.environment) set_variable(environment, assignment);
  limit_threads(environment, a.ranks);
  member.settings.command = a.command;
  member.settings.capture_output = a.prefix;
  // A terminal stops a background process group that reads from it, so only a file or a pipe is passed on.
  member.settings.keep_input = rank == 0 && a.folder.empty() && ::isatty(STDIN_FILENO) == 0;
  return member;
}

}  // namespace

int run_host_ranks(const Assignment& assignment, int control) {
  // Not to be found by the name of rondo-run: who kills one of the two by name is to leave the other.
  ::prctl(PR_SET_NAME, "rondo-ranks");
  const JobFolder folder;
  const Meeting meeting = meeting_of(assignment, folder);
  JobSettings settings;
  for (int local_rank = 0; local_rank < assignment.ranks; ++local_rank) {
    settings.members.push_back(rank_member(assignment, meeting, local_rank));
  }
  settings.timeout_s = assignment.timeout_s;
  settings.control = control;
  return Job(std::move(settings)).run();
}

int run_remote_ranks() try {
  const Assignment assignment = read_assignment(STDIN_FILENO);
  if (::chdir(assignment.folder.c_str()) != 0) check_call(assignment.folder.c_str(), -1);
  return run_host_ranks(assignment, STDIN_FILENO);
} catch (const std::exception& error) {
  char name[256] = "?";
  ::gethostname(name, sizeof(name) - 1);
  fmt::print(stderr, "rondo-run on {}: {}\n", name, error.what());
  return 1;
}

}  // namespace rondo::launcher
