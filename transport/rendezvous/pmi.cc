#include "transport/rendezvous/pmi.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "ring/base/figures.h"
#include "rondo/error.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

// The interface's traditional maximum line is below 4 KiB; more is no PMI server.
constexpr size_t kMaxLineBytes = 64 * 1024;
// A value is cut into parts of this many digits at most, whatever the server allows.
constexpr size_t kMaxPartDigits = 512;
constexpr size_t kMaxParts = 64;
constexpr auto kFinalizeLimit = std::chrono::seconds(1);

// The value of "name=" in a line; the rest of the line for the last field ("value=" and "msg=" may hold spaces).
std::string_view field(std::string_view line, std::string_view name, bool to_end = false) {
  for (size_t at = 0; at < line.size();) {
    size_t end = std::min(line.find(' ', at), line.size());
    std::string_view word = line.substr(at, end - at);
    if (word.size() > name.size() && word.substr(0, name.size()) == name && word[name.size()] == '=') {
      return to_end ? line.substr(at + name.size() + 1) : word.substr(name.size() + 1);
    }
    at = end + 1;
  }
  return {};
}

// 0 where the field is missing or no number.
size_t number_field(std::string_view line, std::string_view name) {
  return parse_number<size_t>(field(line, name)).value_or(0);
}

// A long value is put under several keys.
std::string part_name(std::string_view key, size_t part) { return fmt::format("{}-{}", key, part); }

}  // namespace

// A forked child says nothing: the server counts one process.
PmiClient::~PmiClient() {
  if (owner_ != ::getpid() || broken_) return;
  try {
    ask("cmd=finalize\n", "finalize_ack", std::chrono::steady_clock::now() + kFinalizeLimit);
  } catch (const Exception&) {
    // The server is gone, or an MPI library in this process has said finalize before.
  }
}

// Once in the process. The limits of the server decide how put() cuts values.
void PmiClient::init(Store::Deadline deadline) {
  if (owner_ == ::getpid()) return;
  ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", deadline);
  std::string maxes = ask("cmd=get_maxes\n", "maxes", deadline);
  key_limit_ = number_field(maxes, "keylen_max");
  value_limit_ = number_field(maxes, "vallen_max");
  name_space_ = field(ask("cmd=get_my_kvsname\n", "my_kvsname", deadline), "kvsname");
  if (name_space_.empty() || key_limit_ < 32 || value_limit_ < 64) {
    throw Exception(
        ErrorCode::kBootstrap,
        fmt::format("the PMI server on PMI_FD={} offers too little (kvsname \"{}\", keys of {} bytes, values "
                    "of {})",
                    fd_, name_space_, key_limit_, value_limit_));
  }
  owner_ = ::getpid();
}

void PmiClient::put(std::string_view key, std::string_view value, Store::Deadline deadline) {
  const std::string hex = to_hex(value);  // a line is split at spaces, and a value holds any byte
  // The limits count a closing zero byte; the first part begins with the number of parts.
  size_t room = std::min(kMaxPartDigits, value_limit_ - 8);
  size_t parts = std::max<size_t>(1, (hex.size() + room - 1) / room);
  if (parts > kMaxParts || part_name(key, parts).size() >= key_limit_) {
    throw Exception(ErrorCode::kBootstrap,
                    fmt::format("\"{}\" ({} bytes) is too much for the PMI server", key, value.size()));
  }
  for (size_t part = 0; part < parts; ++part) {
    std::string text = hex.substr(std::min(hex.size(), part * room), room);
    if (part == 0) text = fmt::format("{:02}.{}", parts, text);
    ask(fmt::format("cmd=put kvsname={} key={} value={}\n", name_space_, part_name(key, part), text), "put_result",
        deadline);
  }
}

void PmiClient::barrier(Store::Deadline deadline) { ask("cmd=barrier_in\n", "barrier_out", deadline); }

// The first part says how many there are. Every number is the server's, and is bounded before it is used.
std::string PmiClient::get(std::string_view key, Store::Deadline deadline) {
  size_t parts = 1;
  std::string hex;
  for (size_t part = 0; part < parts; ++part) {
    std::string line =
        ask(fmt::format("cmd=get kvsname={} key={}\n", name_space_, part_name(key, part)), "get_result", deadline);
    std::string_view text = field(line, "value");
    if (part == 0) {
      parts = parse_number<size_t>(text.substr(0, 2)).value_or(0);
      if (text.size() < 3 || text[2] != '.' || parts == 0 || parts > kMaxParts) {
        throw Exception(ErrorCode::kBootstrap, fmt::format("the PMI server's value of \"{}\" is malformed", key));
      }
      text.remove_prefix(3);
    }
    hex += text;
  }
  std::optional<std::string> bytes = from_hex(hex);
  if (!bytes) throw Exception(ErrorCode::kBootstrap, "the PMI server altered a value");
  return *std::move(bytes);
}

// The protocol has no numbers for questions: one is under way at a time, and an unanswered one ends the connection's
// use.
std::string PmiClient::ask(const std::string& line, std::string_view answer, Store::Deadline deadline) {
  if (broken_) throw Exception(ErrorCode::kBootstrap, "the connection to the PMI server failed before");
  broken_ = true;  // until the answer has come: a late one would be taken for that of the next question
  std::string_view rest = line;
  while (!rest.empty()) {
    if (!wait_ready(fd_, POLLOUT, deadline)) throw Exception(ErrorCode::kTimeout, "the PMI server takes no input");
    ssize_t n = ::send(fd_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) {
      throw Exception(ErrorCode::kBootstrap,
                      fmt::format("cannot write to the PMI server on PMI_FD={}: {}", fd_, std::strerror(errno)));
    }
    rest.remove_prefix(static_cast<size_t>(n));
  }
  std::string reply = read_line(deadline);
  if (field(reply, "cmd") != answer) {
    throw Exception(ErrorCode::kBootstrap,
                    fmt::format("the PMI server on PMI_FD={} answered \"{}\" where {} was due", fd_, reply, answer));
  }
  broken_ = false;
  std::string_view rc = field(reply, "rc");
  if (!rc.empty() && rc != "0") {
    throw Exception(ErrorCode::kBootstrap,
                    fmt::format("the PMI server refused \"{}\": rc={} {}",
                                std::string_view(line).substr(0, line.size() - 1), rc, field(reply, "msg", true)));
  }
  return reply;
}

// A line may come in parts, and two lines together.
std::string PmiClient::read_line(Store::Deadline deadline) {
  while (true) {
    size_t end = input_.find('\n');
    if (end != std::string::npos) {
      std::string line = input_.substr(0, end);
      input_.erase(0, end + 1);
      return line;
    }
    if (input_.size() > kMaxLineBytes) throw Exception(ErrorCode::kBootstrap, "the PMI server sent an endless line");
    if (!wait_ready(fd_, POLLIN, deadline)) {
      throw Exception(ErrorCode::kTimeout, "the PMI server did not answer before the deadline; are all ranks running?");
    }
    char buffer[1024];
    ssize_t n = ::read(fd_, buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) {
      throw Exception(ErrorCode::kBootstrap, fmt::format("the PMI server on PMI_FD={} closed the connection", fd_));
    }
    input_.append(buffer, static_cast<size_t>(n));
  }
}

PmiClient& process_pmi(int fd) {
  // A static by necessity: the descriptor is the process's, and its server counts one introduction and one farewell.
  static PmiClient client(fd);
  return client;
}

}  // namespace rondo
