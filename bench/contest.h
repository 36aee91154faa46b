#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/entrant.h"
#include "bench/run_answers.h"

namespace rondo::bench {

// Libraries answer one question in runs of several turns. In a turn every setting of every library is asked once, and
// of a run's turns the fastest counts: a virtual machine's cores may be near each other now and far apart a second
// later, a factor of two and more, and who meets which shall not be chance. The first run asks all settings; later
// ones, and its own later turns, those that have a chance left at that size, and then libraries with fewer settings as
// often as those with more: the fastest of four answers would beat the fastest of one by chance alone.
class Contest final : public RunAnswers {
 public:
  using OnProgress = std::function<void(const std::string&)>;  // "openmpi, ring"

  // The first library is ours. program_seconds: what one program may take; then it is ended, and left out. settings:
  // those of somebody outside the contest (the machine) with whom the libraries are compared, too.
  Contest(Question question, const std::vector<std::string>& libraries, const PeerPlaces& places, int cores,
          double program_seconds, size_t settings = 1);

  // Answers are of a new run from here on.
  void begin_run();
  // A turn of the run that was begun last. Forks; see Children.
  void take_turn(const OnProgress& on_progress);

  const Question& question() const override { return question_; }
  // Right answers of a library in the run that was begun last.
  size_t answers(const std::string& library, uint64_t bytes) const;
  size_t runs() const override { return runs_.size(); }
  std::optional<Row> best(size_t run, const std::string& library, uint64_t bytes) const override;
  // best() over all runs: median time; the row's other figures are of the run in the middle.
  std::optional<Row> median(const std::string& library, uint64_t bytes) const;
  const std::vector<std::string>& libraries() const { return libraries_; }
  std::vector<uint64_t> sizes() const;  // of all answers

  struct Tried {
    Entrant entrant;
    std::vector<std::string> sizes;  // those of the entrant's that it is still asked
    bool alone = false;              // one size a program: the entrant says so, or a program of several has failed
    std::string status;              // "" while all is well, else why there are no (more) answers for some sizes
  };
  const std::vector<Tried>& tried() const { return tried_; }
  std::string why_missing(const std::string& library) const override;

 private:
  struct Answer {
    const Tried* tried;
    std::string size;  // as it was asked
    Row row;
  };
  using Answers = std::vector<Answer>;
  using Sizes = std::vector<std::string>;
  using Settings = std::map<std::pair<std::string, std::string>, std::vector<Tried*>>;  // by library and size
  void ask(Tried& tried, const Sizes& sizes, Answers& answers);
  void ask_all(Tried& tried, const Sizes& sizes, Answers& answers, const OnProgress& on_progress);
  Settings with_a_chance();
  void drop_slower_than(double factor);

  Question question_;
  std::vector<std::string> libraries_;
  double program_seconds_;
  size_t outside_settings_;
  std::vector<Tried> tried_;  // not resized after the constructor: answers point at it
  std::map<std::string, std::string> missing_;
  std::vector<Answers> runs_;
};

}  // namespace rondo::bench
