#pragma once

#include <memory>

#include "ring/engine/call/call.h"
#include "ring/engine/run/island_memory.h"
#include "ring/engine/run/one_shot.h"
#include "ring/engine/run/run.h"

namespace rondo {

// Runs a one-shot plan by posts on the island's boards.
class BoardRun final : public Run {
 public:
  // `call` and `island` must outlive it.
  BoardRun(const CheckedCall& call, std::shared_ptr<const Plan> plan, IslandMemory& island);

  bool ready() override { return bound_ || attach(); }
  void start(const RunStart& start) override;
  bool progress(Pass) override { return run_.progress(); }
  bool done() const override { return run_.done(); }
  uint64_t moved() override { return run_.moved(); }
  RunFailure failure() override;

 private:
  bool attach();

  const CheckedCall& call_;
  std::shared_ptr<const Plan> plan_;  // shared with the cache
  IslandMemory& island_;
  Blocks blocks_;
  OneShotRun run_;
  bool bound_ = false;
};

}  // namespace rondo
