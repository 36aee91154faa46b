#include "tools/launcher/assignment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <stdexcept>
#include <string_view>

#include "rondo/rondo.h"

namespace rondo::launcher {
namespace {

constexpr std::string_view kHead = "rondo-run " RONDO_VERSION " ";
// A command line and its environment: twice what Linux takes for a program by default.
constexpr size_t kMaxBytes = 4 << 20;
constexpr size_t kLengthDigits = 8;

[[noreturn]] void fail(const std::string& message) { throw std::runtime_error(message); }

void read_exactly(int fd, char* bytes, size_t count) {
  for (size_t done = 0; done < count;) {
    const ssize_t n = ::read(fd, bytes + done, count - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail("the job ended before this host was told its ranks");
    done += static_cast<size_t>(n);
  }
}

// Fields end with a zero byte, which no argument and no variable can hold.
class Fields {
 public:
  explicit Fields(std::string_view text) : text_(text) {}

  std::string text() {
    const size_t end = text_.find('\0');
    if (end == std::string_view::npos) fail("the assignment of ranks is cut off");
    std::string field(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return field;
  }
  template <class Number>
  Number number() {
    const std::string field = text();
    Number value{};
    const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error != std::errc() || end != field.data() + field.size()) fail("the assignment of ranks is not understood");
    return value;
  }
  std::vector<std::string> list() {
    const auto count = number<size_t>();
    if (count > text_.size()) fail("the assignment of ranks is cut off");  // a byte each at least
    std::vector<std::string> entries(count);
    for (std::string& entry : entries) entry = text();
    return entries;
  }

 private:
  std::string_view text_;
};

void append_list(std::string& out, const std::vector<std::string>& list) {
  out += fmt::format("{}{}", list.size(), '\0');
  for (const std::string& entry : list) out.append(entry).push_back('\0');
}

}  // namespace

std::string encode(const Assignment& a) {
  std::string body;
  for (const int number : {a.first_rank, a.ranks, a.world, a.node, a.nodes, a.least, a.most, a.restarts,
                           int{a.master_port}, int{a.prefix}, int{a.must_join}}) {
    body += fmt::format("{}{}", number, '\0');
  }
  body += fmt::format("{}{}", a.timeout_s, '\0');
  for (const std::string* text : {&a.job_id, &a.master_host, &a.folder, &a.secret, &a.word}) {
    body.append(*text).push_back('\0');
  }
  append_list(body, a.environment);
  append_list(body, a.command);
  if (body.size() > kMaxBytes) fail("the command and its environment are too long");
  return fmt::format("{}{:0{}}\n{}", kHead, body.size(), kLengthDigits, body);
}

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
  Fields fields(body);
  Assignment a;
  for (int* number : {&a.first_rank, &a.ranks, &a.world, &a.node, &a.nodes, &a.least, &a.most, &a.restarts}) {
    *number = fields.number<int>();
  }
  a.master_port = fields.number<uint16_t>();
  a.prefix = fields.number<int>() != 0;
  a.must_join = fields.number<int>() != 0;
  a.timeout_s = fields.number<double>();
  for (std::string* text : {&a.job_id, &a.master_host, &a.folder, &a.secret, &a.word}) *text = fields.text();
  a.environment = fields.list();
  a.command = fields.list();
  return a;
}

}  // namespace rondo::launcher
