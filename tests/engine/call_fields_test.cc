// The fields of a call: each one that ranks must agree on changes the fingerprint and the words that a mismatch shows;
// one that is a rank's own changes neither; every one of them keeps a prepared call from serving another call.
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <type_traits>
#include <vector>

#include "ring/engine/call/call.h"

namespace rondo::testing {
namespace {

template <typename Value>
void change(Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    value = static_cast<Value>(static_cast<int>(value) + 1);
  } else if constexpr (std::is_same_v<Value, bool>) {
    value = !value;
  } else if constexpr (std::is_same_v<Value, std::chrono::milliseconds>) {
    value += std::chrono::milliseconds(1);
  } else if constexpr (std::is_same_v<Value, NumberBits>) {
    value = -value;  // another sign of zero is another number
  } else {
    value += 1;
  }
}

int fields() {
  int count = 0;
  CallFields none;
  visit_fields(none, [&](Mark, auto&) { ++count; });
  return count;
}

// The call with its field number `index` changed, and the field's mark.
Mark change_field(CheckedCall& call, int index) {
  int at = 0;
  Mark changed = Mark::kLocal;
  visit_fields(call, [&](Mark mark, auto& field) {
    if (at++ != index) return;
    change(field);
    changed = mark;
  });
  return changed;
}

// One of each shape: fields have no words where a call has no such thing (a barrier's dtype), and are as set there.
std::vector<CheckedCall> calls() {
  CheckedCall reduce;
  reduce.collective = Collective::kReduce;
  reduce.root = 1;
  reduce.count = 10;
  reduce.wire = WireFormat::kInt8;
  reduce.asked = reduce.algorithm = Algorithm::kRing;
  reduce.shared_counts = 7;
  reduce.scalar = 0.0;
  CheckedCall uneven = reduce;
  uneven.uneven = true;
  CheckedCall piece = reduce;
  piece.piece = 1;
  piece.pieces = 2;
  CheckedCall part = reduce;
  part.list = std::make_shared<const TensorList>(std::vector<TensorShape>{{10}, {20}});
  part.part = 1;
  part.parts = 2;
  CheckedCall any_op = reduce;
  any_op.any_op = true;
  return {reduce, uneven, piece, part, any_op};
}

}  // namespace

TEST_CASE("what ranks must agree on is in the fingerprint, what is a rank's own is not, and both keep calls apart") {
  for (const CheckedCall& call : calls()) {
    for (int index = 0; index < fields(); ++index) {
      CAPTURE(index);
      CheckedCall changed = call;
      const Mark mark = change_field(changed, index);
      CHECK(!(static_cast<const CallFields&>(changed) == static_cast<const CallFields&>(call)));
      const uint64_t kind = kind_of(1, call), other = kind_of(1, changed);
      CHECK((agreed_bits(fingerprint_of(kind, 5)) != agreed_bits(fingerprint_of(other, 5))) == (mark == Mark::kAgreed));
      CHECK((fingerprint_note(fingerprint_of(kind, 5)) != fingerprint_note(fingerprint_of(other, 5))) ==
            (call.op != changed.op));
    }
    CHECK(agreed_bits(kind_of(2, call)) != agreed_bits(kind_of(1, call)));
  }
}

TEST_CASE("what ranks must agree on is in the words of a mismatch") {
  for (int index = 0; index < fields(); ++index) {
    CAPTURE(index);
    bool shown = false;
    Mark mark = Mark::kLocal;
    for (const CheckedCall& call : calls()) {
      CheckedCall changed = call;
      mark = change_field(changed, index);
      shown = shown || describe_call(changed) != describe_call(call);
    }
    CHECK((shown || mark == Mark::kLocal));
  }
}

TEST_CASE("a mismatch names the call of the program that an exchange belongs to") {
  CheckedCall call;
  call.purpose = Purpose::kSplit;
  call.collective = Collective::kAllGather;
  call.count = 2;
  call.dtype = DType::kInt32;
  CHECK(describe_call(call) == "split()");
  call.purpose = static_cast<Purpose>(300);
  CHECK(describe_call(call) == "purpose 300: all_gather(count=2, int32)");
}

}  // namespace rondo::testing
