// Fields: what is written comes back; what does not fit its description is refused, and allocates nothing.
#include "ring/base/fields.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rondo {
namespace {

enum class Kind : uint8_t { kOne = 1, kTwo = 2 };

struct Inner {
  uint16_t number = 0;
};

void fields(Fields& bytes, Inner& inner) { bytes(inner.number); }

struct Sample {
  int32_t negative = -7;
  double share = 0.25;
  bool yes = true, no = false, set = true;
  Kind kind = Kind::kTwo;
  std::string text = "abc";
  std::array<uint8_t, 2> raw{1, 2};
  std::vector<Inner> list{{3}, {4}};
};

void fields(Fields& bytes, Sample& sample) {
  bytes.constant("M")(sample.negative, sample.share, sample.yes)
      .bits(sample.no, sample.set)
      .within<uint16_t>(sample.kind, Kind::kOne, Kind::kTwo)
      .text(sample.text, 4)
      .zeros_up_to(24)(sample.raw)
      .list(sample.list, 3, [&bytes](Inner& inner) { bytes(inner); });
}

// Places in the sample's bytes.
constexpr size_t kYes = 13, kBits = 14, kKind = 15, kTextBytes = 17, kPadding = 22, kCount = 26;

TEST_CASE("fields: a record comes back as it was, at the places that its description says") {
  const std::string bytes = encoded(Sample{});
  CHECK(bytes.size() == 32);
  CHECK(bytes.substr(0, 5) == "M\xf9\xff\xff\xff");
  CHECK(bytes.substr(kYes, 11) == std::string("\1\2\2\0\3\0abc\0\0", 11));
  CHECK(bytes.substr(24) == std::string("\1\2\2\0\3\0\4\0", 8));
  const auto back = decoded<Sample>(bytes);
  REQUIRE(back);
  CHECK(encoded(*back) == bytes);
  CHECK(back->negative == -7);
  CHECK(back->share == 0.25);
  CHECK((back->yes && !back->no && back->set && back->kind == Kind::kTwo));
  CHECK(back->list[1].number == 4);
}

TEST_CASE("fields: bytes that are cut, too many, or of no value that is written are refused") {
  const std::string good = encoded(Sample{});
  for (size_t size = 0; size < good.size(); ++size) CHECK_FALSE(decoded<Sample>(good.substr(0, size)));
  CHECK_FALSE(decoded<Sample>(good + "x"));
  for (const auto& change : std::vector<std::pair<size_t, char>>{
           {0, 'N'}, {kYes, 2}, {kBits, 4}, {kKind, 0}, {kKind, 3}, {kTextBytes, 5}, {kPadding, 1}, {kCount, 4}}) {
    CAPTURE(change.first);
    std::string bad = good;
    bad[change.first] = change.second;
    CHECK_FALSE(decoded<Sample>(bad));
  }
}

TEST_CASE("fields: what exceeds its bound is cut when it is written") {
  Sample sample;
  sample.text = "abcdefgh";
  sample.list.resize(9);
  const auto back = decoded<Sample>(encoded(sample));
  REQUIRE(back);
  CHECK(back->text == "abcd");
  CHECK(back->list.size() == 3);
}

TEST_CASE("fields: a number of elements beyond the bound or the bytes that have come makes none of them") {
  for (const auto& [come, most] : {std::pair(std::string("\xff\xff\xff\x7f\0\0", 6), SIZE_MAX),
                                   std::pair(std::string("\3\0\0\0\1\0\2\0\3\0", 10), size_t{2})}) {
    Fields bytes(come);
    std::vector<Inner> list;
    bytes.list<uint32_t>(list, most, [&bytes](Inner& inner) { bytes(inner); });
    CHECK_FALSE(bytes.ok());
    CHECK(list.empty());
  }
}

}  // namespace
}  // namespace rondo
