#include "tools/launcher/assignment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "ring/base/fields.h"
#include "rondo/rondo.h"

namespace rondo::launcher {
namespace {

constexpr std::string_view kHead = "rondo-run " RONDO_VERSION " ";
// A command line and its environment: twice what Linux takes for a program by default.
constexpr size_t kMaxBytes = 4 << 20;
constexpr size_t kLengthDigits = 8;  // of the number of bytes, in decimal

[[noreturn]] void fail(const std::string& message) { throw std::runtime_error(message); }

void read_exactly(int fd, char* bytes, size_t count) {
  for (size_t done = 0; done < count;) {
    const ssize_t n = ::read(fd, bytes + done, count - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("the job ended before this host was told its ranks");
    done += static_cast<size_t>(n);
  }
}

}  // namespace

static void fields(Fields& bytes, Assignment& a) {
  bytes(a.first_rank, a.ranks, a.world, a.node, a.nodes, a.least, a.most, a.restarts, a.master_port, a.prefix,
        a.must_join, a.timeout_s);
  for (std::string* text : {&a.job_id, &a.master_host, &a.folder, &a.secret, &a.loss_marker}) {
    bytes.text<uint32_t>(*text, kMaxBytes);
  }
  for (std::vector<std::string>* list : {&a.environment, &a.command}) {
    bytes.list<uint32_t>(*list, kMaxBytes, [&bytes](std::string& entry) { bytes.text<uint32_t>(entry, kMaxBytes); });
  }
}

// The length comes before the bytes, since orders follow on the same pipe.
std::string encode(const Assignment& a) {
  const std::string bytes = encoded(a);
  if (bytes.size() > kMaxBytes) fail("the command and its environment are too long");
  return fmt::format("{}{:0{}}\n{}", kHead, bytes.size(), kLengthDigits, bytes);
}

// Reads exactly the bytes of the assignment. Orders follow on the same pipe, and a buffer that took some would lose
// them.
Assignment read_assignment(int fd) {
  std::string head(kHead.size() + kLengthDigits + 1, '\0');
  read_exactly(fd, head.data(), head.size());
  size_t bytes = 0;
  const char* digits = head.data() + kHead.size();
  const auto [end, error] = std::from_chars(digits, digits + kLengthDigits, bytes);
  if (!head.starts_with(kHead) || error != std::errc() || *end != '\n' || bytes > kMaxBytes) {
    fail(fmt::format("rondo-run here is of version {}, and was started by another one", RONDO_VERSION));
  }
  std::string body(bytes, '\0');
  read_exactly(fd, body.data(), bytes);
  std::optional<Assignment> assignment = decoded<Assignment>(body);
  if (!assignment) fail("the assignment of ranks is not understood");
  return *std::move(assignment);
}

}  // namespace rondo::launcher
