// A trace holds what ran: begins, routes, steps, transfers that add up, waits and ends; also after SIGKILL. Metrics
// count the same, and are read from a file.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "ring/base/file_text.h"
#include "ring/engine/observe/trace_format.h"
#include "rondo/communicator.h"
#include "rondo/rondo.h"
#include "tests/support/errors.h"
#include "tests/support/rank_group.h"
#include "tests/support/temp_folder.h"

namespace rondo::testing {
namespace {

struct Trace {
  std::string text;
  uint64_t written = 0;
  std::vector<TraceRecord> records;

  uint64_t count(TraceKind kind) const {
    uint64_t number = 0;
    for (const TraceRecord& record : records) number += record.kind == kind;
    return number;
  }
  bool says(const std::string& what) const { return text.find(what) != std::string::npos; }
};

Trace read_trace(const std::string& folder, int rank) {
  const std::string data = file_text(fmt::format("{}/rank-{}.rondo-trace", folder, rank));
  expect(data.size() > kTraceHeaderBytes + kTraceTextBytes, fmt::format("rank {} left no trace", rank));
  const auto* header = reinterpret_cast<const TraceHeader*>(data.data());
  expect(std::memcmp(header->magic, kTraceMagic, sizeof(kTraceMagic)) == 0, "not a trace");
  Trace trace{data.substr(kTraceHeaderBytes, header->text_bytes), header->written, {}};
  const auto* slots = reinterpret_cast<const TraceSlot*>(data.data() + kTraceHeaderBytes + kTraceTextBytes);
  const uint64_t lost = trace.written > header->records ? trace.written - header->records : 0;
  for (uint64_t i = lost; i < trace.written; ++i) {
    const TraceSlot& slot = slots[i % header->records];
    if (slot.index == i + 1) trace.records.push_back(slot.record);
  }
  return trace;
}

uint64_t value_of(const std::string& text, const std::string& series) {
  const size_t at = text.find("\n" + series + " ");
  expect(at != std::string::npos, "no " + series + " in\n" + text);
  return std::stoull(text.substr(at + series.size() + 2));
}

std::vector<float> ones(uint64_t count) { return std::vector<float>(count, 1.0f); }

TEST_CASE("a ring's transfers add up, and each operation has its begin, route and end") {
  constexpr uint64_t kCount = 120'000;
  constexpr int kWorld = 4, kCalls = 5;
  const TempFolder folder;
  const std::string failed = run_threads({.world = kWorld}, [&](Communicator& group) {
    group.start_trace(folder.path());
    auto values = ones(kCount);
    CallOptions options;
    options.algorithm = Algorithm::kRing;
    for (int i = 0; i < kCalls; ++i) {
      group.all_reduce(values.data(), values.data(), kCount, DType::kFloat32, Op::kMax, options);
    }
    group.stop_trace();
    group.all_reduce(values.data(), values.data(), kCount, DType::kFloat32, Op::kMax, options);
    const Trace trace = read_trace(folder.path(), group.rank());
    expect(trace.count(TraceKind::kBegin) == kCalls && trace.count(TraceKind::kRoute) == kCalls &&
               trace.count(TraceKind::kEnd) == kCalls,
           fmt::format("{} begins", trace.count(TraceKind::kBegin)));
    expect(trace.says(fmt::format(R"("what":"rank","rank":{},"world":4)", group.rank())), trace.text);
    expect(trace.says(R"("members":[0,1,2,3])") && trace.says("asked for"), trace.text);
    uint64_t bytes[2] = {0, 0};
    for (const TraceRecord& record : trace.records) {
      expect(record.kind == TraceKind::kRoute || record.begin <= record.end, "a span ends before it begins");
      if (record.kind != TraceKind::kTransfer) continue;
      const auto out = static_cast<TraceDirection>(record.a) == TraceDirection::kOut;
      const int peer = (group.rank() + (out ? 1 : kWorld - 1)) % kWorld;
      expect(record.peer == peer && static_cast<TracePath>(record.b) == TracePath::kLink, "not a ring's link");
      bytes[out] += record.bytes;
    }
    const uint64_t wanted = kCalls * 2 * (kWorld - 1) * kCount * sizeof(float) / kWorld;
    expect(bytes[0] == wanted && bytes[1] == wanted, fmt::format("{} in, {} out, not {}", bytes[0], bytes[1], wanted));
    group.barrier();
  });
  CHECK(failed == "");
}

// Expects the steps and waits of each operation that has ended between its begin and its end. Returns how many.
std::map<TraceKind, int> expect_spans_inside(const Trace& trace) {
  std::map<TraceKind, int> seen;
  std::map<uint64_t, TraceRecord> ends;
  for (const TraceRecord& record : trace.records) {
    if (record.kind == TraceKind::kEnd) ends[record.number] = record;
  }
  for (const TraceRecord& record : trace.records) {
    const auto end = ends.find(record.number);
    if (end == ends.end() || (record.kind != TraceKind::kStep && record.kind != TraceKind::kWait)) continue;
    const TraceRecord& operation = end->second;
    expect(operation.begin <= record.begin && record.begin <= record.end && record.end <= operation.end, [&] {
      return fmt::format("call {}: {} to {} is not inside {} to {}", record.number, record.begin, record.end,
                         operation.begin, operation.end);
    });
    ++seen[record.kind];
  }
  return seen;
}

TEST_CASE("steps and waits lie inside their operation: posts, windows, links, lists, digests") {
  constexpr uint64_t kCount = 16 * 1024;
  for (const char* transport : {"auto", "tcp"}) {
    for (const char* check : {"off", "digest"}) {
      CAPTURE(transport);
      CAPTURE(check);
      const TempFolder folder;
      RankGroup ranks = ranks_over(transport, 3);
      ranks.config.check_results = check;
      ranks.config.trace_folder = folder.path();
      const std::string failed = run_processes(ranks, [&](Communicator& group) {
        auto* registered = static_cast<float*>(group.allocate(kCount * sizeof(float)));
        auto plain = ones(kCount), small = ones(10);
        std::vector<TensorRef> list;  // two tensors share a bucket
        for (float* tensor : {&small[0], &small[5]}) list.push_back({tensor, tensor, 5, DType::kFloat32});
        for (int i = 0; i < 20; ++i) {
          group.all_reduce(registered, registered, kCount, DType::kFloat32, Op::kMax);
          group.all_reduce(plain.data(), plain.data(), kCount, DType::kFloat32, Op::kMax);
          group.all_reduce(small.data(), small.data(), 2, DType::kFloat32, Op::kMax);
          group.all_reduce_many(list, Op::kMax);
          group.broadcast(plain.data(), kCount, DType::kFloat32, 1);
          group.barrier();
        }
        const Trace trace = read_trace(folder.path(), group.rank());
        std::map<TraceKind, int> seen = expect_spans_inside(trace);
        expect(trace.count(TraceKind::kEnd) >= 120, "too few records");
        expect(seen[TraceKind::kStep] >= 80 && seen[TraceKind::kWait] > 0,
               [&] { return fmt::format("{} steps and {} waits", seen[TraceKind::kStep], seen[TraceKind::kWait]); });
        group.deallocate(registered);
      });
      CHECK(failed == "");
    }
  }
}

TEST_CASE("the ring of records keeps the newest") {
  const TempFolder folder;
  RankGroup ranks{.world = 2};
  ranks.config.trace_folder = folder.path();
  ranks.config.trace_bytes = 64 * 1024;
  const std::string failed = run_threads(ranks, [&](Communicator& group) {
    auto values = ones(8);
    for (int i = 0; i < 2000; ++i) group.all_reduce(values.data(), values.data(), 8, DType::kFloat32, Op::kMax);
    const Trace trace = read_trace(folder.path(), group.rank());
    expect(trace.written > 1024 && trace.records.size() == 1024, fmt::format("{} written", trace.written));
    expect(trace.records.back().kind == TraceKind::kEnd && trace.records.back().number == 2001,
           "not the last call's end");
    group.barrier();
  });
  CHECK(failed == "");
}

TEST_CASE("messages are in the trace with peer, bytes and tag; a failure with its words") {
  const TempFolder folder;
  const std::string failed = run_threads({.world = 2}, [&](Communicator& group) {
    group.start_trace(folder.path());
    auto values = ones(100);
    if (group.rank() == 0) {
      group.send(values.data(), 100, DType::kFloat32, 1, 7);
    } else {
      group.recv(values.data(), 100, DType::kFloat32, 0, 7);
    }
    group.barrier();
    const Trace trace = read_trace(folder.path(), group.rank());
    uint64_t found = 0;
    for (const TraceRecord& record : trace.records) {
      if (record.kind != TraceKind::kMessage) continue;
      ++found;
      expect(record.peer == 1 - group.rank() && record.bytes == 400 && record.number == 7, "another message");
      expect(record.a == static_cast<uint8_t>(group.rank() == 0 ? TraceDirection::kOut : TraceDirection::kIn), "way");
    }
    expect(found == 1, fmt::format("{} messages", found));
    error_of([&] {
      group.barrier();  // the abort may meet the other rank here
      if (group.rank() == 0) group.abort("enough \"of it\"");
      while (true) group.barrier();
    });
    const Trace ended = read_trace(folder.path(), group.rank());
    expect(ended.says(R"("what":"failure","communicator":0)") && ended.says(R"(enough \"of it\")"), ended.text);
  });
  CHECK(failed == "");
}

TEST_CASE("a call that ends by itself with an error has its end in the trace and is no failure; a later one is") {
  const TempFolder folder;
  const std::string failed = run_threads({.world = 2}, [&](Communicator& group) {
    group.start_trace(folder.path());
    static_cast<void>(group.metrics());
    auto values = ones(100);
    values[7] = NAN;
    CallOptions coded, registered;
    coded.wire.format = WireFormat::kInt8;
    registered.algorithm = Algorithm::kRegistered;
    const auto reduce = [&](const CallOptions& options) {
      group.all_reduce(values.data(), values.data(), 100, DType::kFloat32, Op::kSum, options);
    };
    expect_error([&] { reduce(coded); }, ErrorCode::kNotFinite);
    expect_error([&] { reduce(registered); }, ErrorCode::kInvalid);
    const std::string before = group.metrics();
    expect(before.find("rondo_errors_total{") == std::string::npos, before);
    error_of([&] {
      group.barrier();
      if (group.rank() == 0) group.abort("enough");
      while (true) group.barrier();
    });
    const Trace trace = read_trace(folder.path(), group.rank());
    std::vector<uint8_t> codes;
    for (const TraceRecord& record : trace.records) {
      if (record.kind == TraceKind::kEnd) codes.push_back(record.a);
    }
    codes.resize(2);
    expect(codes == std::vector<uint8_t>{static_cast<uint8_t>(ErrorCode::kNotFinite),
                                         static_cast<uint8_t>(ErrorCode::kInvalid)},
           "the ends have other codes");
    expect(trace.says(R"("NO_QUORUM"])") && trace.says(R"("code":"ABORTED")"), trace.text);
    expect(!trace.says(R"("code":"NOT_FINITE")") && !trace.says(R"("code":"INVALID")"), trace.text);
    const std::string text = group.metrics();
    expect(value_of(text, fmt::format(R"(rondo_errors_total{{code="ABORTED",rank="{}"}})", group.rank())) == 1, text);
  });
  CHECK(failed == "");
}

TEST_CASE("a rank that is killed leaves its trace, with the operation that it was in") {
  const TempFolder folder;
  RankGroup ranks{.world = 3};
  ranks.config.trace_folder = folder.path();
  run_processes(ranks, [](Communicator& group) {
    auto values = ones(1000);
    for (int i = 0; i < 50; ++i) group.all_reduce(values.data(), values.data(), 1000, DType::kFloat32, Op::kMax);
    if (group.rank() == 1) kill(getpid(), SIGKILL);
    group.all_reduce(values.data(), values.data(), 1000, DType::kFloat32, Op::kMax);
  });
  for (int rank = 0; rank < 3; ++rank) {
    const Trace trace = read_trace(folder.path(), rank);
    CHECK(trace.count(TraceKind::kBegin) >= 50);
    CHECK(trace.says(R"("code":"PEER_LOST")") == (rank != 1));
  }
}

TEST_CASE("a folder that cannot be made is an error that names it") {
  Config config = RankGroup::quiet_config();
  config.trace_folder = "/proc/none/trace";
  CHECK_THROWS_WITH(Communicator::inproc(1, config), doctest::Contains("/proc/none/trace: No such file"));
  config.trace_folder = "";
  config.metrics = "/proc/none/";
  CHECK_THROWS_WITH(Communicator::inproc(1, config), doctest::Contains("RONDO_METRICS: /proc/none: "));
}

TEST_CASE("metrics count operations, bytes and durations") {
  const std::string failed = run_threads({.world = 2}, [](Communicator& group) {
    static_cast<void>(group.metrics());
    auto values = ones(1000);
    CallOptions options;
    options.algorithm = Algorithm::kRing;
    for (int i = 0; i < 3; ++i) {
      group.all_reduce(values.data(), values.data(), 1000, DType::kFloat32, Op::kMax, options);
    }
    const std::string text = group.metrics();
    const std::string rank = fmt::format("rank=\"{}\"}}", group.rank());
    const std::string peer = fmt::format("peer=\"{}\"", 1 - group.rank());
    expect(value_of(text, R"(rondo_operations_total{collective="all_reduce",algorithm="ring",)" + rank) == 3, text);
    expect(value_of(text, R"(rondo_operation_bytes_total{collective="all_reduce",)" + rank) == 12'000, text);
    expect(value_of(text, R"(rondo_operation_duration_seconds_count{collective="all_reduce",)" + rank) == 3, text);
    expect(value_of(text, R"(rondo_operation_duration_seconds_bucket{collective="all_reduce",le="+Inf",)" + rank) == 3,
           text);
    expect(value_of(text, "rondo_link_bytes_total{" + peer + R"(,direction="sent",)" + rank) == 12'000, text);
    expect(value_of(text, "rondo_link_bytes_total{" + peer + R"(,direction="received",)" + rank) == 12'000, text);
    group.barrier();
  });
  CHECK(failed == "");
}

TEST_CASE("metrics in a file") {
  Config config = RankGroup::quiet_config();
  const TempFolder folder;
  config.metrics = folder.path("prom/");
  {
    auto group = std::move(Communicator::inproc(1, config).front());
    group.barrier();
  }
  CHECK(file_text(folder.path("prom/rondo-rank-0.prom")).find("rondo_operations_total{") != std::string::npos);
}

TEST_CASE("a link under the name of a trace's or a metrics' file is not followed") {
  const TempFolder outside, folder;
  const std::string precious = outside.path("precious");
  std::ofstream(precious) << "precious words";
  for (const char* name : {"rank-0.rondo-trace.part", "rondo-rank-0.prom.part"}) {
    std::filesystem::create_symlink(precious, folder.path(name));
  }
  Config config = RankGroup::quiet_config();
  config.metrics = folder.path() + "/";
  config.trace_folder = folder.path();
  std::move(Communicator::inproc(1, config).front()).barrier();
  CHECK(file_text(precious) == "precious words");
  CHECK(read_trace(folder.path(), 0).count(TraceKind::kBegin) == 1);
}

}  // namespace
}  // namespace rondo::testing
