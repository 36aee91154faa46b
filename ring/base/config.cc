#include "rondo/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ring/base/figures.h"
#include "ring/base/hash.h"
#include "ring/base/json_text.h"
#include "ring/base/misspelt.h"
#include "rondo/error.h"

namespace rondo {
namespace {

// The longest deadline, 30 days: beyond that a typing error is likelier than a wish, and milliseconds still fit
// the nanoseconds of std::chrono.
constexpr int64_t kMaxMs = 30LL * 24 * 3600 * 1000;

// kShared: a setting that all ranks must have alike. The handshakes compare a hash of these (shared_hash()).
enum class Sharing { kLocal, kShared };

[[noreturn]] void reject(std::string_view variable, std::string_view value, std::string_view allowed) {
  throw Exception(ErrorCode::kInvalid,
                  fmt::format("{}={} is not allowed: it must be {}", variable, json_text(value), allowed));
}

// Kinds of settings. parse() reads a text; nullopt: it is none of the kind. holds() says whether a value is
// allowed, and allowed() which ones are, in words. text() is the text that parse() reads.
template <typename T>
struct Number {
  T least;
  T most;
  bool zero_too = false;  // 0 is allowed though it is below `least`
  std::optional<T> parse(std::string_view text) const { return parse_number<T>(text); }
  bool holds(T value) const { return (zero_too && value == 0) || (value >= least && value <= most); }
  std::string text(T value) const { return fmt::format("{}", value); }
  std::string allowed() const {
    return fmt::format("a whole number{} {} .. {}", zero_too ? ", 0 or" : "", least, most);
  }
};

struct Flag {
  std::optional<bool> parse(std::string_view text) const {
    if (text != "0" && text != "1") return std::nullopt;
    return text == "1";
  }
  bool holds(bool) const { return true; }
  std::string text(bool value) const { return value ? "1" : "0"; }
  std::string allowed() const { return "0 or 1"; }
};

using Names = std::vector<std::string_view>;

std::string list(const Names& names) { return fmt::format("one of {}", fmt::join(names, ", ")); }

// holds() alone decides here and in Text: any text parses.
struct Choice {
  Names names;
  std::optional<std::string> parse(std::string_view text) const { return std::string(text); }
  bool holds(std::string_view value) const { return std::find(names.begin(), names.end(), value) != names.end(); }
  std::string text(const std::string& value) const { return value; }
  std::string allowed() const { return list(names); }
};

struct AlgorithmName {
  std::optional<Algorithm> parse(std::string_view text) const {
    for (int a = 0; a < kAlgorithms; ++a) {
      if (text == algorithm_name(static_cast<Algorithm>(a))) return static_cast<Algorithm>(a);
    }
    return std::nullopt;
  }
  bool holds(Algorithm value) const { return static_cast<int>(value) < kAlgorithms; }
  std::string text(Algorithm value) const {
    return holds(value) ? algorithm_name(value) : fmt::format("{}", static_cast<int>(value));
  }
  std::string allowed() const {
    Names names;
    for (int a = 0; a < kAlgorithms; ++a) names.push_back(algorithm_name(static_cast<Algorithm>(a)));
    return list(names);
  }
};

struct Text {
  bool (*valid)(std::string_view text);
  const char* what;
  std::optional<std::string> parse(std::string_view text) const { return std::string(text); }
  bool holds(std::string_view value) const { return valid(value); }
  std::string text(const std::string& value) const { return value; }
  std::string allowed() const { return what; }
};

bool valid_ports(std::string_view text) {
  size_t dash = text.find('-');
  auto first = parse_number<uint16_t>(text.substr(0, dash));
  if (!first) return false;
  if (dash == std::string_view::npos) return true;
  auto last = parse_number<uint16_t>(text.substr(dash + 1));
  return last && *first > 0 && *last >= *first;
}
constexpr Text kPorts{valid_ports, "0 (any), a port such as 5000, or a range such as 5000-5099 (1 .. 65535)"};

// Whether a free text is allowed. It goes into a line of the log and into socket options, so it has no control
// characters, and a bounded length.
bool valid_text(std::string_view text) {
  for (char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  }
  return text.size() <= 4096;
}
constexpr Text kText{valid_text, "at most 4096 bytes without control characters"};

// "on", or a path with a slash: a misspelt "on" must not become a folder.
bool valid_metrics(std::string_view text) {
  return text.empty() || text == "on" || (valid_text(text) && text.find('/') != std::string_view::npos);
}
constexpr Text kMetrics{valid_metrics, "on, or the path of a folder, with a slash in it"};

// The one list of settings: v(name of the variable, field, kind, sharing) for each. Reading, checking, printing
// and hashing go through it, so none of them can miss one.
template <typename C, typename Visitor>
void visit(C& config, Visitor&& v) {
  constexpr auto kLocal = Sharing::kLocal;
  constexpr auto kShared = Sharing::kShared;
  const Number<int64_t> ms{1, kMaxMs};
  v("RONDO_START_TIMEOUT_MS", config.start_timeout_ms, ms, kLocal);
  v("RONDO_HANDSHAKE_TIMEOUT_MS", config.handshake_timeout_ms, ms, kLocal);
  v("RONDO_TIMEOUT_MS", config.timeout_ms, ms, kLocal);
  v("RONDO_DESTROY_TIMEOUT_MS", config.destroy_timeout_ms, ms, kLocal);
  v("RONDO_STALL_MS", config.stall_ms, ms, kLocal);
  v("RONDO_HEARTBEAT_MS", config.heartbeat_ms, ms, kShared);
  v("RONDO_SUSPICION_MS", config.suspicion_ms, Number<int64_t>{1, kMaxMs, true}, kShared);
  v("RONDO_TRANSPORT", config.transport, Choice{{"auto", "tcp", "shm"}}, kShared);
  v("RONDO_SOCKET_IFNAME", config.socket_interface, kText, kLocal);
  v("RONDO_PORT_RANGE", config.data_ports, kPorts, kLocal);
  v("RONDO_SECRET_FILE", config.secret_file, kText, kLocal);
  v("RONDO_SECRET_FD", config.secret_fd, Number<int32_t>{-1, 1 << 20}, kLocal);
  v("RONDO_INSECURE", config.insecure, Flag{}, kLocal);
  v("RONDO_ENCRYPT", config.encrypt, Flag{}, kShared);
  v("RONDO_CHECKSUM", config.checksum, Choice{{"auto", "on", "off"}}, kShared);
  v("RONDO_TCP_CONGESTION", config.congestion_control, kText, kLocal);
  v("RONDO_SOCKET_BUFFER_BYTES", config.socket_buffer_bytes, Number<uint32_t>{4096, 1u << 30, true}, kLocal);
  v("RONDO_CONNECTIONS", config.connections, Number<uint32_t>{1, 16}, kShared);
  v("RONDO_SLICE_BYTES", config.slice_bytes, Number<uint32_t>{4096, 16u << 20}, kShared);
  v("RONDO_SLICES_PER_CHUNK", config.slices_per_chunk, Number<uint32_t>{1, 64}, kShared);
  v("RONDO_MAILBOX_BYTES", config.mailbox_bytes, Number<uint64_t>{64u << 10, uint64_t{64} << 30}, kShared);
  v("RONDO_STAGING_BYTES", config.staging_bytes, Number<uint64_t>{64u << 10, uint64_t{1} << 30}, kShared);
  v("RONDO_BUCKET_BYTES", config.bucket_bytes, Number<uint64_t>{4096, uint64_t{1} << 30, true}, kShared);
  v("RONDO_SINGLE_COPY", config.single_copy, Choice{{"auto", "on", "off"}}, kShared);
  v("RONDO_SHARED_STORES", config.shared_stores, Choice{{"auto", "cached", "streamed"}}, kShared);
  v("RONDO_FOLD", config.fold, Choice{{"fixed", "any"}}, kShared);
  v("RONDO_ALGORITHM", config.algorithm, AlgorithmName{}, kShared);
  v("RONDO_SPIN_US", config.spin_us, Number<int64_t>{0, 10'000'000}, kLocal);
  v("RONDO_EAGER_BYTES", config.eager_bytes, Number<uint32_t>{0, 16u << 20}, kShared);
  v("RONDO_DEVICE_WINDOW_BYTES", config.device_window_bytes, Number<uint64_t>{64u << 10, uint64_t{4} << 30, true},
    kShared);
  v("RONDO_DEVICE_BLOCKS", config.device_blocks, Number<uint32_t>{1, 128}, kShared);
  v("RONDO_DEVICE_LIBRARY", config.device_library, kText, kLocal);
  v("RONDO_CHECK", config.check_results, Choice{{"off", "digest", "finite", "digest,finite"}}, kShared);
  v("RONDO_MPI_STRICT", config.mpi_strict, Flag{}, kShared);
  v("RONDO_DEBUG", config.debug, Choice{{"off", "warn", "info", "trace"}}, kLocal);
  v("RONDO_TRACE", config.trace_folder, kText, kLocal);
  v("RONDO_TRACE_BYTES", config.trace_bytes, Number<uint64_t>{64u << 10, uint64_t{16} << 30}, kLocal);
  v("RONDO_METRICS", config.metrics, kMetrics, kLocal);
  v("RONDO_STATUS", config.status, Flag{}, kLocal);
}

// The settings that the program gives, as texts by name; they come before the environment.
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
  // The pointer is valid as long as this object and the environment: it is used at once.
  const char* find(const char* name) {
    asked_.push_back(name);
    const auto given = values_.find(name);
    return given == values_.end() ? std::getenv(name) : given->second.c_str();
  }
  // Throws for a setting that find() was not asked for: nothing would read it.
  void refuse_unknown() const {
    for (const auto& [name, value] : values_) {
      if (std::find(asked_.begin(), asked_.end(), name) != asked_.end()) continue;
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
  std::vector<std::string_view> asked_;
};

// Checks what two fields must be to each other.
void check_together(const Config& config) {
  if (config.suspicion_ms == 0 || config.suspicion_ms >= 3 * config.heartbeat_ms) return;
  reject("RONDO_SUSPICION_MS", fmt::format("{}", config.suspicion_ms),
         fmt::format("0 (never) or at least three times RONDO_HEARTBEAT_MS, which is {}", config.heartbeat_ms));
}

}  // namespace

Config Config::from_environment(std::span<const std::string> settings) {
  Config config;
  SettingTexts given(settings);
  // Checked as it is read, so that the message shows the text that the user wrote.
  visit(config, [&given](const char* name, auto& field, const auto& kind, Sharing) {
    const char* text = given.find(name);
    if (text == nullptr) return;
    const auto value = kind.parse(text);
    if (!value || !kind.holds(*value)) reject(name, text, kind.allowed());
    field = *value;
  });
  given.refuse_unknown();
  check_together(config);
  warn_of_misspelt(given.asked(), Logger(config.debug));
  return config;
}

void Config::check() const {
  visit(*this, [](const char* name, const auto& field, const auto& kind, Sharing) {
    if (!kind.holds(field)) reject(name, kind.text(field), kind.allowed());
  });
  check_together(*this);
}

std::string Config::describe() const {
  std::string text;
  visit(*this, [&text](const char* name, const auto& field, const auto& kind, Sharing) {
    text += fmt::format("{}={}\n", name, kind.text(field));
  });
  return text;
}

// Names and texts are hashed, not fields' bytes: two builds that know the same settings agree.
uint64_t Config::shared_hash() const {
  Hash64 hash;
  visit(*this, [&hash](const char* name, const auto& field, const auto& kind, Sharing sharing) {
    if (sharing == Sharing::kShared) hash.add(std::string_view(name)).add(std::string_view(kind.text(field)));
  });
  return hash.value();
}

std::vector<std::string_view> Config::shared_names() {
  std::vector<std::string_view> names;
  const Config config;
  visit(config, [&names](const char* name, const auto&, const auto&, Sharing sharing) {
    if (sharing == Sharing::kShared) names.push_back(name);
  });
  return names;
}

}  // namespace rondo
