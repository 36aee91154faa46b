#include "bench/entrant.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "bench/children.h"
#include "bench/machine.h"
#include "bench/sizes.h"

namespace rondo::bench {
namespace {

using Environment = std::map<std::string, std::string>;

// What is swept: an algorithm, by the library's own means.
struct Choice {
  std::string name;
  std::vector<std::string> args;
  Environment environment;
};

std::vector<std::string> question_args(const Question& q) {
  const bool both = q.collective == "all_reduce" || q.collective == "broadcast" || q.collective == "reduce";
  return {"--collective", q.collective, "--placement", both ? "in" : "out", "--seconds", fmt::format("{}", q.seconds)};
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) out.push_back(part);
  return out;
}

std::string row_transport(const Question& q) {
  return q.congestion.empty() ? q.transport : q.transport + "@" + q.congestion;
}

std::string find_file(const PeerPlaces& places, const std::string& name) {
  for (const std::string& root : places.roots) {
    const std::string path = root + "/" + name;
    if (access(path.c_str(), X_OK) == 0) return std::filesystem::absolute(path).string();
  }
  return "";
}

// The heap is kept, so that temporaries are not fresh pages in every call; that is each MPI's best setting from 1 MiB
// on.
Entrant mpi_entrant(const std::string& library, const std::string& folder, const Question& q, const Choice& choice) {
  Entrant entrant{library, choice.name, folder + "/bin/mpiexec", choice.args, choice.environment, split(q.sizes)};
  entrant.environment.insert(
      {{"MPI_BENCH_LIBRARY", library}, {"MPI_BENCH_TRANSPORT", row_transport(q)}, {"MPI_BENCH_SETTING", choice.name}});
  if (choice.name.find("heap kept") != std::string::npos) entrant.environment["MPI_BENCH_KEEP_HEAP"] = "1";
  entrant.args.insert(entrant.args.end(), {"-n", std::to_string(q.world), folder + "/bench"});
  const std::vector<std::string> asked = question_args(q);
  entrant.args.insert(entrant.args.end(), asked.begin(), asked.end());
  return entrant;
}

std::vector<Choice> openmpi_choices(const Question& q, int cores) {
  std::vector<std::string> base{"--allow-run-as-root", "--bind-to", "none", "--oversubscribe", "--mca", "pml", "ob1"};
  // vader is the name of 4.x for what 5.x calls sm; a name that is not known is left out of the list.
  const std::string btl = q.transport == "tcp" ? "self,tcp" : "self,sm,vader";
  base.insert(base.end(), {"--mca", "btl", btl, "--mca", "btl_base_warn_component_unused", "0", "--mca",
                           "mca_base_component_show_load_errors", "0"});
  if (q.transport == "tcp") base.insert(base.end(), {"--mca", "btl_tcp_if_include", "lo"});
  if (q.world > cores) base.insert(base.end(), {"--mca", "mpi_yield_when_idle", "1"});
  std::vector<Choice> out{{"default", base, {}}, {"default, heap kept", base, {}}};
  if (q.collective != "all_reduce") return out;
  const std::pair<const char*, const char*> algorithms[] = {
      {"3", "recursive doubling"}, {"4", "ring"}, {"5", "segmented ring"}, {"6", "Rabenseifner"}};
  for (const auto& [number, name] : algorithms) {
    std::vector<std::string> args = base;
    args.insert(args.end(), {"--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm",
                             number, "--mca", "coll", "^han,adapt,sm,xhc,acoll"});
    out.push_back({fmt::format("{}, heap kept", name), args, {}});
  }
  return out;
}

std::vector<Choice> mpich_choices(const Question& q) {
  Environment base;
  if (q.transport == "tcp") {
    base = {{"MPIR_CVAR_NOLOCAL", "1"},
            {"MPIR_CVAR_CH4_NETMOD", "ofi"},  // of two in the wheel; the other takes shared memory all the same
            {"FI_PROVIDER", "tcp"},
            {"FI_TCP_IFACE", "lo"}};
  }
  const std::vector<std::string> args{"-launcher", "fork"};
  std::vector<Choice> out{{"default", args, base}, {"default, heap kept", args, base}};
  if (q.collective != "all_reduce") return out;
  for (const char* algorithm : {"ring", "recursive_doubling", "reduce_scatter_allgather"}) {
    Environment environment = base;
    environment["MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM"] = algorithm;
    environment["MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE"] = "0";
    out.push_back({fmt::format("{}, heap kept", algorithm), args, environment});
  }
  return out;
}

std::vector<Choice> intelmpi_choices(const Question& q, int cores, const std::string& folder) {
  // LD_LIBRARY_PATH: it looks for libfabric by name, and a system may have none.
  Environment base{{"I_MPI_ROOT", folder},
                   {"I_MPI_FABRICS", "shm"},
                   {"I_MPI_PIN", "0"},
                   {"FI_PROVIDER_PATH", folder + "/lib"},
                   {"LD_LIBRARY_PATH", folder + "/lib"}};
  if (q.transport == "tcp") {
    base["I_MPI_FABRICS"] = "ofi";
    base["I_MPI_OFI_PROVIDER"] = base["FI_PROVIDER"] = "tcp";
    base["FI_TCP_IFACE"] = "lo";
    // Without these, ranks of one host reduce through shared memory all the same.
    base["I_MPI_COLL_INTRANODE"] = "pt2pt";
    base["I_MPI_SHM"] = "off";
  }
  if (q.world > cores) base.insert({{"I_MPI_THREAD_YIELD", "3"}, {"I_MPI_WAIT_MODE", "0"}});
  const std::vector<std::string> args{"-bootstrap", "fork"};
  std::vector<Choice> out{{"default", args, base}, {"default, heap kept", args, base}};
  if (q.collective != "all_reduce") return out;
  const std::pair<const char*, const char*> algorithms[] = {
      {"1", "recursive doubling"}, {"2", "Rabenseifner"}, {"8", "ring"}};
  for (const auto& [number, name] : algorithms) {
    Environment environment = base;
    environment["I_MPI_ADJUST_ALLREDUCE"] = number;
    out.push_back({fmt::format("{}, heap kept", name), args, environment});
  }
  return out;
}

std::vector<Entrant> mpi_entrants(const std::string& library, const Question& q, const PeerPlaces& places, int cores,
                                  std::string& missing) {
  if (q.buffers != "plain") {
    missing = "an MPI has no registered buffers";
    return {};
  }
  const std::string program = find_file(places, "peers/" + library + "/bench");
  if (program.empty()) {
    missing = fmt::format("not built: bench/peers/build_mpi.sh {}", library);
    return {};
  }
  const std::string folder = std::filesystem::path(program).parent_path().string();
  const std::vector<Choice> choices = library == "openmpi" ? openmpi_choices(q, cores)
                                      : library == "mpich" ? mpich_choices(q)
                                                           : intelmpi_choices(q, cores, folder);
  std::vector<Entrant> out;
  for (const Choice& choice : choices) out.push_back(mpi_entrant(library, folder, q, choice));
  return out;
}

// Both ends of a blocking pair write before they read: with more than the socket buffers hold, neither goes on.
constexpr uint64_t kLargestSync = 1u << 20;

std::vector<std::string> sizes_up_to(const std::string& sizes, uint64_t most) {
  std::vector<std::string> kept = split(sizes);
  std::erase_if(kept, [&](const std::string& size) { return parse_size(size).value_or(most + 1) > most; });
  return kept;
}

std::vector<std::string> gloo_algorithms(const std::string& mode) {
  std::vector<std::string> algorithms{"ring", "ring_chunked", "halving_doubling", "bcube"};
  // The newer interface cannot do without the event loop.
  if (mode == "epoll") algorithms.insert(algorithms.end(), {"new_ring", "new_bcube"});
  return algorithms;
}

std::vector<Entrant> gloo_entrants(const std::string& library, const Question& q, const PeerPlaces& places,
                                   std::string& missing) {
  const std::string program = find_file(places, "gloo_bench");
  if (program.empty()) missing = "not built: bench/peers/build_gloo.sh";
  if (q.transport != "tcp") missing = "Gloo knows TCP only";
  if (q.collective != "all_reduce" || q.buffers != "plain") missing = "its driver has all_reduce on plain buffers only";
  const std::string mode = library == "gloo" ? "epoll" : library.substr(5);
  const bool blocking = mode != "epoll";
  const std::vector<std::string> sizes = blocking ? sizes_up_to(q.sizes, kLargestSync) : split(q.sizes);
  if (missing.empty() && sizes.empty()) missing = "its blocking pairs wait for ever from some MiB on; not asked";
  if (!missing.empty()) return {};
  const std::vector<std::string> congestions =
      q.congestion.empty() ? this_machine().congestion_controls : std::vector{q.congestion};
  std::vector<Entrant> out;
  for (const std::string& congestion : congestions) {
    for (const std::string& algorithm : gloo_algorithms(mode)) {
      const std::vector<std::string> args{"--ranks",
                                          std::to_string(q.world),
                                          "--mode",
                                          mode,
                                          "--algorithms",
                                          algorithm,
                                          "--seconds",
                                          fmt::format("{}", q.seconds),
                                          "--congestion-controls",
                                          congestion};
      out.push_back({library, algorithm + ", " + congestion, program, args, {}, sizes});
    }
  }
  return out;
}

std::vector<Entrant> rondo_entrants(const Question& q) {
  Entrant entrant{"rondo", "as it is", own_program(), question_args(q), {}, split(q.sizes)};
  entrant.args.insert(entrant.args.end(), {"--ranks", std::to_string(q.world), "--transport", q.transport, "--buffers",
                                           q.buffers, "--no-limit"});
  return {entrant};
}

}  // namespace

std::string Question::text() const {
  return fmt::format("{}, {}{}, {} buffers, {} ranks", collective, transport,
                     congestion.empty() ? "" : " @" + congestion, buffers, world);
}

std::string Entrant::command() const {
  std::string text;
  const auto add = [&](const std::string& word) {
    const bool plain = word.find_first_of(" ^'\"$*&|;<>()") == std::string::npos && !word.empty();
    text += (text.empty() ? "" : " ") + (plain ? word : "'" + word + "'");
  };
  for (const auto& [name, value] : environment) add(name + "=" + value);
  add(program);
  for (const std::string& arg : args) add(arg);
  add("--sizes");
  add(fmt::format("{}", fmt::join(sizes, ",")));
  return text;
}

PeerPlaces default_places() { return {{"build", std::filesystem::path(own_program()).parent_path().string()}}; }

std::vector<Entrant> entrants(const std::string& library, const Question& question, const PeerPlaces& places, int cores,
                              std::string& missing) {
  missing.clear();
  std::vector<Entrant> out;
  if (library == "rondo") {
    out = rondo_entrants(question);
  } else if (library.rfind("gloo", 0) == 0) {
    out = gloo_entrants(library, question, places, missing);
  } else {
    out = mpi_entrants(library, question, places, cores, missing);
  }
  for (Entrant& entrant : out) {
    entrant.alone |= question.world > cores;  // who spins may take seconds for 8 bytes
    if (question.congestion.empty()) continue;
    std::vector<std::string> args{"--namespace", question.congestion, "--", entrant.program};
    args.insert(args.end(), entrant.args.begin(), entrant.args.end());
    entrant.program = own_program();
    entrant.args = std::move(args);
  }
  return out;
}

const std::vector<std::string>& known_libraries() {
  static const std::vector<std::string> names{"rondo", "openmpi",   "mpich",    "intelmpi",
                                              "gloo",  "gloo-sync", "gloo-busy"};
  return names;
}

}  // namespace rondo::bench
