// The fields of a call, byte by byte: each one that ranks must agree on changes the fingerprint and the words that a
// mismatch shows; one that is a rank's own changes neither; every one of them keeps a prepared call from serving
// another call.
#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "ring/engine/call/call.h"

namespace rondo::testing {
namespace {

// The call with another value of the field that has this byte.
CheckedCall with_changed_byte(CheckedCall call, size_t at) {
  reinterpret_cast<unsigned char*>(static_cast<CallFields*>(&call))[at] ^= 1;
  return call;
}

bool in_padding(size_t at) {
  const size_t begin = offsetof(CallFields, padding);
  return at >= begin && at < begin + sizeof(CallFields::padding);
}

bool is_agreed(const CheckedCall& call, const CheckedCall& changed) { return !(call.agreed() == changed.agreed()); }

// A rank's own: its factor, its timeout, and where the call says so its op and its count.
bool is_own(const CheckedCall& call, const CheckedCall& changed) {
  return call.timeout != changed.timeout || call.scalar.bits != changed.scalar.bits ||
         (call.any_op && call.op != changed.op) || (call.uneven && call.count != changed.count);
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
    for (size_t at = 0; at < sizeof(CallFields); ++at) {
      CAPTURE(at);
      const CheckedCall changed = with_changed_byte(call, at);
      CHECK(!(static_cast<const CallFields&>(changed) == static_cast<const CallFields&>(call)));
      CHECK(is_agreed(call, changed) != is_own(call, changed));
      const uint64_t kind = kind_of(1, call), other = kind_of(1, changed);
      CHECK((agreed_bits(fingerprint_of(kind, 5)) != agreed_bits(fingerprint_of(other, 5))) ==
            is_agreed(call, changed));
      CHECK((fingerprint_note(fingerprint_of(kind, 5)) != fingerprint_note(fingerprint_of(other, 5))) ==
            (call.op != changed.op));
    }
    CHECK(agreed_bits(kind_of(2, call)) != agreed_bits(kind_of(1, call)));
  }
}

TEST_CASE("what ranks must agree on is in the words of a mismatch") {
  for (size_t at = 0; at < sizeof(CallFields); ++at) {
    CAPTURE(at);
    bool shown = false, agreed = true;
    for (const CheckedCall& call : calls()) {
      const CheckedCall changed = with_changed_byte(call, at);
      agreed = agreed && is_agreed(call, changed);
      shown = shown || describe_call(changed) != describe_call(call);
    }
    CHECK((shown || !agreed || in_padding(at)));
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
