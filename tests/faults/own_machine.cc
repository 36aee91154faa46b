#include "tests/faults/own_machine.h"

#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace rondo::testing {
namespace {

const char* const kFolders[] = {"/tmp", "/var/tmp", "/run", "/dev/shm"};

bool loopback_up() {
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  const bool up = ::ioctl(socket, SIOCSIFFLAGS, &request) == 0;
  ::close(socket);
  return up;
}

// Runs in the first process of the new machine.
bool set_up() {
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  if (::mount("proc", "/proc", "proc", 0, nullptr) != 0) return false;
  for (const char* folder : kFolders) {
    if (::mount("tmpfs", folder, "tmpfs", 0, "size=64m") != 0) return false;
  }
  std::filesystem::create_directories("/tmp/home");
  std::filesystem::create_directories("/tmp/temporary");
  std::filesystem::create_directories("/run/user");
  ::setenv("HOME", "/tmp/home", 1);
  ::setenv("TMPDIR", "/tmp/temporary", 1);
  ::setenv("XDG_RUNTIME_DIR", "/run/user", 1);
  return ::chdir("/tmp/home") == 0 && loopback_up();
}

std::string guarded(const std::function<std::string()>& body) {
  try {
    return set_up() ? body() : "cannot mount file systems";
  } catch (const std::exception& failure) {
    return failure.what();
  } catch (...) {
    return "a test failed, see above";
  }
}

void say(int pipe, const std::string& text) {
  if (::write(pipe, text.data(), text.size()) < 0) ::_exit(3);
}

// Ends when its body does. A new space of process ids begins with the next child.
void run_inside(int pipe, const std::function<std::string()>& body) {
  if (::unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWPID) != 0) {
    say(pipe, "cannot make namespaces: run as root");
    ::_exit(1);
  }
  const pid_t first = ::fork();
  if (first == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    say(pipe, guarded(body));
    ::_exit(0);
  }
  int status = 0;
  if (first < 0 || ::waitpid(first, &status, 0) != first || status != 0) say(pipe, "the first process died");
  ::_exit(0);
}

void add_lines(std::set<std::string>& things, const char* file, const std::function<bool(const std::string&)>& counts) {
  std::ifstream lines(file);
  std::string line;
  for (std::getline(lines, line); std::getline(lines, line);) {  // the first says what the columns are
    if (counts(line)) things.insert(fmt::format("{}: {}", file, line));
  }
}

// Listening (0A) or established (01); what else there is, the kernel ends by itself.
bool open_connection(const std::string& line) {
  std::istringstream fields(line);
  std::string number, local, remote, state;
  fields >> number >> local >> remote >> state;
  return state == "0A" || state == "01";
}

void add_links(std::set<std::string>& names, int pid) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid), ignored)) {
    names.insert(std::filesystem::read_symlink(entry.path(), ignored).string());
  }
}

void add_maps(std::set<std::string>& names, int pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    if (const size_t at = line.find('/'); at != std::string::npos) names.insert(line.substr(at));
  }
}

std::set<std::string> names_of(int pid) {
  std::set<std::string> names;
  add_links(names, pid);
  add_maps(names, pid);
  return names;
}

}  // namespace

std::string on_own_machine(const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_inside(ends[1], body);
  }
  ::close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t moved = 0; (moved = ::read(ends[0], bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<size_t>(moved));
  }
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

std::set<std::string> things_there() {
  std::set<std::string> things;
  std::error_code ignored;
  for (const char* folder : kFolders) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, ignored)) {
      things.insert(entry.path().string());
    }
  }
  const auto any = [](const std::string&) { return true; };
  add_lines(things, "/proc/net/unix", any);
  for (const char* file : {"/proc/net/tcp", "/proc/net/tcp6"}) add_lines(things, file, open_connection);
  for (const char* file : {"/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg"}) add_lines(things, file, any);
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    const bool process = std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); });
    if (process && name != std::to_string(::getpid())) things.insert("process " + name);
  }
  return things;
}

std::set<std::string> files_of(int pid) {
  const std::set<std::string> own = names_of(::getpid());
  std::set<std::string> found = names_of(pid);
  std::erase_if(found, [&own](const std::string& name) { return name[0] != '/' || own.count(name) != 0; });
  return found;
}

}  // namespace rondo::testing
