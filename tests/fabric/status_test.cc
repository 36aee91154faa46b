// What a rank is doing, said at a unix socket: to its user alone, whatever clients do, and nothing of it stays behind.
#include "transport/control/status.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ring/base/descriptor.h"
#include "tests/fabric/cluster.h"
#include "tests/support/child.h"
#include "tests/support/eventually.h"
#include "tests/support/resources.h"
#include "tests/support/sockets.h"
#include "tests/support/temp_folder.h"
#include "transport/tcp/io_thread.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/socket.h"

namespace rondo::testing {
namespace {

using Json = nlohmann::json;

Descriptor dial(const std::string& path) {
  Descriptor socket = connect_socket(unix_address(path), in(5'000));
  REQUIRE(socket.valid());
  return socket;
}

std::string asked(const std::string& path) { return read_to_end(dial(path)); }

struct Served {
  explicit Served(StatusServer::Answer answer, int64_t patience_ms = 20'000)
      : server(thread.context(), listen_unix(path, in(5'000)), std::move(answer), patience_ms) {}
  ~Served() { thread.stop(); }
  TempFolder folder;
  const std::string path = folder.path("status.sock");
  std::atomic<int> failures{0};
  IoThread thread{[this](const Error&) { ++failures; }};
  StatusServer server;
};

TEST_CASE("a client gets the text and the end; what it writes, and how it leaves, does not matter") {
  int calls = 0;
  Served served([&](std::string_view) { return "text " + std::to_string(++calls) + "\n"; });
  struct stat info {};
  REQUIRE(::stat(served.path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(asked(served.path) == "text 1\n");
  {
    const Descriptor garbage = dial(served.path);
    const std::string noise(4096, '\xff');
    say(garbage, noise);
    CHECK(read_to_end(garbage).starts_with("text "));
  }
  { const Descriptor gone = dial(served.path); }
  const std::string last = asked(served.path);
  CHECK(last.starts_with("text "));
  CHECK(served.failures == 0);
}

// What is said to a request, whose end of the connection stays open.
std::string answer_to(const std::string& path, const std::string& request) {
  const Descriptor client = dial(path);
  pollfd wish{client.get(), POLLOUT, 0};
  for (const char& c : request) {
    while (::send(client.get(), &c, 1, MSG_NOSIGNAL) != 1) {
      if (errno != EAGAIN) return read_to_end(client);  // it was answered before its end
      REQUIRE(::poll(&wish, 1, 20'000) == 1);
    }
  }
  return read_to_end(client);
}

TEST_CASE("a request of HTTP is heard to its end, whatever its pieces; what is none gets the text at once") {
  const StatusServer::Answer answer = [](std::string_view request) {
    return request.starts_with("GET ") ? http_answer("text/plain", std::string(request.substr(0, 12))) : "status";
  };
  Served served(answer);
  CHECK(answer_to(served.path, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") ==
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 12\r\nConnection: close\r\n\r\nGET /metrics");
  CHECK(answer_to(served.path, "POST / HTTP/1.1\r\n") == "status");
  CHECK(answer_to(served.path, "") == "status");  // after kAskPatience
  CHECK(answer_to(served.path, "GET " + std::string(8192, 'x')).starts_with("HTTP/1.1 200 OK"));
  CHECK(served.failures == 0);
  Served impatient(answer, 200);
  CHECK(answer_to(impatient.path, "GET /half").starts_with("HTTP/1.1 200 OK"));
  CHECK(answer_to(impatient.path, "GE") == "status");
}

TEST_CASE("a text that cannot be made is no text, and the server goes on") {
  bool fails = true;
  Served served([&](std::string_view) -> std::string {
    if (std::exchange(fails, false)) throw std::bad_alloc();
    return "there";
  });
  CHECK(asked(served.path).empty());
  CHECK(asked(served.path) == "there");
  CHECK(served.failures == 0);
}

// More than a socket holds.
const std::string kLarge(8u << 20, 'x');

std::vector<Descriptor> silent_clients(const Served& served, size_t number) {
  std::vector<Descriptor> silent;
  for (size_t i = 0; i < number; ++i) silent.push_back(dial(served.path));
  return silent;
}

TEST_CASE("clients that never read are pushed out, the oldest first; the others get all; descriptors come back") {
  Served served([](std::string_view) { return kLarge; });
  const size_t before = open_descriptors();
  auto silent = silent_clients(served, 3 * StatusServer::kMostClients);
  CHECK(asked(served.path) == kLarge);
  CHECK(open_descriptors() <= before + silent.size() + StatusServer::kMostClients);
  CHECK(read_to_end(silent.front()).size() < kLarge.size());
  silent.clear();
  CHECK(eventually([&] { return open_descriptors() == before; }));
}

TEST_CASE("a client that does not read in time is let go") {
  Served served([](std::string_view) { return kLarge; }, 200);
  const size_t before = open_descriptors();
  const auto silent = silent_clients(served, 1);
  CHECK(eventually([&] { return open_descriptors() == before + 2; }));
  CHECK(eventually([&] { return open_descriptors() == before + 1; }));
  CHECK(read_to_end(silent.front()).size() < kLarge.size());
}

// The thread stands still while a client, accepted before, asks and its time for that passes: both are found at once.
TEST_CASE("a client that is answered as its time to ask runs out is no failure of the rank's") {
  Descriptor asks;
  Served served([&](std::string_view request) {
    if (request == "hold") {
      say(asks, "now");
      const auto until = std::chrono::steady_clock::now() + 2 * StatusServer::kAskPatience;
      while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    }
    return std::string("text");
  });
  asks = dial(served.path);
  const Descriptor holds = dial(served.path);
  say(holds, "hold");
  CHECK(read_to_end(asks) == "text");
  CHECK(read_to_end(holds) == "text");
  CHECK(asked(served.path) == "text");
  CHECK(served.failures == 0);
}

TEST_CASE("fault 58: another user that reaches the socket is shut out without a byte (needs root)") {
  REQUIRE(::geteuid() == 0);
  Served served([](std::string_view) { return "secret"; });
  for (const std::string& path : {std::filesystem::path(served.path).parent_path().string(), served.path}) {
    REQUIRE(::chmod(path.c_str(), 0777) == 0);
  }
  CHECK(in_child([&] {
          if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 9;
          const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
          const SocketAddress address = unix_address(served.path);
          if (::connect(socket, address.get(), address.size) != 0) return 8;
          char byte = 0;
          return ::recv(socket, &byte, 1, 0) > 0 ? 1 : 0;
        }) == 0);
  CHECK(asked(served.path) == "secret");
}

TEST_CASE("the document is one line, whatever is in the texts") {
  RankStatus rank;
  rank.job = "a \"job\"\n";
  rank.session = 0xabc;
  rank.communicators = {R"({"hash":"0x10"})", "null"};
  const std::string text = status_json(rank);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  const Json document = Json::parse(text);
  CHECK(document.at("job") == "a \"job\"\n");
  CHECK(document.at("session") == "00000abc");
  CHECK(document.at("slowest_link").is_null());
  CHECK(document.at("communicators_count") == 2);
  CHECK(document.at("communicators").at(0).at("hash") == "0x10");
}

// The sockets of ranks in this process, by rank.
std::map<int, std::string> sockets() {
  std::map<int, std::string> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(private_directory(), none)) {
    if (!entry.path().filename().string().starts_with("status-")) continue;
    const Descriptor socket = connect_socket(unix_address(entry.path()), in(5'000));
    const Json document = Json::parse(socket.valid() ? read_to_end(socket) : "", nullptr, false);
    if (document.is_object() && document.at("pid") == ::getpid()) found[document.at("rank")] = entry.path();
  }
  return found;
}

TEST_CASE("ranks that are asked to serve their status while they live, and leave no socket; others serve none") {
  {
    auto members = open_world(2, 1);
    CHECK(sockets().empty());
    destroy_world(members, 1);
  }
  Config config = test_config();
  config.status = true;
  auto members = open_world(2, 1, config);
  const auto served = sockets();
  REQUIRE(served.size() == 2);
  for (const auto& [rank, path] : served) {
    const Json document = Json::parse(asked(path));
    CHECK(document.at("rank") == rank);
    CHECK(document.at("world") == 2);
    CHECK(document.at("job") == "test job");
    CHECK(document.at("communicators_count") == 1);
  }
  destroy_world(members, 1);
  for (const auto& [rank, path] : served) CHECK_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace rondo::testing
