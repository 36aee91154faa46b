#include "tools/launcher/assignment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string_view>

#include "ring/base/bytes.h"
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

// The length comes before the bytes, since orders follow on the same pipe.
std::string encode(const Assignment& a) {
  ByteWriter body;
  for (const int number : {a.first_rank, a.ranks, a.world, a.node, a.nodes, a.least, a.most, a.restarts}) {
    body.u32(static_cast<uint32_t>(number));
  }
  body.u16(a.master_port).u8(a.prefix).u8(a.must_join).u64(std::bit_cast<uint64_t>(a.timeout_s));
  for (const std::string* text : {&a.job_id, &a.master_host, &a.folder, &a.secret, &a.loss_marker}) body.text(*text);
  for (const std::vector<std::string>* list : {&a.environment, &a.command}) {
    body.u32(static_cast<uint32_t>(list->size()));
    for (const std::string& entry : *list) body.text(entry);
  }
  const std::string bytes = body.take();
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
  ByteReader in(body);
  Assignment a;
  for (int* number : {&a.first_rank, &a.ranks, &a.world, &a.node, &a.nodes, &a.least, &a.most, &a.restarts}) {
    *number = static_cast<int>(in.u32());
  }
  a.master_port = in.u16();
  a.prefix = in.u8() != 0;
  a.must_join = in.u8() != 0;
  a.timeout_s = std::bit_cast<double>(in.u64());
  for (std::string* text : {&a.job_id, &a.master_host, &a.folder, &a.secret, &a.loss_marker})
    *text = in.text(kMaxBytes);
  for (std::vector<std::string>* list : {&a.environment, &a.command}) {
    for (uint32_t left = in.u32(); left > 0 && in.ok(); --left) list->emplace_back(in.text(kMaxBytes));
  }
  if (!in.done()) fail("the assignment of ranks is not understood");
  return a;
}

}  // namespace rondo::launcher
