#include "bench/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <thread>

#include "bench/cases.h"
#include "bench/device_group.h"
#include "bench/output/files.h"
#include "bench/reporter.h"
#include "bench/rondo_group.h"
#include "rondo/communicator.h"
#include "tools/launcher/environment.h"
#include "tools/launcher/host_ranks.h"
#include "transport/rendezvous/launch.h"

namespace rondo::bench {
namespace {

constexpr std::chrono::minutes kLimitWait{3};  // how much longer the others wait while rank 0 measures limits

// The environment's settings; options of the command line come before them.
Config config_of(const Options& options) {
  Config config = Config::from_environment();
  if (!options.transport.empty()) config.transport = options.transport;
  config.timeout_ms = options.timeout_ms;
  config.start_timeout_ms = options.start_timeout_ms.value_or(config.start_timeout_ms);
  return config;
}

// What a subcommand of this program prints: a process of its own, since measuring forks, and this one may have threads.
std::string ask_subcommand(const std::string& words) {
  std::FILE* output = ::popen(fmt::format("exec /proc/{}/exe {}", ::getpid(), words).c_str(), "re");
  if (output == nullptr) return "";
  std::string answer;
  char bytes[4096];
  while (const size_t count = std::fread(bytes, 1, sizeof bytes, output)) answer.append(bytes, count);
  return ::pclose(output) == 0 ? answer : "";
}

// Raw TCP at this size, by a process of its own. Without it rows have no share, and the bench goes on.
std::optional<StreamLimit> limit_now(int world, uint64_t bytes) {
  const std::string answer = ask_subcommand(fmt::format("limit --ranks {} --sizes {}", world, bytes));
  if (!answer.empty()) return stream_limit_of(answer);
  fmt::print(stderr, "rondo-bench: raw TCP of {} B could not be measured: no share of it\n", bytes);
  return std::nullopt;
}

// The limits by raw TCP, at these sizes.
Limits limits_now(const std::vector<uint64_t>& sizes, const Machine& machine, int world) {
  Progress progress;
  Limits limits;
  for (uint64_t bytes : sizes) {
    progress.show(fmt::format("measuring raw TCP: {} ranks, {} B", world, bytes));
    if (const std::optional<StreamLimit> limit = limit_now(world, bytes)) limits.raise(*limit);
  }
  if (world > machine.cores) return limits;  // who waits for a core measures the scheduler
  const std::string exchange = ask_subcommand(fmt::format("exchange --ranks {} --sizes 8", world));
  if (!exchange.empty()) limits.exchange_us = time_of(exchange);
  return limits;
}

// Rank 0 measures the limits, and sends a byte to each other rank when it has. These poll for it now and then, since
// the log would complain of a call that blocks so long.
Limits limits_of_rank_0(Communicator& communicator, const Options& options, const Machine& machine) {
  Options asked = options;
  asked.transport = communicator.config().transport;  // the limits are those of TCP: "auto" may share memory
  const std::vector<uint64_t> sizes = limited_sizes(asked, communicator.size());
  if (sizes.empty()) return {};
  uint8_t byte = 0;
  if (communicator.rank() != 0) {
    const CallOptions longer{.timeout = std::chrono::milliseconds(options.timeout_ms) + kLimitWait};
    Work received = communicator.recv_async(&byte, 1, DType::kUint8, 0, 0, longer);
    while (!received.done()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    received.wait();
    return {};
  }
  Limits limits = limits_now(sizes, machine, communicator.size());
  for (int rank = 1; rank < communicator.size(); ++rank) communicator.send(&byte, 1, DType::kUint8, rank);
  return limits;
}

// What ranks of this topology use.
std::string transport_text(const Communicator& communicator) {
  const Topology& topology = communicator.topology();
  if (topology.one_island()) return "shared memory";
  if (topology.world() == 1) return "alone";
  if (topology.one_host()) return "TCP over loopback";
  return communicator.config().transport == "tcp" ? "TCP" : "shared memory inside hosts, TCP between them";
}

std::unique_ptr<RondoGroup> group_of(Communicator& communicator, const Options& options) {
  const RondoCalls calls{options.algorithm, options.buffers, options.fused || options.aggregate > 1, options.blocking};
  if (options.on_device) return std::make_unique<DeviceGroup>(communicator, calls);
  return std::make_unique<RondoGroup>(communicator, calls);
}

// Collective; rank 0 shows the device, what it copies in this run, and how near all_reduces come to that: N ranks on
// one device read and write 2 N buffers.
void show_device(RondoGroup& group, const std::vector<Row>& rows) {
  auto* const device = dynamic_cast<DeviceGroup*>(&group);
  if (device == nullptr) return;
  const std::string memory = device->memory_text();
  if (group.rank() != 0 || rows.empty()) return;
  const auto largest =
      std::max_element(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.bytes < b.bytes; });
  const double copy = device->copy_gbps(largest->bytes);
  fmt::print("# device: {}; {} of its memory a rank; copies of {} B: {:.1f} GB/s read and written\n",
             device->device_text(), memory, largest->bytes, copy);
  for (const Row& row : rows) {
    if (row.collective != "all_reduce" || row.bytes != largest->bytes || row.time_us <= 0) continue;
    const double moved = 2e-3 * row.world * static_cast<double>(row.bytes) / row.time_us;
    fmt::print("# all_reduce of {} B, {} ranks, {}: {:.2f} of copies, if all ranks are on one device\n", row.bytes,
               row.world, row.in_place ? "in place" : "out of place", moved / copy);
  }
  std::fflush(stdout);
}

}  // namespace

bool started_by_launcher(const Options& options) { return find_launch({}, config_of(options)).launcher != "program"; }

// This process becomes the launcher: each rank is this program with the same arguments, and learns from its environment
// which one it is.
int start_ranks(const Options& options, const Machine& machine, const std::vector<std::string>& args) {
  cases_of(options, options.ranks);  // a bad request fails once, here
  launcher::Assignment job;
  job.ranks = job.world = options.ranks;
  job.job_id = "rondo-bench-" + launcher::random_id();
  job.prefix = false;
  job.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  job.command.insert(job.command.end(), args.begin(), args.end());
  job.command.insert(job.command.end(), {"--load-average", fmt::format("{}", machine.load_average)});
  return launcher::run_host_ranks(job);
}

// Ranks are threads. An error of one ends the others by abort(), which may be the error that is thrown in the end.
int run_inproc(const Options& options, const Machine& machine) {
  cases_of(options, options.ranks);
  std::vector<Communicator> communicators = Communicator::inproc(options.ranks, config_of(options));
  Reporter reporter(options, machine, options.ranks);
  reporter.begin("threads of one process");
  const SessionSetup setup{"inproc", {}};
  std::vector<std::exception_ptr> failures(communicators.size());
  std::vector<Row> rows;
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const std::unique_ptr<RondoGroup> group = group_of(communicators[rank], options);
        std::vector<Row> own =
            run_session(*group, options, setup, rank == 0 ? reporter.events(false) : SessionEvents{});
        group->barrier();  // the device is idle
        show_device(*group, own);
        if (rank == 0) rows = std::move(own);
        group->barrier();
      } catch (...) {
        failures[rank] = std::current_exception();
        communicators[rank].abort("another rank of the bench failed");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return reporter.finish(std::move(rows), {}, [](uint64_t) { return std::nullopt; });
}

// This process is one rank. Rank 0 alone writes; the others end with 0 whatever it has found.
int run_rank(const Options& options, const Machine& machine) {
  const Config config = config_of(options);
  const Launch launch = find_launch({}, config);
  const bool speaks = launch.place.rank == 0;
  const int world = launch.place.world;
  SessionSetup setup{config.transport, {}};
  JoinOptions join;
  join.config = config;
  Communicator communicator = Communicator::join(join);
  if (setup.transport == "auto" && communicator.topology().one_island()) setup.transport = "shm";
  Reporter reporter(options, machine, world);
  if (speaks) reporter.begin(transport_text(communicator));
  if (communicator.topology().one_host()) setup.limits = limits_of_rank_0(communicator, options, machine);
  communicator.barrier();
  std::unique_ptr<RondoGroup> group = group_of(communicator, options);
  const bool shares = !setup.limits.streams.empty();
  std::vector<Row> rows = run_session(*group, options, setup, speaks ? reporter.events(shares) : SessionEvents{});
  group->barrier();  // the device is idle
  show_device(*group, rows);
  group->barrier();
  group.reset();
  communicator.destroy();
  if (!speaks) return 0;
  // After the end of the job: a limit that is measured again takes longer than the other ranks wait.
  return reporter.finish(std::move(rows), setup.limits, [&](uint64_t bytes) { return limit_now(world, bytes); });
}

}  // namespace rondo::bench
