#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/life/door.h"
#include "tests/life/model.h"

namespace rondo::life {

inline constexpr std::byte kUnwritten{0xab};
inline constexpr size_t kGuardBytes = 64;

// A piece of memory that a call uses, with its guards, and what it must hold when the call is over.
struct Watched {
  struct Loose {  // elements that may lie within a bound of a cycle; without a cycle: anything
    size_t at;    // bytes, in `expected`
    uint64_t count;
    const Cycle* cycle;
    uint64_t phase;
    double bound;
  };
  std::string name;
  std::byte* begin = nullptr;  // of the guard before the data
  std::byte* data = nullptr;
  std::vector<std::byte> expected;  // from `begin` to the end of the guard behind
  std::vector<Loose> loose;
  DType dtype = DType::kUint8;

  size_t at(const std::byte* place) const { return static_cast<size_t>(place - begin); }
  // Its `bytes` and the guards must stay as they are now.
  void snapshot(size_t bytes) { expected.assign(begin, data + bytes + kGuardBytes); }
  // "" or what is wrong.
  std::string check();

 private:
  std::string difference() const;
};

// Memory of one thread of a rank, by the use that is made of it; kept from call to call, as a training does.
class Memory {
 public:
  explicit Memory(Group* job) : job_(job) {}
  ~Memory() { free_registered(); }
  Memory(const Memory&) = delete;

  // A use: the slot of the call, which call of its batch, 0: input, 1: output.
  using Use = std::tuple<int, int, int>;
  // `bytes` behind a guard, all unwritten. where: "p+3" of the text.
  Watched take(const Use& use, const std::string& where, size_t bytes,
               std::vector<std::unique_ptr<std::byte[]>>& fresh);
  // Floats of a line: zero at first.
  std::vector<float>& residual(int line, uint64_t count);
  void forget_residuals() { residuals_.clear(); }
  // That of uses whose slot is below this.
  void free_registered(int below = 1'000'000'000);

 private:
  struct Region {
    std::vector<std::byte> plain;
    std::byte* registered = nullptr;
    size_t size = 0;
  };
  std::byte* kept(const Use& use, bool registered, size_t size);

  Group* job_;
  std::map<std::pair<Use, bool>, Region> regions_;
  std::map<int, std::vector<float>> residuals_;
};

}  // namespace rondo::life
