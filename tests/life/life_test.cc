// The text of a life: print and parse are inverse, for lives of many seeds; a seed gives one life; wrong text is
// refused.
#include "tests/life/life.h"

#include <doctest/doctest.h>

#include <stdexcept>

#include "tests/life/generate.h"

using namespace rondo::life;

TEST_CASE("print and parse are inverse") {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    const Life life = generate(seed);
    REQUIRE(generate(seed) == life);
    REQUIRE(parse(print(life)) == life);
  }
}

TEST_CASE("lines are those of the text") {
  const Life life = parse("life 1\nworld 2 # two\nthread\nrepeat 3\n  barrier group=0\nend\nfree\n");
  CHECK(life.threads[0][0].line == 4);
  CHECK(life.threads[0][0].inner[0].line == 5);
  CHECK(life.threads[0][1].line == 7);
  CHECK(life.threads[0][0].number("times") == 3);
}

TEST_CASE("a wrong text is refused") {
  for (const char* text : {"life 2\n", "word\n", "thread\nend\n", "thread\nrepeat 2\n", "thread\nbarrier group\n",
                           "thread\nrepeat\nend\n", "lines 3\n"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse(text), std::runtime_error);
  }
}
