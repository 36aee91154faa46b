#include "bench/json.h"

#include <stdexcept>

#include "bench/statistics.h"

namespace rondo::bench {
namespace {

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <typename Value>
std::optional<Value> optional_at(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? std::nullopt : std::optional<Value>(value.get<Value>());
}

Memory memory_by_name(const std::string& name) {
  for (int i = 0; i < kMemories; ++i) {
    if (name == memory_name(static_cast<Memory>(i))) return static_cast<Memory>(i);
  }
  throw std::invalid_argument("no such memory: " + name);
}

Driving driving_by_name(const std::string& name) {
  for (int i = 0; i < kDrivings; ++i) {
    if (name == driving_name(static_cast<Driving>(i))) return static_cast<Driving>(i);
  }
  throw std::invalid_argument("no such driving: " + name);
}

Json setting_to_json(const RawSetting& setting) {
  return {{"transfer_bytes", setting.transfer_bytes},
          {"driving", driving_name(setting.driving)},
          {"congestion", setting.congestion},
          {"connections", setting.connections},
          {"memory", memory_name(setting.memory)}};
}

RawSetting setting_from_json(const Json& json) {
  return {json.at("transfer_bytes").get<uint64_t>(), driving_by_name(json.at("driving")),
          json.at("congestion").get<std::string>(), json.at("connections").get<int>(),
          memory_by_name(json.at("memory"))};
}

// A limit of 0 or less would make every share infinite.
double positive(double value) {
  if (!(value > 0)) throw std::invalid_argument("a limit that is not above 0");
  return value;
}

}  // namespace

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

Json to_json(const Limits& limits) {
  Json streams = Json::array(), exchanges = Json::array();
  for (const StreamLimit& limit : limits.streams) {
    Json runners_up = Json::array();
    for (const RawSetting& setting : limit.runners_up) runners_up.push_back(setting_to_json(setting));
    streams.push_back({{"world", limit.world},
                       {"bytes", limit.bytes},
                       {"gbps", limit.gbps},
                       {"setting", setting_to_json(limit.setting)},
                       {"runners_up", runners_up}});
  }
  for (const ExchangeLimit& limit : limits.exchanges) {
    exchanges.push_back({{"world", limit.world}, {"us", limit.us}, {"congestion", limit.congestion}});
  }
  return {{"tcp", streams}, {"exchange", exchanges}};
}

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

Json to_json(const Judged& judged) {
  const Bar& bar = judged.bar;
  const bool any = !judged.ratios.empty();
  return {{"transport", bar.transport + (bar.congestion.empty() ? "" : "@" + bar.congestion)},
          {"buffers", bar.buffers},
          {"world", bar.world},
          {"bytes", bar.bytes},
          {"ratio", against_name(bar.against)},
          {"kind", kind_name(bar.kind)},
          {"bound", bar.bound},
          {"runs", judged.ratios},
          {"median", any ? Json(median(judged.ratios)) : Json(nullptr)},
          {"verdict", verdict_name(judge(judged))},
          {"why_not", judged.missing}};
}

Limits limits_from_json(const Json& json) {
  Limits limits;
  for (const Json& entry : json.at("tcp")) {
    StreamLimit limit{entry.at("world").get<int>(),
                      entry.at("bytes").get<uint64_t>(),
                      positive(entry.at("gbps").get<double>()),
                      setting_from_json(entry.at("setting")),
                      {}};
    for (const Json& setting : entry.at("runners_up")) limit.runners_up.push_back(setting_from_json(setting));
    limits.put(limit);
  }
  for (const Json& entry : json.at("exchange")) {
    limits.put(ExchangeLimit{entry.at("world").get<int>(), positive(entry.at("us").get<double>()),
                             entry.at("congestion").get<std::string>()});
  }
  return limits;
}

Row row_from_json(const Json& json) {
  Row row;
  row.library = json.at("library").get<std::string>();
  row.collective = json.at("collective").get<std::string>();
  row.transport = json.at("transport").get<std::string>();
  row.algorithm = json.at("algorithm").get<std::string>();
  row.dtype = json.at("dtype").get<std::string>();
  row.op = json.at("op").get<std::string>();
  row.world = json.at("world").get<int>();
  row.bytes = json.at("bytes").get<uint64_t>();
  row.in_place = json.at("in_place").get<bool>();
  row.buffers = json.at("buffers").get<std::string>();
  row.list = json.at("list").get<std::string>();
  row.time_us = json.at("time_us").get<double>();
  row.p50_us = json.at("p50_us").get<double>();
  row.p99_us = json.at("p99_us").get<double>();
  row.min_us = json.at("min_us").get<double>();
  row.max_us = json.at("max_us").get<double>();
  row.algbw_gbps = json.at("algbw_gbps").get<double>();
  row.busbw_gbps = json.at("busbw_gbps").get<double>();
  row.cpu_s_per_gb = optional_at<double>(json, "cpu_s_per_gb");
  row.limit_gbps = optional_at<double>(json, "limit_gbps");
  row.share_of_limit = optional_at<double>(json, "share_of_limit");
  row.wrong = optional_at<uint64_t>(json, "wrong");
  return row;
}

}  // namespace rondo::bench
