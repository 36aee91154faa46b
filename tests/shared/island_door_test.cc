// Whom the door of an island lets in: the processes of its ranks, by the kernel's word, that greet as ranks of this
// start.
#include "transport/island/island_door.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/fabric/cluster.h"
#include "tests/support/child.h"
#include "tests/support/open_files_limit.h"
#include "transport/island/island_frame.h"
#include "transport/island/island_socket.h"
#include "transport/tcp/io_thread.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kSession = 77;
constexpr int kSelf = 2, kMember = 5, kElsewhere = 6;  // rank 6 is another process

class Scene {
 public:
  Scene()
      : door_(thread_.context(), listen_abstract(name, 256),
              {kSelf, kSession, {{kMember, ::getpid()}, {kElsewhere, 1}}}, [this](int rank, Descriptor socket) {
                std::lock_guard lock(mutex_);
                members_.emplace_back(rank, std::move(socket));
              }) {}
  ~Scene() { thread_.stop(); }

  Descriptor connect() const {
    int error = 0;
    Descriptor socket = connect_abstract(name, error);
    REQUIRE(socket.valid());
    return socket;
  }
  Descriptor visit(const IslandGreeting& first, size_t bytes = sizeof(IslandGreeting), size_t files = 0) const {
    Descriptor socket = connect();
    say(socket, first, bytes, files);
    return socket;
  }
  static void say(const Descriptor& socket, const IslandGreeting& first, size_t bytes = sizeof(IslandGreeting),
                  size_t files = 0) {
    char message[2 * sizeof(IslandFrame)] = {};
    std::memcpy(message, &first, sizeof first);
    std::string why;
    send_message(socket.get(), message, bytes, std::vector<int>(files, socket.get()), why);
  }
  size_t let_in() {
    std::lock_guard lock(mutex_);
    return members_.size();
  }
  bool lets_in_another() {
    const size_t before = let_in();
    const Descriptor honest = visit(IslandGreeting{kSession, kMember, kSelf});
    return eventually([&] { return let_in() == before + 1; });
  }
  // Waits until the I/O thread has had its turn.
  void turn() {
    std::promise<void> had;
    thread_.post([&] { had.set_value(); });
    had.get_future().wait();
  }
  const std::string name = random_socket_name();

 private:
  std::mutex mutex_;
  std::vector<std::pair<int, Descriptor>> members_;
  IoThread thread_{[](const Error& error) { FAIL(error.message); }};
  IslandDoor door_;
};

bool is_shut_out(const Descriptor& socket) {
  pollfd end{socket.get(), POLLIN, 0};
  char byte = 0;
  return ::poll(&end, 1, 5'000) == 1 && ::recv(socket.get(), &byte, 1, 0) <= 0;
}

TEST_CASE("a member that greets is let in with its rank, also where it takes its time") {
  Scene scene;
  CHECK(scene.lets_in_another());
  const Descriptor slow = scene.connect();
  CHECK(scene.lets_in_another());  // the door has seen the slow one
  Scene::say(slow, IslandGreeting{kSession, kMember, kSelf});
  CHECK(eventually([&] { return scene.let_in() == 3; }));
}

TEST_CASE("who does not greet as a rank of this start does is shut out, and keeps no descriptor here") {
  struct Visit {
    const char* what;
    IslandGreeting first;
    size_t bytes = sizeof(IslandGreeting);
    size_t files = 0;
  };
  const std::vector<Visit> visits{
      {"of another start", IslandGreeting{kSession + 1, kMember, kSelf}},
      {"for another rank", IslandGreeting{kSession, kMember, kSelf + 1}},
      {"a rank that is no member", IslandGreeting{kSession, 4, kSelf}},
      {"a rank that there is not", IslandGreeting{kSession, -1, kSelf}},
      {"another process's rank", IslandGreeting{kSession, kElsewhere, kSelf}},
      {"a frame without a greeting", IslandGreeting{kSession, kMember, kSelf}, sizeof(IslandFrame)},
      {"too short", IslandGreeting{kSession, kMember, kSelf}, sizeof(IslandGreeting) - 1},
      {"too long", IslandGreeting{kSession, kMember, kSelf}, sizeof(IslandGreeting) + 1},
      {"with a descriptor", IslandGreeting{kSession, kMember, kSelf}, sizeof(IslandGreeting), 1},
  };
  Scene scene;
  CHECK(scene.lets_in_another());
  for (const Visit& visit : visits) {
    const std::string what = visit.what;
    CAPTURE(what);
    const size_t descriptors = open_descriptors();
    {
      const Descriptor stranger = scene.visit(visit.first, visit.bytes, visit.files);
      CHECK(is_shut_out(stranger));
    }
    CHECK(open_descriptors() == descriptors);
  }
  CHECK(scene.let_in() == 1);
  CHECK(scene.lets_in_another());
}

// How a process fares that greets as the member does: 0, it was shut out.
int fate_of_process(const Scene& scene, const std::function<bool()>& before) {
  return in_child([&] {
    if (!before()) return 9;
    int error = 0;
    const Descriptor socket = connect_abstract(scene.name, error);
    if (!socket.valid()) return 8;
    Scene::say(socket, IslandGreeting{kSession, kMember, kSelf});
    return is_shut_out(socket) ? 0 : 1;
  });
}

TEST_CASE("another process is shut out, of this user or another, though it knows the session (needs root)") {
  REQUIRE(::geteuid() == 0);
  Scene scene;
  CHECK(fate_of_process(scene, [] { return true; }) == 0);
  CHECK(fate_of_process(scene, [] { return ::setgid(65534) == 0 && ::setuid(65534) == 0; }) == 0);
  CHECK(scene.let_in() == 0);
  CHECK(scene.lets_in_another());
}

TEST_CASE("of connections that say nothing the oldest go, and a member is let in amid them") {
  Scene scene;
  std::vector<Descriptor> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(scene.connect());
    if (i % 10 == 0) CHECK(scene.lets_in_another());
  }
  CHECK(scene.lets_in_another());
  CHECK(is_shut_out(silent.front()));
  CHECK(is_shut_out(silent[100 - 2 - 16 - 1]));
  char byte = 0;
  CHECK(::recv(silent.back().get(), &byte, 1, MSG_DONTWAIT) < 0);
  CHECK(errno == EAGAIN);
  Scene::say(silent.back(), IslandGreeting{kSession, kMember, kSelf});
  CHECK(eventually([&] { return scene.let_in() == 12; }));
}

TEST_CASE("a door without a descriptor left lets a member in once there is one") {
  Scene scene;
  CHECK(scene.lets_in_another());
  Descriptor late;
  {
    const OpenFilesLimit limit(OpenFilesLimit::for_more(1));
    late = scene.connect();
    Scene::say(late, IslandGreeting{kSession, kMember, kSelf});
    for (int i = 0; i < 10; ++i) scene.turn();
  }
  CHECK(scene.let_in() == 1);
  CHECK(eventually([&] { return scene.let_in() == 2; }));
}

}  // namespace
}  // namespace rondo::testing
