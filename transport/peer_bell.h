#pragma once

namespace rondo {

// Wakes the progress engine of another rank, which may sleep. The ringing thread has stored (sequentially consistent)
// what the sleeper will look at; while it is awake that costs a load or two. Any thread, never blocks.
class PeerBell {
 public:
  virtual ~PeerBell() = default;
  virtual void ring() = 0;
};

}  // namespace rondo
