
#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "ring/engine/observe/metrics_output.h"

namespace rondo {
namespace {

double seconds(uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

// Builds the text, series after series of a family.
class Text {
 public:
  explicit Text(int rank) : rank_(rank) {}

  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    add("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  // labels: empty, or `a="b",` with the comma.
  template <typename Value>
  void series(std::string_view labels, Value value, std::string_view suffix = "") {
    add("{}{}{{{}rank=\"{}\"}} {}\n", name_, suffix, labels, rank_, value);
  }
  std::string take() { return std::move(text_); }

 private:
  template <typename... Arguments>
  void add(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Arguments>(arguments)...);
  }

  int rank_;
  std::string_view name_;
  std::string text_;
};

// With the comma: more labels follow, at least the rank's. Values are names and numbers, which need no escapes.
std::string label(std::string_view name, std::string_view value) { return fmt::format("{}=\"{}\",", name, value); }

template <typename Action>
void each_collective(const Metrics& metrics, Action action) {
  for (size_t i = 0; i < metrics.operations.size(); ++i) {
    action(metrics.operations[i], collective_name(static_cast<Collective>(i)));
  }
}

void operations(Text& text, const Metrics& metrics) {
  text.family("rondo_operations_total", "counter", "Collective operations that have succeeded.");
  each_collective(metrics, [&](const Metrics::Operations& of, const char* collective) {
    for (int a = 0; a < kAlgorithms; ++a) {
      const uint64_t number = of.by_algorithm[static_cast<size_t>(a)].load();
      if (number == 0) continue;
      text.series(label("collective", collective) + label("algorithm", algorithm_name(static_cast<Algorithm>(a))),
                  number);
    }
  });
  text.family("rondo_operation_bytes_total", "counter", "Bytes of the whole buffers of these operations.");
  each_collective(metrics, [&](const Metrics::Operations& of, const char* collective) {
    if (of.bytes.load() > 0) text.series(label("collective", collective), of.bytes.load());
  });
}

// Buckets are cumulative, as the format demands: each counts all operations up to its bound.
void durations(Text& text, const Metrics& metrics) {
  text.family("rondo_operation_duration_seconds", "histogram",
              "Time of collective operations, from their begin on this rank to their end.");
  each_collective(metrics, [&](const Metrics::Operations& of, const char* collective) {
    const std::string of_collective = label("collective", collective);
    uint64_t number = 0;
    for (size_t bucket = 0; bucket <= Metrics::kBounds; ++bucket) number += of.durations[bucket].load();
    if (number == 0) return;
    uint64_t below = 0;
    for (size_t bucket = 0; bucket < Metrics::kBounds; ++bucket) {
      below += of.durations[bucket].load();
      text.series(of_collective + label("le", fmt::format("{}", Metrics::bound_seconds(bucket))), below, "_bucket");
    }
    // Counted once, so that the text agrees with itself while other threads count.
    number = below + of.durations[Metrics::kBounds].load();
    text.series(of_collective + label("le", "+Inf"), number, "_bucket");
    text.series(of_collective, seconds(of.nanoseconds.load()), "_sum");
    text.series(of_collective, number, "_count");
  });
}

void peers(Text& text, const Metrics& metrics) {
  // In the order of the arrays in Metrics::Peer.
  constexpr const char* kDirections[] = {"received", "sent"};
  const auto by_direction = [&](auto counters) {
    for (int rank = 0; rank < metrics.world(); ++rank) {
      for (size_t d = 0; d < 2; ++d) {
        const uint64_t value = (metrics.peer(rank).*counters)[d].load();
        if (value == 0) continue;
        text.series(label("peer", fmt::format("{}", rank)) + label("direction", kDirections[d]), value);
      }
    }
  };
  text.family("rondo_link_bytes_total", "counter", "Payload of collectives by rank at the other end of the link.");
  by_direction(&Metrics::Peer::bytes);
  text.family("rondo_messages_total", "counter", "Sends and receives that have succeeded.");
  by_direction(&Metrics::Peer::messages);
  text.family("rondo_message_bytes_total", "counter", "Bytes of these messages.");
  by_direction(&Metrics::Peer::message_bytes);
  text.family("rondo_wait_seconds_total", "counter",
              "Time in which a collective could not go on, by the rank it waited for.");
  for (int rank = 0; rank < metrics.world(); ++rank) {
    const uint64_t waited = metrics.peer(rank).wait_nanoseconds.load();
    if (waited > 0) text.series(label("peer", fmt::format("{}", rank)), seconds(waited));
  }
}

void failures(Text& text, const Metrics& metrics) {
  text.family("rondo_errors_total", "counter", "Communicators that have failed, by error code.");
  for (size_t code = 0; code < metrics.errors.size(); ++code) {
    const uint64_t number = metrics.errors[code].load();
    if (number > 0) text.series(label("code", error_code_name(static_cast<ErrorCode>(code))), number);
  }
  text.family("rondo_stopped_seconds_total", "counter",
              "Time in which this rank made no progress though an operation was under way: its process was stopped.");
  text.series("", seconds(metrics.stopped_nanoseconds.load()));
}

}  // namespace

std::string prometheus_text(const Metrics& metrics, int rank) {
  Text text(rank);
  text.family("rondo_world_size", "gauge", "Ranks of the job.");
  text.series("", metrics.world());
  operations(text, metrics);
  durations(text, metrics);
  peers(text, metrics);
  failures(text, metrics);
  return text.take();
}

}  // namespace rondo
