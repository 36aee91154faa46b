#include "tests/lab/peers/peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <variant>

#include "bench/output/files.h"
#include "bench/session.h"
#include "rondo/error.h"

namespace rondo::bench {

std::string setting(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) throw Exception(ErrorCode::kInvalid, fmt::format("{} is not set", variable));
  return text;
}

Options options_of(const std::vector<std::string>& args) {
  const std::variant<Options, Stop> parsed = parse_options(args);
  if (const Stop* stop = std::get_if<Stop>(&parsed)) throw Exception(ErrorCode::kInvalid, stop->text);
  return std::get<Options>(parsed);
}

void check_async(const Options& options, const std::vector<Benchmark>& known) {
  for (Benchmark benchmark : options.benchmarks) {
    if (options.blocking || std::find(known.begin(), known.end(), benchmark) != known.end()) continue;
    throw Exception(ErrorCode::kInvalid, fmt::format("{}: blocking calls only (-z 1)", benchmark_name(benchmark)));
  }
}

int run_peer(Group& group, const Options& options) {
  std::vector<Row> rows = run_session(group, options, {setting("PEER_TRANSPORT"), {}}, {});
  if (group.rank() != 0) return 0;
  for (Row& row : rows) {
    row.library = setting("PEER_LIBRARY");
    fmt::print("{:<14} {:>10} B {:<12} {:<24} {:>12.2f} us {:>8.3f} GB/s {} wrong\n", row.collective, row.bytes,
               row.transport, row.algorithm, row.time_us, row.busbw_gbps, row.wrong.value_or(0));
  }
  if (!options.json.empty()) write_json(options.json, this_machine(), {}, rows);
  return 0;
}

}  // namespace rondo::bench
