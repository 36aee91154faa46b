#include "bench/output/files.h"

#include <nlohmann/json.hpp>

#include "ring/base/whole_file.h"

namespace rondo::bench {
namespace {

using Json = nlohmann::ordered_json;  // keys keep their order

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json to_json(const Machine& machine) {
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"kernel", machine.kernel},
          {"congestion_control", machine.congestion_control},
          {"congestion_controls", machine.congestion_controls},
          {"load_average", machine.load_average},
          {"steal_share", machine.steal_share()}};
}

Json to_json(const StreamLimit& limit) {
  return {{"world", limit.world}, {"bytes", limit.bytes}, {"gbps", limit.gbps}, {"setting", limit.setting}};
}

Json to_json(const Limits& limits) {
  Json streams = Json::array();
  for (const StreamLimit& limit : limits.streams) streams.push_back(to_json(limit));
  return {{"tcp", streams}, {"exchange_us", limits.exchange_us > 0 ? Json(limits.exchange_us) : Json(nullptr)}};
}

// The keys are an interface: docs/bench-schema.json lists them, and tests/lab reads them.
Json to_json(const Row& row) {
  return {{"library", row.library},
          {"collective", row.collective},
          {"transport", row.transport},
          {"algorithm", row.algorithm},
          {"dtype", row.dtype},
          {"op", row.op},
          {"world", row.world},
          {"bytes", row.bytes},
          {"in_place", row.in_place},
          {"buffers", row.buffers},
          {"calls", row.calls},
          {"list", row.list},
          {"time_us", row.time_us},
          {"p50_us", row.p50_us},
          {"p99_us", row.p99_us},
          {"min_us", row.min_us},
          {"max_us", row.max_us},
          {"algbw_gbps", row.algbw_gbps},
          {"busbw_gbps", row.busbw_gbps},
          {"cpu_s_per_gb", or_null(row.cpu_s_per_gb)},
          {"limit_gbps", or_null(row.limit_gbps)},
          {"share_of_limit", or_null(row.share_of_limit)},
          {"wrong", or_null(row.wrong)}};
}

}  // namespace

void write_json(const std::string& path, const Machine& machine, const Limits& limits, const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) list.push_back(to_json(row));
  const Json all = {{"machine", to_json(machine)}, {"limits", to_json(limits)}, {"rows", list}};
  replace_file(path, all.dump(1) + "\n");
}

std::string json_of(const Machine& machine) { return to_json(machine).dump(); }

std::string json_of(const StreamLimit& limit) { return to_json(limit).dump(); }

std::string json_of_time(double us) { return Json{{"us", us}}.dump(); }

StreamLimit stream_limit_of(const std::string& text) {
  const Json json = Json::parse(text);
  return {json.at("world").get<int>(), json.at("bytes").get<uint64_t>(), json.at("gbps").get<double>(),
          json.at("setting").get<std::string>()};
}

double time_of(const std::string& text) { return Json::parse(text).at("us").get<double>(); }

}  // namespace rondo::bench
