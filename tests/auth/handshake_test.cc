// Proves: two ends that know the secret agree, over a stream that delays and cuts as it likes; and one that changes,
// replays or reflects anything is refused.
#include "transport/hello/handshake.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/secrets.h"
#include "tests/support/sim_stream.h"

namespace rondo {
namespace {

using testing::knowing;

const Authenticator kAuth = knowing("sixteen bytes or more");

Hello sample_hello() {
  Hello hello;
  hello.role = Role::kData;
  hello.connection = 2;
  hello.connections = 4;
  hello.communicator = 5;
  hello.epoch = 6;
  hello.rank = 7;
  hello.destination = 8;
  hello.world = 16;
  hello.shared_hash = 9;
  hello.session = 10;
  hello.job_id = "job";
  return hello;
}

Answer welcome(uint32_t rank = 8) {
  Answer answer;
  answer.rank = rank;
  return answer;
}

// Writes all and reads exactly so many bytes, a part at a time.
void send(ByteStream& stream, std::string bytes, testing::SimNetwork& network) {
  while (!bytes.empty()) {
    const iovec part{bytes.data(), bytes.size()};
    const long moved = stream.write(&part, 1);
    REQUIRE(moved >= 0);
    bytes.erase(0, static_cast<size_t>(moved));
    network.advance();
  }
}

std::string receive(ByteStream& stream, size_t size, testing::SimNetwork& network) {
  std::string bytes(size, '\0');
  for (size_t have = 0; have < size; network.advance()) {
    const iovec part{bytes.data() + have, size - have};
    const long moved = stream.read(&part, 1);
    REQUIRE(moved >= 0);
    have += static_cast<size_t>(moved);
  }
  return bytes;
}

TEST_CASE("both ends agree over simulated streams, and the bytes hold no secret") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    testing::SimNetwork network(seed);
    testing::SimNetwork::Connection connection = network.connect();
    DialerHandshake dialer(sample_hello(), kAuth);
    AcceptorHandshake acceptor(kAuth);
    send(*connection.side[0], dialer.hello(), network);
    const std::string hello = receive(*connection.side[1], kHelloBytes, network);
    const auto heard = acceptor.hear(hello);
    REQUIRE(heard);
    CHECK_FALSE(acceptor.refusal());
    CHECK(heard->rank == 7);
    send(*connection.side[1], acceptor.answer(welcome()), network);
    const std::string answer = receive(*connection.side[0], kAnswerBytes, network);
    REQUIRE(dialer.judge(answer).welcome);
    send(*connection.side[0], dialer.confirm(), network);
    CHECK(acceptor.confirmed(receive(*connection.side[1], kConfirmBytes, network)));
    CHECK((hello + answer).find("sixteen bytes") == std::string::npos);
  }
}

TEST_CASE("a hello of which any byte was changed on its way is refused, or is no hello") {
  const std::string good = DialerHandshake(sample_hello(), kAuth).hello();
  for (size_t i = 0; i < good.size(); ++i) {
    CAPTURE(i);
    for (const int flip : {0x01, 0x80}) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ flip);
      AcceptorHandshake acceptor(kAuth);
      if (acceptor.hear(bad)) CHECK(acceptor.refusal());
    }
  }
}

TEST_CASE("each field of the transcript counts: a hello that claims another value under the old proof is refused") {
  const auto said = parse_hello(DialerHandshake(sample_hello(), kAuth).hello());
  REQUIRE(said);
  const std::vector<std::function<void(Hello&)>> changes{
      [](Hello& h) { h.role = Role::kStream; }, [](Hello& h) { h.connection ^= 1; },
      [](Hello& h) { h.connections ^= 1; },     [](Hello& h) { h.communicator ^= 1; },
      [](Hello& h) { h.epoch ^= 1; },           [](Hello& h) { h.rank ^= 1; },
      [](Hello& h) { h.destination ^= 1; },     [](Hello& h) { h.world ^= 1; },
      [](Hello& h) { h.shared_hash ^= 1; },     [](Hello& h) { h.session ^= 1; },
      [](Hello& h) { h.job_id += "x"; },        [](Hello& h) { h.nonce[31] ^= 1; },
      [](Hello& h) { h.mac[0] ^= 1; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    Hello hello = *said;
    changes[i](hello);
    AcceptorHandshake acceptor(kAuth);
    REQUIRE(acceptor.hear(encode(hello)));
    REQUIRE(acceptor.refusal());
    CHECK(acceptor.refusal()->code == AnswerCode::kAuthFailed);
  }
}

TEST_CASE("an answer of which any byte was changed is not taken for a welcome") {
  DialerHandshake dialer(sample_hello(), kAuth);
  AcceptorHandshake acceptor(kAuth);
  REQUIRE(acceptor.hear(dialer.hello()));
  const std::string good = acceptor.answer(welcome());
  for (size_t i = 0; i < good.size(); ++i) {
    CAPTURE(i);
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    CHECK_FALSE(dialer.judge(bad).welcome);
  }
  CHECK(dialer.judge(good).welcome);
}

TEST_CASE("fault 32: another secret on either side is AUTH_FAILED, and says where this side's came from") {
  const Authenticator other = knowing("another secret of 16 bytes");
  for (const Authenticator& stranger : {other, Authenticator()}) {
    AcceptorHandshake acceptor(kAuth);
    DialerHandshake dialer(sample_hello(), stranger);
    REQUIRE(acceptor.hear(dialer.hello()));
    REQUIRE(acceptor.refusal());
    const auto verdict = dialer.judge(acceptor.answer(welcome()));
    CHECK(verdict.error.code == ErrorCode::kAuthFailed);
    CHECK(verdict.error.message.find(stranger.secret_name()) != std::string::npos);

    // An acceptor that does not know the secret and says welcome all the same.
    DialerHandshake honest(sample_hello(), kAuth);
    Answer forged = welcome();
    forged.nonce = random_nonce();
    forged.mac = stranger.prove("rondo link answer", {honest.hello(), encode(forged)});
    CHECK(honest.judge(encode(forged)).error.code == ErrorCode::kAuthFailed);
  }
}

TEST_CASE("fault 33: nothing that was said on another connection, or by the other side, fits") {
  DialerHandshake first(sample_hello(), kAuth), second(sample_hello(), kAuth);
  AcceptorHandshake to_first(kAuth), to_second(kAuth), to_replay(kAuth);
  REQUIRE(to_first.hear(first.hello()));
  REQUIRE(to_second.hear(second.hello()));
  REQUIRE(to_replay.hear(first.hello()));
  const std::string answer = to_first.answer(welcome());
  to_second.answer(welcome());
  to_replay.answer(welcome());
  CHECK_FALSE(second.judge(answer).welcome);  // the answer to another hello
  REQUIRE(first.judge(answer).welcome);
  CHECK(to_first.confirmed(first.confirm()));
  CHECK_FALSE(to_second.confirmed(first.confirm()));
  CHECK_FALSE(to_replay.confirmed(first.confirm()));  // the same hello again, and another nonce
  const auto parsed = parse_answer(answer);
  REQUIRE(parsed);
  CHECK_FALSE(to_first.confirmed(as_text(parsed->mac)));  // reflected
  CHECK_FALSE(to_first.confirmed(std::string(kConfirmBytes, '\0')));
  CHECK_FALSE(to_first.confirmed(""));
}

TEST_CASE("a dialer compares version and rank of the answer") {
  DialerHandshake dialer(sample_hello(), kAuth);
  AcceptorHandshake acceptor(kAuth);
  REQUIRE(acceptor.hear(dialer.hello()));
  const auto wrong_rank = dialer.judge(acceptor.answer(welcome(3)));
  CHECK_FALSE(wrong_rank.welcome);
  CHECK(wrong_rank.error.message == "rank 3 answers instead of rank 8");
  std::string newer = acceptor.answer(welcome());
  newer[8] = kWireVersion + 3;
  CHECK(dialer.judge(newer).error.message == "it speaks version " + std::to_string(kWireVersion + 3) +
                                                 " of the wire format, this process version " +
                                                 std::to_string(kWireVersion));
}

}  // namespace
}  // namespace rondo
