// Frames with descriptors that a rank of the island sends: taken, or the connection ends with a reason. No frame ends
// more than its sender's connection; no descriptor is lost.
//   input: for each frame a byte (bit 0: from the higher rank; bits 1-3: what comes with it) and the frame
#include "transport/island/island_frame.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <cstring>

#include "tests/fuzz/target.h"
#include "tests/support/resources.h"
#include "transport/island/island.h"
#include "transport/island/island_socket.h"
#include "transport/island/memory_file.h"
#include "transport/island/shared_link.h"
#include "transport/island/shared_stream.h"

namespace rondo::fuzz {
namespace {

constexpr uint64_t kCommunicator = 5;
constexpr uint64_t kSession = 77;
constexpr int kBelow = 0, kSelf = 1, kAbove = 2;
constexpr LinkShape kShape{2, 4096};
// What a hostile rank may hold is its own affair; here it is a page or so.
constexpr size_t kMostOffered = 1 << 20, kMostReserved = 1 << 16;
constexpr size_t kMostFrames = 16;

// That wakes a sleeper.
std::vector<Descriptor> one_socket() {
  int ends[2];
  std::vector<Descriptor> owned = own_all(2, [&]() -> std::span<const int> {
    RONDO_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "sockets");
    return ends;
  });
  owned.pop_back();
  return owned;
}

std::vector<Descriptor> files_of(unsigned kind, uint64_t bytes) {
  if (kind % 8 == 7) return one_socket();
  std::vector<Descriptor> files;
  const size_t offered = bytes > 0 && bytes <= kMostOffered ? bytes : 4096;
  const Pages pages = offered <= kMostReserved ? Pages::kReserved : Pages::kSparse;
  if (kind % 8 >= 1) files.push_back(make_memory_file(offered, pages));
  for (unsigned i = 2; i <= kind % 8 && i <= kMaxDescriptors; ++i) {
    files.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  }
  return files;
}

// Rank 1 of an island of three; the other two are sockets in our hands.
class Scene {
 public:
  Scene() {
    const std::string name = random_socket_name();
    Descriptor listener = listen_abstract(name, 2);
    std::vector<Neighbor> neighbors;
    for (const int rank : {kBelow, kAbove}) {
      int error = 0;
      villains_[rank == kAbove] = connect_abstract(name, error);
      const IslandGreeting first{kSession, rank, kSelf};
      std::string why;
      send_message(villains_[rank == kAbove].get(), &first, sizeof first, {}, why);
      neighbors.push_back({rank, ::getpid(), "a rank", "nobody listens"});
    }
    Island::Settings settings;
    settings.rank = kSelf;
    settings.session = kSession;
    settings.logger = Logger("off", kSelf);
    settings.link_failed = [](uint64_t, int peer, const Error& error) {
      RONDO_CHECK(peer != kSelf && !error.message.empty(), "a failure names a rank and has a reason");
    };
    island_ = std::make_unique<Island>(io_, std::move(listener), neighbors, std::move(settings));
    island_->open(kCommunicator, {kBelow, kSelf, kAbove}, bell(), bell());
    poll();
  }

  void send(bool above, const IslandFrame& frame, const std::vector<Descriptor>& files) {
    std::vector<int> numbers;
    for (const Descriptor& file : files) numbers.push_back(file.get());
    std::string why;
    send_message(villains_[above].get(), &frame, sizeof frame, numbers, why);
    poll();
  }
  // What an honest program does next with what it was offered.
  void use() {
    for (const int peer : {kBelow, kAbove}) {
      for (const uint64_t id : {1, 2, 3}) {
        const std::shared_ptr<Window> window = island_->find(peer, id);
        if (window && data_at(*window, {id, 0}, window->bytes()) != nullptr) touch(*window);
      }
      if (const auto link = island_->take_link({kCommunicator, peer}, kShape)) {
        link->post({1, 2, 100}, nullptr);
        link->pump();
        if (link->can_send()) link->send({1, 2, 8}, reinterpret_cast<const std::byte*>("12345678"));
      }
      if (const auto stream = island_->take_stream_to(kCommunicator, peer)) write(*stream);
    }
    while (const auto stream = island_->take_stream_from(kCommunicator)) write(*stream->second);
    poll();
  }

 private:
  static std::shared_ptr<Doorbell> bell() { return std::make_shared<Doorbell>(std::make_shared<Sleepers>()); }
  void poll() {
    io_.restart();
    io_.poll();
  }
  static void touch(const Window& window) {
    window.data()[0] = std::byte{1};
    window.data()[window.bytes() - 1] = std::byte{1};
  }
  static void write(ByteStream& stream) {
    char bytes[100] = {};
    const iovec part{bytes, sizeof bytes};
    stream.write(&part, 1);
    stream.read(&part, 1);
  }

  asio::io_context io_{1};
  Descriptor villains_[2];
  std::unique_ptr<Island> island_;
};

std::string text_of(unsigned char how, const IslandFrame& frame) {
  std::string text(1 + sizeof frame, static_cast<char>(how));
  std::memcpy(text.data() + 1, &frame, sizeof frame);
  return text;
}

IslandFrame frame_of(IslandTopic topic, uint64_t bytes) {
  IslandFrame frame;
  frame.topic = topic;
  frame.communicator = kCommunicator;
  frame.bytes = bytes;
  return frame;
}

}  // namespace

std::vector<std::string> seeds() {
  constexpr unsigned char kNone = 0, kOne = 1 << 1, kSocket = 7 << 1, kFromAbove = 1;
  IslandFrame window = frame_of(IslandTopic::kWindow, 5000), drop = frame_of(IslandTopic::kDrop, 0);
  window.id = drop.id = 1;
  IslandFrame link = frame_of(IslandTopic::kLink, shared_link_bytes(kShape)), wish = frame_of(IslandTopic::kWish, 0);
  link.depth = wish.depth = kShape.depth;
  link.slice_bytes = wish.slice_bytes = kShape.slice_bytes;
  const IslandFrame stream = frame_of(IslandTopic::kStream, shared_stream_bytes(kStreamBuffers));
  IslandFrame page = frame_of(IslandTopic::kPage, 0);
  page.id = 1;
  IslandFrame sleeper = frame_of(IslandTopic::kSleeper, 0);
  sleeper.id = 1;
  return {text_of(kOne, window) + text_of(kNone, drop),
          text_of(kOne, window) + text_of(kNone, page) + text_of(kNone, page),
          text_of(kNone | kFromAbove, wish) + text_of(kOne | kFromAbove, stream),
          text_of(kOne | kFromAbove, window) + text_of(kOne | kFromAbove, window),
          text_of(kOne, link) + text_of(kOne, stream),
          text_of(kSocket, sleeper) + text_of(kSocket, sleeper),
          text_of(kNone, frame_of(IslandTopic::kLetGo, 0)) + text_of(kNone, frame_of(IslandTopic::kLetGo, 0))};
}

void try_input(std::string_view input) {
  static const bool warm = [] {
    Scene scene;
    return true;
  }();
  RONDO_CHECK(warm, "what is opened once is open");
  // Counted anew for each input: libFuzzer opens descriptors of its own between two.
  const size_t descriptors = testing::open_descriptors();
  {
    Scene scene;
    for (size_t i = 0; i < kMostFrames && input.size() > sizeof(IslandFrame); ++i) {
      IslandFrame frame;
      std::memcpy(&frame, input.data() + 1, sizeof frame);
      const auto how = static_cast<unsigned char>(input[0]);
      input.remove_prefix(1 + sizeof frame);
      scene.send((how & 1) != 0, frame, files_of(how >> 1, frame.bytes));
    }
    scene.use();
  }
  RONDO_CHECK(testing::open_descriptors() == descriptors, "no descriptor is lost");
}

}  // namespace rondo::fuzz
