#include "transport/control/pending_links.h"

#include <doctest/doctest.h>
#include <fcntl.h>

namespace rondo {
namespace {

Descriptor some_descriptor() { return Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }
bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) >= 0; }

const LinkName kLink{7, LinkKind::kData, 2};

TEST_CASE("a link is complete when all of its connections have come, in any order, and is taken once") {
  PendingLinks table(3, 100);
  table.open(7);
  CHECK(table.want(kLink));
  CHECK(!table.want(kLink));
  CHECK(!table.add(kLink, 2, some_descriptor()));
  CHECK(!table.add(kLink, 0, some_descriptor()));
  CHECK(table.take(kLink).empty());
  CHECK(table.fits(kLink, 0) == PendingLinks::Fit::kNo);  // twice
  CHECK(table.fits(kLink, 3) == PendingLinks::Fit::kNo);  // beyond
  CHECK(table.add(kLink, 1, some_descriptor()));
  CHECK(table.take(kLink).size() == 3);
  CHECK(table.take(kLink).empty());
  CHECK(table.fits(kLink, 1) == PendingLinks::Fit::kNo);
}

TEST_CASE("connections of communicators that are not open wait within a bound, which opening lifts") {
  PendingLinks table(1, 2);
  CHECK(table.add({7, LinkKind::kData, 2}, 0, some_descriptor()));
  CHECK(table.add({7, LinkKind::kStreamFrom, 2}, 0, some_descriptor()));
  CHECK(table.fits({7, LinkKind::kData, 3}, 0) == PendingLinks::Fit::kLater);
  table.open(7);
  CHECK(table.fits({7, LinkKind::kData, 3}, 0) == PendingLinks::Fit::kYes);
  CHECK(table.fits({8, LinkKind::kData, 3}, 0) == PendingLinks::Fit::kYes);
  const auto stream = table.take_stream_from(7);
  REQUIRE(stream);
  CHECK(stream->first == 2);
  CHECK(!table.take_stream_from(7));
}

TEST_CASE("one peer's connections for communicators that are not open have a bound of their own, which opening lifts") {
  PendingLinks table(1, 100, 2);
  for (const uint64_t communicator : {7u, 8u}) {
    REQUIRE(table.fits({communicator, LinkKind::kData, 2}, 0) == PendingLinks::Fit::kYes);
    table.add({communicator, LinkKind::kData, 2}, 0, some_descriptor());
  }
  CHECK(table.fits({9, LinkKind::kData, 2}, 0) == PendingLinks::Fit::kLater);
  CHECK(table.fits({9, LinkKind::kStreamFrom, 2}, 0) == PendingLinks::Fit::kLater);
  CHECK(!table.want({9, LinkKind::kData, 2}));
  CHECK(table.fits({9, LinkKind::kData, 3}, 0) == PendingLinks::Fit::kYes);  // another peer's
  table.open(7);
  CHECK(table.fits({9, LinkKind::kData, 2}, 0) == PendingLinks::Fit::kYes);
}

TEST_CASE("a connection that was welcomed is kept though others have taken the room since") {
  PendingLinks table(1, 1);
  const LinkName one{7, LinkKind::kStreamFrom, 2}, other{7, LinkKind::kStreamFrom, 3};
  REQUIRE(table.fits(one, 0) == PendingLinks::Fit::kYes);
  REQUIRE(table.fits(other, 0) == PendingLinks::Fit::kYes);
  table.add(one, 0, some_descriptor());
  table.add(other, 0, some_descriptor());
  table.open(7);
  CHECK(table.streams(7, LinkKind::kStreamFrom) == std::set<int>{2, 3});
  CHECK(table.streams(7, LinkKind::kStreamTo).empty());
  CHECK(table.take_stream_from(7)->first == 2);
  CHECK(table.streams(7, LinkKind::kStreamFrom) == std::set<int>{2, 3});  // taken or not
}

TEST_CASE("a link that was wished for before its communicator is open has its places, however many others come") {
  PendingLinks table(2, 3);
  REQUIRE(table.want(kLink));
  REQUIRE(table.add({7, LinkKind::kStreamFrom, 3}, 0, some_descriptor()));
  CHECK(table.fits({8, LinkKind::kStreamFrom, 3}, 0) == PendingLinks::Fit::kLater);
  CHECK(!table.want({8, LinkKind::kData, 2}));
  for (const uint32_t index : {1u, 0u}) {
    REQUIRE(table.fits(kLink, index) == PendingLinks::Fit::kYes);
    CHECK(table.add(kLink, index, some_descriptor()) == (index == 0));
  }
  table.open(7);
  CHECK(table.take(kLink).size() == 2);
  for (int peer : {1, 2, 3}) CHECK(table.add({8, LinkKind::kStreamFrom, peer}, 0, some_descriptor()));
  CHECK(table.fits({8, LinkKind::kStreamFrom, 4}, 0) == PendingLinks::Fit::kLater);
}

TEST_CASE("closing a communicator that was never opened gives back the places that it had") {
  PendingLinks table(1, 2);
  REQUIRE(table.want(kLink));
  REQUIRE(table.add({7, LinkKind::kStreamFrom, 2}, 0, some_descriptor()));
  CHECK(table.fits({8, LinkKind::kData, 2}, 0) == PendingLinks::Fit::kLater);
  CHECK(table.close(7));
  for (const int peer : {2, 3}) {
    REQUIRE(table.fits({8, LinkKind::kData, peer}, 0) == PendingLinks::Fit::kYes);
    table.add({8, LinkKind::kData, peer}, 0, some_descriptor());
  }
  CHECK(table.fits({8, LinkKind::kData, 4}, 0) == PendingLinks::Fit::kLater);
}

TEST_CASE("closing closes what was not taken, and refuses what comes late") {
  PendingLinks table(1, 10);
  table.open(7);
  Descriptor descriptor = some_descriptor();
  const int number = descriptor.get();
  table.add(kLink, 0, std::move(descriptor));
  CHECK(is_open(number));
  CHECK(table.close(7));
  table.open(8);
  CHECK(!table.close(8));  // nobody wished for a link
  CHECK(!is_open(number));
  CHECK(table.fits(kLink, 0) == PendingLinks::Fit::kNo);
  CHECK(!table.want(kLink));
}

}  // namespace
}  // namespace rondo
