#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "rondo/error.h"
#include "tests/rendezvous/served.h"
#include "tests/rendezvous/test_jobs.h"
#include "tests/support/bytes.h"
#include "tests/support/child.h"
#include "tests/support/errors.h"
#include "tests/support/eventually.h"
#include "tests/support/secrets.h"
#include "tests/support/sockets.h"
#include "transport/hello/handshake.h"
#include "transport/store/store_server.h"
#include "transport/store/store_wire.h"
#include "transport/store/stream_store.h"
#include "transport/tcp/listener.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using test::check_serving;
using test::in_ms;
using test::Served;
using test::soon;
using testing::closes;
using testing::error_of;
using testing::eventually;
using testing::knowing;
using testing::read_exactly;
using testing::said_to_end;
using testing::say;
using Clock = std::chrono::steady_clock;

// Says hello as a client of the store, and confirms the welcome.
void shake_hands(const Descriptor& socket, bool sealed = false, const Authenticator& auth = Authenticator()) {
  DialerHandshake handshake(test::store_hello("j", sealed), auth);
  say(socket, handshake.hello());
  REQUIRE(handshake.judge(read_exactly(socket, kAnswerBytes)).welcome);
  say(socket, handshake.confirm());
}

// A connection that may send requests.
Descriptor admitted(const Served& served) {
  Descriptor socket = served.stranger();
  shake_hands(socket);
  return socket;
}
std::string request() { return encode_request({StoreOperation::kPut, "key", "value", "", 0}); }

Error refusal(const StreamStore::Options& options) {
  return error_of([&] { StreamStore(options).connect(soon()); });
}

// Where the test itself is what a client takes for a store.
struct FakeStore {
  Descriptor accept() const {
    REQUIRE(wait_ready(listener.socket.get(), POLLIN, soon()));
    return Descriptor(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  // The next client, which it has welcomed.
  Descriptor welcome() const {
    Descriptor client = accept();
    const Authenticator none;
    AcceptorHandshake handshake(none);
    REQUIRE(handshake.hear(read_exactly(client, kHelloBytes)));
    say(client, handshake.answer({}));
    return client;
  }
  StreamStore::Options client() const {
    StreamStore::Options options;
    options.addresses = [address = listener.address](Store::Deadline) { return std::vector{address}; };
    return options;
  }
  Listener listener = listen_tcp("127.0.0.1", 0, "", Exposure::kLoopback, soon());
};

TEST_CASE("a request cut at every byte ends that connection and nothing else") {
  Served served;
  for (size_t cut = 0; cut < request().size(); ++cut) {
    CAPTURE(cut);
    Descriptor socket = admitted(served);
    say(socket, request().substr(0, cut));
    ::shutdown(socket.get(), SHUT_WR);
    CHECK(closes(socket, 1000));
  }
  StreamStore store(served.client());
  CHECK_FALSE(store.try_get("key", soon()));  // no half request was served
}

TEST_CASE("the rest of a request may come later than the handshake's deadline; one that comes byte by byte works") {
  // Proves: an outage of the network in the middle of a request does not end the start.
  Served served(100);
  Descriptor half = admitted(served);
  say(half, request().substr(0, 7));
  const Descriptor stranger = served.stranger();
  CHECK(closes(stranger, 5'000));  // by the deadline
  say(half, request().substr(7));
  CHECK(read_exactly(half, kFrameHeadBytes).size() == kFrameHeadBytes);

  Descriptor slow = admitted(served);
  for (char c : request()) say(slow, std::string_view(&c, 1));
  CHECK(wait_ready(slow.get(), POLLIN, soon()));  // the answer
  StreamStore store(served.client());
  CHECK(store.get("key", soon()) == "value");
}

TEST_CASE("fault 30: impossible lengths are closed and nothing is allocated for them") {
  Served served;
  for (uint32_t length : {0u, 1u << 31, 0xffffffffu, static_cast<uint32_t>(kMaxRequestBodyBytes + 1)}) {
    CAPTURE(length);
    Descriptor socket = admitted(served);
    say(socket, ByteWriter().u32(length).take());
    CHECK(closes(socket, 250));
  }
  // A key's length beyond its frame, and a request with bytes left over.
  for (std::string body : {ByteWriter().u8(1).u32(400).raw("k").take(), request().substr(4) + "x"}) {
    Descriptor socket = admitted(served);
    say(socket, ByteWriter().u32(static_cast<uint32_t>(body.size())).raw(body).take());
    CHECK(closes(socket, 1000));
  }
  check_serving(served);
}

TEST_CASE("fault 31: hello: another version and another job are refused with both sides named") {
  Served served(5'000, "this job");
  Error error = refusal(served.client("other job"));
  CHECK(error.code == ErrorCode::kBootstrap);
  CHECK(error.message.find("\"this job\"") != std::string::npos);
  CHECK(error.message.find("\"other job\"") != std::string::npos);
  CHECK(error.message.find("RONDO_JOB_ID") != std::string::npos);

  // A newer server, and a server that is something else, as our client sees them.
  for (bool is_rondo : {true, false}) {
    const FakeStore store;
    std::thread fake([&] {
      const Descriptor client = store.accept();
      Answer answer;
      answer.version = kWireVersion + 1;
      say(client, is_rondo ? encode(answer) : "SSH-2.0-OpenSSH_9.2p1 Debian\r\n");
      said_to_end(client);
    });
    error = refusal(store.client());
    fake.join();
    CHECK(error.code == ErrorCode::kBootstrap);
    if (is_rondo) {
      CHECK(error.message.find("version " + std::to_string(kWireVersion + 1)) != std::string::npos);
      CHECK(error.message.find(std::to_string(kWireVersion)) != std::string::npos);
    } else {
      CHECK(error.message.find("not Rondo's store") != std::string::npos);
    }
  }
}

TEST_CASE("client: it waits for a server that comes later, and says at the deadline what it saw") {
  uint16_t port = 0;
  StreamStore::Options options;
  {
    Served earlier;
    options = earlier.client();
    port = earlier.address().port();
  }
  StreamStore store(options);
  const Error nobody = error_of([&] { store.connect(in_ms(100)); });
  CHECK(nobody.code == ErrorCode::kTimeout);
  CHECK(nobody.message.find("refused") != std::string::npos);
  std::thread client([&] { store.put("k", "v", soon()); });
  Served served(300, "j", port);
  client.join();
  CHECK(store.get("k", soon()) == "v");
}

TEST_CASE("fault 9: client: a server that ends in mid-wait is reported, not waited for") {
  auto served = std::make_unique<Served>();
  StreamStore store(served->client());
  store.put("k", "v", soon());
  std::thread end([&] { served.reset(); });
  auto start = Clock::now();
  const Error error = error_of([&] { store.get("never", soon()); });
  CHECK(error.code == ErrorCode::kBootstrap);
  CHECK(error.message.find("gone") != std::string::npos);
  CHECK(Clock::now() - start < 5s);
  end.join();
}

TEST_CASE("client: a server that is too busy to answer is late, not gone, also where the client had to connect again") {
  // Proves: of 256 ranks on two cores some wait longer for the store's welcome than they look for an answer.
  const FakeStore busy_store;
  Descriptor first;
  std::thread busy([&] { first = busy_store.welcome(); });  // one client, and answers nothing
  StreamStore store(busy_store.client());
  store.connect(soon());
  busy.join();
  for (int call = 0; call < 3; ++call) {
    CAPTURE(call);
    CHECK(error_of([&] { store.get("k", in_ms(50)); }).code == ErrorCode::kTimeout);
  }
}

TEST_CASE("client: a server whose sum is no number is named, and asked no more") {
  const FakeStore garbling;
  std::thread garbles([&] {
    const Descriptor client = garbling.welcome();
    read_exactly(client, kConfirmBytes + encode_request({StoreOperation::kAdd, "sum", "", "", 1}).size());
    say(client, encode_reply({StoreStatus::kOk, "one", 1}));
    CHECK(said_to_end(client) == "");
  });
  StreamStore::Options options = garbling.client();
  options.name = "tcp://there";
  StreamStore store(options);
  for (int call = 0; call < 2; ++call) {
    CAPTURE(call);
    const Error error = error_of([&] { store.add("sum", 1, soon()); });
    CHECK(error.code == ErrorCode::kBootstrap);
    CHECK(error.message == "the store at tcp://there is gone: it sent a malformed answer");
  }
  garbles.join();
}

TEST_CASE("client: a call that runs out leaves the connection open, and its late answer is no other call's") {
  const Served served;
  StreamStore store(served.client()), other(served.client());
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    const std::string key = fmt::format("k{}", round);
    std::thread puts([&] { other.put(key, "late", soon()); });
    try {
      const std::string came = store.get(key, in_ms(round % 3));
      CHECK(came == "late");
    } catch (const Exception& e) {
      CHECK(e.code() == ErrorCode::kTimeout);
    }
    CHECK(store.add("sum", 1, soon()) == round + 1);
    puts.join();
    CHECK(store.get(key, soon()) == "late");
  }
}

TEST_CASE(
    "client: its will is put when its connection ends, once, where the key is not there, and not once withdrawn") {
  const Served served;
  StreamStore heir(served.client());
  heir.put("taken", "before", soon());
  auto dies = std::make_unique<StreamStore>(served.client());
  for (const char* key : {"will", "taken", "withdrawn"}) dies->leave_will(key, "so: ", soon());
  dies->leave_will("withdrawn", "", soon());
  CHECK_FALSE(heir.try_get("will", soon()).has_value());
  std::thread ends([&] { dies.reset(); });
  CHECK(heir.get("will", soon()) == "so: its process ended, or gave up");
  ends.join();
  CHECK(heir.get("taken", soon()) == "before");
  CHECK_FALSE(heir.try_get("withdrawn", soon()).has_value());
  for (const char* key : {"a", "b", "c", "d"}) heir.leave_will(key, "v", soon());
  CHECK_THROWS_AS(heir.leave_will("e", "v", soon()), Exception);
}

TEST_CASE("fault 58: another user's process is shut out of a store on a unix socket (needs root)") {
  REQUIRE(::geteuid() == 0);
  const test::Folder folder;
  const std::string path = folder.path("store");
  const Served served(listen_unix(path, soon()));
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  std::filesystem::permissions(path, std::filesystem::perms::all);
  CHECK(testing::in_child([&] {
          if (::setgid(65'534) != 0 || ::setuid(65'534) != 0) return 9;
          const Descriptor socket = served.stranger();
          say(socket, DialerHandshake(test::store_hello("j"), Authenticator()).hello());
          return said_to_end(socket, 5s) == "" ? 0 : 1;  // turned away without a word
        }) == 0);
  check_serving(served);  // this user's processes are heard
}

TEST_CASE("fault 58: a lock that another user may hold on a shared folder keeps no store from a socket in it") {
  const test::Folder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms::all);
  const Descriptor locked(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  REQUIRE(::flock(locked.get(), LOCK_EX) == 0);
  check_serving(Served(listen_unix(folder.path("store"), in_ms(2'000))));
}

TEST_CASE("fault 67: port: 100 restarts on one port in a row succeed, clients and all") {
  uint16_t port = 0;
  for (int i = 0; i < 100; ++i) {
    Served served(300, "j", port);
    port = served.address().port();
    check_serving(served);
  }
}

TEST_CASE("fault 67: port: one that is taken is named, with the variables that change it") {
  Served served;
  Launch launch = test::launch(0, 2, served.address().text());
  for (const char* launcher : {"environment", "torchrun"}) {
    launch.launcher = launcher;
    const Error taken = error_of([&] { open_store(launch, Config{}, in_ms(50)); });
    CAPTURE(taken.message);
    CHECK(taken.code == ErrorCode::kBootstrap);
    for (const std::string& part :
         {served.address().text(), std::string("RONDO_MASTER_PORT"), std::string(" MASTER_PORT")}) {
      CHECK(taken.message.find(part) != std::string::npos);
    }
  }
}

TEST_CASE("port: of several hosts, each rank says at once that it may not listen beyond loopback") {
  Launch launch = test::launch(1, 2, "tcp://10.255.255.1:21234");
  launch.place = Place{1, 2, 0, 1, 1, 2};
  launch.one_host = false;
  launch.secret = {Secret::Source::kUser, std::string(32, 'x'), "this user's"};
  const auto before = std::chrono::steady_clock::now();
  const Error refused = error_of([&] { open_store(launch, Config{}, in_ms(20'000)); });
  CHECK(refused.code == ErrorCode::kInvalid);
  CHECK(refused.message.find("rank 1 belongs to a job of several hosts around tcp://10.255.255.1:21234") == 0);
  CHECK(refused.message.find("RONDO_SECRET_FILE") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(5));
}

TEST_CASE("port: listening beyond loopback needs a secret or the word insecure") {
  Config config;
  Secret secret;
  auto listen = [&] { listen_tcp("0.0.0.0", 0, "", exposure_of(config, secret), soon()); };
  secret = {Secret::Source::kUser, std::string(32, 'x'), "this user's"};  // other hosts do not have it
  for (int round = 0; round < 2; ++round) {
    const Error refused = error_of(listen);
    CHECK(refused.code == ErrorCode::kInvalid);
    CHECK(refused.message.find("RONDO_SECRET_FILE") != std::string::npos);
    CHECK(refused.message.find("RONDO_INSECURE") != std::string::npos);
    secret = {};
  }
  secret = {Secret::Source::kFile, std::string(32, 'x'), "a file"};
  listen();
  secret = {};
  config.insecure = true;
  listen();
}

// --- authentication

TEST_CASE("secret: a client with another secret, or none, is refused in time, and learns nothing of the job") {
  const std::string right = "the right secret, 16 bytes or more";
  Served served(5'000, "a job's name", 0, knowing(right));
  for (const Authenticator& wrong : {knowing("another secret of enough bytes"), Authenticator()}) {
    StreamStore::Options options = served.client("a job's name");
    options.auth = wrong;
    const auto begin = Clock::now();
    const Error error = refusal(options);
    CHECK(Clock::now() - begin < 5s);
    CAPTURE(error.message);
    CHECK(error.code == ErrorCode::kAuthFailed);
    CHECK(error.message.find(served.address().text()) != std::string::npos);
    CHECK(error.message.find("RONDO_SECRET_FILE") != std::string::npos);
    Descriptor stranger = served.stranger();
    say(stranger, DialerHandshake(test::store_hello("a guess"), wrong).hello());
    ::shutdown(stranger.get(), SHUT_WR);
    const auto answer = said_to_end(stranger);
    REQUIRE(answer);
    CHECK(answer->find("a job's name") == std::string::npos);
  }
  check_serving(served, "a job's name");
  for (const std::string& message : {refusal(served.client("other")).message}) {
    CHECK(message.find("a job's name") != std::string::npos);  // one who knows the secret is told
  }
}

TEST_CASE("secret: a server that does not know it is not believed, whatever it says") {
  for (const AnswerCode verdict : {AnswerCode::kWelcome, AnswerCode::kJob, AnswerCode::kAuthFailed}) {
    const FakeStore store;
    std::thread impostor([&] {
      const Descriptor client = store.accept();
      const std::string said = read_exactly(client, kHelloBytes);
      const Authenticator known = knowing("what the impostor knows, no more");
      Answer answer;
      answer.code = verdict;
      answer.nonce = random_nonce();
      answer.mac = known.prove("rondo link answer", {said, encode(answer)});
      say(client, encode(answer));
      CHECK(said_to_end(client) == "");  // no confirmation, and no request
    });
    StreamStore::Options options = store.client();
    options.job_id = "j";
    options.auth = knowing("the right secret, 16 bytes or more");
    CHECK(refusal(options).code == ErrorCode::kAuthFailed);
    impostor.join();
  }
}

TEST_CASE("encryption: requests and answers of any size travel sealed, and a plain request ends its connection") {
  const Served served([](StoreServer::Options& options) {
    options.encrypt = true;
    options.handshake_ms = 5'000;
    options.auth = knowing("the right secret, 16 bytes or more");
  });
  StreamStore::Options client = served.client();
  const Error plain = refusal(client);
  CHECK(plain.message.find("RONDO_ENCRYPT") != std::string::npos);
  client.encrypt = true;
  StreamStore store(client), other(client);
  const std::string large(Store::kMaxValueBytes, 'L');
  store.put("large", large, soon());
  CHECK(other.get("large", soon()) == large);
  std::thread waiter([&] { CHECK(other.get("later", soon()) == "here"); });
  for (int i = 0; i < 100; ++i) CHECK(store.add("sum", 1, soon()) == i + 1);
  store.put("later", "here", soon());
  waiter.join();

  const Descriptor plainly = served.stranger();
  shake_hands(plainly, true, client.auth);
  say(plainly, request());
  CHECK(closes(plainly, 1'000));
}

// --- budgets

TEST_CASE("clients: twice the world and 16, no more, and the world may become known later") {
  for (const bool later : {false, true}) {
    CAPTURE(later);
    Served served(5'000, "j", 0, Authenticator(), later ? 0 : 2);
    if (later) StreamStore(served.client()).put(kRosterWorldKey, "2 a host", soon());
    std::vector<Descriptor> clients;
    for (int i = 0; i < 20; ++i) {
      clients.push_back(admitted(served));
      say(clients.back(), request());
      CHECK(read_exactly(clients.back(), kFrameHeadBytes).size() == kFrameHeadBytes);
    }
    Descriptor surplus = admitted(served);
    CHECK(closes(surplus, 1'000));
    clients.pop_back();
    // Once the server has seen it go.
    CHECK(eventually([&] {
      try {
        StreamStore(served.client()).put("k", "v", soon());
        return true;
      } catch (const Exception&) {
        return false;
      }
    }));
  }
}

TEST_CASE("clients: one that is silent after its request, or takes no answer, is dropped; one that waits stays") {
  const Served served([](StoreServer::Options& options) {
    options.handshake_ms = 200;
    options.idle_ms = 600;
  });
  const auto client = [&] { return admitted(served); };
  Descriptor waits = client();
  say(waits, encode_request({StoreOperation::kGet, "later", "", "", 0}));
  Descriptor idle = client(), half = client();
  say(idle, request());
  say(half, request().substr(0, 7));
  CHECK(closes(idle, 5'000));
  CHECK(closes(half, 5'000));
  // Answers that nobody reads: the socket's buffers hold some, and then the server waits.
  Descriptor deaf = client();
  const int small = 4096;
  ::setsockopt(deaf.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  const std::string large =
      encode_request({StoreOperation::kPut, "big", std::string(Store::kMaxValueBytes, 'x'), "", 0});
  for (size_t at = 0; at < large.size();) {
    REQUIRE(wait_ready(deaf.get(), POLLOUT, soon()));
    const ssize_t n = ::send(deaf.get(), large.data() + at, large.size() - at, MSG_NOSIGNAL);
    REQUIRE(n > 0);
    at += static_cast<size_t>(n);
  }
  const std::string ask = encode_request({StoreOperation::kGet, "big", "", "", 0});
  const auto until = Clock::now() + 10s;
  bool over = false;
  while (!over && Clock::now() < until) {
    over = ::send(deaf.get(), ask.data(), ask.size(), MSG_NOSIGNAL) < 0 && errno != EAGAIN;
    wait_ready(-1, 0, in_ms(20));
  }
  CHECK(over);
  const Descriptor puts = client();
  say(puts, encode_request({StoreOperation::kPut, "later", "here", "", 0}));
  CHECK(read_exactly(waits, kFrameHeadBytes).size() == kFrameHeadBytes);
}

TEST_CASE("clients: unfinished requests share a bound; the one that goes beyond it is dropped") {
  // 16 MiB and 256 KiB for each of 2 ranks hold 8 unfinished requests of nearly 2 MiB, and not 9.
  Served served(20'000, "j", 0, Authenticator(), 2);
  const std::string part = encode_request({StoreOperation::kCompareSet, "k", std::string(Store::kMaxValueBytes, 'a'),
                                           std::string(Store::kMaxValueBytes, 'b'), 0})
                               .substr(0, 2 * Store::kMaxValueBytes);
  std::vector<Descriptor> clients;
  int dropped = 0;
  for (int i = 0; i < 9; ++i) {
    clients.push_back(admitted(served));
    for (size_t at = 0; at < part.size();) {
      if (!wait_ready(clients.back().get(), POLLOUT, soon())) break;
      const ssize_t n = ::send(clients.back().get(), part.data() + at, part.size() - at, MSG_NOSIGNAL);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
  }
  for (const Descriptor& client : clients) dropped += wait_ready(client.get(), POLLIN, in_ms(300)) ? 1 : 0;
  CHECK(dropped >= 1);
  CHECK(dropped <= 2);
}

// 16 MiB and 256 KiB for each of 2 ranks: 16 values of the longest leave less than half a MiB.
void fill(StreamStore& store) {
  const std::string large(Store::kMaxValueBytes, 'x');
  for (int i = 0; i < 16; ++i) store.put(fmt::format("full/{}", i), large, soon());
  CHECK(error_of([&] { store.put("full", large, soon()); }).message.find("the store is full") != std::string::npos);
}

TEST_CASE("a full store: a will for which there is no room keeps no other will from being carried out") {
  const Served served(5'000, "j", 0, Authenticator(), 2);
  StreamStore store(served.client());
  fill(store);
  {
    StreamStore ends(served.client());
    ends.leave_will("will/1", std::string(Store::kMaxValueBytes - 100, 'x'), soon());  // wills go in the keys' order
    ends.leave_will("will/2", "it has gone: ", soon());
  }
  CHECK(store.get("will/2", soon()).find("it has gone: ") == 0);
  CHECK_FALSE(store.try_get("will/1", soon()));
}

TEST_CASE("a full store: who does not know the secret is told so") {
  const Served served(5'000, "j", 0, knowing("the right secret, 16 bytes or more"), 2);
  StreamStore store(served.client());
  fill(store);
  // Less is left than an entry of the server's own takes.
  for (std::string rest(Store::kMaxValueBytes / 2, 'x'); !rest.empty(); rest.resize(rest.size() / 2)) {
    error_of([&] { store.put(fmt::format("full/of {}", rest.size()), rest, soon()); });
  }
  StreamStore::Options other = served.client();
  other.auth = knowing("another secret of enough bytes");
  CHECK(refusal(other).code == ErrorCode::kAuthFailed);
  CHECK_FALSE(store.try_get(StoreServer::kWrongSecretKey, soon()));
}

}  // namespace
}  // namespace rondo
