#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ring/base/descriptor.h"
#include "rondo/error.h"
#include "tests/fabric/cluster.h"
#include "tests/support/open_files_limit.h"
#include "tests/support/resources.h"
#include "tests/support/secrets.h"
#include "tests/support/sockets.h"
#include "transport/control/plane/control_plane.h"
#include "transport/fabrics/descriptor_budget.h"
#include "transport/hello/handshake.h"
#include "transport/hello/reception.h"
#include "transport/hello/wire.h"
#include "transport/rendezvous/peer_card.h"
#include "transport/rendezvous/roster.h"
#include "transport/store/memory_store.h"
#include "transport/tcp/io_thread.h"

namespace rondo::testing {
namespace {

constexpr uint32_t kSeed = 7;

// One rank's doors, with nobody behind them yet: rank 0 of 2.
PlaneSettings settings_of(int rank, int64_t handshake_timeout_ms = 300, size_t max_pending = 128) {
  PlaneSettings settings;
  settings.rank = rank;
  settings.world = 2;
  settings.job_id = "test job";
  settings.config = test_config();
  settings.config.handshake_timeout_ms = handshake_timeout_ms;
  settings.addresses = {"127.0.0.1"};
  settings.max_pending = max_pending;
  settings.logger = Logger("off");
  return settings;
}

Descriptor connect_to(const Endpoint& endpoint, const char* from = "127.0.0.1") {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  ::inet_pton(AF_INET, from, &own.sin_addr);
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) == 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  ::inet_pton(AF_INET, endpoint.address.c_str(), &address.sin_addr);
  REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return socket;
}

// A handshake deadline that no test lives to see; longer than what these tests wait for.
constexpr int64_t kNeverMs = 120'000;

// With its proof, as a process sends it that knows the secret (none here).
std::string proved(const Hello& hello, const Authenticator& auth = Authenticator()) {
  return DialerHandshake(hello, auth).hello();
}

Hello good_hello(const PlaneSettings& settings) {
  Hello hello;
  hello.rank = 1;
  hello.destination = 0;
  hello.world = 2;
  hello.shared_hash = settings.config.shared_hash();
  hello.job_id = settings.job_id;
  return hello;
}

Answer answer_to(const ControlPlane& board, const std::string& hello) {
  const Descriptor socket = connect_to(board.endpoints()[0]);
  say(socket, hello);
  const auto answer = parse_answer(read_to_end(socket));
  REQUIRE(answer);
  return *answer;
}

// One listener, whose hellos of whatever rank are welcomed.
class Door {
 public:
  explicit Door(const std::function<void(Reception::Settings&)>& change = [](auto&) {})
      : reception_(
            thread.context(), settings(change), [](const Hello&) { return Answer{}; },
            [this](const Hello&, SecuredSocket) { ++welcomed; }) {}
  ~Door() { thread.stop(); }

  void open() {
    std::promise<void> opened;
    thread.post([&] {
      reception_.start();
      opened.set_value();
    });
    opened.get_future().wait();
  }
  Descriptor connect() { return connect_to(reception_.endpoints()[0]); }
  bool welcomes(size_t dialers) const {
    return eventually([&] { return welcomed == dialers; });
  }

  std::atomic<size_t> welcomed{0};
  IoThread thread{[](const Error& error) { FAIL(error.message); }};

 private:
  static Reception::Settings settings(const std::function<void(Reception::Settings&)>& change) {
    Reception::Settings settings;
    settings.listeners.push_back(listen_in_range("127.0.0.1", {}));
    settings.handshake_timeout_ms = kNeverMs;
    settings.logger = Logger("off");
    change(settings);
    return settings;
  }
  Reception reception_;
};

// Hears the answer, which is a welcome, and confirms it.
void confirm(const Descriptor& socket, DialerHandshake& dialer) {
  REQUIRE(dialer.judge(read_exactly(socket, kAnswerBytes)).welcome);
  say(socket, dialer.confirm());
}

TEST_CASE("fault 27: HTTP, TLS and random bytes are closed at once, a silent or slow connection by the deadline") {
  MESSAGE("seed ", kSeed);
  std::mt19937 random(kSeed);
  ControlPlane board(settings_of(0, kNeverMs));
  std::string noise(300, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string("\x16\x03\x01\x02\x00\x01", 6), noise}) {
    const Descriptor socket = connect_to(board.endpoints()[0]);
    say(socket, bytes);
    CHECK(read_to_end(socket).empty());
  }
  ControlPlane impatient(settings_of(0));
  const Descriptor silent = connect_to(impatient.endpoints()[0]);
  const Descriptor slow = connect_to(impatient.endpoints()[0]);
  say(slow, std::string(kWireMagic.substr(0, 4)));
  CHECK(read_to_end(silent).empty());
  CHECK(read_to_end(slow).empty());
}

TEST_CASE("dialers that speak at once are all heard, however many come together and however few may be pending") {
  // Proves: a burst beyond max_pending, behind connections that say nothing, drops no honest dialer.
  // 120 in all: the kernel completes as many before the first accept() even where net.core.somaxconn is 128.
  constexpr size_t kSilent = 20, kDialers = 100;
  Door door([](Reception::Settings& settings) { settings.max_pending = 8; });
  const Authenticator auth;
  std::vector<Descriptor> sockets;
  std::vector<DialerHandshake> dialers;
  for (size_t i = 0; i < kSilent + kDialers; ++i) {
    sockets.push_back(door.connect());
    if (i < kSilent) continue;
    dialers.emplace_back(good_hello(settings_of(0)), auth);
    say(sockets.back(), dialers.back().hello());
  }
  door.open();
  for (size_t i = 0; i < dialers.size(); ++i) confirm(sockets[kSilent + i], dialers[i]);
  CHECK(door.welcomes(kDialers));
}

TEST_CASE("who was welcomed may confirm later than the handshake's deadline, as after an outage of the network") {
  // Proves: it has sent its confirmation, and data behind it, so the connection must not end before TCP sends it again.
  Door door([](Reception::Settings& settings) {
    settings.handshake_timeout_ms = 100;
    settings.confirm_timeout_ms = kNeverMs;
  });
  door.open();
  const Authenticator auth;
  DialerHandshake dialer(good_hello(settings_of(0)), auth);
  const Descriptor cut_off = door.connect();
  say(cut_off, dialer.hello());
  REQUIRE(dialer.judge(read_exactly(cut_off, kAnswerBytes)).welcome);
  const Descriptor stranger = door.connect();
  CHECK(read_to_end(stranger).empty());  // by the deadline
  say(cut_off, dialer.confirm());
  CHECK(door.welcomes(1));
}

TEST_CASE("a dialer whose hello has come is heard before it is dropped to make room") {
  // Proves: honest dialers that were slow to speak are heard although others connect before their hellos are looked at.
  constexpr size_t kPending = 8;
  Door door([](Reception::Settings& settings) { settings.max_pending = kPending; });
  door.open();
  std::vector<Descriptor> dialers, strangers;
  const size_t before = open_descriptors();
  for (size_t i = 0; i < kPending; ++i) dialers.push_back(door.connect());
  eventually([&] { return open_descriptors() == before + 2 * kPending; });  // all are accepted

  // While the I/O thread looks at nothing, strangers connect, and then the dialers speak.
  std::promise<void> stopped, goes_on;
  door.thread.post([&] {
    stopped.set_value();
    goes_on.get_future().wait();
  });
  stopped.get_future().wait();
  for (size_t i = 0; i < kPending; ++i) strangers.push_back(door.connect());
  const Authenticator auth;
  std::vector<DialerHandshake> handshakes;
  for (const Descriptor& dialer : dialers) {
    handshakes.emplace_back(good_hello(settings_of(0)), auth);
    say(dialer, handshakes.back().hello());
  }
  goes_on.set_value();
  for (size_t i = 0; i < dialers.size(); ++i) confirm(dialers[i], handshakes[i]);
  CHECK(door.welcomes(kPending));
}

TEST_CASE(
    "connections of this job are no strangers: with the largest settings all are heard that connect, then speak") {
  // Proves: of a busy host's dialers that have connected and not spoken yet none is dropped.
  constexpr int kWorld = 3;
  Config config = test_config();
  config.connections = 16;
  const size_t links = (kWorld - 1) * 16;
  const OpenFilesLimit enough(OpenFilesLimit::for_more(2 * links + 100));
  const DoorBounds bounds = door_bounds(kWorld, config, 2 * links);
  CHECK(std::min(bounds.known, bounds.early) >= links);
  Door door([&](Reception::Settings& settings) {
    settings.max_pending = bounds.pending;
    settings.max_known = bounds.known;
  });
  door.open();
  const Authenticator auth;
  std::vector<Descriptor> sockets;
  const size_t before = open_descriptors();
  for (size_t i = 0; i < links; ++i) sockets.push_back(door.connect());
  REQUIRE(eventually([&] { return open_descriptors() == before + 2 * links; }));  // all are accepted
  for (const Descriptor& socket : sockets) {
    DialerHandshake dialer(good_hello(settings_of(0)), auth);
    say(socket, dialer.hello());
    confirm(socket, dialer);
  }
  CHECK(door.welcomes(links));
}

TEST_CASE("a malformed hello is closed without an answer") {
  ControlPlane board(settings_of(0, kNeverMs));
  std::string bytes = encode(good_hello(settings_of(0)));
  bytes[200] = 1;
  const Descriptor socket = connect_to(board.endpoints()[0]);
  say(socket, bytes);
  CHECK(read_to_end(socket).empty());
}

TEST_CASE("fault 31, 35: a rank that does not belong here learns why, in words") {
  const PlaneSettings settings = settings_of(0, kNeverMs);
  ControlPlane board(settings);
  std::string version = encode(good_hello(settings));
  version[8] = kWireVersion + 1;
  CHECK(answer_to(board, version).code == AnswerCode::kVersion);
  CHECK(answer_to(board, version).text == "version " + std::to_string(kWireVersion) +
                                              " of the wire format is spoken here, you speak version " +
                                              std::to_string(kWireVersion + 1));
  Hello job = good_hello(settings);
  job.job_id = "another";
  CHECK(answer_to(board, proved(job)).code == AnswerCode::kJob);
  CHECK(answer_to(board, proved(job)).text == "this is job \"test job\", not \"another\"");
  Hello world = good_hello(settings);
  world.world = 3;
  CHECK(answer_to(board, proved(world)).text == "rank 0 was started in a world of 2, you in a world of 3");
  Hello rank = good_hello(settings);
  rank.rank = 5;
  CHECK(answer_to(board, proved(rank)).code == AnswerCode::kRank);
  Hello itself = good_hello(settings);
  itself.rank = 0;
  CHECK(answer_to(board, proved(itself)).code == AnswerCode::kRank);
  Hello destination = good_hello(settings);
  destination.destination = 1;
  CHECK(answer_to(board, proved(destination)).text == "this is rank 0, not rank 1");
  Hello shared = good_hello(settings);
  shared.shared_hash ^= 1;
  CHECK(answer_to(board, proved(shared)).code == AnswerCode::kShared);
}

TEST_CASE("a link that the lower rank dials, or that has other connections than the settings say, is refused") {
  const PlaneSettings settings[] = {settings_of(0, kNeverMs), settings_of(1, kNeverMs)};
  ControlPlane low(settings[0]), high(settings[1]);
  std::vector<std::string> cards;
  for (const ControlPlane* board : {&low, &high}) {
    PeerCard card;
    card.wire_version = kWireVersion;
    card.rank = static_cast<uint32_t>(cards.size());
    card.world = 2;
    card.job_id = "test job";
    card.shared_hash = settings[0].config.shared_hash();
    card.endpoints = board->endpoints();
    cards.push_back(seal_card(encode(card), Authenticator()));
  }
  const Roster roster(cards);
  low.know(roster);
  high.know(roster);
  std::thread other([&] { high.connect(roster, in(5'000)); });
  low.connect(roster, in(5'000));
  other.join();
  Hello hello = good_hello(settings[0]);
  hello.role = Role::kData;
  hello.session = roster.session();
  hello.connections = static_cast<uint16_t>(settings[0].config.connections);
  const Descriptor right = connect_to(low.endpoints()[0]);  // of a communicator that this rank has not opened yet
  say(right, proved(hello));
  const auto answer = parse_answer(read_exactly(right, kAnswerBytes));
  REQUIRE(answer);
  CHECK(answer->code == AnswerCode::kWelcome);
  ++hello.connections;
  CHECK(answer_to(low, proved(hello)).text == "this is not how a link is made");
  --hello.connections;
  std::swap(hello.rank, hello.destination);
  CHECK(answer_to(high, proved(hello)).text == "this is not how a link is made");
}

TEST_CASE("fault 29: a hello that comes byte by byte is understood") {
  const PlaneSettings settings = settings_of(0, kNeverMs);
  ControlPlane board(settings);
  Hello job = good_hello(settings);
  job.job_id = "another";
  const Descriptor socket = connect_to(board.endpoints()[0]);
  for (char byte : proved(job)) say(socket, std::string(1, byte));
  CHECK(parse_answer(read_to_end(socket)));
}

TEST_CASE("fault 25: a flood from one address pushes out its own oldest connections, not a slow one from another") {
  const PlaneSettings settings = settings_of(0, kNeverMs, 16);
  ControlPlane board(settings);
  const Descriptor slow = connect_to(board.endpoints()[0], "127.0.0.2");
  std::vector<Descriptor> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(connect_to(board.endpoints()[0]));
  CHECK(read_to_end(silent[0]).empty());
  Hello job = good_hello(settings);
  job.job_id = "another";
  say(slow, proved(job));
  const auto answer = parse_answer(read_to_end(slow));
  REQUIRE(answer);
  CHECK(answer->code == AnswerCode::kJob);
  CHECK(answer_to(board, proved(job)).code == AnswerCode::kJob);  // a rank of the flood's address gets through, too
}

// The listening TCP ports of this process's ranks.
std::set<uint16_t> listening_ports() {
  std::set<uint16_t> ports;
  for (const int socket : listening_sockets()) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0) ports.insert(ntohs(address.sin_port));
  }
  return ports;
}

TEST_CASE("fault 25: strangers of all kinds disturb no running group, and another rank's double is refused") {
  const std::set<uint16_t> before = listening_ports();  // inherited
  std::vector<Member> members = open_world(3, 1);
  std::vector<Descriptor> kept;
  for (uint16_t port : listening_ports()) {
    if (before.count(port) != 0) continue;
    connect_to({"127.0.0.1", port});  // a port scan: connected and closed
    kept.push_back(connect_to({"127.0.0.1", port}));
    say(kept.back(), "GET / HTTP/1.0\r\n\r\n");
    kept.push_back(connect_to({"127.0.0.1", port}));  // silent
    // Everything right, but of another start of the job.
    Hello twin = good_hello(settings_of(0));
    twin.job_id = "test job";
    twin.world = 3;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      for (uint32_t destination = 0; destination < 3; ++destination) {
        if (rank == destination) continue;
        twin.rank = rank;
        twin.destination = destination;
        const Descriptor socket = connect_to({"127.0.0.1", port});
        say(socket, proved(twin));
        const auto answer = parse_answer(read_to_end(socket));
        REQUIRE(answer);
        CHECK((answer->code == AnswerCode::kSession || answer->code == AnswerCode::kRank));
      }
    }
  }
  CHECK(kept.size() == 6);
  destroy_world(members, 1);
  for (const Member& member : members) {
    CHECK(!member.events->failure());
    CHECK(member.events->left().size() == 2);
  }
}

// --- authentication

PlaneSettings secret_settings(const std::string& secret) {
  PlaneSettings settings = settings_of(0, kNeverMs);
  settings.job_id = "a job's name";
  settings.auth = knowing(secret);
  return settings;
}

TEST_CASE("a process without the job's secret hears AUTH_FAILED and nothing of the job, whatever else it says") {
  const PlaneSettings settings = secret_settings("the right secret of this job");
  ControlPlane board(settings);
  for (const Authenticator& wrong : {knowing("another secret, long enough"), Authenticator()}) {
    for (const std::string& job : {settings.job_id, std::string("a guess")}) {
      Hello hello = good_hello(settings);
      hello.job_id = job;
      hello.world = job == "a guess" ? 7 : 2;
      const Answer answer = answer_to(board, proved(hello, wrong));
      CHECK(answer.code == AnswerCode::kAuthFailed);
      CHECK(answer.rank == 0);
      CHECK(answer.text == "AUTH_FAILED");
      CHECK(answer.nonce == Nonce{});
    }
  }
  std::string version = encode(good_hello(settings));
  version[8] = kWireVersion + 1;
  CHECK(answer_to(board, version).text.find("job") == std::string::npos);
  Hello job = good_hello(settings);
  job.job_id = "another";
  CHECK(answer_to(board, proved(job, settings.auth)).text == "this is job \"a job's name\", not \"another\"");
}

TEST_CASE("a replayed hello with its confirmation is not let in, and the one that was first is") {
  const Authenticator auth = knowing("the right secret of this job");
  Door door([&](Reception::Settings& settings) { settings.auth = auth; });
  door.open();
  DialerHandshake dialer(good_hello(settings_of(0)), auth);
  const Descriptor honest = door.connect();
  say(honest, dialer.hello());
  REQUIRE(dialer.judge(read_exactly(honest, kAnswerBytes)).welcome);
  const Descriptor replay = door.connect();
  say(replay, dialer.hello());
  read_exactly(replay, kAnswerBytes);
  say(replay, dialer.confirm());
  CHECK(read_to_end(replay).empty());
  CHECK(door.welcomed == 0);
  say(honest, dialer.confirm());
  CHECK(door.welcomes(1));
}

TEST_CASE("a flood of connections that know the secret and never confirm pushes out its own, not more than its cap") {
  const Authenticator auth = knowing("the right secret of this job");
  Door door([&](Reception::Settings& settings) {
    settings.max_known = 8;
    settings.auth = auth;
  });
  door.open();
  std::vector<Descriptor> sockets;
  for (int i = 0; i < 12; ++i) {
    sockets.push_back(door.connect());
    say(sockets.back(), proved(good_hello(settings_of(0)), auth));
    read_exactly(sockets.back(), kAnswerBytes);
  }
  CHECK(read_to_end(sockets[0]).empty());
}

TEST_CASE("ranks with different secrets fail by AUTH_FAILED that names the rank and what to compare") {
  auto store = std::make_shared<MemoryStore>();
  std::vector<Launch> launches{launch_of(0, 2), launch_of(1, 2)};
  launches[0].secret = {Secret::Source::kFile, std::string(32, 'a'), "RONDO_SECRET_FILE=\"/a\""};
  launches[1].secret = {Secret::Source::kFile, std::string(32, 'b'), "RONDO_SECRET_FILE=\"/b\""};
  for (const Joined& joined : join_all(launches, store, {test_config()})) {
    REQUIRE(joined.error);
    CAPTURE(joined.error->message);
    CHECK(joined.error->code == ErrorCode::kAuthFailed);
    CHECK(joined.error->message.find("host ") != std::string::npos);
    CHECK(joined.error->message.find("RONDO_SECRET_FILE") != std::string::npos);
    CHECK(joined.error->message.find("aaaa") == std::string::npos);
    CHECK(joined.error->message.find("bbbb") == std::string::npos);
  }
  launches[1].secret = launches[0].secret;
  const auto joined = join_all(launches, std::make_shared<MemoryStore>(), {test_config()});
  for (const Joined& rank : joined) {
    REQUIRE(rank.fabric);
    CHECK(rank.fabric->authenticated());
  }
}

}  // namespace
}  // namespace rondo::testing
