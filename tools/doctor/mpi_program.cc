#include <fmt/format.h>

#include <filesystem>
#include <set>

#include "ring/base/file_text.h"
#include "tools/doctor/checks.h"
#include "tools/launcher/mpi_libraries.h"

namespace rondo::doctor {
namespace {

constexpr const char* kTopic = "mpi";

// Packages of Python that open a library by a variable, which rondo-run --mpi sets.
struct Opened {
  const char* variable;
  const char* library;
};
constexpr Opened kOpened[] = {{"MPI4PY_LIBMPI", "libmpi.so.12"},
                              {"MPITRAMPOLINE_LIB", "librondo_mpitrampoline.so"},
                              {"MLX_MPI_LIBNAME", "libmpi.so.40"}};

// Files of a module of Python: its shared libraries and its sources; a single file.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& place) {
  if (!std::filesystem::is_directory(place)) return {place};
  std::vector<std::filesystem::path> files;
  std::error_code none;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(place, none)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".py") || name.find(".so") != std::string::npos) files.push_back(entry.path());
  }
  return files;
}

// Where Rondo lacks it, the finding names what it stands in for.
Finding served(const std::string& who, const std::string& library) {
  const std::string lacks = launcher::lacks_mpi(library);
  if (!lacks.empty()) return {Level::kWrong, kTopic, fmt::format("{} wants {}. {}", who, library, lacks), ""};
  const auto folder = launcher::mpi_folder();
  if (!folder) {
    return {Level::kWrong, kTopic, fmt::format("{} wants {}, which does not lie beside this program", who, library),
            "install Rondo by tools/install.sh or its wheel"};
  }
  return {Level::kFine, kTopic, fmt::format("{} wants {}: {} serves it", who, library, (*folder / library).string()),
          "start it with rondo-run --mpi"};
}

}  // namespace

// Looks at the files, and runs none of their code. What a library wants counts before what a source may open.
Findings check_mpi_program(const std::string& name) {
  std::string place = launcher::find_program(name);
  if (place.empty() || !std::filesystem::exists(place)) place = launcher::find_module(name);
  if (place.empty()) {
    return {{Level::kWrong, kTopic, fmt::format("there is no program and no module of Python named {}", name), ""}};
  }
  std::set<std::string> wanted, opened;
  for (const auto& file : files_of(place)) {
    if (file.extension() != ".py") {
      for (const std::string& library : launcher::wanted_mpi(file.string())) wanted.insert(library);
    }
    const std::string text = file_text(file);
    for (const auto& [variable, library] : kOpened) {
      if (text.find(variable) != std::string::npos) opened.insert(library);
    }
  }
  Findings findings;
  for (const std::string& library : wanted) findings.push_back(served(name, library));
  for (const std::string& library : opened) {
    if (wanted.empty()) findings.push_back(served(name, library));
  }
  if (findings.empty()) {
    findings.push_back({Level::kNote, kTopic, fmt::format("{} ({}) wants no library of MPI", name, place),
                        "a script is started by what interprets it: ask about the modules that it imports"});
  }
  return findings;
}

}  // namespace rondo::doctor
