#include "transport/hello/wire.h"

#include <doctest/doctest.h>

#include <functional>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "ring/base/file_text.h"
#include "rondo/error.h"
#include "transport/control/control_message.h"
#include "transport/rendezvous/peer_card.h"

namespace rondo {
namespace {

Hello sample_hello() {
  Hello hello;
  hello.role = Role::kData;
  hello.connection = 0x0102;
  hello.connections = 4;
  hello.communicator = 0x1122334455667788;
  hello.epoch = 5;
  hello.rank = 6;
  hello.destination = 7;
  hello.world = 8;
  hello.shared_hash = 9;
  hello.session = 10;
  hello.job_id = "job";
  hello.nonce[0] = 0xaa;
  hello.mac[31] = 0xbb;
  return hello;
}

std::vector<ControlBody> sample_bodies() {
  CallState state;
  state.current = 7;
  state.fingerprint = 0xfeed;
  state.route = 0x0c00000001u;
  state.text = "all_reduce(count=8)";
  state.in_p2p = true;
  state.p2p_peer = -1;
  state.p2p_text = "recv(any)";
  state.p2p_moved = 0x123456789abc;
  state.p2p_looks = 0x1122334455;
  state.threads = true;
  state.since_ms = 2'100;
  state.slowest = {3, 1'000, 5'000};
  return {
      AbortMessage{1, Stage::kUse, {ErrorCode::kPeerLost, "rank 3 died", {3, 4}}},
      QueryMessage{1, 9},
      AnswerMessage{1, 9, state},
      ByeMessage{1, 12, true},
      ConnectMessage{1},
      LeaveMessage{},
      LostMessage{70, 6, LostMessage::Fate::kUnresponsive, "why"},
      AliveMessage{},
      BlameMessage{1, 9, "the ranks waited"},
      MembershipMessage{
          7, MembershipMessage::Kind::kPromise, {3, 1}, {2, 0}, Decision{MemberSet(9, true), true}, MemberSet(9), {}}};
}

TEST_CASE("a hello has the bytes that docs/wire.md says, and comes back as it was") {
  const std::string bytes = encode(sample_hello());
  REQUIRE(bytes.size() == kHelloBytes);
  CHECK(bytes.substr(0, 8) == std::string("RONDO\n\x1a\xff", 8));
  CHECK(bytes.substr(8, 6) == std::string("\x12\x00\x02\x00\x02\x01", 6));  // version, role, zero, connection
  CHECK(bytes.substr(20, 4) == std::string("\x06\x00\x00\x00", 4));         // rank
  CHECK(bytes.substr(24, 8) == std::string("\x88\x77\x66\x55\x44\x33\x22\x11", 8));
  CHECK(bytes.substr(64, 4) == std::string("\x03job", 4));
  CHECK(static_cast<uint8_t>(bytes[128]) == 0xaa);
  CHECK(static_cast<uint8_t>(bytes[191]) == 0xbb);
  CHECK(bytes.substr(192) == std::string(64, '\0'));
  REQUIRE(parse_hello(bytes));
  CHECK(*parse_hello(bytes) == sample_hello());
}

TEST_CASE("docs/wire.md says this version, and no other") {
  const std::string text = file_text("docs/wire.md");
  const std::regex version("[Vv]ersion +([0-9]+)");
  int said = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), version), end; it != end; ++it, ++said) {
    CHECK((*it)[1] == std::to_string(kWireVersion));
  }
  CHECK(said > 0);
}

TEST_CASE("an answer comes back as it was, its text cut to what fits") {
  Answer answer;
  answer.code = AnswerCode::kWorld;
  answer.rank = 3;
  answer.text = std::string(500, 'x');
  const std::string bytes = encode(answer);
  REQUIRE(bytes.size() == kAnswerBytes);
  answer.text.resize(kMaxAnswerTextBytes);
  REQUIRE(parse_answer(bytes));
  CHECK(*parse_answer(bytes) == answer);
}

TEST_CASE("a hello of another version is recognized by its version alone") {
  std::string bytes = encode(sample_hello());
  bytes[8] = kWireVersion + 1;
  for (size_t i = 10; i < bytes.size(); ++i) bytes[i] = '\x5a';
  REQUIRE(parse_hello(bytes));
  CHECK(parse_hello(bytes)->version == kWireVersion + 1);
}

TEST_CASE("what another protocol begins with is no hello from its first bytes on") {
  CHECK(could_be_hello(""));
  CHECK(could_be_hello("RON"));
  CHECK(!could_be_hello("GET / HTTP/1.1\r\n"));
  CHECK(!could_be_hello(std::string("\x16\x03\x01", 3)));
  CHECK(!could_be_hello("ROND0"));
  CHECK(!parse_hello(""));
  CHECK(!parse_hello(std::string(kHelloBytes, 'R')));
}

TEST_CASE("a hello with a byte set where zeros belong, or lengths beyond their field, is refused") {
  const std::string good = encode(sample_hello());
  for (size_t place : {size_t{18}, size_t{127}, size_t{192}, size_t{255}}) {
    std::string bad = good;
    bad[place] = 1;
    CHECK(!parse_hello(bad));
  }
  std::string long_job = good;
  long_job[64] = 64;
  CHECK(!parse_hello(long_job));
  std::string role = good;
  role[10] = 5;
  CHECK(!parse_hello(role));
}

TEST_CASE("every control message comes back as it was") {
  for (const ControlBody& body : sample_bodies()) {
    const std::string bytes = encode(ControlFrame{3, 4, body});
    const auto header = decode_control_header(bytes.substr(0, kControlHeaderBytes));
    REQUIRE(header);
    CHECK(header->source == 3);
    CHECK(header->destination == 4);
    CHECK(header->body_bytes == bytes.size() - kControlHeaderBytes);
    const auto back = decode_control_body(header->type, bytes.substr(kControlHeaderBytes));
    REQUIRE(back);
    CHECK(encode(ControlFrame{3, 4, *back}) == bytes);
  }
}

TEST_CASE("fault 28: a control message cut at any byte, or with a byte too many, is refused") {
  for (const ControlBody& body : sample_bodies()) {
    const std::string bytes = encode(ControlFrame{0, 1, body}).substr(kControlHeaderBytes);
    const auto type = static_cast<uint16_t>(body.index() + 1);
    for (size_t size = 0; size < bytes.size(); ++size) CHECK(!decode_control_body(type, bytes.substr(0, size)));
    CHECK(!decode_control_body(type, bytes + "x"));
  }
}

TEST_CASE("fault 30: lengths of 0, 2^31 and 2^32-1 in a control header allocate nothing") {
  for (uint32_t length : {0x80000000u, 0xffffffffu, uint32_t{kMaxControlBodyBytes} + 1}) {
    std::string header(kControlHeaderBytes, '\0');
    for (int i = 0; i < 4; ++i) header[static_cast<size_t>(i)] = static_cast<char>(length >> (8 * i));
    header[4] = 1;
    CHECK(!decode_control_header(header));
  }
  CHECK(!decode_control_header(std::string(kControlHeaderBytes, '\0')));  // type 0
  CHECK(!decode_control_body(1, ""));
}

TEST_CASE("the longest error is cut and still fits a frame") {
  Error error{ErrorCode::kMismatch, std::string(100'000, 'x'), std::vector<int>(10'000, 1)};
  const std::string bytes = encode(ControlFrame{0, 1, AbortMessage{1, Stage::kMaking, error}});
  CHECK(bytes.size() <= kControlHeaderBytes + kMaxControlBodyBytes);
  const auto back = decode_control_body(1, bytes.substr(kControlHeaderBytes));
  REQUIRE(back);
  CHECK(std::get<AbortMessage>(*back).error.message.size() == kMaxErrorTextBytes);
  CHECK(std::get<AbortMessage>(*back).error.ranks.size() == kMaxErrorRanks);
}

// Runs of two take the most: 1.5 bits a member.
TEST_CASE("a MEMBERSHIP message of 65,535 members fits a frame and decodes to what was encoded, for any sets") {
  constexpr size_t kMembers = 65'535;
  std::mt19937 random(5);
  const auto set_of = [&](const std::function<bool(size_t)>& holds) {
    MemberSet set(kMembers);
    for (size_t i = 0; i < kMembers; ++i) set[i] = holds(i);
    return set;
  };
  const std::vector<MemberSet> sets{
      MemberSet(kMembers),
      MemberSet(kMembers, true),
      set_of([](size_t i) { return i == 40'000; }),
      set_of([](size_t i) { return i == kMembers - 1; }),
      set_of([](size_t i) { return i % 2 == 1; }),
      set_of([](size_t i) { return i / 2 % 2 == 0; }),
      set_of([&](size_t) { return random() % 2 == 0; }),
      set_of([&](size_t) { return random() % 100 == 0; }),
  };
  for (size_t i = 0; i < sets.size(); ++i) {
    CAPTURE(i);
    const MemberSet& set = sets[i];
    const MembershipMessage sent{7, MembershipMessage::Kind::kPromise, {3, 1}, {2, 0}, Decision{set, true}, set, set};
    const std::string bytes = encode(ControlFrame{0, 1, sent});
    if (i < 4) CHECK(bytes.size() < 100);  // as most are
    REQUIRE(decode_control_header(bytes.substr(0, kControlHeaderBytes)));
    const auto back = decode_control_body(10, bytes.substr(kControlHeaderBytes));
    REQUIRE(back);
    const auto& message = std::get<MembershipMessage>(*back);
    CHECK(message.value == sent.value);
    CHECK(message.lost == set);
    CHECK(message.dead == set);
  }
}

TEST_CASE("a job id that is too long keeps its beginning and still differs from its like") {
  CHECK(bounded_job_id("short") == "short");
  const std::string one = bounded_job_id(std::string(200, 'a') + "1");
  const std::string other = bounded_job_id(std::string(200, 'a') + "2");
  CHECK(one.size() == kMaxHelloJobIdBytes);
  CHECK(one != other);
}

TEST_CASE("a card comes back as it was, and a cut or mutated one is refused or harmless") {
  PeerCard card;
  card.wire_version = kWireVersion;
  card.rank = 1;
  card.world = 2;
  card.pid = 17;
  card.job_id = "job";
  card.host_identity = "boot-net";
  card.host_name = "b";
  card.instance = 5;
  card.shared_hash = 6;
  card.config = "RONDO_CONNECTIONS=1\n";
  card.cores = "\x03";
  card.quota = {11, 1};
  card.process_class = 12;
  card.endpoints = {{"127.0.0.1", 4000}, {"::1", 4001}};
  const std::string bytes = encode(card);
  CHECK(encode(decode_card(bytes, 1)) == bytes);
  CHECK(decode_card(bytes, 1).endpoints == card.endpoints);
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK_THROWS_AS(decode_card(std::string_view(bytes).substr(0, size), 1), Exception);
  }
  std::string newer = bytes;
  newer[9] = kWireVersion + 1;
  const std::string refusal = "rank 1 cannot join: it speaks version " + std::to_string(kWireVersion + 1) +
                              " of the wire format, this process version " + std::to_string(kWireVersion);
  CHECK_THROWS_WITH(decode_card(newer, 1), refusal.c_str());
}

TEST_CASE("ranks of one host whose control group has fewer cores than ranks: the topology says so") {
  PeerCard card;
  card.wire_version = kWireVersion;
  card.world = 2;
  card.cores = "\x0f";
  card.endpoints = {{"127.0.0.1", 4000}};
  const auto cores_of = [&](CoreQuota first, CoreQuota second) {
    std::vector<std::string> cards;
    for (const CoreQuota quota : {first, second}) {
      card.rank = static_cast<uint32_t>(cards.size());
      card.quota = quota;
      cards.push_back(seal_card(encode(card), Authenticator()));
    }
    return Roster(cards).topology().cores;
  };
  CHECK(cores_of({}, {}) == std::vector<int>{4, 4});
  CHECK(cores_of({9, 1}, {9, 1}) == std::vector<int>{1, 1});
  CHECK(cores_of({9, 1}, {10, 1}) == std::vector<int>{4, 4});
}

}  // namespace
}  // namespace rondo
