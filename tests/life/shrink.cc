#include "tests/life/shrink.h"

#include <functional>
#include <iostream>

namespace rondo::life {
namespace {

using Clock = std::chrono::steady_clock;

// What must stay the same: how it ends, and of a fault the words without numbers.
std::string kind_of(const Verdict& verdict) {
  std::string kind = outcome_name(verdict.outcome);
  if (verdict.outcome != Outcome::kFault) return kind;
  const std::string line = verdict.text.substr(0, verdict.text.find('\n'));
  const size_t end = line.find("): ");
  for (char c : line.substr(end == std::string::npos ? 0 : end, 40)) {
    if (c < '0' || c > '9') kind += c;
  }
  return kind.substr(0, 25);
}

class Shrinker {
 public:
  Shrinker(const Life& life, const Verdict& verdict, const PlayerOptions& options, int seconds)
      : life_(life), options_(options), kind_(kind_of(verdict)), end_(Clock::now() + std::chrono::seconds(seconds)) {
    options_.stacks = false;
    options_.patience = std::max(std::chrono::seconds(3), options.patience / 2);
  }

  Life run() {
    // How often a failing life fails says how often one is played before it counts as right.
    int failed = 0, played = 0;
    for (; played < 6 && failed < 2; ++played) failed += fails(life_, 1) ? 1 : 0;
    if (failed == 0) return life_;
    tries_ = failed == 2 ? std::max(1, played - 1) : 12;
    for (bool smaller = true; smaller && in_time();) {
      smaller = false;
      for (const auto reduce : {&Shrinker::drop_threads, &Shrinker::drop_steps, &Shrinker::lighten,
                                &Shrinker::drop_settings, &Shrinker::drop_keys}) {
        smaller = (this->*reduce)() || smaller;
      }
    }
    return life_;
  }

 private:
  bool in_time() const { return Clock::now() < end_; }
  bool fails(const Life& life, int tries) {
    for (int i = 0; i < tries && in_time(); ++i) {
      Verdict verdict = play(parse(print(life)), options_);
      if (verdict.outcome != Outcome::kRight && kind_of(verdict) == kind_) return true;
    }
    return false;
  }
  bool take(Life smaller) {
    if (smaller == life_ || !in_time() || !fails(smaller, tries_)) return false;
    life_ = std::move(smaller);
    return true;
  }

  bool drop_threads() {
    bool any = false;
    for (size_t t = life_.threads.size(); t-- > 0 && life_.threads.size() > 1;) {
      Life smaller = life_;
      smaller.threads.erase(smaller.threads.begin() + static_cast<ptrdiff_t>(t));
      any = take(std::move(smaller)) || any;
    }
    return any;
  }

  // The lists of steps, by where they are: the thread, then the step of each list above.
  using Path = std::vector<size_t>;
  static std::vector<Step>& list_at(Life& life, const Path& path) {
    std::vector<Step>* list = &life.threads[path[0]];
    for (size_t i = 1; i < path.size(); ++i) list = &(*list)[path[i]].inner;
    return *list;
  }
  static void all_lists(const std::vector<Step>& list, const Path& path, std::vector<Path>& paths) {
    paths.push_back(path);
    for (size_t i = 0; i < list.size(); ++i) {
      Path inner = path;
      inner.push_back(i);
      if (list[i].verb != "disagree" && !list[i].inner.empty()) all_lists(list[i].inner, inner, paths);
    }
  }
  std::vector<Path> lists() const {
    std::vector<Path> paths;
    for (size_t t = 0; t < life_.threads.size(); ++t) all_lists(life_.threads[t], {t}, paths);
    return paths;
  }

  bool drop_steps() {
    bool any = false;
    const std::vector<Path> paths = lists();
    for (size_t p = paths.size(); p-- > 0;) {  // inner lists first would keep paths right: outer ones come first in it
      for (size_t part = list_at(life_, paths[p]).size(); part > 0; part /= 2) {
        for (size_t first = 0; first < list_at(life_, paths[p]).size() && in_time();) {
          Life smaller = life_;
          std::vector<Step>& list = list_at(smaller, paths[p]);
          list.erase(list.begin() + static_cast<ptrdiff_t>(first),
                     list.begin() + static_cast<ptrdiff_t>(std::min(list.size(), first + part)));
          if (take(std::move(smaller))) {
            any = true;
          } else {
            first += part;
          }
        }
      }
    }
    return any;
  }

  bool each_step(const std::function<bool(Step&)>& change) {
    bool any = false;
    for (const Path& path : lists()) {
      for (size_t i = 0; i < list_at(life_, path).size(); ++i) {
        Life smaller = life_;
        while (in_time() && change(list_at(smaller, path)[i]) && take(smaller)) any = true;
      }
    }
    return any;
  }

  bool lighten() {
    bool any = each_step([](Step& step) {
      if (step.verb != "repeat" || step.number("times") < 2) return false;
      step.with("times", step.number("times") * 2 / 3);
      return true;
    });
    Life smaller = life_;
    smaller.rounds = 1;
    any = take(smaller) || any;
    for (smaller = life_; smaller.world > 2; smaller = life_) {
      --smaller.world;
      if (!take(smaller)) break;
      any = true;
    }
    return any;
  }

  bool drop_settings() {
    bool any = false;
    for (size_t i = life_.settings.size(); i-- > 0;) {
      Life smaller = life_;
      smaller.settings.erase(smaller.settings.begin() + static_cast<ptrdiff_t>(i));
      any = take(std::move(smaller)) || any;
    }
    return any;
  }

  bool drop_keys() {
    bool any = false;
    for (const char* key : {"place", "in", "out", "salt", "algorithm", "gap", "slot", "end", "residual", "stochastic",
                            "wire", "data", "op", "recv", "tensors", "root"}) {
      any = each_step([&](Step& step) { return step.values.erase(key) > 0; }) || any;
    }
    return any;
  }

  Life life_;
  PlayerOptions options_;
  std::string kind_;
  Clock::time_point end_;
  int tries_ = 1;
};

}  // namespace

void shrink_and_tell(const Life& life, const Verdict& verdict, const PlayerOptions& options, int seconds) {
  const Life small = Shrinker(life, verdict, options, seconds).run();
  std::cout << "--- the life, reduced\n" << print(small) << std::flush;
}

}  // namespace rondo::life
