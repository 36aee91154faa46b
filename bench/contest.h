#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/entrant.h"

namespace rondo::bench {

// Libraries answer one question in turn, several times over. The first run asks every setting of each; later runs only
// those that were near the best of their library at some size.
class Contest {
 public:
  // The first library is ours. program_seconds: what one program may take; then it is ended, and left out.
  Contest(Question question, const std::vector<std::string>& libraries, const PeerPlaces& places, int cores,
          double program_seconds);

  // Forks; see Children. on_progress: "openmpi, ring".
  void run_once(const std::function<void(const std::string&)>& on_progress);

  const Question& question() const { return question_; }
  size_t runs() const { return runs_.size(); }
  // The fastest right answer of a library in a run.
  std::optional<Row> best(size_t run, const std::string& library, uint64_t bytes) const;
  // The same over all runs: median time; the row's other figures are of the run in the middle.
  std::optional<Row> median(const std::string& library, uint64_t bytes) const;
  const std::vector<std::string>& libraries() const { return libraries_; }
  std::vector<uint64_t> sizes() const;  // of all answers

  struct Tried {
    Entrant entrant;
    std::string status;  // "" while all is well, else why there are no (more) answers
  };
  const std::vector<Tried>& tried() const { return tried_; }
  // Why a library has no answer; "" if it has one.
  std::string why_missing(const std::string& library) const;

 private:
  using Answers = std::vector<Row>;
  void ask(Tried& tried, Answers& answers);
  void narrow();

  Question question_;
  std::vector<std::string> libraries_;
  bool crowded_;  // who spins may take seconds for 8 bytes; the other sizes shall not be lost with it
  double program_seconds_;
  std::vector<Tried> tried_;
  std::map<std::string, std::string> missing_;
  std::vector<Answers> runs_;
};

}  // namespace rondo::bench
