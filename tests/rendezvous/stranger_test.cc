#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "rondo/error.h"
#include "tests/rendezvous/served.h"
#include "tests/rendezvous/test_jobs.h"
#include "transport/rendezvous/bytes.h"
#include "transport/rendezvous/listener.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/rendezvous/store_server.h"
#include "transport/rendezvous/stream_store.h"

namespace rondo {
namespace {

using namespace std::chrono_literals;
using test::check_serving;
using test::in_ms;
using test::Served;
using test::soon;
using Clock = std::chrono::steady_clock;

void say(const Descriptor& socket, std::string_view bytes) {
  (void)!::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// Everything until the other end closes; nullopt if it has not by then.
std::optional<std::string> read_to_end(const Descriptor& socket, Store::Deadline deadline) {
  std::string all;
  char buffer[4096];
  while (wait_ready(socket.get(), POLLIN, deadline)) {
    ssize_t n = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (n > 0) all.append(buffer, static_cast<size_t>(n));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return all;
  }
  return std::nullopt;
}

bool closes(const Descriptor& socket, int64_t ms) { return read_to_end(socket, in_ms(ms)).has_value(); }

std::string hello() { return encode_hello({StoreKey{}, "j"}); }
std::string request() { return encode_request({StoreOperation::kPut, "key", "value", "", 0}); }

Error refusal(StreamStore::Options options) {
  try {
    StreamStore(std::move(options)).connect(soon());
  } catch (const Exception& e) {
    return e.error();
  }
  return {};
}

TEST_CASE("strangers: HTTP, TLS and random bytes are closed at once, silence by the handshake deadline") {
  Served served;
  uint32_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::string noise(4096, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  noise[0] = '\0';  // never the beginning of the magic
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
                                   std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), noise}) {
    Descriptor socket = served.stranger();
    say(socket, bytes);
    CHECK(closes(socket, 250));  // before the deadline of 300 ms
    check_serving(served);
  }
  Descriptor silent = served.stranger();
  auto before = Clock::now();
  CHECK(closes(silent, 5000));
  CHECK(Clock::now() - before >= 250ms);
  check_serving(served);
}

TEST_CASE("strangers: a hello or a request cut at every byte ends that connection and nothing else") {
  Served served;
  std::string bytes = hello() + request();
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    CAPTURE(cut);
    Descriptor socket = served.stranger();
    say(socket, std::string_view(bytes).substr(0, std::min(cut, hello().size())));
    if (cut > hello().size()) {
      CHECK(wait_ready(socket.get(), POLLIN, soon()));  // the welcome
      say(socket, std::string_view(bytes).substr(hello().size(), cut - hello().size()));
    }
    ::shutdown(socket.get(), SHUT_WR);
    CHECK(closes(socket, 1000));
  }
  StreamStore store(served.client());
  CHECK_FALSE(store.try_get("key", soon()));  // no half request was served
}

TEST_CASE("strangers: half a request is dropped by the deadline; one that comes byte by byte works") {
  Served served;
  std::string bytes = hello();
  Descriptor half = served.stranger();
  say(half, bytes);
  CHECK(wait_ready(half.get(), POLLIN, soon()));
  say(half, request().substr(0, 7));
  CHECK(closes(half, 5000));

  Descriptor slow = served.stranger();
  for (char c : bytes) say(slow, std::string_view(&c, 1));
  CHECK(wait_ready(slow.get(), POLLIN, soon()));
  for (char c : request()) say(slow, std::string_view(&c, 1));
  StreamStore store(served.client());
  CHECK(store.get("key", soon()) == "value");
}

TEST_CASE("strangers: impossible lengths are closed and nothing is allocated for them") {
  Served served;
  for (uint32_t length : {0u, 1u << 31, 0xffffffffu, static_cast<uint32_t>(kMaxRequestBodyBytes + 1)}) {
    CAPTURE(length);
    Descriptor socket = served.stranger();
    say(socket, hello());
    CHECK(wait_ready(socket.get(), POLLIN, soon()));
    say(socket, ByteWriter().u32(length).take());
    CHECK(closes(socket, 250));

    Descriptor at_hello = served.stranger();
    say(at_hello, ByteWriter().raw(kStoreMagic).u32(kStoreVersion).u32(length).take());
    CHECK(closes(at_hello, length == 0 ? 5000 : 250));
  }
  // A key's length beyond its frame, and a request with bytes left over.
  for (std::string body : {ByteWriter().u8(1).u32(400).raw("k").take(), request().substr(4) + "x"}) {
    Descriptor socket = served.stranger();
    say(socket, hello());
    CHECK(wait_ready(socket.get(), POLLIN, soon()));
    say(socket, ByteWriter().u32(static_cast<uint32_t>(body.size())).raw(body).take());
    CHECK(closes(socket, 1000));
  }
  check_serving(served);
}

TEST_CASE("hello: another version, another job and another key are refused with both sides named") {
  Served served(5'000, "this job");
  Error error = refusal(served.client("other job"));
  CHECK(error.code == ErrorCode::kBootstrap);
  CHECK(error.message.find("\"this job\"") != std::string::npos);
  CHECK(error.message.find("\"other job\"") != std::string::npos);
  CHECK(error.message.find("RONDO_JOB_ID") != std::string::npos);

  StreamStore::Options options = served.client("this job");
  options.key[3] = 1;
  error = refusal(options);
  CHECK(error.code == ErrorCode::kBootstrap);
  CHECK(error.message.find("unique id") != std::string::npos);

  // A newer client: our server tells its own version before it closes.
  Descriptor newer = served.stranger();
  say(newer, ByteWriter().raw(kStoreMagic).u32(7).u32(3).raw("abc").take());
  ::shutdown(newer.get(), SHUT_WR);
  std::optional<std::string> answer = read_to_end(newer, in_ms(5000));
  REQUIRE(answer);
  REQUIRE(answer->size() >= kStoreHeadBytes);
  CHECK(decode_head(*answer).version == kStoreVersion);

  // A newer server, and a server that is something else, as our client sees them.
  for (bool is_rondo : {true, false}) {
    Listener listener = listen_tcp("127.0.0.1", 0, "", Config{}, soon());
    std::thread fake([&] {
      REQUIRE(wait_ready(listener.socket.get(), POLLIN, soon()));
      Descriptor client(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
      say(client, is_rondo ? ByteWriter().raw(kStoreMagic).u32(9).u32(0).take() : "SSH-2.0-OpenSSH_9.2p1 Debian\r\n");
      read_to_end(client, soon());
    });
    StreamStore::Options to_fake;
    to_fake.addresses = [&] { return std::vector{listener.address}; };
    error = refusal(to_fake);
    fake.join();
    CHECK(error.code == ErrorCode::kBootstrap);
    if (is_rondo) {
      CHECK(error.message.find("version 9") != std::string::npos);
      CHECK(error.message.find("version 1") != std::string::npos);
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
  try {
    store.connect(in_ms(100));
    FAIL("nobody is there");
  } catch (const Exception& e) {
    CHECK(e.code() == ErrorCode::kTimeout);
    CHECK(std::string(e.what()).find("refused") != std::string::npos);
  }
  std::thread client([&] { store.put("k", "v", soon()); });
  Served served(300, "j", port);
  client.join();
  CHECK(store.get("k", soon()) == "v");
}

TEST_CASE("client: a server that ends in mid-wait is reported, not waited for") {
  auto served = std::make_unique<Served>();
  StreamStore store(served->client());
  store.put("k", "v", soon());
  std::thread end([&] { served.reset(); });
  auto start = Clock::now();
  try {
    store.get("never", soon());
    FAIL("there is no such key");
  } catch (const Exception& e) {
    CHECK(e.code() == ErrorCode::kBootstrap);
    CHECK(std::string(e.what()).find("gone") != std::string::npos);
  }
  CHECK(Clock::now() - start < 5s);
  end.join();
}

TEST_CASE("client: a server that is too busy to answer is late, not gone, also where the client had to connect again") {
  // Proves: of 256 ranks on two cores some wait longer for the store's welcome than they look for an answer.
  Listener listener = listen_tcp("127.0.0.1", 0, "", Config{}, soon());
  Descriptor first;
  std::thread busy([&] {  // welcomes one client and answers nothing
    REQUIRE(wait_ready(listener.socket.get(), POLLIN, soon()));
    first = Descriptor(::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    say(first, encode_welcome({}));
  });
  StreamStore::Options options;
  options.addresses = [&] { return std::vector{listener.address}; };
  StreamStore store(options);
  store.connect(soon());
  busy.join();
  for (int call = 0; call < 3; ++call) {
    CAPTURE(call);
    try {
      store.get("k", in_ms(50));
      FAIL("nobody answers");
    } catch (const Exception& e) {
      CHECK(e.code() == ErrorCode::kTimeout);
    }
  }
}

TEST_CASE("port: 100 restarts on one port in a row succeed, clients and all") {
  uint16_t port = 0;
  for (int i = 0; i < 100; ++i) {
    Served served(300, "j", port);
    port = served.address().port();
    check_serving(served);
  }
}

TEST_CASE("port: one that is taken is named, with the variables that change it") {
  Served served;
  Launch launch = test::launch(0, 2, served.address().text());
  for (const char* launcher : {"environment", "torchrun"}) {
    launch.launcher = launcher;
    try {
      open_store(launch, Config{}, in_ms(50));
      FAIL("the port is taken");
    } catch (const Exception& e) {
      std::string message = e.what();
      CAPTURE(message);
      CHECK(e.code() == ErrorCode::kBootstrap);
      CHECK(message.find(served.address().text()) != std::string::npos);
      CHECK(message.find("RONDO_MASTER_PORT") != std::string::npos);
      CHECK(message.find(" MASTER_PORT") != std::string::npos);
    }
  }
}

TEST_CASE("port: listening beyond loopback needs a secret or the word insecure") {
  test::Folder folder;
  Config config;
  auto listen = [&] { listen_tcp("0.0.0.0", 0, "", config, soon()); };
  try {
    listen();
    FAIL("accepted");
  } catch (const Exception& e) {
    CHECK(e.code() == ErrorCode::kInvalid);
    CHECK(std::string(e.what()).find("RONDO_SECRET_FILE") != std::string::npos);
    CHECK(std::string(e.what()).find("RONDO_INSECURE") != std::string::npos);
  }
  config.secret_file = folder.path("secret");
  CHECK_THROWS_AS(listen(), Exception);  // not there
  std::ofstream(config.secret_file) << "s";
  listen();
  config.secret_file.clear();
  config.insecure = true;
  listen();
}

}  // namespace
}  // namespace rondo
