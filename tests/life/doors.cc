#include "tests/life/doors.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "tests/life/shape.h"

namespace rondo::life {
namespace {

// Calls that torch.distributed has not.
const std::set<std::string, std::less<>> kNotTorchs = {"scan",     "exscan",  "gather_v", "scatter_v", "sparse", "bad",
                                                       "disagree", "hostile", "lose",     "grow",      "commit"};

bool is_torchs(const Step& step) {
  const std::string op = step.word("op");
  return kNotTorchs.count(step.verb) == 0 && op != "land" && op != "lor" && op != "lxor";
}

// torch makes groups of the job alone, where it names them alike on all ranks, and in the order of the job; those that
// are no members take part.
bool make_group_for_torch(Step& step, size_t thread, int world) {
  if (thread != 0 || step.number("group") != 0) return false;
  if (step.verb == "new_group") {
    std::vector<std::string> colors(static_cast<size_t>(world), "-1");
    for (const uint64_t rank : step.numbers("ranks")) colors[rank % colors.size()] = "0";
    step.verb = "split";
    step.with("color", join_words(colors, ","));
  }
  step.values.erase("ranks");
  step.values.erase("key");
  return true;
}

void say_as_torch(Step& step) {
  for (const char* key : {"algorithm", "wire", "stochastic", "residual", "user", "synchronous", "probe"}) {
    step.values.erase(key);
  }
  if (step.verb == "all_reduce_many") step.with("dtype", step.words("dtype")[0]);  // lists of one type
  // Registered memory may be short on a rank, whose bits may then be of another order.
  if ((step.word("in") + step.word("out")).find('r') != std::string::npos) step.with("bits", 0);
  // No messages of any tag.
  if (step.word("recv") == "any") step.with("recv", "tag");
  if (step.word("recv") == "source") step.with("recv", "exact");
}

// False: an API of this life has no call for this line.
bool adapt(Step& step, const Life& life, size_t thread) {
  const bool python = std::any_of(life.doors.begin(), life.doors.end(), is_of_python);
  if (step.verb == "crowd" && python) return false;
  if (step.verb == "hostile" && is_of_python(life.door(static_cast<int>(step.number("by"))))) return false;
  if (life.doors[0] != "torch") return true;
  if (!is_torchs(step)) return false;
  if (step.verb == "split" || step.verb == "new_group") return make_group_for_torch(step, thread, life.world);
  say_as_torch(step);
  return true;
}

void adapt(std::vector<Step>& steps, const Life& life, size_t thread) {
  std::vector<Step> kept;
  for (Step& step : steps) {
    adapt(step.inner, life, thread);
    if (adapt(step, life, thread)) kept.push_back(std::move(step));
  }
  steps = std::move(kept);
}

}  // namespace

bool is_of_python(const std::string& door) { return door != "cpp" && door != "c"; }

Life by_doors(Life life, const std::vector<std::string>& doors) {
  life.ranks = Ranks::kProcesses;
  life.doors = doors;
  for (size_t thread = 0; thread < life.threads.size(); ++thread) adapt(life.threads[thread], life, thread);
  return life;
}

}  // namespace rondo::life
