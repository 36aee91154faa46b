// rondo-doctor: what of this machine would stop a job, or slow it down, and what to do about it.
#include <fmt/format.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <string>

#include "ring/base/cores.h"
#include "rondo/error.h"
#include "rondo/rondo.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/pair.h"

namespace rondo::doctor {
namespace {

constexpr int kUsageError = 2;

struct Options {
  int ranks = 0;  // of this host; 0: as many as it has cores
  int hosts = 1;
  bool json = false;
  std::string pair, listen, mpi;
  bool listens = false;
};

void declare(CLI::App& app, Options& options) {
  app.set_version_flag("--version", "rondo-doctor " RONDO_VERSION);
  app.add_option("-n,--ranks", options.ranks, "Ranks of this host; the default is its number of cores")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  app.add_option("--hosts", options.hosts, "Hosts of the job")->check(CLI::Range(1, 4096))->type_name("N");
  app.add_flag("--json", options.json, "The findings as JSON");
  auto* listen = app.add_option("--listen", options.listen, "One end of a check of two hosts: waits for the other");
  listen->expected(0, 1)->type_name("[ADDRESS][:PORT]");
  app.add_option("--pair", options.pair, "The other end: measures latency and bandwidth, both ways")
      ->excludes(listen)
      ->type_name("ADDRESS[:PORT]");
  app.add_option("--mpi", options.mpi, "Only: which library of MPI it wants, and whether Rondo serves it (docs/mpi.md)")
      ->excludes(listen)
      ->type_name("PROGRAM|MODULE");
  app.footer(
      "Looks at settings, network, ports, descriptors, cores, control groups, shared memory, libraries and clock, and\n"
      "changes nothing. A line is ok, note (a job runs, with less than it could have) or WRONG. The exit code is 1 if\n"
      "something would stop a job. --listen and --pair run a real job of two ranks, and so need what any job on two\n"
      "hosts needs: RONDO_SECRET_FILE, or RONDO_INSECURE=1 where the network is trusted.");
}

void append(Findings& all, Findings more) {
  all.insert(all.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// Each check is independent: what one finds wrong does not stop the next.
Findings look(const Options& options) {
  const Environment environment = Environment::current();
  Findings findings = check_settings(environment);
  append(findings, check_launch(environment));
  Job job;
  job.hosts = options.hosts;
  const cpu_set_t cores = allowed_cores();
  job.local_ranks = options.ranks > 0 ? options.ranks : std::max(1, CPU_COUNT(&cores));
  try {
    job.config = Config::from_environment();
  } catch (const Exception&) {
    // check_settings() has said so: the rest is looked at with the defaults.
  }
  for (const auto check : {check_network, check_outputs, check_limits, check_memory, check_libraries})
    append(findings, check(job));
  append(findings, check_clock());
  return findings;
}

Findings run_pair(const Options& options) {
  const PairEnd end = parse_pair_end(options.listens ? options.listen : options.pair, options.listens);
  if (options.listens) {
    fmt::print(stderr, "On the other host: rondo-doctor --pair {}\n",
               end.host.find(':') == std::string::npos ? fmt::format("{}:{}", end.host, end.port)
                                                       : fmt::format("[{}]:{}", end.host, end.port));
  }
  return check_pair(end);
}

// The exit code is 1 where something would stop a job.
int run(const Options& options) {
  const bool pair = options.listens || !options.pair.empty();
  const Findings findings = pair                   ? run_pair(options)
                            : !options.mpi.empty() ? check_mpi_program(options.mpi)
                                                   : look(options);
  fmt::print("{}", options.json ? as_json(findings) : as_text(findings));
  return would_stop_a_job(findings) ? 1 : 0;
}

}  // namespace
}  // namespace rondo::doctor

int main(int argc, char** argv) {
  using namespace rondo::doctor;
  Options options;
  CLI::App app("What of this machine would stop a job of Rondo's, or slow it down, and what to do about it.",
               "rondo-doctor");
  declare(app, options);
  try {
    app.parse(argc, argv);
    options.listens = app.count("--listen") > 0;
    return run(options);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
    return 0;
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "rondo-doctor: {}\nTry 'rondo-doctor --help'.\n", error.what());
    return kUsageError;
  } catch (const rondo::Exception& refusal) {
    fmt::print(stderr, "rondo-doctor: {}\n", refusal.what());
    return refusal.code() == rondo::ErrorCode::kInvalid ? kUsageError : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rondo-doctor: {}\n", error.what());
    return 1;
  }
}
