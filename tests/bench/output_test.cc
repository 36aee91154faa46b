#include "bench/output/files.h"

#include <doctest/doctest.h>

#include <sstream>
#include <string>

#include "bench/output/table.h"
#include "bench/reporter.h"
#include "ring/base/file_text.h"
#include "rondo/error.h"
#include "tests/support/temp_folder.h"

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

TEST_CASE("what is not there is null in the file; compare_test.py holds files against docs/bench-schema.json") {
  const testing::TempFolder directory;
  const std::string path = directory.path() + "/out.json";
  Row bare = example();
  bare.limit_gbps.reset();
  bare.share_of_limit.reset();
  bare.wrong.reset();
  write_json(path, this_machine(), {}, {example(), bare});
  const std::string text = file_text(path);
  const size_t second = text.rfind("\"library\"");
  for (const char* field : {"limit_gbps", "share_of_limit", "wrong"}) {
    const std::string null = std::string("\"") + field + "\": null";
    CHECK(text.find(null) > second);
    CHECK(text.find(null, second) != std::string::npos);
  }
  CHECK(text.find("\"share_of_limit\": 1.024") < second);
}

TEST_CASE("files that cannot be written are errors that name them") {
  CHECK_THROWS_WITH_AS(write_json("/proc/nowhere/x.json", {}, {}, {}), doctest::Contains("/proc/nowhere/x.json"),
                       Exception);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST_CASE("the table: at most 100 columns, figures below their names, a missing half is dashes") {
  Row long_name = example();
  long_name.algorithm = "halving_doubling";
  long_name.wrong = 99999;
  fill_times(long_name, {12'345'678}, 1.5);
  const Line line{64u << 20, {}, example()}, widest{uint64_t{4} << 30, long_name, long_name};
  for (const bool shares : {false, true}) {
    const std::vector<std::string> header = lines_of(table_header(shares));
    REQUIRE(header.size() == 3);
    for (const Line& each : {line, widest}) CHECK(table_line(each, shares).size() <= 100);
    for (const std::string& text : header) CHECK(text.size() <= 100);
    const std::string text = table_line(line, shares);
    CHECK(text.find("ring") == header[1].find("algorithm"));
    CHECK(text.find("67108864") + 8 == header[1].find("size") + 4);
    CHECK(text.rfind("6.144") + 5 == header[1].rfind("busbw") + 5);
  }
  CHECK(lines_of(table_header(false))[1].find("share") == std::string::npos);
  CHECK(table_line(line, true).find("  1.02  ring") != std::string::npos);
  CHECK(verbose_lines(line) ==
        "#   in-place: p50 16384 us, p99 32440 us, min 8192 us, max 32768 us, CPU 0.500 s/GB, limit 6.000 GB/s");
}

TEST_CASE("a share above 1.05 is a dash, never another number") {
  Row row = example();
  fill_share(row, 5.0);
  REQUIRE(*row.share_of_limit > kHighestShare);
  CHECK(table_line({row.bytes, {}, row}, true).find("    -  ring") != std::string::npos);
}

TEST_CASE("the footer counts wrong values under their own name, and says in words what the run reached") {
  Row wrong = example();
  wrong.bytes = 8;
  wrong.wrong = 3;
  fill_times(wrong, {9.5}, 1.5);
  Limits limits;
  CHECK(table_footer({example()}, limits).find("# Wrong values: 0\n") == 0);
  limits.exchange_us = 7.5;
  CHECK(table_footer({example(), wrong}, limits) ==
        "# Wrong values: 3\n"
        "# all_reduce, 8 B, in place takes 9.500 us; a bare exchange of 8 B over TCP 7.500 us\n"
        "# 4 ranks reach 6.144 GB/s of bus bandwidth (all_reduce, 64 MiB, in place);\n"
        "# the limit here is 6.000 GB/s, by raw TCP");
  Row faster = example();  // of a size without a limit
  faster.bytes = 1 << 18;
  faster.limit_gbps.reset();
  fill_times(faster, {1.0}, 1.5);
  CHECK(table_footer({example(), faster}, limits).ends_with("is 6.000 GB/s, by raw TCP"));
  CHECK(table_footer({faster}, limits).ends_with("(all_reduce, 256 KiB, in place)"));
  wrong.wrong.reset();
  CHECK(table_footer({wrong}, limits).find("not checked") != std::string::npos);
}

TEST_CASE("what the subcommands print is read back") {
  const StreamLimit limit{4, 1u << 20, 2.5, "1 MiB transfers"};
  CHECK(stream_limit_of(json_of(limit)) == limit);
  CHECK(time_of(json_of_time(3.25)) == 3.25);
  CHECK_THROWS(time_of("{}"));
}

TEST_CASE("a share above 1.05 has its limit measured again; what stays above is left out of the files") {
  const testing::TempFolder directory;
  Options options;
  options.json = directory.path() + "/rows.json";
  Row high = example();
  fill_share(high, 5.0);
  const auto file_after = [&](double measured) {
    Limits limits;
    limits.raise({4, 64u << 20, 5.0, ""});
    Reporter reporter(options, this_machine(), 4);
    CHECK(reporter.finish({high}, limits, [&](uint64_t bytes) { return StreamLimit{4, bytes, measured, ""}; }) == 0);
    return file_text(options.json);
  };
  CHECK(file_after(6.4).find("\"share_of_limit\": 0.96") != std::string::npos);
  CHECK(file_after(5.5).find("\"share_of_limit\": null") != std::string::npos);
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
