#pragma once

#include "rondo/config.h"
#include "tools/doctor/finding.h"
#include "transport/rendezvous/environment.h"

namespace rondo::doctor {

// The job that this machine is looked at for.
struct Job {
  int local_ranks = 1;  // of this host
  int hosts = 1;
  Config config;
  int world() const { return local_ranks * hosts; }
};

// Each looks at one side of this machine, changes nothing, and takes milliseconds. What cannot be looked at is a
// finding, too: none throws, but for memory that runs out.

// Variables: those that are set, wrong ones, and misspelt ones, which nobody reads.
Findings check_settings(const Environment& environment);
// Names of all variables that Rondo's library, launchers and Python package read.
std::vector<std::string> known_variables();
// The known name that `name` is probably meant to be; "" if none is near or it is known itself.
std::string meant_by(const std::string& name);

// Who starts the ranks, and where they meet.
Findings check_launch(const Environment& environment);

// Where traces and metrics go. Empty where neither is asked for.
Findings check_outputs(const Job& job);

// Interfaces, the address that ranks of other hosts would be given, permission to listen, ports, congestion control.
Findings check_network(const Job& job);

// Descriptors, cores, and what control groups leave.
Findings check_limits(const Job& job);
// The tightest limits of the control groups of a process and those above them. Both versions of control groups are
// read.
struct GroupLimits {
  uint64_t memory_bytes = 0;  // 0: no limit
  uint64_t processes = 0;     // that may still be made; UINT64_MAX: no limit
};
// root, groups: as of control_groups().
GroupLimits read_group_limits(const std::string& root, const std::string& groups);

// Memory that ranks of a host share, the kernel's copy between processes, namespaces.
Findings check_memory(const Job& job);

// librondo, NVIDIA's driver, OpenSSL.
Findings check_libraries(const Job& job);

// Which library of MPI a program, or a module of Python, wants, and which of Rondo's serves it (docs/mpi.md). Not part
// of the others: it reads all files of a module.
Findings check_mpi_program(const std::string& name);

// What time is read from.
Findings check_clock();

}  // namespace rondo::doctor
