#include "tests/life/generate.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/life/lines.h"
#include "tests/life/shape.h"
#include "tests/support/float_modes.h"

namespace rondo::life {
namespace {

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed), lines_(random_, life_) { life_.seed = seed; }

  Life make() {
    testing::Random& r = random_;
    life_.ranks = r.chance(25) ? Ranks::kThreads : Ranks::kProcesses;
    constexpr int kWorlds[] = {1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6};
    life_.world = kWorlds[r.below(std::size(kWorlds))];
    life_.rounds = r.chance(20) ? 5 : 1;
    life_.doors = {r.chance(30) ? "c" : "cpp"};
    if (life_.ranks == Ranks::kProcesses && r.chance(30)) life_.doors = {"cpp", "c"};
    if (life_.ranks == Ranks::kProcesses && life_.world > 1 && r.chance(10)) hosts();
    settings();
    const int threads = r.chance(70) ? 1 : static_cast<int>(r.between(2, 4));
    for (int t = 0; t < threads; ++t) life_.threads.push_back(thread(threads));
    return std::move(life_);
  }

 private:
  using Steps = std::vector<Step>;

  // Several ranks on one host, mostly: they share memory, and reach the others by TCP.
  void hosts() {
    const uint64_t hosts = random_.between(2, 3);
    for (int rank = 0; rank < life_.world; ++rank) life_.hosts.push_back(static_cast<int>(random_.below(hosts)));
  }

  void set(const std::string& name, const std::string& value) {
    life_.settings.push_back("RONDO_" + name + "=" + value);
  }

  // Default settings half of the time, but for the transport.
  void settings() {
    testing::Random& r = random_;
    if (life_.ranks == Ranks::kProcesses && r.chance(35)) set("TRANSPORT", "tcp");
    if (r.chance(50)) return;
    if (r.chance(40)) set("SLICE_BYTES", std::to_string(4096u << r.below(6)));
    if (r.chance(30)) set("SLICES_PER_CHUNK", std::to_string(r.between(1, 8)));
    if (r.chance(20)) set("CONNECTIONS", std::to_string(r.between(1, 3)));
    if (r.chance(30)) set("STAGING_BYTES", std::to_string(65536u << r.below(4)));
    if (r.chance(20)) set("MAILBOX_BYTES", std::to_string(65536u << r.below(5)));
    if (r.chance(30)) set("EAGER_BYTES", std::to_string(r.chance(30) ? 0 : 64u << r.below(12)));
    if (r.chance(30)) set("BUCKET_BYTES", std::to_string(r.chance(30) ? 0 : 4096u << r.below(8)));
    if (r.chance(30)) set("SPIN_US", std::to_string(r.chance(50) ? 0 : 5000));
    if (r.chance(20)) set("SINGLE_COPY", r.chance(50) ? "on" : "off");
    if (r.chance(20)) set("SHARED_STORES", r.chance(50) ? "cached" : "streamed");
    if (r.chance(10)) set("CHECK", r.chance(50) ? "digest" : "finite");
    if (r.chance(15)) set("CHECKSUM", "on");
    if (r.chance(10)) set("METRICS", "on");
    if (r.chance(10)) set("FOLD", "any");
  }

  Step repeat(Steps inner, uint64_t times) {
    Step step = Lines::named("repeat", "times", static_cast<int64_t>(times));
    step.inner = std::move(inner);
    return step;
  }

  // At most so often, with about 60 MB through all lines of all threads.
  uint64_t times_for(const Steps& body, uint64_t most, int threads) const {
    uint64_t bytes = 1;
    for (const Step& step : body) {
      const uint64_t size = step.has("dtype") ? dtype_bytes(dtype_named(step.words("dtype")[0])) : 1;
      for (const uint64_t count : step.numbers("counts")) bytes += count * size;
      bytes += static_cast<uint64_t>(step.number("count")) * size;
    }
    return std::min(most, std::max<uint64_t>(3, 60'000'000 / bytes / static_cast<uint64_t>(threads)));
  }

  // A handful of shapes, again and again.
  void training(Steps& steps, const Known& group, int threads) {
    Steps body;
    const uint64_t shapes = random_.between(1, 5);
    for (uint64_t i = 0; i < shapes; ++i) body.push_back(lines_.collective(group));
    const uint64_t times = times_for(body, random_.chance(50) ? 40 : 400, threads);
    if (random_.chance(25) && group.members > 1) body.push_back(lines_.exchange(group));
    if (random_.chance(15)) body.push_back(lines_.sparse(group));
    if (random_.chance(25)) asynchronous(body);
    steps.push_back(repeat(std::move(body), times));
  }

  // Gives some of these calls a slot, and ends them behind.
  void asynchronous(Steps& body) {
    constexpr const char* kEnds[] = {"wait", "poll", "drop_work"};
    Steps ends;
    int64_t slot = 0;
    for (Step& step : body) {
      if (!is_collective(step.verb) || random_.chance(30)) continue;
      step.with("slot", ++slot);
      if (random_.chance(30)) step.with("end", 1);
      ends.push_back(Lines::named(lines_.one_of(kEnds), "slot", slot));
    }
    body.insert(body.end(), ends.begin(), ends.end());
  }

  // Calls whose results must have equal bits, in groups of the same members: interleaved, and one kind before another.
  void twins(Steps& steps, const Known& parent, int threads) {
    const Known group{++newest_, parent.members};
    const Steps calls = lines_.equal_calls(group);
    const uint64_t groups = random_.between(2, 4), times = times_for(calls, 120, threads);
    for (uint64_t g = 0; g < groups; ++g) {
      Steps body = calls;
      for (size_t i = body.size(); i > 1; --i) std::swap(body[i - 1], body[random_.below(i)]);
      steps.push_back(Lines::named("split", "group", parent.number).with("as", group.number));
      if (random_.chance(50)) {
        steps.push_back(repeat(std::move(body), times));
      } else {
        for (Step& call : body) steps.push_back(repeat({std::move(call)}, times));
      }
    }
  }

  Known make_group(Steps& steps, const Known& parent) {
    testing::Random& r = random_;
    const auto world = static_cast<uint64_t>(life_.world);
    Step step = Lines::named("split", "group", parent.number);
    step.with("as", ++newest_);
    int members = life_.world;
    if (r.chance(50)) {
      step.with("color",
                Lines::list_of(world, [&](uint64_t) { return r.chance(10) ? "-1" : std::to_string(r.below(2)); }));
      step.with("key", Lines::list_of(world, [&](uint64_t) { return std::to_string(r.below(5)); }));
      members = 1;
    }
    if (r.chance(30)) {
      step = Lines::named("new_group", "group", parent.number).with("as", newest_);
      const uint64_t first = r.below(world);
      members = static_cast<int>(r.between(1, world));
      step.with("ranks", Lines::list_of(static_cast<uint64_t>(members),
                                        [&](uint64_t m) { return std::to_string((first + m) % world); }));
    }
    steps.push_back(step);
    return {newest_, members};
  }

  // Groups that come and go: a few calls in each.
  void churn(Steps& steps, const Known& parent) {
    Steps body;
    const Known group = make_group(body, parent);
    const uint64_t calls = random_.between(1, 3);
    for (uint64_t i = 0; i < calls; ++i) {
      body.push_back(random_.chance(40) && group.members > 1 ? lines_.exchange(group) : lines_.collective(group));
    }
    body.push_back(Lines::named("drop", "group", group.number));
    steps.push_back(repeat(std::move(body), random_.between(2, life_.world > 3 ? 20 : 60)));
  }

  Step odd_call(const Known& group) {
    constexpr const char* kOther[] = {"split", "sparse", "call", "call", "attach"};
    const std::string kind = lines_.one_of(kOther);
    if (kind == "call") return lines_.collective(group);
    Step step = Lines::named(kind, "group", group.number);
    if (kind == "sparse") step.with("count", static_cast<int64_t>(random_.between(1, 3000)));
    return step;
  }

  void disagree(Steps& steps, const Known& parent) {
    const Known group = make_group(steps, parent);
    Step step = Lines::named("disagree", "group", group.number).with("odd", lines_.rank());
    step.inner = {odd_call(group), odd_call(group)};
    // An all_gather of as many bytes as an exchange of the library's own.
    if (random_.chance(40)) {
      constexpr int kSizes[] = {8, 16, 24, 32, 48};
      Step gather = Lines::named("all_gather", "group", group.number);
      gather.with("count", kSizes[random_.below(std::size(kSizes))] / 4).with("dtype", "int32");
      if (random_.chance(50)) gather.with("dtype", "uint8").with("count", gather.number("count") * 4);
      if (random_.chance(30)) gather.with("dtype", "uint64").with("count", static_cast<int64_t>(random_.between(1, 6)));
      step.inner[random_.below(2)] = gather;
    }
    const Step &a = step.inner[0], &b = step.inner[1];
    if (a.verb != b.verb || a.word("count") != b.word("count")) steps.push_back(step);
  }

  void departure(Steps& steps, const Known& parent) {
    const Known group = make_group(steps, parent);
    steps.push_back(
        Lines::named(random_.chance(50) ? "abort" : "leave", "group", group.number).with("by", lines_.rank()));
  }

  Step hostile() {
    constexpr const char* kWhat[] = {"sparse", "memory", "sockets"};
    Step step = Lines::named("hostile", "by", lines_.rank());
    step.with("group", 0).with("what", lines_.one_of(kWhat)).with("salt", static_cast<int64_t>(random_.below(10000)));
    return step.with("times", static_cast<int64_t>(random_.between(1, 2000)));
  }

  void part(Steps& steps, std::vector<Known>& groups, int threads) {
    testing::Random& r = random_;
    const Known group = groups[r.below(groups.size())];
    const uint64_t draw = r.below(100);
    if (draw < 44) return training(steps, group, threads);
    if (draw < 52) return twins(steps, group, threads);
    if (draw < 60) return churn(steps, group);
    if (draw < 68) return groups.push_back(make_group(steps, group));
    if (draw < 76) return steps.push_back(repeat({lines_.batch(group)}, r.between(1, 20)));
    if (draw < 82) return disagree(steps, group);
    if (draw < 86) return departure(steps, group);
    if (draw < 90) return steps.push_back(repeat({lines_.dist_opt(group)}, r.between(1, 3)));
    if (draw < 92) {
      steps.push_back(lines_.mistake(group));
      return steps.push_back(lines_.collective(group));
    }
    if (draw < 94) return steps.push_back(Step{"free", {}, {}, 0});
    if (draw < 97) return steps.push_back(lines_.crowd(group));
    steps.push_back(repeat({lines_.shift(group)}, r.between(1, 30)));
    steps.push_back(lines_.exchange(group));
    steps.push_back(Lines::named("collect", "group", group.number).with("name", "d" + std::to_string(r.below(3))));
  }

  // The job loses a rank, or takes in new ones. Across hosts only a majority goes on.
  void next_epoch(Steps& steps, std::vector<Known>& groups) {
    int members = groups[0].members;
    if (random_.chance(40)) steps.push_back(commit());
    if (members > (life_.hosts.empty() ? 1 : 2) && (members > 5 || random_.chance(60))) {
      if (groups.size() == 1 && random_.chance(40)) groups.push_back(make_group(steps, groups[0]));
      steps.push_back(lines_.loss());
      if (groups.size() > 1 && random_.chance(60)) steps.back().with("beside", groups.back().number);
      --members;
    } else {
      const auto newcomers = static_cast<int>(random_.between(1, 2));
      steps.push_back(Lines::named("grow", "newcomers", newcomers));
      members += newcomers;
    }
    groups = {{0, members}};
    if (random_.chance(40)) steps.push_back(commit());
  }

  Step floats() {
    const auto mode = [&](uint64_t) { return std::to_string(random_.below(testing::kFloatModes)); };
    return Lines::named("floats", "group", 0).with("mode", Lines::list_of(static_cast<uint64_t>(life_.world), mode));
  }

  Step commit() { return Lines::named("commit", "skip", static_cast<int64_t>(random_.below(3))); }

  Steps thread(int threads) {
    testing::Random& r = random_;
    Steps steps;
    newest_ = 0;
    std::vector<Known> groups = {{0, life_.world}};
    const uint64_t parts = r.between(1, threads > 1 ? 3 : 6);
    if (r.chance(25)) steps.push_back(floats());
    const bool elastic = threads == 1 && life_.ranks == Ranks::kProcesses && life_.world > 1 && r.chance(25);
    if (elastic) life_.rounds = 1;
    for (uint64_t i = 0; i < parts; ++i) {
      part(steps, groups, threads);
      if (elastic && r.chance(60)) next_epoch(steps, groups);
    }
    if (elastic || threads > 1 || life_.ranks != Ranks::kProcesses || !r.chance(10)) return steps;
    life_.rounds = 1;  // the last step of a life
    steps.push_back(r.chance(50) ? hostile() : Lines::named("kill", "by", lines_.rank()));
    return steps;
  }

  testing::Random random_;
  Life life_;
  Lines lines_;
  int newest_ = 0;  // number of the newest group of this thread
};

}  // namespace

Life generate(uint64_t seed) { return Generator(seed).make(); }

}  // namespace rondo::life
