#include "bench/output.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "bench/children.h"
#include "bench/json.h"
#include "bench/limit_source.h"
#include "bench/table.h"
#include "rondo/error.h"

namespace rondo::bench {
namespace {

Row example() {
  Row row;
  row.collective = "all_reduce";
  row.transport = "tcp";
  row.algorithm = "ring";
  row.dtype = "float32";
  row.op = "sum";
  row.world = 4;
  row.bytes = 64u << 20;
  row.in_place = true;
  fill_times(row, {16'384, 8'192, 32'768}, 1.5);
  row.cpu_s_per_gb = 0.5;
  fill_share(row, 6.0);
  row.wrong = 0;
  return row;
}

std::vector<Judged> example_bars() {
  const Bar bar{"tcp", "reno", "plain", 2, 64u << 20, Against::kBestPeer, Bar::Kind::kAtMost, 0.88};
  return {{bar, {0.9, 0.7, 0.8}, ""}, {bar, {}, "mpich: not built"}};
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream out;
  out << file.rdbuf();
  return out.str();
}

// Checks a value against the part of JSON Schema that docs/bench-schema.json uses: type, required, properties,
// additionalProperties: false, items, enum, minimum, exclusiveMinimum. Returns what is wrong, "" if nothing.
std::string violation(const Json& schema, const Json& value, const std::string& where);

bool has_type(const std::string& type, const Json& value) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return type == "null" && value.is_null();
}

bool has_one_type(const Json& types, const Json& value) {
  if (types.is_string()) return has_type(types, value);
  for (const Json& type : types) {
    if (has_type(type, value)) return true;
  }
  return false;
}

std::string object_violation(const Json& schema, const Json& value, const std::string& where) {
  for (const Json& name : schema.value("required", Json::array())) {
    if (!value.contains(name.get<std::string>())) return where + ": lacks " + name.get<std::string>();
  }
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, member] : value.items()) {
    if (properties.contains(name)) {
      const std::string inner = violation(properties.at(name), member, where + "." + name);
      if (!inner.empty()) return inner;
    } else if (!schema.value("additionalProperties", true)) {
      return where + ": unknown " + name;
    }
  }
  return "";
}

std::string violation(const Json& schema, const Json& value, const std::string& where) {
  if (schema.contains("type") && !has_one_type(schema.at("type"), value)) return where + ": wrong type";
  if (schema.contains("enum")) {
    bool found = false;
    for (const Json& allowed : schema.at("enum")) found = found || allowed == value;
    if (!found) return where + ": not among the allowed values";
  }
  if (value.is_number() && schema.contains("minimum") && value.get<double>() < schema.at("minimum").get<double>()) {
    return where + ": below the minimum";
  }
  if (value.is_number() && schema.contains("exclusiveMinimum") &&
      value.get<double>() <= schema.at("exclusiveMinimum").get<double>()) {
    return where + ": not above the minimum";
  }
  if (value.is_array() && schema.contains("items")) {
    for (const Json& item : value) {
      const std::string inner = violation(schema.at("items"), item, where + "[]");
      if (!inner.empty()) return inner;
    }
  }
  return value.is_object() ? object_violation(schema, value, where) : "";
}

Json written_json() {
  PrivateDirectory directory;
  const std::string path = directory.path() + "/out.json";
  Limits limits;
  limits.put(StreamLimit{4, 64u << 20, 5.0, {1 << 20, Driving::kTwoThreads, "reno", 2, Memory::kRelay}, {}});
  limits.put(ExchangeLimit{4, 7.5, "reno"});
  Row bare = example();
  bare.limit_gbps.reset();
  bare.share_of_limit.reset();
  bare.wrong.reset();
  write_json(path, this_machine(), limits, {example(), bare}, example_bars());
  const std::vector<Row> rows = read_rows(path);
  REQUIRE(rows.size() == 2);
  CHECK(csv_line(rows[0]) == csv_line(example()));
  CHECK(csv_line(rows[1]) == csv_line(bare));
  return Json::parse(text_of(path));
}

TEST_CASE("a row above its limit by more than 5 % names the size to measure again; the higher limit counts") {
  Limits limits;
  limits.put(StreamLimit{3, 1u << 20, 2.0, {}, {}});
  limits.put(StreamLimit{3, 64u << 20, 2.0, {}, {}});
  Row row = example();
  row.world = 3;
  row.bytes = (1u << 20) - 4;  // rounded down to whole elements of three ranks
  row.busbw_gbps = 2.05;
  fill_share(row, limit_of_row(limits, row)->gbps);
  CHECK(impossible_sizes({row}, limits).empty());
  row.busbw_gbps = 2.5;
  fill_share(row, 2.0);
  CHECK(impossible_sizes({row, row}, limits) == std::vector<uint64_t>{1u << 20});
  row.world = 2;
  CHECK(impossible_sizes({row}, limits).empty());  // no such limit to measure

  Limits again;
  again.put(StreamLimit{3, 1u << 20, 3.0, {}, {}});
  again.put(StreamLimit{3, 64u << 20, 1.0, {}, {}});
  raise_limits(limits, again);
  CHECK(limits.stream(3, 1u << 20)->gbps == 3.0);
  CHECK(limits.stream(3, 64u << 20)->gbps == 2.0);
}

TEST_CASE("what --json writes fits docs/bench-schema.json, and has exactly the promised fields in their order") {
  const Json schema = Json::parse(text_of("docs/bench-schema.json"));
  const Json json = written_json();
  CHECK(violation(schema, json, "file") == "");
  std::string names;
  for (const auto& [name, value] : json.at("rows").at(0).items()) names += (names.empty() ? "" : ",") + name;
  CHECK(names == csv_header());
  CHECK(names ==
        "library,collective,transport,algorithm,dtype,op,world,bytes,in_place,buffers,list,time_us,p50_us,p99_us,min_"
        "us,max_us,"
        "algbw_gbps,busbw_gbps,cpu_s_per_gb,limit_gbps,share_of_limit,wrong");
}

TEST_CASE("bars are written with their runs and what follows of them, and only if there are any") {
  const Json bars = written_json().at("bars");
  REQUIRE(bars.size() == 2);
  CHECK(bars[0].dump() ==
        R"({"transport":"tcp@reno","buffers":"plain","world":2,"bytes":67108864,"ratio":"time / best peer",)"
        R"("kind":"at most","bound":0.88,"runs":[0.9,0.7,0.8],"median":0.8,"verdict":"HOLDS","why_not":""})");
  CHECK(bars[1]["runs"].empty());
  CHECK(bars[1]["median"].is_null());
  CHECK(bars[1]["verdict"] == "NOT JUDGED");
  CHECK(bars[1]["why_not"] == "mpich: not built");

  PrivateDirectory directory;
  write_json(directory.path() + "/out.json", this_machine(), {}, {});
  CHECK_FALSE(Json::parse(text_of(directory.path() + "/out.json")).contains("bars"));
}

TEST_CASE("the schema is strict: a missing, an extra, a mistyped or a senseless field breaks it") {
  const Json schema = Json::parse(text_of("docs/bench-schema.json"));
  const Json good = written_json();
  for (const char* name : {"machine", "limits", "rows"}) {
    Json bad = good;
    bad.erase(name);
    CHECK(violation(schema, bad, "file") != "");
  }
  for (const auto& [name, value] : good.at("rows").at(0).items()) {
    Json bad = good;
    bad["rows"][0].erase(name);
    CHECK(violation(schema, bad, "file") == "file.rows[]: lacks " + name);
    bad = good;
    bad["rows"][0][name] = Json::array();
    CHECK(violation(schema, bad, "file") == "file.rows[]." + name + ": wrong type");
  }
  Json bad = good;
  bad["rows"][0]["speed"] = 1;
  CHECK(violation(schema, bad, "file") == "file.rows[]: unknown speed");
  bad = good;
  bad["rows"][0]["collective"] = "allreduce";
  CHECK(violation(schema, bad, "file") != "");
  bad = good;
  bad["bars"][0]["verdict"] = "GOOD";
  CHECK(violation(schema, bad, "file") != "");
  bad = good;
  bad["limits"]["tcp"][0]["gbps"] = 0;
  CHECK(violation(schema, bad, "file") != "");
}

TEST_CASE("CSV has the same fields; what is not there is empty") {
  CHECK(csv_line(example()) ==
        "rondo,all_reduce,tcp,ring,float32,sum,4,67108864,true,plain,none,16384,16384,32440.32,8192,32768,4.096,6.144,"
        "0.5,6,"
        "1.024,0");
  Row bare = example();
  bare.limit_gbps.reset();
  bare.share_of_limit.reset();
  bare.wrong.reset();
  CHECK(csv_line(bare).ends_with(",4.096,6.144,0.5,,,"));
}

TEST_CASE("files that cannot be written or read are errors that name them") {
  CHECK_THROWS_WITH_AS(write_csv("/proc/nowhere/x.csv", {}), doctest::Contains("/proc/nowhere/x.csv"), Exception);
  CHECK_THROWS_WITH_AS(read_rows("/proc/nowhere/x.json"), doctest::Contains("/proc/nowhere/x.json"), Exception);
}

TEST_CASE("the table: columns line up with their header, and a missing half is dashes") {
  Line line{64u << 20, 16u << 20, "float32", "sum", -1, {}, example()};
  const std::string text = table_line(line);
  CHECK(text.find("67108864") != std::string::npos);
  CHECK(text.find("16384") != std::string::npos);
  CHECK(text.find("6.144") != std::string::npos);
  CHECK(text.ends_with("      -   1.02"));
  std::istringstream header(table_header());
  std::string row;
  std::getline(header, row);
  std::getline(header, row);
  CHECK(row.size() == text.size());
  CHECK(verbose_lines(line) ==
        "#   in-place: ring, p50 16384 us, p99 32440 us, min 8192 us, max 32768 us, CPU 0.500 s/GB, limit 6.000 GB/s");
}

TEST_CASE("the footer adds up wrong elements and says whether anything was checked") {
  Row wrong = example();
  wrong.wrong = 3;
  CHECK(table_footer({example()}).find("Out of bounds values : 0 OK") != std::string::npos);
  CHECK(table_footer({example(), wrong}).find("Out of bounds values : 3 FAILED") != std::string::npos);
  wrong.wrong.reset();
  CHECK(table_footer({wrong}).find("not checked") != std::string::npos);
}

TEST_CASE("figures that mean nothing are announced") {
  Machine machine;
  machine.cores = 2;
  machine.memory_bytes = uint64_t{8} << 30;
  Options options;
  options.sizes = {8, 64u << 20};
  CHECK(warnings(machine, options, 2).empty());
  CHECK(warnings(machine, options, 1).at(0).find("one rank") != std::string::npos);
  CHECK(warnings(machine, options, 4).at(0).find("4 ranks share 2 cores") != std::string::npos);
  machine.load_average = 1.5;
  CHECK(warnings(machine, options, 2).at(0).find("busy") != std::string::npos);
  machine.load_average = 0;
  options.sizes = {uint64_t{4} << 30};
  CHECK(warnings(machine, options, 2).at(0).find("16 GiB") != std::string::npos);
  CHECK(!steal_warning(0.02));
  CHECK(steal_warning(0.236).value().find("24 % of the processors' time") != std::string::npos);
}

}  // namespace
}  // namespace rondo::bench
