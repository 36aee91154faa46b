#include "tools/launcher/mpi_libraries.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>

namespace rondo::launcher {
namespace {

#if defined(__aarch64__)
constexpr const char* kLinker = "/lib/ld-linux-aarch64.so.1";
#define RONDO_MULTIARCH "aarch64-linux-gnu"
#else
constexpr const char* kLinker = "/lib64/ld-linux-x86-64.so.2";
#define RONDO_MULTIARCH "x86_64-linux-gnu"
#endif
// The libraries of mpi/BUILD.
constexpr const char* kHave[] = {"libmpi.so.12",    "libmpich.so.12",   "libmpi.so.40",
                                 "libmpi_abi.so.1", "libmpi_cxx.so.40", "librondo_mpitrampoline.so"};
// MPICH's interface of Fortran, by its own name and Debian's: they run on the first two.
constexpr const char* kRunOn[] = {"libmpifort.so.12", "libmpichfort.so.12"};

// What a shell command prints; "" where it cannot be started. Its exit code does not count.
std::string output_of(const std::string& command) {
  const auto close = [](FILE* pipe) { ::pclose(pipe); };
  const std::unique_ptr<FILE, decltype(close)> pipe(::popen(command.c_str(), "r"), close);
  std::string text;
  char part[4096];
  while (pipe != nullptr) {
    const size_t bytes = std::fread(part, 1, sizeof part, pipe.get());
    if (bytes == 0) break;
    text.append(part, bytes);
  }
  return text;
}

}  // namespace

std::string quoted(const std::string& text) {
  std::string made = "'";
  for (const char c : text) made += c == '\'' ? "'\\''" : std::string(1, c);
  return made + "'";
}

// The folder of libmpi.so.12 has all of them.
std::optional<std::filesystem::path> mpi_folder() {
  const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  // Installed; in a wheel; in the tree.
  for (const char* beside : {"mpi", "../lib/rondo/mpi", "../lib64/rondo/mpi", "../lib/" RONDO_MULTIARCH "/rondo/mpi",
                             "../mpi", "../../mpi"}) {
    const auto folder = (here / beside).lexically_normal();
    if (std::filesystem::exists(folder / "libmpi.so.12")) return folder;
  }
  return std::nullopt;
}

// LD_TRACE_LOADED_OBJECTS makes the linker print and end, before any constructor runs.
std::vector<std::string> wanted_mpi(const std::string& file) {
  std::vector<std::string> found;
  std::istringstream lines(
      output_of(fmt::format("LD_TRACE_LOADED_OBJECTS=1 exec {} {} 2>/dev/null", kLinker, quoted(file))));
  for (std::string line; std::getline(lines, line);) {
    std::string name;
    std::istringstream(line) >> name;
    name = name.substr(name.rfind('/') + 1);
    if (name.starts_with("libmpi") && name.find(".so") != std::string::npos) found.push_back(name);
  }
  return found;
}

std::string lacks_mpi(const std::string& library) {
  if (std::find(std::begin(kHave), std::end(kHave), library) != std::end(kHave)) return "";
  if (std::find(std::begin(kRunOn), std::end(kRunOn), library) != std::end(kRunOn)) return "";
  const bool fortran =
      library.starts_with("libmpifort") || library.starts_with("libmpi_mpifh") || library.starts_with("libmpi_usempi");
  const bool classes = library.starts_with("libmpicxx") || library.starts_with("libmpi_cxx");
  return fmt::format("Rondo has no {}{}: it stands in for {}", library,
                     fortran   ? ", which is MPI's Fortran interface"
                     : classes ? ", which is MPI's old C++ interface"
                               : "",
                     fmt::join(kHave, ", "));
}

std::string find_module(const std::string& name) {
  constexpr const char* kFind =
      "import importlib.util, sys; s = importlib.util.find_spec(sys.argv[1]); "
      "s and print((s.submodule_search_locations or [s.origin])[0], end='')";
  return output_of(fmt::format("python3 -c {} {} 2>/dev/null", quoted(kFind), quoted(name)));
}

// An empty entry of PATH is the current folder.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0 && !std::filesystem::is_directory(file)) return file;
  }
  return "";
}

}  // namespace rondo::launcher
