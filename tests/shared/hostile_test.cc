// Ranks of the island that break its protocol: each loses its connection, for a reason that is said, and nobody else
// loses anything.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ring/base/process_handle.h"
#include "rondo/error.h"
#include "tests/fabric/cluster.h"
#include "tests/support/open_files_limit.h"
#include "transport/armed_sleep.h"
#include "transport/island/island.h"
#include "transport/island/island_connection.h"
#include "transport/island/island_frame.h"
#include "transport/island/island_socket.h"
#include "transport/island/memory_file.h"
#include "transport/island/shared_link.h"
#include "transport/island/shared_stream.h"
#include "transport/tcp/io_thread.h"

namespace rondo::testing {
namespace {

constexpr uint64_t kId = 5;       // a communicator of all
constexpr uint64_t kPrivate = 6;  // of the two honest ranks alone
constexpr uint64_t kSession = 77;
constexpr int kBelow = 0, kFriend = 1, kSelf = 2, kAbove = 3;
constexpr LinkShape kShape{3, 4096};

using Files = std::vector<Descriptor>;

std::pair<Descriptor, Descriptor> socket_pair() {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

// Whatever bytes, with however many descriptors. False: the other end is closed.
bool send_raw(const Descriptor& socket, const void* bytes, size_t count, const Files& files) {
  iovec part{const_cast<void*>(bytes), count};
  alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!files.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    for (size_t i = 0; i < files.size(); ++i) {
      const int number = files[i].get();
      std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &number, sizeof number);
    }
  }
  return ::sendmsg(socket.get(), &header, MSG_NOSIGNAL) >= 0;
}

bool send_frame(const Descriptor& socket, const IslandFrame& frame, const Files& files = {}) {
  return send_raw(socket, &frame, sizeof frame, files);
}
bool greet(const Descriptor& socket, int from) {
  const IslandGreeting first{kSession, from, kSelf};
  return send_raw(socket, &first, sizeof first, {});
}

// --- descriptors to offer

Files sealed(size_t bytes) {
  Files files;
  files.push_back(make_memory_file(bytes, Pages::kSparse));
  return files;
}

Files reserved(size_t bytes) {
  Files files;
  files.push_back(make_memory_file(bytes, Pages::kReserved));
  return files;
}

Files with_seals(size_t bytes, unsigned flags, int seals) {
  Files files;
  files.emplace_back(::memfd_create("hostile", MFD_CLOEXEC | flags));
  REQUIRE(::ftruncate(files[0].get(), static_cast<off_t>(whole_pages(bytes))) == 0);
  if (seals != 0) REQUIRE(::fcntl(files[0].get(), F_ADD_SEALS, seals) == 0);
  return files;
}

// Both ends of a pipe; the reading end first.
Files pipe_ends(int flags) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC | flags) == 0);
  Files files;
  files.emplace_back(ends[0]);
  files.emplace_back(ends[1]);
  return files;
}

Files one(Descriptor file) {
  Files files;
  files.push_back(std::move(file));
  return files;
}

Files bell_socket() {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  ::close(ends[0]);
  return one(Descriptor(ends[1]));
}
Descriptor event(int flags) { return Descriptor(::eventfd(0, EFD_CLOEXEC | flags)); }

// --- frames

IslandFrame frame_of(IslandTopic topic, uint64_t communicator = kId) {
  IslandFrame frame;
  frame.topic = topic;
  frame.communicator = communicator;
  return frame;
}

IslandFrame window_frame(uint64_t id, uint64_t bytes) {
  IslandFrame frame = frame_of(IslandTopic::kWindow);
  frame.id = id;
  frame.bytes = bytes;
  return frame;
}

IslandFrame link_frame(IslandTopic topic, const LinkShape& shape = kShape) {
  IslandFrame frame = frame_of(topic);
  frame.depth = shape.depth;
  frame.slice_bytes = shape.slice_bytes;
  frame.bytes = shared_link_bytes(shape);
  return frame;
}

IslandFrame sized(IslandFrame frame, uint64_t bytes) {
  frame.bytes = bytes;
  return frame;
}

IslandFrame page_frame(uint64_t window, uint64_t offset) {
  IslandFrame frame = frame_of(IslandTopic::kPage);
  frame.id = window;
  frame.bytes = offset;
  return frame;
}

IslandFrame sleeper_frame(uint64_t number) {
  IslandFrame frame = frame_of(IslandTopic::kSleeper);
  frame.id = number;
  return frame;
}

// Rank 2 of four, whose neighbor 1 is an island like it, and whose neighbors 0 and 3 are sockets in our hands.
class Scene {
 public:
  Scene() {
    self_ = island(kSelf, {kBelow, kFriend, kAbove});
    friend_ = island(kFriend, {kSelf});
    for (const auto& own : {self_.get(), friend_.get()}) {
      own->open(kId, {kBelow, kFriend, kSelf, kAbove}, bell(), bell());
      own->open(kPrivate, {kFriend, kSelf}, bell(), bell());
    }
    for (const int villain : {kBelow, kAbove}) {
      villains_[villain] = connect_to_self();
      greet(villains_[villain], villain);
      pollfd answer{villains_[villain].get(), POLLIN, 0};
      REQUIRE(::poll(&answer, 1, 5'000) == 1);  // it is let in
    }
  }
  ~Scene() { thread_.stop(); }

  Island& self() { return *self_; }
  Descriptor connect_to_self() const {
    int error = 0;
    Descriptor socket = connect_abstract(names_.at(kSelf), error);
    REQUIRE(socket.valid());
    return socket;
  }
  const Descriptor& villain(int rank) const { return villains_.at(rank); }
  static std::shared_ptr<Doorbell> bell() { return std::make_shared<Doorbell>(std::make_shared<Sleepers>()); }

  // What rank 2 has said about its communicator with that neighbor; "" if nothing comes.
  std::string reason(int peer, uint64_t communicator = kId) {
    std::string found;
    eventually([&] {
      std::lock_guard lock(mutex_);
      const auto said = said_.find({communicator, peer});
      if (said != said_.end()) found = said->second.message;
      return !found.empty();
    });
    return found;
  }
  // After reason().
  ErrorCode code(int peer) {
    std::lock_guard lock(mutex_);
    return said_.at({kId, peer}).code;
  }
  size_t complaints() {
    std::lock_guard lock(mutex_);
    return said_.size();
  }
  // The other end of the villain's connection is closed.
  bool shut_out(int peer) const {
    return eventually([&] {
      char bytes[64];
      ssize_t moved = 1;
      while (moved > 0) moved = ::recv(villain(peer).get(), bytes, sizeof bytes, MSG_DONTWAIT);
      return moved == 0 || errno == ECONNRESET;
    });
  }
  // Rank 2 and its friend can do everything that they could.
  void check_friendship() {
    const auto window = self_->make(10'000);
    std::shared_ptr<Window> theirs;
    CHECK(eventually([&] { return (theirs = friend_->find(kSelf, window->id())) != nullptr; }));
    for (const uint64_t communicator : {kId, kPrivate}) {
      std::unique_ptr<Link> mine, other;
      REQUIRE(eventually([&] {
        if (!mine) mine = self_->take_link({communicator, kFriend}, kShape);
        if (!other) other = friend_->take_link({communicator, kSelf}, kShape);
        return mine && other;
      }));
      const SliceTag tag{1, 2, 8};
      const uint64_t sent = 42;
      other->post(tag, nullptr);
      mine->send(tag, reinterpret_cast<const std::byte*>(&sent));
      REQUIRE(eventually([&] { return other->pump(), other->arrived() != nullptr; }));
      CHECK(std::memcmp(other->arrived(), &sent, sizeof sent) == 0);
      CHECK(self_->take_stream_to(communicator, kFriend) != nullptr);
      CHECK(eventually([&] { return friend_->take_stream_from(communicator).has_value(); }));
    }
  }

 private:
  std::unique_ptr<Island> island(int rank, const std::vector<int>& others) {
    std::vector<Neighbor> neighbors;
    for (const int other : others) {
      neighbors.push_back({other, ::getpid(), fmt::format("rank {}", other), names_.at(other)});
    }
    Island::Settings settings;
    settings.rank = rank;
    settings.session = kSession;
    settings.logger = Logger("off", rank);
    settings.link_failed = [this](uint64_t communicator, int peer, const Error& error) {
      std::lock_guard lock(mutex_);
      said_.emplace(std::pair(communicator, peer), error);
    };
    settings.streamed = [](uint64_t, int) {};
    return std::make_unique<Island>(thread_.context(), listen_abstract(names_.at(rank), 64), neighbors,
                                    std::move(settings));
  }
  static std::map<int, std::string> make_names() {
    std::map<int, std::string> names;
    for (const int rank : {kBelow, kFriend, kSelf, kAbove}) names[rank] = random_socket_name();
    return names;
  }

  const std::map<int, std::string> names_ = make_names();
  std::mutex mutex_;
  std::map<std::pair<uint64_t, int>, Error> said_;  // the first complaint
  std::map<int, Descriptor> villains_;
  IoThread thread_{[](const Error& error) { FAIL(error.message); }};
  std::unique_ptr<Island> self_, friend_;
};

struct Attack {
  const char* what;
  int from;
  std::function<void(const Descriptor& socket)> act;
  const char* reason;
};

// One after the other, each on a scene of its own.
void run_attacks(const std::vector<Attack>& attacks) {
  { Scene warm; }
  for (const Attack& attack : attacks) {
    const std::string what = attack.what;
    CAPTURE(what);
    const size_t descriptors = open_descriptors();
    {
      Scene scene;
      attack.act(scene.villain(attack.from));
      const std::string reason = scene.reason(attack.from);
      CAPTURE(reason);
      CHECK(reason.find(fmt::format("sharing memory with rank {} failed: ", attack.from)) == 0);
      CHECK(reason.find(attack.reason) != std::string::npos);
      CHECK(scene.shut_out(attack.from));
      scene.check_friendship();
      CHECK(scene.complaints() == 1);
    }
    CHECK(open_descriptors() == descriptors);
  }
}

Attack raw(const char* what, size_t bytes, const char* reason) {
  return {what, kAbove,
          [bytes](const Descriptor& socket) {
            const std::vector<char> rubbish(bytes, 1);
            send_raw(socket, rubbish.data(), rubbish.size(), {});
          },
          reason};
}

using MakeFiles = std::function<Files()>;
Attack framed(const char* what, int from, const IslandFrame& frame, const MakeFiles& files, const char* reason) {
  return {what, from, [=](const Descriptor& socket) { send_frame(socket, frame, files()); }, reason};
}

// An attack by a page in a window of one page.
Attack paged(const char* what, uint64_t offset, const char* reason) {
  return {what, kAbove,
          [offset](const Descriptor& socket) {
            send_frame(socket, window_frame(9, 4096), reserved(4096));
            send_frame(socket, page_frame(9, offset));
          },
          reason};
}

Files none() { return {}; }
MakeFiles sealed_of(size_t bytes) {
  return [bytes] { return sealed(bytes); };
}

constexpr const char* kNoSense = "it sent a message that makes no sense";
constexpr const char* kLength = "it sent a message of another length";
constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

TEST_CASE("a message of a wrong length or of no known topic ends its sender's connection, and no other") {
  run_attacks({
      raw("a byte", 1, kLength),
      raw("a byte too few", sizeof(IslandFrame) - 1, kLength),
      raw("a byte too many", sizeof(IslandFrame) + 1, kLength),
      raw("far too many", 60'000, kLength),
      raw("rubbish of the right length", sizeof(IslandFrame), kNoSense),
      framed("topic 0", kBelow, frame_of(IslandTopic{0}), none, kNoSense),
      framed("topic 7", kBelow, frame_of(IslandTopic{7}), none, kNoSense),
      framed("topic 2^32 - 1, with a file", kBelow, frame_of(IslandTopic{~0u}), sealed_of(10), kNoSense),
  });
}

TEST_CASE("missing or surplus descriptors end the connection, and are closed") {
  const auto some = [](size_t count) {
    return [count] {
      Files files;
      for (size_t i = 0; i < count; ++i) files.push_back(std::move(bell_socket()[0]));
      return files;
    };
  };
  const size_t link_bytes = shared_link_bytes(kShape);
  run_attacks({
      framed("a window without one", kAbove, window_frame(1, 100), none, kNoSense),
      framed("a window with two", kAbove, window_frame(1, 100), some(2), kNoSense),
      framed("a link without one", kBelow, link_frame(IslandTopic::kLink), none, kNoSense),
      framed("a link with three", kBelow, sized(link_frame(IslandTopic::kLink), link_bytes), some(3), kNoSense),
      framed("a stream without one", kAbove, sized(frame_of(IslandTopic::kStream), shared_stream_bytes(kStreamBuffers)),
             none, kNoSense),
      framed("a page with one", kAbove, page_frame(1, 0), some(1), kNoSense),
      framed("the end of a page with one", kAbove, frame_of(IslandTopic::kLetGo), some(1), kNoSense),
      framed("a sleeper without one", kAbove, sleeper_frame(1), none, kNoSense),
      framed("a sleeper with two", kAbove, sleeper_frame(1), some(2), kNoSense),
      framed("a wish with one", kAbove, link_frame(IslandTopic::kWish), some(1), kNoSense),
      framed("the end of a window with one", kAbove, frame_of(IslandTopic::kDrop), some(1), kNoSense),
      framed("more than any message has", kAbove, window_frame(1, 100), some(9), "a descriptor did not come through"),
  });
}

TEST_CASE("memory that is not sealed, too small, too large or no memory at all is not mapped") {
  const auto seals = [](int which) { return [which] { return with_seals(10'000, MFD_ALLOW_SEALING, which); }; };
  const auto window = window_frame(1, 10'000);
  run_attacks({
      framed("no seal", kAbove, window, seals(0), "it is not sealed"),
      framed("may shrink", kAbove, window, seals(kAllSeals & ~F_SEAL_SHRINK), "it is not sealed"),
      framed("may grow", kAbove, window, seals(kAllSeals & ~F_SEAL_GROW), "it is not sealed"),
      framed(
          "takes no seals", kAbove, window, [] { return with_seals(10'000, 0, 0); }, "it is not sealed"),
      framed("without its pages", kAbove, window, sealed_of(10'000), "not all of its pages are there"),
      framed("a terabyte without its pages", kAbove, window_frame(1, uint64_t{1} << 40), sealed_of(size_t{1} << 40),
             "not all of its pages are there"),
      framed("too small", kAbove, window, sealed_of(8'192), "it holds 8192 bytes, and 10000 were announced"),
      framed("too large", kAbove, window, sealed_of(20'000), "it holds 20480 bytes, and 10000 were announced"),
      framed("empty", kAbove, window, sealed_of(0), "it holds 0 bytes"),
      framed("of 0 bytes, as announced", kAbove, window_frame(1, 0), sealed_of(0), "mmap: "),
      framed("of 2^64 - 1 bytes", kAbove, window_frame(1, UINT64_MAX), sealed_of(0), "failed"),
      framed(
          "a pipe", kAbove, window, [] { return one(std::move(pipe_ends(0)[1])); }, "it is no memory file"),
      framed(
          "/dev/zero", kAbove, window, [] { return one(Descriptor(::open("/dev/zero", O_RDWR | O_CLOEXEC))); },
          "it is no memory file"),
      framed(
          "a link's", kBelow, link_frame(IslandTopic::kLink),
          [] { return with_seals(shared_link_bytes(kShape), MFD_ALLOW_SEALING, 0); }, "it is not sealed"),
      framed("a link's, too small", kBelow, link_frame(IslandTopic::kLink), sealed_of(4096), "it holds 4096 bytes"),
      framed("a stream's, too small", kAbove,
             sized(frame_of(IslandTopic::kStream), shared_stream_bytes(kStreamBuffers)), sealed_of(4096),
             "it holds 4096 bytes"),
  });
}

TEST_CASE("numbers that no honest rank says end the connection") {
  const auto wish = [](const LinkShape& shape) { return link_frame(IslandTopic::kWish, shape); };
  const auto link = [](const LinkShape& shape) { return link_frame(IslandTopic::kLink, shape); };
  const auto fitting = [](const LinkShape& shape) { return sealed_of(shared_link_bytes(shape)); };
  constexpr const char* kMade = "this is not how a link is made";
  constexpr const char* kAsked = "this is not how a link is asked for";
  constexpr const char* kSleeper = "it has no such sleeper";
  constexpr const char* kPage = "its page is not in memory that it has offered";
  constexpr const char* kEnd = "it lets go of a page that it does not have";
  run_attacks({
      framed(
          "window 0", kAbove, window_frame(0, 100), [] { return reserved(100); }, "more windows than can be mapped"),
      framed("a link made by the higher rank", kAbove, link(kShape), fitting(kShape), kMade),
      framed("depth 1", kBelow, link({1, 4096}), fitting({1, 4096}), kMade),
      framed("depth 66", kBelow, link({66, 4096}), fitting({66, 4096}), kMade),
      framed("slices past 16 MiB", kBelow, link({2, (16u << 20) + 1}), fitting({2, (16u << 20) + 1}), kMade),
      framed("slices of 4 GiB", kBelow, sized(link({2, UINT32_MAX}), 4096), sealed_of(4096), kMade),
      framed("bytes of another shape", kBelow, sized(link(kShape), 4096), sealed_of(4096), kMade),
      framed("a wish by the lower rank", kBelow, wish(kShape), none, kAsked),
      framed("a wish for depth 66", kAbove, wish({66, 4096}), none, kAsked),
      framed("a wish for depth 0", kAbove, wish({0, 4096}), none, kAsked),
      framed("a stream of a page", kAbove, sized(frame_of(IslandTopic::kStream), 4096), sealed_of(4096),
             "this is not how a stream is made"),
      {"a page in no window", kAbove, [](const Descriptor& socket) { send_frame(socket, page_frame(1, 0)); }, kPage},
      paged("a page at its window's end", 4096, kPage),
      paged("a page that begins in no page", 128, kPage),
      paged("a page far beyond its window", uint64_t{1} << 63, kPage),
      framed("the end of a page of another communicator", kAbove, frame_of(IslandTopic::kLetGo, kPrivate), none, kEnd),
      framed("sleeper 0", kAbove, sleeper_frame(0), bell_socket, kSleeper),
      framed("sleeper 257", kAbove, sleeper_frame(257), bell_socket, kSleeper),
      framed("sleeper 2^32 + 1", kAbove, sleeper_frame((uint64_t{1} << 32) + 1), bell_socket, kSleeper),
  });
}

TEST_CASE("what is said twice ends the connection") {
  const auto twice = [](const IslandFrame& frame, const MakeFiles& files) {
    return [=](const Descriptor& socket) {
      for (int i = 0; i < 2; ++i) send_frame(socket, frame, files());
    };
  };
  run_attacks({
      {"a window", kAbove, twice(window_frame(9, 100), [] { return reserved(100); }), "it offered a window twice"},
      {"a link", kBelow, twice(link_frame(IslandTopic::kLink), sealed_of(shared_link_bytes(kShape))),
       "it made a link twice"},
      {"a stream", kAbove,
       twice(sized(frame_of(IslandTopic::kStream), shared_stream_bytes(kStreamBuffers)),
             sealed_of(shared_stream_bytes(kStreamBuffers))),
       "it made a stream twice"},
      {"a descriptor", kAbove, twice(frame_of(IslandTopic::kOffer), sealed_of(100)), "it offered a descriptor twice"},
      {"a page", kAbove,
       [](const Descriptor& socket) {
         send_frame(socket, window_frame(9, 8192), reserved(8192));
         for (const uint64_t offset : {0, 4096}) send_frame(socket, page_frame(9, offset));
       },
       "it announced its page twice"},
      {"the end of a page", kAbove, twice(frame_of(IslandTopic::kLetGo), none),
       "it lets go of a page that it does not have"},
      {"a sleeper", kAbove, twice(sleeper_frame(1), bell_socket), "or announced it twice"},
  });
}

TEST_CASE("what could stop or kill the rank that rings it wakes no sleeper") {
  // Proves: ringing is a write to what the peer passed; to a pipe nobody reads it is a signal that ends the process.
  const auto rung = [](const char* what, const std::function<Descriptor()>& thing) {
    return framed(
        what, kAbove, sleeper_frame(1), [thing] { return one(thing()); }, "this wakes no sleeper");
  };
  run_attacks({
      rung("a pipe that nobody reads", [] { return std::move(pipe_ends(O_NONBLOCK)[1]); }),
      rung("a socket that keeps messages apart", [] { return std::move(socket_pair().first); }),
      rung("a memory file", [] { return make_memory_file(100, Pages::kSparse); }),
      rung("an eventfd that waits", [] { return event(0); }),
      rung("an eventfd", [] { return event(EFD_NONBLOCK); }),
  });
}

TEST_CASE("a page is used again when all members have let go of it, and not before") {
  Scene scene;
  const auto place_of = [&](uint64_t id) {
    scene.self().open(id, {kSelf, kAbove}, Scene::bell(), Scene::bell());
    IslandFrame frame;
    Files files;
    std::string why;
    REQUIRE(eventually([&] {
      while (receive_message(scene.villain(kAbove).get(), &frame, sizeof frame, files, why) == Received::kYes) {
        if (frame.topic == IslandTopic::kPage && frame.communicator == id) return true;
      }
      return false;
    }));
    scene.self().close(id);
    return std::pair(frame.id, frame.bytes);
  };
  std::set<std::pair<uint64_t, uint64_t>> kept, again;
  for (const uint64_t id : {100, 101, 102}) kept.insert(place_of(id));
  CHECK(kept.size() == 3);
  for (const uint64_t id : {100, 101, 102}) {
    REQUIRE(send_frame(scene.villain(kAbove), frame_of(IslandTopic::kLetGo, id)));
  }
  REQUIRE(send_frame(scene.villain(kAbove), window_frame(3, 100), reserved(100)));
  REQUIRE(eventually([&] { return scene.self().find(kAbove, 3) != nullptr; }));  // the frames before were used
  for (const uint64_t id : {200, 201, 202}) again.insert(place_of(id));
  CHECK(again == kept);
  CHECK(scene.complaints() == 0);
}

TEST_CASE("flags that name sleepers that are not there wake nobody and harm nobody") {
  Scene scene;
  Files file = reserved(4096);
  const Mapping flags(file[0].get(), 4096, Mapping::Touch::kNow);
  auto* flag = reinterpret_cast<std::atomic<uint32_t>*>(flags.data());
  REQUIRE(send_frame(scene.villain(kAbove), window_frame(9, 4096), file));
  REQUIRE(send_frame(scene.villain(kAbove), page_frame(9, 0)));
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const Descriptor woken(ends[0]);
  std::shared_ptr<Bell> bell;
  REQUIRE(eventually([&] { return (bell = scene.self().page_of(kId, kAbove).bell) != nullptr; }));
  for (const uint32_t number : {7u, 0u, 1u, 257u, 1u << 31, ~0u}) {
    // Before the number is announced, and after.
    if (number == 0) REQUIRE(send_frame(scene.villain(kAbove), sleeper_frame(7), one(Descriptor(ends[1]))));
    if (number == 0) continue;
    flag->store(number);
    bell->ring();
    CHECK(flag->load() == 0);
  }
  char bytes[16];
  CHECK(eventually([&] { return ::recv(woken.get(), bytes, sizeof bytes, MSG_DONTWAIT) > 0; }));  // made up for
  scene.check_friendship();
  CHECK(scene.complaints() == 0);
}

TEST_CASE("a sleeper whose owner fills its socket and lets it wait keeps nobody who rings it") {
  // Proves: how a descriptor waits is its owner's to change at any time, so ringing must not depend on it.
  const auto sleepers = std::make_shared<Sleepers>();
  int socket = -1;
  sleepers->announce_to([&](uint32_t, int bell) { socket = bell; });
  auto flag = std::make_shared<std::atomic<uint32_t>>(0);
  Doorbell owner(sleepers);
  owner.share(flag.get(), flag);
  const auto ringer = owner.bell();
  REQUIRE(::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) & ~O_NONBLOCK) == 0);
  const std::vector<char> flood(1 << 16, 1);
  while (::send(socket, flood.data(), flood.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  std::atomic<bool> rung{false};
  std::thread thread([&] {
    for (int i = 0; i < 1000; ++i) {
      flag->store(1);
      ringer->ring();
    }
    rung = true;
  });
  CHECK(eventually([&] { return rung.load(); }, 5'000));
  if (!rung) ::_exit(1);  // the thread would never end
  thread.join();
  // And the sleeper still hears.
  for (int i = 0; i < 200; ++i) {
    ArmedSleep sleep(owner, *sleepers);
    ringer->ring();
    const auto begin = Clock::now();
    CHECK(sleep.wait(in(5'000)).ok());
    CHECK(Clock::now() - begin < std::chrono::seconds(2));
  }
}

TEST_CASE("a peer makes one stream to this rank, also after the first was taken") {
  Scene scene;
  const IslandFrame stream = sized(frame_of(IslandTopic::kStream), shared_stream_bytes(kStreamBuffers));
  REQUIRE(send_frame(scene.villain(kAbove), stream, sealed(shared_stream_bytes(kStreamBuffers))));
  REQUIRE(eventually([&] { return scene.self().take_stream_from(kId).has_value(); }));
  send_frame(scene.villain(kAbove), stream, sealed(shared_stream_bytes(kStreamBuffers)));
  CHECK(scene.reason(kAbove).find("it made a stream twice") != std::string::npos);
  scene.check_friendship();
}

TEST_CASE("a process that has ended is not read by its number, though another may have it by now") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  const Descriptor handle = open_process(child);
  REQUIRE(handle.valid());
  CHECK(is_running(handle));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK_FALSE(is_running(handle));
  CHECK_FALSE(is_running(Descriptor()));
  // The number is now this test's own process: what process_vm_readv would read is the peer's only while the peer
  // listens.
  const std::string name = random_socket_name();
  for (const bool listens : {true, false}) {
    CAPTURE(listens);
    IoThread thread([](const Error& error) { FAIL(error.message); });
    const Descriptor listener = listens ? listen_abstract(name, 1) : Descriptor();
    Island::Settings settings;
    settings.rank = kSelf;
    settings.can_pull = true;
    settings.logger = Logger("off");
    Island island(thread.context(), listen_abstract(random_socket_name(), 1), {{kFriend, ::getpid(), "rank 1", name}},
                  std::move(settings));
    const uint64_t known = 42;
    for (int round = 0; round < 2; ++round) {
      uint64_t read = 0;
      CHECK(island.pull(kFriend, reinterpret_cast<uint64_t>(&known), reinterpret_cast<std::byte*>(&read), 8) ==
            listens);
    }
    thread.stop();
  }
}

TEST_CASE("who greets twice loses its connection") {
  run_attacks({raw("a greeting", sizeof(IslandGreeting), kLength)});
}

TEST_CASE("a second connection of a rank is read, too, a third is closed") {
  Scene scene;
  const Descriptor second = scene.connect_to_self();
  greet(second, kAbove);
  send_frame(scene.villain(kAbove), window_frame(3, 100), reserved(100));
  send_frame(second, window_frame(4, 100), reserved(100));
  for (const uint64_t id : {3, 4}) CHECK(eventually([&] { return scene.self().find(kAbove, id) != nullptr; }));
  const Descriptor third = scene.connect_to_self();
  greet(third, kAbove);
  char byte = 0;
  pollfd end{third.get(), POLLIN, 0};
  CHECK(::poll(&end, 1, 5'000) == 1);
  CHECK(::recv(third.get(), &byte, 1, 0) <= 0);
  send_frame(second, frame_of(IslandTopic{99}));
  CHECK(scene.reason(kAbove).find(kNoSense) != std::string::npos);
  CHECK(scene.shut_out(kAbove));
  scene.check_friendship();
}

// An island of this process's rank 2, whose neighbor's listener is the test's.
struct FirstDial {
  explicit FirstDial(pid_t peer = ::getpid()) {
    Island::Settings settings;
    settings.rank = kSelf;
    settings.session = kSession;
    settings.logger = Logger("off");
    settings.link_failed = [this](uint64_t, int, const Error& error) { failure.set_value(error); };
    settings.streamed = [](uint64_t, int) {};
    island = std::make_unique<Island>(thread.context(), listen_abstract(random_socket_name(), 1),
                                      std::vector<Neighbor>{{kFriend, peer, "rank 1", name}}, std::move(settings));
    island->open(kId, {kFriend, kSelf}, Scene::bell(), Scene::bell());
  }
  ~FirstDial() { thread.stop(); }
  Error why() {
    auto told = failure.get_future();
    REQUIRE(told.wait_for(std::chrono::seconds(5)) == std::future_status::ready);
    return told.get();
  }
  const std::string name = random_socket_name();
  std::promise<Error> failure;
  IoThread thread{[](const Error& error) { FAIL(error.message); }};
  std::unique_ptr<Island> island;
};

TEST_CASE("a peer that has died before it is first needed is found out, and asks nobody to wait") {
  FirstDial scene;
  CHECK(scene.island->take_link({kId, kFriend}, kShape) == nullptr);
  CHECK(scene.why().message.find("sharing memory with rank 1 failed: connecting its local socket: ") == 0);
  CHECK(eventually([&] { return scene.island->ended(kFriend); }));
}

TEST_CASE("a peer that dies between the first connection and its greeting is found out likewise") {
  FirstDial scene;
  Descriptor listener = listen_abstract(scene.name, 1);
  CHECK(scene.island->take_link({kId, kFriend}, kShape) == nullptr);
  pollfd waiting{listener.get(), POLLIN, 0};
  REQUIRE(::poll(&waiting, 1, 5'000) == 1);
  listener.reset();  // with the connection in its queue
  CHECK(scene.why().ranks == std::vector<int>{kFriend});
  CHECK(eventually([&] { return scene.island->ended(kFriend); }));
}

TEST_CASE("a peer whose queue of connections is full is dialed until there is room") {
  FirstDial scene;
  const Descriptor listener = listen_abstract(scene.name, 1);
  std::vector<Descriptor> flood;
  int error = 0;
  while (error == 0) flood.push_back(connect_abstract(scene.name, error));
  REQUIRE(error == EAGAIN);
  CHECK(scene.island->take_link({kId, kFriend}, kShape) == nullptr);
  IslandGreeting first;
  Files files;
  std::string why;
  Descriptor accepted;
  CHECK(eventually([&] {
    if (Descriptor next = accept_abstract(listener.get()); next.valid()) accepted = std::move(next);
    return accepted.valid() && receive_message(accepted.get(), &first, sizeof first, files, why) == Received::kYes;
  }));
  CHECK(first == IslandGreeting{kSession, kSelf, kFriend});
}

TEST_CASE("who listens at a peer's place without being its process is told nothing") {
  FirstDial scene(1);
  const Descriptor listener = listen_abstract(scene.name, 1);
  CHECK(scene.island->take_link({kId, kFriend}, kShape) == nullptr);
  CHECK(scene.why().message.find(fmt::format("it is process {}, not 1", ::getpid())) != std::string::npos);
  const Descriptor accepted = accept_abstract(listener.get());
  char byte = 0;
  CHECK(eventually([&] { return ::recv(accepted.get(), &byte, 1, MSG_DONTWAIT) == 0; }));
}

TEST_CASE("a rank that has no descriptor left for a first connection says so, with the remedy") {
  FirstDial scene;
  const Descriptor listener = listen_abstract(scene.name, 1);
  Error error;
  {
    const OpenFilesLimit limit(OpenFilesLimit::for_more(0));
    CHECK(scene.island->take_link({kId, kFriend}, kShape) == nullptr);
    error = scene.why();
  }
  CHECK(error.code == ErrorCode::kSystem);
  CHECK(error.message.find("Too many open files") != std::string::npos);
  CHECK(error.message.find("RONDO_TRANSPORT=tcp") != std::string::npos);
}

TEST_CASE("a rank that cannot make what a peer asks for says that it is itself to blame") {
  Scene scene;
  {
    const OpenFilesLimit limit(OpenFilesLimit::for_more(0));
    send_frame(scene.villain(kAbove), link_frame(IslandTopic::kWish));
    CHECK(scene.reason(kAbove).find("memfd_create: Too many open files") != std::string::npos);
    CHECK(scene.code(kAbove) == ErrorCode::kSystem);
  }
  send_frame(scene.villain(kBelow), frame_of(IslandTopic{99}));
  CHECK(scene.reason(kBelow).find(kNoSense) != std::string::npos);
  CHECK(scene.code(kBelow) == ErrorCode::kNetwork);
  scene.check_friendship();
}

TEST_CASE("a rank speaks of communicators that it is a member of, and of no others") {
  const IslandFrame stream = sized(frame_of(IslandTopic::kStream, kPrivate), shared_stream_bytes(kStreamBuffers));
  const auto memory = sealed_of(shared_stream_bytes(kStreamBuffers));
  run_attacks({framed("a stream", kAbove, stream, memory, "it is no member of the communicator"),
               framed(
                   "a link", kAbove,
                   [] {
                     IslandFrame frame = link_frame(IslandTopic::kWish);
                     frame.communicator = kPrivate;
                     return frame;
                   }(),
                   none, "it is no member of the communicator")});
  // Said before rank 2 opens it: forgotten then.
  Scene scene;
  constexpr uint64_t kLater = 77;
  for (const int peer : {kBelow, kAbove}) {
    REQUIRE(send_frame(scene.villain(peer),
                       sized(frame_of(IslandTopic::kStream, kLater), shared_stream_bytes(kStreamBuffers)), memory()));
    REQUIRE(send_frame(scene.villain(peer), window_frame(3, 100), reserved(100)));
    REQUIRE(eventually([&] { return scene.self().find(peer, 3) != nullptr; }));  // the frame before was used
  }
  scene.self().open(kLater, {kFriend, kSelf, kAbove}, Scene::bell(), Scene::bell());
  const auto stream_from = scene.self().take_stream_from(kLater);
  REQUIRE(stream_from.has_value());
  CHECK(stream_from->first == kAbove);
  CHECK_FALSE(scene.self().take_stream_from(kLater).has_value());
  CHECK(scene.complaints() == 0);
}

TEST_CASE("nonsense from both sides at once, amid honest messages, costs the two that sent it their connections") {
  const size_t descriptors = [] {
    { Scene warm; }
    return open_descriptors();
  }();
  {
    Scene scene;
    for (int i = 1; i <= 40; ++i) {
      const auto id = static_cast<uint64_t>(i);
      for (const int peer : {kBelow, kAbove}) {
        if (i == 40) {
          send_frame(scene.villain(peer), frame_of(IslandTopic{99}), sealed(4096));
        } else {
          send_frame(scene.villain(peer), window_frame(id, 4096), reserved(4096));
        }
        send_frame(scene.villain(peer), frame_of(IslandTopic::kDrop));  // of a window that is not there
      }
    }
    for (const int peer : {kBelow, kAbove}) {
      CHECK(scene.reason(peer).find(kNoSense) != std::string::npos);
      CHECK(scene.self().find(peer, 39) == nullptr);  // its memory is let go
      // Asked for again, the reason is the same.
      CHECK(scene.self().take_link({kId, peer}, kShape) == nullptr);
    }
    scene.check_friendship();
  }
  CHECK(open_descriptors() == descriptors);
}

TEST_CASE("a communicator that is opened after its connection to a peer has broken is told so, too") {
  // Proves: the ranks that go on after a failure do not wait for a page that cannot come.
  constexpr uint64_t kLater = 77;
  Scene scene;
  for (const int peer : {kBelow, kAbove}) {
    CAPTURE(peer);
    send_frame(scene.villain(peer), frame_of(IslandTopic{99}));
    REQUIRE(scene.reason(peer).find(kNoSense) != std::string::npos);
  }
  scene.self().open(kLater, {kBelow, kFriend, kSelf, kAbove}, Scene::bell(), Scene::bell());
  for (const int peer : {kBelow, kAbove}) {
    CAPTURE(peer);
    CHECK(scene.self().page_of(kLater, peer).memory == nullptr);
    CHECK(scene.reason(peer, kLater).find(kNoSense) != std::string::npos);
  }
  CHECK(scene.complaints() == 4);
}

TEST_CASE("a neighbor that goes quietly is no complaint of communicators that have asked nothing of it") {
  // Proves: who has left, and who has died, is the control plane's to say.
  Scene scene;
  ::shutdown(scene.villain(kAbove).get(), SHUT_RDWR);
  CHECK(scene.self().take_link({kId, kBelow}, kShape) == nullptr);  // asked of the other
  ::shutdown(scene.villain(kBelow).get(), SHUT_RDWR);
  CHECK(scene.reason(kBelow).find("the connection was closed") != std::string::npos);
  scene.check_friendship();
  CHECK(scene.complaints() == 1);
}

TEST_CASE("a peer that reads nothing is given up when too much waits for it, and nobody waits meanwhile") {
  const size_t descriptors = open_descriptors();
  {
    IoThread thread([](const Error& error) { FAIL(error.message); });
    auto [mine, theirs] = socket_pair();
    std::mutex mutex;
    std::string said;
    Descriptor& socket = mine;  // clang 14 captures no bindings
    IslandConnection connection(
        thread.context(), [&] { return IslandConnection::Dialed{std::move(socket)}; }, [](const IslandFrame&, Files) {},
        [&](IslandConnection::End end, const std::string& why) {
          std::lock_guard lock(mutex);
          said = end == IslandConnection::End::kBroken ? why : "gone: " + why;
        });
    connection.start();
    const auto begin = Clock::now();
    for (int i = 0; i < 20'000; ++i) connection.send(frame_of(IslandTopic::kDrop));
    CHECK(Clock::now() - begin < std::chrono::seconds(5));
    CHECK(eventually([&] {
      std::lock_guard lock(mutex);
      return said == "it has stopped reading";
    }));
    thread.stop();
  }
  CHECK(open_descriptors() == descriptors);
}

}  // namespace rondo::testing
