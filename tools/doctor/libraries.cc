#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "kernels/device/device_driver.h"
#include "kernels/device/gpu_code.h"
#include "rondo/error.h"
#include "rondo/rondo.h"
#include "tools/doctor/checks.h"

// OpenSSL declares it; only transport/auth includes OpenSSL.
extern "C" const char* OpenSSL_version(int what);

namespace rondo::doctor {
namespace {

constexpr const char* kTopic = "libraries";

// Where libraries lie beside this program: PREFIX/bin and PREFIX/lib. The bare name where there is none, which the
// loader looks for.
std::filesystem::path beside(const char* name) {
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
  for (const char* folder : {"lib", "lib64"}) {
    const auto path = program.parent_path().parent_path() / folder / name;
    if (std::filesystem::exists(path, none)) return path;
  }
  return name;
}

// The librondo.so beside this program, else the one that the loader finds: what a program that links to it gets. The
// library stays open: it is asked once, before this program ends.
Finding own_library() {
  const std::string path = beside("librondo.so").string();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return {Level::kNote, kTopic, fmt::format("Rondo {} is in this program; no librondo.so is found", RONDO_VERSION),
            "set LD_LIBRARY_PATH to its folder, where a program needs it"};
  }
  const auto version = reinterpret_cast<const char* (*)()>(::dlsym(library, "rondo_version"));
  const std::string found = version != nullptr ? version() : "of an unknown version";
  const bool same = found == RONDO_VERSION;
  Dl_info facts{};
  if (version != nullptr) ::dladdr(reinterpret_cast<const void*>(version), &facts);
  return {same ? Level::kFine : Level::kNote, kTopic,
          fmt::format("{} is {}{}", facts.dli_fname != nullptr ? facts.dli_fname : path, found,
                      same ? "" : fmt::format(", and this program {}", RONDO_VERSION)),
          same ? "" : "all ranks and tools should be of one version"};
}

// No driver is fine where none was asked for: ranks on host memory need none.
Finding driver(const Job& job) {
  const std::string& given = job.config.device_library;
  try {
    const auto driver = DeviceDriver::open(given);
    if (gpu_code().bytes == 0) {
      return {Level::kFine, kTopic, "no calls on GPU memory: this build has no code for GPUs", ""};
    }
    return {Level::kFine, kTopic, fmt::format("calls on GPU memory are possible; devices: {}", driver->count()), ""};
  } catch (const Exception& error) {
    return {given.empty() ? Level::kFine : Level::kNote, kTopic, error.what(),
            given.empty() ? "" : "correct RONDO_DEVICE_LIBRARY"};
  }
}

Finding open_ssl() { return {Level::kFine, kTopic, OpenSSL_version(0), ""}; }

}  // namespace

Findings check_libraries(const Job& job) { return {own_library(), driver(job), open_ssl()}; }

Findings check_clock() {
  std::string source = "unknown";
  std::ifstream("/sys/devices/system/clocksource/clocksource0/current_clocksource") >> source;
  const bool slow = source == "hpet" || source == "acpi_pm" || source == "refined-jiffies" || source == "jiffies";
  return {{slow ? Level::kNote : Level::kFine, "clock", fmt::format("time is read from {}", source),
           slow ? "each look at it costs a microsecond or more: boot with clocksource=tsc where the processor allows"
                : ""}};
}

}  // namespace rondo::doctor
