#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace rondo {

// Symbolic values: what a piece of memory holds, as the fold that made it. Equal values are one number, so two ranks
// hold the same bits exactly if they hold the same number.
using Value = uint32_t;
inline constexpr Value kNoValue = 0xffffffffu;

// Hash-consed expressions: the same fold is made once, and comparing results is comparing numbers. Values live as
// long as this object; it only grows.
class Expressions {
 public:
  // An operand of a fold: a value, and by whose factor it is scaled as it is loaded.
  static constexpr int32_t kUnscaled = -1;
  static constexpr int32_t kCommonFactor = -2;  // one factor for all ranks; else the number of the rank whose it is
  struct Operand {
    Value value = kNoValue;
    int32_t scaled_by = kUnscaled;
    bool operator==(const Operand&) const = default;
  };

  Value leaf(int rank, uint32_t block);
  // A fold, rounded once. One operand neither scaled nor finished is that operand.
  Value fold(std::span<const Operand> operands, bool finish);
  // The bytes of a wire format that a value is coded as, and the value that these bytes are decoded as. Coding a
  // decoded value again is another value: no format is trusted to give the same bytes.
  Value encode(Value v) { return code(v, Code::kEncoded); }
  Value decode(Value encoded) { return code(encoded, Code::kDecoded); }
  // A value as the caller's memory keeps it, whose type may be narrower than that of folds; contributions are of it.
  Value narrow(Value v) { return is_leaf(v) ? v : code(v, Code::kNarrowed); }
  // Without the codes around it.
  Value plain(Value v) const {
    while (nodes_[v].code != Code::kNone) v = nodes_[v].operands[0].value;
    return v;
  }

  size_t size() const { return nodes_.size(); }  // all values are below it
  bool is_leaf(Value v) const { return nodes_[v].operands.empty(); }
  int rank_of(Value leaf) const { return nodes_[leaf].rank; }
  uint32_t block_of(Value leaf) const { return nodes_[leaf].block; }
  bool finished(Value v) const { return nodes_[v].finish; }
  std::span<const Operand> operands(Value v) const { return nodes_[v].operands; }
  // "finish((r0 + r1) + r2)"; scaled operands end in *, <...> is encoded, [...] decoded, {...} narrowed; cut at about
  // 200 characters.
  std::string text(Value v) const;

 private:
  enum class Code : uint8_t { kNone, kEncoded, kDecoded, kNarrowed };
  // One expression. Its operands have smaller numbers, so the graph has no cycles.
  struct Node {
    int rank = -1;
    uint32_t block = 0;
    bool finish = false;
    Code code = Code::kNone;
    std::vector<Operand> operands;
    bool operator==(const Node&) const = default;
  };
  Value intern(Node node);
  Value code(Value v, Code code) { return intern({-1, 0, false, code, {{v, kUnscaled}}}); }
  void append(Value v, std::string& text) const;

  std::vector<Node> nodes_;
  std::unordered_multimap<uint64_t, Value> by_hash_;
};

}  // namespace rondo
