#include "bench/bars.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/bar_questions.h"
#include "bench/bar_ratios.h"

namespace rondo::bench {
namespace {

Judged judged(Bar::Kind kind, double bound, const std::vector<double>& ratios) {
  Bar bar{"tcp", "", "plain", 2, 64u << 20, Against::kRawTcp, kind, bound};
  return {bar, ratios, ratios.empty() ? "no peer" : ""};
}

TEST_CASE("bars: the median of the runs decides, and a missing peer is not judged") {
  const Judged share = judged(Bar::Kind::kAtLeast, 0.85, {0.84, 0.86, 0.9, 0.84, 0.84});
  CHECK(judge(judged(Bar::Kind::kAtLeast, 0.85, {0.2, 0.86, 0.9, 0.84, 0.9})) == Verdict::kHolds);
  CHECK(judge(share) == Verdict::kMissed);
  const Judged time = judged(Bar::Kind::kAtMost, 1.5, {1.5, 1.5, 9, 1.4, 1.6});
  CHECK(judge(time) == Verdict::kHolds);
  const Judged missing = judged(Bar::Kind::kAtMost, 1.0, {});
  CHECK(judge(missing) == Verdict::kNotJudged);
  CHECK(bars_exit_code({time, missing}) == 0);
  CHECK(bars_exit_code({time, missing, share}) == 1);
  CHECK(judged_text(time).find("HOLDS") == 0);
  CHECK(judged_text(time).find("median 1.500, at most 1.50") != std::string::npos);
  CHECK(judged_text(missing) == "NOT JUDGED tcp plain, 2 ranks, 64 MiB, share of raw TCP: no peer");
}

TEST_CASE("the table of bars: each promise once, and all worlds of a line") {
  const std::vector<Bar> bars = all_bars();
  for (size_t i = 0; i < bars.size(); ++i) {
    for (size_t j = 0; j < i; ++j) CHECK(bar_name(bars[i]) != bar_name(bars[j]));
  }
  int eight = 0;
  for (const Bar& bar : bars) eight += bar.world == 8;
  CHECK(eight == 8);  // four sizes, over shared memory and over TCP
}

// --- who is asked what

using Names = std::vector<std::string>;

Bar bar_of(const char* transport, const char* congestion, const char* buffers, int world) {
  Bar bar;
  bar.transport = transport;
  bar.congestion = congestion;
  bar.buffers = buffers;
  bar.world = world;
  return bar;
}

const BarQuestion& find(const std::vector<BarQuestion>& questions, const Bar& bar) {
  const auto found = std::find_if(questions.begin(), questions.end(),
                                  [&](const auto& q) { return q.question == question_of(bar, q.question.seconds); });
  REQUIRE(found != questions.end());
  return *found;
}

TEST_CASE("all bars: each question once, of whom the bars compare") {
  const std::vector<Bar> bars = all_bars();
  const std::vector<BarQuestion> questions = questions_of(bars, 0.5);
  for (size_t i = 0; i < questions.size(); ++i) {
    CHECK(questions[i].question.seconds == 0.5);
    CHECK(questions[i].libraries.front() == "rondo");
    for (size_t j = 0; j < i; ++j) CHECK_FALSE(questions[i].question == questions[j].question);
  }
  for (const Bar& bar : bars) {
    Bar of_peers = bar;
    of_peers.buffers = "plain";  // registered buffers are compared with what peers do with theirs
    const Names& libraries = find(questions, of_peers).libraries;
    for (const std::string& peer : peers_of(bar)) CHECK(std::count(libraries.begin(), libraries.end(), peer) == 1);
    for (const std::string& peer : needed_peers_of(bar)) {
      CHECK(std::count(libraries.begin(), libraries.end(), peer) == 1);
    }
  }
}

TEST_CASE("nobody is asked in vain, and raw TCP's settings count where it is compared with") {
  const std::vector<BarQuestion> questions = questions_of(all_bars(), 1);
  const Names mpis{"rondo", "openmpi", "mpich", "intelmpi"};
  const Names gloos{"rondo", "gloo", "gloo-sync", "gloo-busy"};
  const Names all{"rondo", "openmpi", "mpich", "intelmpi", "gloo", "gloo-sync", "gloo-busy"};
  const BarQuestion& shm = find(questions, bar_of("shm", "", "plain", 8));
  CHECK(shm.libraries == mpis);
  CHECK(shm.settings == 1);
  CHECK(find(questions, bar_of("shm", "", "registered", 2)).libraries == Names{"rondo"});
  CHECK(find(questions, bar_of("tcp", "reno", "plain", 4)).libraries == all);
  const BarQuestion& two = find(questions, bar_of("tcp", "", "plain", 2));
  CHECK(two.libraries == gloos);
  CHECK(two.settings == 3);
  const BarQuestion& four = find(questions, bar_of("tcp", "", "plain", 4));
  CHECK(four.libraries == Names{"rondo"});
  CHECK(four.settings == 3);
}

// --- what follows of the answers

constexpr uint64_t kLarge = 64u << 20;

// Microseconds, and CPU seconds a GB, of a library in a run.
struct Figures {
  double time_us = 0;
  std::optional<double> cpu = {};
};

class FakeAnswers final : public RunAnswers {
 public:
  using Run = std::map<std::string, Figures>;  // by library; of kLarge

  FakeAnswers(Question question, std::vector<Run> runs, std::map<std::string, std::string> missing = {})
      : question_(std::move(question)), runs_(std::move(runs)), missing_(std::move(missing)) {}

  const Question& question() const override { return question_; }
  size_t runs() const override { return runs_.size(); }
  std::optional<Row> best(size_t run, const std::string& library, uint64_t bytes) const override {
    const auto found = runs_.at(run).find(library);
    if (bytes != kLarge || found == runs_.at(run).end()) return std::nullopt;
    Row row;
    row.library = library;
    row.bytes = bytes;
    row.time_us = found->second.time_us;
    row.cpu_s_per_gb = found->second.cpu;
    row.busbw_gbps = static_cast<double>(bytes) / row.time_us / 1e3;
    return row;
  }
  std::string why_missing(const std::string& library) const override {
    const auto found = missing_.find(library);
    return found == missing_.end() ? "" : found->second;
  }

 private:
  Question question_;
  std::vector<Run> runs_;
  std::map<std::string, std::string> missing_;
};

using Ratios = std::vector<double>;

Bar large(const std::string& transport, Against against, const std::string& buffers = "plain") {
  return {transport, "", buffers, 2, kLarge, against, Bar::Kind::kAtMost, 1};
}

Judged judge_runs(const Bar& bar, const std::vector<FakeAnswers>& answers,
                  const std::vector<MachineFigures>& machine = {}) {
  std::vector<const RunAnswers*> all;
  for (const FakeAnswers& each : answers) all.push_back(&each);
  return rondo::bench::judge_runs(bar, all, machine);
}

TEST_CASE("a ratio a run, to the peer that was the fastest in it") {
  const Bar bar = large("shm", Against::kBestMpi);
  const FakeAnswers answers(question_of(bar, 1), {{{"rondo", {6}}, {"openmpi", {8}}, {"mpich", {12}}},
                                                  {{"rondo", {3}}, {"openmpi", {9}}, {"intelmpi", {4}}}});
  const Judged judged = judge_runs(bar, {answers});
  CHECK(judged.missing.empty());
  CHECK(judged.ratios == Ratios{0.75, 0.75});
}

TEST_CASE("registered buffers are compared with the peers' plain ones") {
  const Bar plain = large("shm", Against::kBestMpi);
  const Bar registered = large("shm", Against::kBestMpi, "registered");
  const FakeAnswers theirs(question_of(plain, 1), {{{"rondo", {6}}, {"mpich", {8}}}});
  const FakeAnswers ours(question_of(registered, 1), {{{"rondo", {2}}}});
  CHECK(judge_runs(registered, {theirs, ours}).ratios == Ratios{0.25});
  CHECK(judge_runs(plain, {theirs, ours}).ratios == Ratios{0.75});
  CHECK(judge_runs(registered, {ours}).missing == "openmpi: not asked");
}

TEST_CASE("the best of some MPIs is no bar; who ran out of time was asked, and Gloo's bars need Gloo alone") {
  const Bar mpis = large("tcp", Against::kBestPeer);
  const Bar gloo = large("tcp", Against::kGloo);
  const FakeAnswers::Run run{{"rondo", {6}}, {"openmpi", {8}}, {"gloo", {4}}};
  const auto with = [&](const std::string& library, const std::string& why) {
    return std::vector<FakeAnswers>{{question_of(mpis, 1), {run}, {{library, why}}}};
  };
  CHECK(judge_runs(mpis, with("mpich", "no mpiexec")).missing == "mpich: no mpiexec");
  CHECK(judge(judge_runs(mpis, with("mpich", "no mpiexec"))) == Verdict::kNotJudged);
  CHECK(judge_runs(mpis, with("mpich", "64M: did not finish in 40 s")).ratios == Ratios{1.5});
  CHECK(judge_runs(mpis, with("gloo", "not built")).ratios == Ratios{1.5});
  CHECK(judge_runs(gloo, with("mpich", "no mpiexec")).ratios == Ratios{1.5});
  CHECK(judge_runs(gloo, with("gloo", "not built")).missing == "gloo: not built");
  CHECK(judge_runs(gloo, with("rondo", "wrong")).missing == "rondo: wrong");
}

TEST_CASE("CPU time is compared with the fastest peer's, not with the least") {
  const Bar bar = large("shm", Against::kPeerCpu);
  const FakeAnswers answers(question_of(bar, 1), {{{"rondo", {6, 3.0}}, {"openmpi", {8, 4.0}}, {"mpich", {9, 1.0}}},
                                                  {{"rondo", {6, 3.0}}, {"openmpi", {8}}},  // it does not say
                                                  {{"rondo", {6}}, {"openmpi", {8, 4.0}}},
                                                  {{"rondo", {6, 3.0}}, {"mpich", {7, 1.5}}, {"openmpi", {8, 4.0}}}});
  CHECK(judge_runs(bar, {answers}).ratios == Ratios{0.75, 2});
}

TEST_CASE("a run in which somebody is missing has no ratio, and none at all is not judged") {
  const Bar bar = large("shm", Against::kBestMpi);
  const FakeAnswers::Run both{{"rondo", {6}}, {"openmpi", {8}}}, ours{{"rondo", {6}}}, theirs{{"openmpi", {8}}};
  CHECK(judge_runs(bar, {{question_of(bar, 1), {both, ours, theirs}}}).ratios == Ratios{0.75});
  CHECK(judge_runs(bar, {{question_of(bar, 1), {ours, theirs}}}).missing == "no run has both figures");
  Bar reno = bar;
  reno.congestion = "reno";
  CHECK(judge_runs(reno, {{question_of(bar, 1), {both}}}).missing.find("no network namespace") == 0);
}

TEST_CASE("the machine: shares of rates and of a fused pass, a time to an exchange's, each of its own run") {
  const FakeAnswers tcp(question_of(large("tcp", Against::kRawTcp), 1),
                        {{{"rondo", {kLarge / 3e3}}}, {{"rondo", {kLarge / 4e3}}}});  // 3 and 4 GB/s
  const FakeAnswers shm(question_of(large("shm", Against::kFusedPass, "registered"), 1), {{{"rondo", {8}}}});
  std::vector<MachineFigures> machine(2);
  machine[0] = {{{2, 4.0}}, {{2, 6.0}}, 10, 6};
  machine[1] = {{{2, 5.0}}, {{2, 4.0}}, 20, 6};
  const auto near = [](const Ratios& a, const Ratios& b) {
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]));
  };
  near(judge_runs(large("tcp", Against::kRawTcp), {tcp}, machine).ratios, {0.75, 0.8});
  near(judge_runs(large("tcp", Against::kRawWalk), {tcp}, machine).ratios, {0.5, 1.0});
  near(judge_runs(large("tcp", Against::kExchange), {tcp}, machine).ratios, {kLarge / 3e4, kLarge / 8e4});
  near(judge_runs(large("shm", Against::kFusedPass, "registered"), {shm}, machine).ratios, {0.75});
}

TEST_CASE("nobody is faster than raw TCP: such a share is not judged") {
  const Bar bar = large("tcp", Against::kRawTcp);
  const FakeAnswers tcp(question_of(bar, 1), {{{"rondo", {kLarge / 4e3}}}});
  const auto at = [&](double gbps) { return judge_runs(bar, {tcp}, {{{{2, gbps}}, {}, 1, 1}}); };
  CHECK(at(3.9).ratios.size() == 1);
  CHECK(at(3.5).missing == "a share of 1.14: the limit is wrong");
  CHECK(judge(at(3.5)) == Verdict::kNotJudged);
}

}  // namespace
}  // namespace rondo::bench
