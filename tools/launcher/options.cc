#include "tools/launcher/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "rondo/rondo.h"
#include "tools/launcher/environment.h"
#include "tools/launcher/mpi_libraries.h"

namespace rondo::launcher {
namespace {

// More ranks than this is a slip of the finger: each needs a process and two pipes.
constexpr int kMaxRanks = 4096;
constexpr int kUsageError = 2;

int usage_error(const std::string& message) {
  fmt::print(stderr, "rondo-run: {}\nTry 'rondo-run --help'.\n", message);
  return kUsageError;
}

std::string check_assignment(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos && equals > 0) return "";
  return fmt::format("'{}' is not NAME=value", text);
}

// CLI::PositiveNumber says the largest double in all of its digits.
std::string check_seconds(const std::string& text) {
  double seconds = 0;
  const bool is_number = CLI::detail::lexical_cast(text, seconds);
  return is_number && std::isfinite(seconds) && seconds > 0 ? "" : fmt::format("'{}' is no number above 0", text);
}

// "MIN", whose most is 0, or "MIN:MAX".
struct Elastic {
  int least = 0, most = 0;
};
// nullopt: the text is none, or out of bounds.
std::optional<Elastic> parse_elastic(const std::string& text) {
  const size_t colon = text.find(':');
  const bool has_most = colon != std::string::npos;
  Elastic found;
  if (!CLI::detail::lexical_cast(text.substr(0, colon), found.least)) return std::nullopt;
  if (has_most && !CLI::detail::lexical_cast(text.substr(colon + 1), found.most)) return std::nullopt;
  const int most = has_most ? found.most : kMaxRanks;
  if (found.least < 1 || most < found.least || most > kMaxRanks) return std::nullopt;
  return found;
}
std::string check_elastic(const std::string& text) {
  return parse_elastic(text) ? "" : fmt::format("'{}' is not MIN or MIN:MAX, from 1 to {}", text, kMaxRanks);
}

// The usage line knows that a program follows.
class Help : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: rondo-run -n N [options] program [arguments]\n"
           "       rondo-run --hosts a:2,b:2 [options] program [arguments]\n";
  }
};

// What the command line says, before it is checked as a whole.
struct Words {
  bool no_prefix = false, mpi = false;
  std::string hosts, hostfile, elastic;
};

void declare(CLI::App& app, Options& options, Words& words) {
  app.set_version_flag("--version", "rondo-run " RONDO_VERSION);
  app.add_option("-n,--ranks", options.ranks,
                 "How many ranks to start; with hosts the default is all that they take; -np is the same")
      ->check(CLI::Range(1, kMaxRanks))
      ->type_name("N");
  auto* hosts = app.add_option("--hosts", words.hosts, "Start ranks on these hosts, so many on each (1 if not said)");
  hosts->type_name("HOST:N,...");
  app.add_option("--hostfile", words.hostfile, "The same from a file: a line is HOST, HOST:N or HOST slots=N")
      ->excludes(hosts)
      ->type_name("FILE");
  app.add_option("--launch-agent", options.launch_agent, "Runs a command on another host: AGENT HOST COMMAND")
      ->default_val("ssh -o BatchMode=yes")
      ->type_name("AGENT");
  app.add_option("--remote-path", options.remote_path, "rondo-run on the other hosts; the default is its path here")
      ->type_name("PATH");
  app.add_option("--master-port", options.master_port,
                 "Of rank 0, between hosts; the default is one from 20000 to 28999")
      ->check(CLI::Range(1, 65535))
      ->type_name("PORT");
  app.add_flag("--mpi", words.mpi, "The program is one of MPI: it runs on Rondo instead (docs/mpi.md)");
  app.add_flag("--no-prefix", words.no_prefix, "Ranks write to this program's own outputs, as they are");
  app.add_option("--timeout", options.timeout_s, "End the ranks after so many seconds; the exit code is then 124")
      ->check(CLI::Validator(check_seconds, "above 0"))
      ->type_name("S");
  auto* elastic = app.add_option(
      "--elastic", words.elastic,
      "A rank that fails ends the others only if fewer than MIN are left; for programs that shrink. On one host, with "
      "MAX, it is started again, while fewer than MAX run and none has succeeded; for programs that grow");
  elastic->check(CLI::Validator(check_elastic, ""))->type_name("MIN[:MAX]");
  app.add_option("--max-restarts", options.restarts, "So often in all, with --elastic MIN:MAX")
      ->check(CLI::Range(0, kMaxRanks))
      ->default_val(3)
      ->needs(elastic)
      ->type_name("N");
  app.add_option("--env", options.environment, "Set a variable for every rank; may be given several times")
      ->allow_extra_args(false)
      ->check(CLI::Validator(check_assignment, ""))
      ->type_name("NAME=value");
  app.add_option("--python", options.python)->group("");        // python -m rondo.run: what runs it
  app.add_flag("--host-ranks", options.host_ranks)->group("");  // what the launch agent starts
  app.formatter(std::make_shared<Help>());
  app.footer(
      "Each rank is a process with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, "
      "and\n"
      "with a private socket for Rondo to meet at. OMP_NUM_THREADS is set to the host's cores divided by its ranks "
      "(at\n"
      "least 1), unless it is set. When one rank fails, the others are ended (SIGTERM, 5 s later SIGKILL), and its "
      "exit\n"
      "code is returned: 128 + signal if a signal killed it. SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP and\n"
      "SIGCONT are passed on to every rank. When rondo-run itself is killed, so is everything that it started.\n"
      "\n"
      "Other hosts need ssh without a password, rondo-run at the same path, and the program in the same folder. "
      "Their\n"
      "ranks get --env, OMP_NUM_THREADS and the variables RONDO_* of this shell, and no standard input. Ranks of "
      "several\n"
      "hosts prove to one another that they know a secret: one that rondo-run makes and hands to them by descriptors, "
      "or\n"
      "that of RONDO_SECRET_FILE, a path on each host. RONDO_INSECURE=1 does without.");
  app.prefix_command();  // everything from the program's name on is the program's
}

// With -np as other launchers have it: it would be -n with the value "p". Words from the program's name on are its own.
void parse(CLI::App& app, std::vector<std::string> words) {
  for (size_t at = 0; at < words.size() && words[at].size() > 1 && words[at].front() == '-' && words[at] != "--";
       ++at) {
    if (words[at] == "-np") words[at] = "-n";
    const CLI::Option* option = app.get_option_no_throw(words[at]);  // none: it has its value in it, or is unknown
    if (option != nullptr && option->get_expected_max() > 0) ++at;
  }
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  app.parse(words);
}

// Fills in hosts and ranks, each from the other; "" or what is wrong. Hosts behind the last one that gets a rank are
// dropped.
std::string complete_hosts(Options& options, const Words& words) {
  try {
    if (!words.hosts.empty()) options.hosts = parse_hosts(words.hosts);
    if (!words.hostfile.empty()) options.hosts = read_hostfile(words.hostfile);
  } catch (const std::exception& error) {
    return error.what();
  }
  if (options.hosts.empty()) {
    if (options.ranks == 0) return "how many ranks? -n or --hosts is required";
    options.hosts = {Host{"localhost", options.ranks}};
    return "";
  }
  int slots = 0;
  size_t used = 0;  // hosts with a rank at least
  for (const Host& host : options.hosts) {
    if (options.ranks == 0 || slots < options.ranks) ++used;
    slots += host.slots;
  }
  if (options.ranks > slots)
    return fmt::format("-n {} is more than the {} ranks that the hosts take", options.ranks, slots);
  if (options.ranks == 0) options.ranks = slots;
  if (options.ranks > kMaxRanks) return fmt::format("{} ranks are more than {}", options.ranks, kMaxRanks);
  options.hosts.resize(used);
  return "";
}

// The variables by which programs of MPI find Rondo's libraries, which lie beside this program; "" or what is missing.
std::string use_mpi(Options& options) {
  const auto folder = mpi_folder();
  if (!folder) return "--mpi: Rondo's libmpi.so.12 does not lie beside this program: install it by tools/install.sh";
  for (const std::string& library : wanted_mpi(find_program(options.command.front()))) {
    if (const std::string lacks = lacks_mpi(library); !lacks.empty()) {
      return fmt::format("--mpi: {} wants {}. {}", options.command.front(), library, lacks);
    }
  }
  const std::string others = value_of(own_environment(), "LD_LIBRARY_PATH");
  // In front: what --env says for the same variables counts.
  const std::vector<std::string> found = {
      fmt::format("LD_LIBRARY_PATH={}{}{}", folder->string(), others.empty() ? "" : ":", others),
      fmt::format("MPI4PY_LIBMPI={}", (*folder / "libmpi.so.12").string()),  // mpi4py looks elsewhere first
      fmt::format("MLX_MPI_LIBNAME={}", (*folder / "libmpi.so.40").string()),
      fmt::format("MPITRAMPOLINE_LIB={}", (*folder / "librondo_mpitrampoline.so").string()),
  };
  options.environment.insert(options.environment.begin(), found.begin(), found.end());
  options.mpi = true;
  return "";
}

// What other hosts need; "" or what is missing.
std::string check_network(const Options& options) {
  if (options.launch_agent.find_first_not_of(' ') == std::string::npos) return "--launch-agent names no program";
  for (const int number : {options.least, options.most}) {
    if (number > options.ranks) return fmt::format("--elastic {} is more than the {} ranks", number, options.ranks);
  }
  if (options.hosts.size() < 2) return "";
  if (options.most > 0) return "--elastic MIN:MAX is for one host: ranks of several are not started again";
  if (is_this_machine(options.hosts.front())) {
    return fmt::format("the first host is {}, where the others cannot find rank 0: give its name",
                       options.hosts[0].name);
  }
  if (!value_of(own_environment(), "RONDO_SECRET_FD").empty()) {
    return "RONDO_SECRET_FD is a descriptor of this host only: unset it, since rondo-run makes a secret for its "
           "ranks, or set RONDO_SECRET_FILE";
  }
  return "";
}

}  // namespace

// --help and --version print to standard output, and end with 0; mistakes with 2.
Parsed parse_options(int argc, char** argv) {
  Options options;
  Words words;
  CLI::App app("Starts the ranks of a Rondo program, on this machine or on several hosts.", "rondo-run");
  declare(app, options, words);
  try {
    parse(app, {argv + 1, argv + argc});
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
    return 0;
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what());
  }
  if (options.host_ranks) return options;
  options.prefix = !words.no_prefix;
  if (const auto elastic_range = parse_elastic(words.elastic)) {
    options.least = elastic_range->least;
    options.most = elastic_range->most;
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command.front().starts_with('-')) {
    return usage_error(fmt::format("unknown option '{}'", options.command.front()));
  }
  if (options.command.empty()) return usage_error("which program?");
  if (!options.python.empty() && options.command.front().ends_with(".py")) {
    options.command.insert(options.command.begin(), options.python);
  }
  for (const auto& problem :
       {complete_hosts(options, words), check_network(options), words.mpi ? use_mpi(options) : ""}) {
    if (!problem.empty()) return usage_error(problem);
  }
  return options;
}

}  // namespace rondo::launcher
