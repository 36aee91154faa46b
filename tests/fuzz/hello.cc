// Hello and answer, the first bytes of every connection: refused, or decoded; what is decoded is the same when it is
// encoded again.
#include "tests/fuzz/target.h"
#include "transport/hello/wire.h"

namespace rondo::fuzz {

std::vector<std::string> seeds() {
  Hello hello;
  hello.role = Role::kData;
  hello.communicator = 7;
  hello.rank = 1;
  hello.world = 4;
  hello.job_id = "job";
  hello.nonce.fill(3);
  Hello other_version = hello;
  other_version.version = kWireVersion + 1;
  Answer answer;
  answer.rank = 2;
  Answer refusal;
  refusal.code = AnswerCode::kShared;
  refusal.text = "settings that must be equal differ";
  return {encode(hello), encode(other_version), encode(answer), encode(refusal)};
}

void try_input(std::string_view input) {
  const bool could_be = could_be_hello(input);
  if (const auto hello = parse_hello(input)) {
    RONDO_CHECK(could_be, "a hello was possible all along");
    if (hello->version == kWireVersion) RONDO_CHECK(parse_hello(encode(*hello)) == hello, "a hello survives");
  }
  if (const auto answer = parse_answer(input)) {
    RONDO_CHECK(answer->text.size() <= kMaxAnswerTextBytes, "a reason has a bound");
    RONDO_CHECK(parse_answer(encode(*answer)) == answer, "an answer survives");
  }
}

}  // namespace rondo::fuzz
