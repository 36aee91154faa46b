#include "tools/launcher/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

namespace rondo::launcher {
namespace {

// More ranks than this on one machine is a slip of the finger: each needs a process and two pipes here.
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

// The usage line knows that a program follows.
class Help : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: rondo-run -n N [options] program [arguments]\n";
  }
};

void declare(CLI::App& app, Options& options, bool& no_prefix) {
  app.add_option("-n,--ranks", options.ranks, "How many ranks to start")
      ->required()
      ->check(CLI::Range(1, kMaxRanks))
      ->type_name("N");
  app.add_flag("--no-prefix", no_prefix, "Ranks write to this program's own outputs, as they are");
  app.add_option("--timeout", options.timeout_s, "End the ranks after so many seconds; the exit code is then 124")
      ->check(CLI::PositiveNumber)
      ->type_name("S");
  app.add_option("--env", options.environment, "Set a variable for every rank; may be given several times")
      ->allow_extra_args(false)
      ->check(CLI::Validator(check_assignment, ""))
      ->type_name("NAME=value");
  app.formatter(std::make_shared<Help>());
  app.footer(
      "Each rank is a process with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT set, "
      "and\n"
      "with a private socket for Rondo to meet at. When one rank fails, the others are ended (SIGTERM, 5 s later\n"
      "SIGKILL), and its exit code is returned: 128 + signal if a signal killed it. SIGINT, SIGTERM, SIGHUP, SIGUSR1 "
      "and\n"
      "SIGUSR2 are passed on to every rank.");
  app.prefix_command();  // everything from the program's name on is the program's
}

}  // namespace

Parsed parse_options(int argc, char** argv) {
  Options options;
  bool no_prefix = false;
  CLI::App app("Starts the ranks of a Rondo program on this machine.", "rondo-run");
  declare(app, options, no_prefix);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what());
  }
  options.prefix = !no_prefix;
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command.front().starts_with('-')) {
    return usage_error(fmt::format("unknown option '{}'", options.command.front()));
  }
  if (options.command.empty()) return usage_error("which program?");
  return options;
}

}  // namespace rondo::launcher
