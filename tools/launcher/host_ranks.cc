#include "tools/launcher/host_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>

#include "ring/base/descriptor.h"
#include "tools/launcher/check_call.h"
#include "tools/launcher/job.h"
#include "tools/launcher/job_folder.h"

namespace rondo::launcher {
namespace {

// On one host ranks meet at a unix socket in the job's folder, which no other user can reach. On several they meet at
// rank 0's address.
Meeting meeting_of(const Assignment& a, const JobFolder& folder) {
  if (a.nodes == 1) {
    const LoopbackPort loopback = free_port();
    const std::string newcomers = a.most > 0 ? fmt::format("unix://{}/join", folder.path()) : "";
    return Meeting{fmt::format("unix://{}", folder.store()), newcomers, a.job_id, loopback.host, loopback.port};
  }
  const bool ipv6 = a.master_host.find(':') != std::string::npos;
  const std::string host = ipv6 ? fmt::format("[{}]", a.master_host) : a.master_host;
  return Meeting{fmt::format("tcp://{}:{}", host, a.master_port), "", a.job_id, a.master_host, a.master_port};
}

// Memory that all ranks inherit. It has no name in a file system, and goes with the last process that has it.
Descriptor inherited_memory(const char* name) {
  return Descriptor(check_call("memfd_create", ::memfd_create(name, MFD_ALLOW_SEALING)),
                    Descriptor::InChild::kInherited);
}

// None can change it; none if there is no secret.
Descriptor secret_descriptor(const std::string& secret) {
  if (secret.empty()) return Descriptor();
  Descriptor file = inherited_memory("rondo-secret");
  const ssize_t written = check_call("write", static_cast<int>(::write(file.get(), secret.data(), secret.size())));
  if (written != static_cast<ssize_t>(secret.size())) throw std::runtime_error("the job's secret could not be kept");
  check_call("fcntl", ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  return file;
}

// The order counts: --env may override a rank's place, but not what this process needs of its ranks. RONDO_ENDED and
// RONDO_SECRET_FD are numbers of descriptors, which the rank inherits.
Member rank_member(const Assignment& a, const Meeting& meeting, int local_rank, const Descriptor& secret,
                   const Descriptor& ended, const std::string& raised) {
  const int rank = a.first_rank + local_rank;
  Member member{std::to_string(rank), fmt::format("[{}] ", rank), "", {}, {}};
  Environment& environment = member.settings.environment = own_environment();
  set_place(environment, meeting, RankPlace{rank, a.world, local_rank, a.ranks, a.node, a.nodes});
  for (const std::string& assignment : a.environment) set_variable(environment, assignment);
  if (ended.valid()) set_variable(environment, fmt::format("RONDO_ENDED={}:{}", ended.get(), meeting.rendezvous));
  set_variable(environment, fmt::format("RONDO_RAISED={}:{}", rank, raised));
  if (secret.valid()) set_variable(environment, fmt::format("RONDO_SECRET_FD={}", secret.get()));
  limit_threads(environment, a.ranks);
  member.again = environment;
  unset_rank(member.again);
  member.settings.command = a.command;
  member.settings.capture_output = a.prefix || ended.valid();  // whose lines must not mix with reports of losses
  if (!a.prefix) member.prefix = "";
  // A terminal stops a background process group that reads from it, so only a file or a pipe is passed on.
  member.settings.keep_input = rank == 0 && a.folder.empty() && ::isatty(STDIN_FILENO) == 0;
  return member;
}

struct Span {
  char* begin = nullptr;
  size_t bytes = 0;
};

// Where the kernel reads the command line: fields 48 and 49 of proc(5), after the name in brackets. Empty: not known.
Span arguments() {
  std::ifstream facts("/proc/self/stat");
  facts.ignore(std::numeric_limits<std::streamsize>::max(), ')');
  std::string skipped;
  for (int field = 3; field < 48; ++field) facts >> skipped;
  uintptr_t begin = 0, end = 0;
  if (!(facts >> begin >> end) || begin == 0 || end <= begin) return {};
  return {reinterpret_cast<char*>(begin), end - begin};
}

// Names this process so for ps, pkill and the like, also its command line: a fork shows that of its parent, and who
// kills that one by name would end both. The name is not longer than the program's own.
void take_process_name(const char* name) {
  // What this program calls itself in its messages is a part of those arguments.
  static std::string own = program_invocation_short_name;
  program_invocation_name = program_invocation_short_name = own.data();
  ::prctl(PR_SET_NAME, name);
  const Span place = arguments();
  std::memset(place.begin, 0, place.bytes);
  std::memcpy(place.begin, name, std::min(std::strlen(name), place.bytes));
}

}  // namespace

// The folder and the descriptors live until the ranks have ended.
int run_host_ranks(const Assignment& assignment, int control) {
  take_process_name("rondo-ranks");  // who kills rondo-run by name is to leave the other, which ends all
  const JobFolder folder;
  const Meeting meeting = meeting_of(assignment, folder);
  const Descriptor secret = secret_descriptor(assignment.secret);
  Descriptor ended;
  if (!assignment.loss_marker.empty()) {
    ended = inherited_memory("rondo-ended");
    check_call("ftruncate", ::ftruncate(ended.get(), assignment.world));
  }
  JobSettings settings;
  settings.raised = folder.path() + "/raised";
  std::ofstream(settings.raised).flush();
  settings.loss_marker = assignment.loss_marker;
  settings.ended = ended.get();
  for (int local_rank = 0; local_rank < assignment.ranks; ++local_rank) {
    settings.members.push_back(rank_member(assignment, meeting, local_rank, secret, ended, settings.raised));
  }
  settings.timeout_s = assignment.timeout_s;
  settings.least = static_cast<size_t>(assignment.least);
  settings.most = static_cast<size_t>(assignment.most);
  settings.restarts = assignment.restarts;
  // Ranks of several hosts, and a program with another store than this job's, say nothing of their start here.
  if (assignment.nodes == 1 &&
      value_of(settings.members.front().settings.environment, "RONDO_RENDEZVOUS") == meeting.rendezvous) {
    settings.start = [&folder] { return folder.start(); };
  }
  settings.control = control;
  const bool is_known = settings.start && assignment.must_join;
  const int code = Job(std::move(settings)).run();
  // A program of MPI that has loaded another library runs as so many jobs of one rank, and each would succeed.
  if (code != 0 || !is_known || folder.start() != Start::kAhead) return code;
  fmt::print(stderr,
             "rondo-run: all ranks ended and none had joined the job: the program calls no MPI, or has loaded another "
             "one than Rondo's, in which each is rank 0 of 1 (its DT_RPATH goes before LD_LIBRARY_PATH: readelf -d; "
             "rondo-doctor --mpi PROGRAM)\n");
  return 1;
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
