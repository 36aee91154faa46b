#include "rondo/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ring/base/hash.h"
#include "ring/base/json_text.h"
#include "ring/base/misspelt.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// Deadlines end within 30 days: beyond that a typing error is likelier than a wish, and milliseconds still fit
// std::chrono's nanoseconds.
constexpr int64_t kMaxMs = 30LL * 24 * 3600 * 1000;

enum class Sharing { kLocal, kShared };

[[noreturn]] void reject(std::string_view variable, std::string_view value, std::string_view allowed) {
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("{}={} is not allowed: it must be {}", variable, json_text(value), allowed));
}

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// What one kind of visitor sees of a field. visit() below is the only list of fields; reading, checking, printing and
// hashing are visitors of it, so that none of them can forget one.
template <typename T>
struct Range {
  T least;
  T most;
  bool zero_too = false;  // 0 is allowed though it is below `least`
  std::string text() const { return fmt::format("a whole number{} {} .. {}", zero_too ? ", 0 or" : "", least, most); }
  bool holds(T value) const { return (zero_too && value == 0) || (value >= least && value <= most); }
};

using Names = std::vector<std::string_view>;

std::string list(const Names& names) { return fmt::format("one of {}", fmt::join(names, ", ")); }

bool contains(const Names& names, std::string_view name) {
  for (std::string_view n : names) {
    if (n == name) return true;
  }
  return false;
}

bool valid_ports(std::string_view text) {
  size_t dash = text.find('-');
  auto first = parse_number<uint16_t>(text.substr(0, dash));
  if (!first) return false;
  if (dash == std::string_view::npos) return true;
  auto last = parse_number<uint16_t>(text.substr(dash + 1));
  return last && *first > 0 && *last >= *first;
}
constexpr const char* kPortsText = "0 (any), a port such as 5000, or a range such as 5000-5099 (1 .. 65535)";

// Free text goes into one line of a log and into socket options: no control characters, and a bound on the length.
bool valid_text(std::string_view text) {
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return text.size() <= 4096;
}
constexpr const char* kTextText = "at most 4096 bytes without control characters";

// on, or a path with a slash, so that a typing error is no folder.
bool valid_metrics(std::string_view text) {
  return text.empty() || text == "on" || (valid_text(text) && text.find('/') != std::string_view::npos);
}
constexpr const char* kMetricsText = "on, or the path of a folder, with a slash in it";

Names algorithm_names() {
  Names names;
  for (int a = 0; a < kAlgorithms; ++a) names.push_back(algorithm_name(static_cast<Algorithm>(a)));
  return names;
}

template <typename C, typename Visitor>
void visit(C& config, Visitor&& v) {
  constexpr auto kLocal = Sharing::kLocal;
  constexpr auto kShared = Sharing::kShared;
  const Range<int64_t> ms{1, kMaxMs};
  v.number("RONDO_START_TIMEOUT_MS", config.start_timeout_ms, ms, kLocal);
  v.number("RONDO_HANDSHAKE_TIMEOUT_MS", config.handshake_timeout_ms, ms, kLocal);
  v.number("RONDO_TIMEOUT_MS", config.timeout_ms, ms, kLocal);
  v.number("RONDO_DESTROY_TIMEOUT_MS", config.destroy_timeout_ms, ms, kLocal);
  v.number("RONDO_STALL_MS", config.stall_ms, ms, kLocal);
  v.number("RONDO_HEARTBEAT_MS", config.heartbeat_ms, ms, kShared);
  v.number("RONDO_SUSPICION_MS", config.suspicion_ms, Range<int64_t>{1, kMaxMs, true}, kShared);
  v.choice("RONDO_TRANSPORT", config.transport, Names{"auto", "tcp", "shm"}, kShared);
  v.text("RONDO_SOCKET_IFNAME", config.socket_interface, valid_text, kTextText);
  v.text("RONDO_PORT_RANGE", config.data_ports, valid_ports, kPortsText);
  v.text("RONDO_SECRET_FILE", config.secret_file, valid_text, kTextText);
  v.number("RONDO_SECRET_FD", config.secret_fd, Range<int32_t>{-1, 1 << 20}, kLocal);
  v.flag("RONDO_INSECURE", config.insecure, kLocal);
  v.flag("RONDO_ENCRYPT", config.encrypt, kShared);
  v.choice("RONDO_CHECKSUM", config.checksum, Names{"auto", "on", "off"}, kShared);
  v.text("RONDO_TCP_CONGESTION", config.congestion_control, valid_text, kTextText);
  v.number("RONDO_SOCKET_BUFFER_BYTES", config.socket_buffer_bytes, Range<uint32_t>{4096, 1u << 30, true}, kLocal);
  v.number("RONDO_LANES", config.lanes, Range<uint32_t>{1, 16}, kShared);
  v.number("RONDO_CONNECTIONS", config.connections, Range<uint32_t>{1, 16}, kShared);
  v.number("RONDO_SLICE_BYTES", config.slice_bytes, Range<uint32_t>{4096, 16u << 20}, kShared);
  v.number("RONDO_SLICES_PER_CHUNK", config.slices_per_chunk, Range<uint32_t>{1, 64}, kShared);
  v.number("RONDO_MAILBOX_BYTES", config.mailbox_bytes, Range<uint64_t>{64u << 10, uint64_t{64} << 30}, kShared);
  v.number("RONDO_STAGING_BYTES", config.staging_bytes, Range<uint64_t>{64u << 10, uint64_t{1} << 30}, kShared);
  v.number("RONDO_BUCKET_BYTES", config.bucket_bytes, Range<uint64_t>{4096, uint64_t{1} << 30, true}, kShared);
  v.choice("RONDO_SINGLE_COPY", config.single_copy, Names{"auto", "on", "off"}, kShared);
  v.choice("RONDO_SHARED_STORES", config.shared_stores, Names{"auto", "cached", "streamed"}, kShared);
  v.choice("RONDO_FOLD", config.fold, Names{"fixed", "any"}, kShared);
  v.algorithm("RONDO_ALGORITHM", config.algorithm);
  v.number("RONDO_SPIN_US", config.spin_us, Range<int64_t>{0, 10'000'000}, kLocal);
  v.number("RONDO_EAGER_BYTES", config.eager_bytes, Range<uint32_t>{0, 16u << 20}, kShared);
  v.number("RONDO_DEVICE_WINDOW_BYTES", config.device_window_bytes, Range<uint64_t>{64u << 10, uint64_t{4} << 30, true},
           kShared);
  v.number("RONDO_DEVICE_BLOCKS", config.device_blocks, Range<uint32_t>{1, 128}, kShared);
  v.text("RONDO_DEVICE_LIBRARY", config.device_library, valid_text, kTextText);
  v.choice("RONDO_CHECK", config.check_results, Names{"off", "digest", "finite", "digest,finite"}, kShared);
  v.flag("RONDO_MPI_STRICT", config.mpi_strict, kShared);
  v.choice("RONDO_DEBUG", config.debug, Names{"off", "warn", "info", "trace"}, kLocal);
  v.text("RONDO_TRACE", config.trace_folder, valid_text, kTextText);
  v.number("RONDO_TRACE_BYTES", config.trace_bytes, Range<uint64_t>{64u << 10, uint64_t{16} << 30}, kLocal);
  v.text("RONDO_METRICS", config.metrics, valid_metrics, kMetricsText);
  v.flag("RONDO_STATUS", config.status, kLocal);
}

// What the program sets: text by the variable's name.
class SettingTexts {
 public:
  explicit SettingTexts(std::span<const std::string> texts) {
    for (const std::string& text : texts) {
      const size_t equals = text.find('=');
      if (equals == std::string::npos || equals == 0) {
        throw Exception(ErrorCode::kInvalid,
                        fmt::format("the setting {} is not of the form RONDO_X=value", json_text(text)));
      }
      if (!values_.emplace(text.substr(0, equals), text.substr(equals + 1)).second) {
        throw Exception(ErrorCode::kInvalid, fmt::format("{} is set twice in the settings", text.substr(0, equals)));
      }
    }
  }
  // The program's text, else the environment's; nullptr if neither has one.
  const char* find(const char* name) {
    asked_.push_back(name);
    const auto given = values_.find(name);
    if (given == values_.end()) return std::getenv(name);
    known_.insert(name);
    return given->second.c_str();
  }
  // After all known names have been asked for.
  void refuse_unknown() const {
    for (const auto& [name, value] : values_) {
      if (known_.contains(name)) continue;
      throw Exception(ErrorCode::kInvalid,
                      fmt::format("the setting {}={} is unknown: docs/environment.md lists the variables, and rank, "
                                  "rendezvous and job id are options of their own",
                                  name, value));
    }
  }

  // Names that find() was asked for.
  const std::vector<std::string_view>& asked() const { return asked_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
  std::set<std::string, std::less<>> known_;
  std::vector<std::string_view> asked_;
};

// Takes over what is set; checks as it goes, so that the message shows the text that the user wrote.
struct Reader {
  SettingTexts& settings;
  template <typename T>
  void number(const char* name, T& field, const Range<T>& range, Sharing) const {
    const char* text = settings.find(name);
    if (text == nullptr) return;
    std::optional<T> value = parse_number<T>(text);
    if (!value || !range.holds(*value)) reject(name, text, range.text());
    field = *value;
  }
  void choice(const char* name, std::string& field, const Names& names, Sharing) const {
    const char* text = settings.find(name);
    if (text == nullptr) return;
    if (!contains(names, text)) reject(name, text, list(names));
    field = text;
  }
  template <typename Valid>
  void text(const char* name, std::string& field, Valid&& valid, const char* allowed) const {
    const char* value = settings.find(name);
    if (value == nullptr) return;
    if (!valid(value)) reject(name, value, allowed);
    field = value;
  }
  void flag(const char* name, bool& field, Sharing) const {
    const char* text = settings.find(name);
    if (text == nullptr) return;
    std::string_view value = text;
    if (value != "0" && value != "1") reject(name, text, "0 or 1");
    field = value == "1";
  }
  void algorithm(const char* name, Algorithm& field) const {
    const char* text = settings.find(name);
    if (text == nullptr) return;
    Names names = algorithm_names();
    for (int a = 0; a < kAlgorithms; ++a) {
      if (names[a] == text) {
        field = static_cast<Algorithm>(a);
        return;
      }
    }
    reject(name, text, list(names));
  }
};

struct Checker {
  template <typename T>
  void number(const char* name, const T& field, const Range<T>& range, Sharing) const {
    if (!range.holds(field)) reject(name, fmt::format("{}", field), range.text());
  }
  void choice(const char* name, const std::string& field, const Names& names, Sharing) const {
    if (!contains(names, field)) reject(name, field, list(names));
  }
  template <typename Valid>
  void text(const char* name, const std::string& field, Valid&& valid, const char* allowed) const {
    if (!valid(field)) reject(name, field, allowed);
  }
  void flag(const char*, const bool&, Sharing) const {}
  void algorithm(const char* name, const Algorithm& field) const {
    if (static_cast<int>(field) >= kAlgorithms) {
      reject(name, fmt::format("{}", static_cast<int>(field)), list(algorithm_names()));
    }
  }
};

struct Printer {
  std::string& out;
  template <typename T>
  void number(const char* name, const T& field, const Range<T>&, Sharing) const {
    out += fmt::format("{}={}\n", name, field);
  }
  void choice(const char* name, const std::string& field, const Names&, Sharing) const {
    out += fmt::format("{}={}\n", name, field);
  }
  template <typename Valid>
  void text(const char* name, const std::string& field, Valid&&, const char*) const {
    out += fmt::format("{}={}\n", name, field);
  }
  void flag(const char* name, const bool& field, Sharing) const { out += fmt::format("{}={}\n", name, field ? 1 : 0); }
  void algorithm(const char* name, const Algorithm& field) const {
    out += fmt::format("{}={}\n", name, algorithm_name(field));
  }
};

struct Hasher {
  Hash64& hash;
  template <typename T>
  void number(const char* name, const T& field, const Range<T>&, Sharing sharing) const {
    if (sharing == Sharing::kShared) hash.add(std::string_view(name)).add(static_cast<uint64_t>(field));
  }
  void choice(const char* name, const std::string& field, const Names&, Sharing sharing) const {
    if (sharing == Sharing::kShared) hash.add(std::string_view(name)).add(std::string_view(field));
  }
  template <typename Valid>
  void text(const char*, const std::string&, Valid&&, const char*) const {}
  void flag(const char* name, const bool& field, Sharing sharing) const {
    if (sharing == Sharing::kShared) hash.add(std::string_view(name)).add(uint64_t{field});
  }
  void algorithm(const char* name, const Algorithm& field) const {
    hash.add(std::string_view(name)).add(static_cast<uint64_t>(field));
  }
};

struct SharedNames {
  std::vector<std::string_view>& names;
  template <typename T>
  void number(const char* name, const T&, const Range<T>&, Sharing sharing) const {
    if (sharing == Sharing::kShared) names.push_back(name);
  }
  void choice(const char* name, const std::string&, const Names&, Sharing sharing) const {
    if (sharing == Sharing::kShared) names.push_back(name);
  }
  template <typename Valid>
  void text(const char*, const std::string&, Valid&&, const char*) const {}
  void flag(const char* name, const bool&, Sharing sharing) const {
    if (sharing == Sharing::kShared) names.push_back(name);
  }
  void algorithm(const char* name, const Algorithm&) const { names.push_back(name); }
};

// What two fields must be to each other.
void check_together(const Config& config) {
  if (config.suspicion_ms == 0 || config.suspicion_ms >= 3 * config.heartbeat_ms) return;
  reject("RONDO_SUSPICION_MS", fmt::format("{}", config.suspicion_ms),
         fmt::format("0 (never) or at least three times RONDO_HEARTBEAT_MS, which is {}", config.heartbeat_ms));
}

}  // namespace

Config Config::from_environment(std::span<const std::string> settings) {
  Config config;
  SettingTexts given(settings);
  visit(config, Reader{given});
  given.refuse_unknown();
  check_together(config);
  warn_of_misspelt(given.asked(), Logger(config.debug));
  return config;
}

void Config::check() const {
  visit(*this, Checker{});
  check_together(*this);
}

std::string Config::describe() const {
  std::string text;
  visit(*this, Printer{text});
  return text;
}

uint64_t Config::shared_hash() const {
  Hash64 hash;
  visit(*this, Hasher{hash});
  return hash.value();
}

std::vector<std::string_view> Config::shared_names() {
  std::vector<std::string_view> names;
  const Config config;
  visit(config, SharedNames{names});
  return names;
}

}  // namespace rondo
