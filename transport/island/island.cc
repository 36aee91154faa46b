#include "transport/island/island.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ring/base/check.h"
#include "ring/base/process_handle.h"
#include "transport/island/island_socket.h"
#include "transport/island/shared_link.h"
#include "transport/island/shared_stream.h"
#include "transport/tcp/socket.h"

namespace rondo {
namespace {

// Descriptors of one peer that have not been taken; a rank takes each at once.
constexpr size_t kMaxOffers = 256;
// From this number of windows on a rank reads a small part of each peer's windows: their pages are mapped as they are
// touched, since every page that is mapped counts as this rank's memory.
constexpr size_t kManyPeers = 8;
// Where the two flags of a communicator's doorbells are in its page: a cache line of its own each, and the pair that
// a processor fetches with it. The rest of the page is the engine's.
constexpr size_t kDataFlag = 0;
constexpr size_t kP2pFlag = 128;
constexpr size_t kFlagBytes = 256;
static_assert(kFlagBytes + kRankPageBytes == PageStore::kPageBytes);

// Throws what is wrong with it.
std::shared_ptr<Mapping> map_offered(const Descriptor& file, uint64_t bytes, Mapping::Touch touch,
                                     Pages pages = Pages::kSparse) {
  const std::string wrong = check_memory_file(file.get(), bytes, pages);
  if (!wrong.empty()) throw Exception(ErrorCode::kProtocol, "the memory that it offered: " + wrong);
  return std::make_shared<Mapping>(file.get(), bytes, touch);
}

// A peer rings by sending a byte, which a local socket refuses rather than to block, whatever its owner sets it to.
bool is_bell(const Descriptor& file) {
  int domain = 0, type = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(file.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
         ::getsockopt(file.get(), SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

// One of the two flags in a page. A peer may store any number there: SleeperSockets knows which are sleepers.
std::atomic<uint32_t>* flag_at(std::byte* page, size_t offset) {
  return reinterpret_cast<std::atomic<uint32_t>*>(page + offset);
}

}  // namespace

// A peer's page of a communicator. Its end announces to the peer that nobody here uses it any more.
struct Island::PeerPage {
  PeerPage(std::shared_ptr<Window> in, std::shared_ptr<OwnWindows> from, int maker, uint64_t of)
      : window(std::move(in)), own(std::move(from)), peer(maker), communicator(of) {}
  ~PeerPage() { own->let_go(peer, communicator); }
  PeerPage(const PeerPage&) = delete;
  std::shared_ptr<Window> window;
  std::shared_ptr<OwnWindows> own;
  int peer;
  uint64_t communicator;
};

Island::Island(asio::io_context& io, Descriptor listener, const std::vector<Neighbor>& neighbors, Settings settings)
    : io_(io),
      settings_(std::move(settings)),
      own_(std::make_shared<OwnWindows>(neighbors.size())),
      pages_([this](size_t bytes) { return make(bytes); }) {
  IslandDoor::Settings door{settings_.rank, settings_.session, {}};
  for (const Neighbor& neighbor : neighbors) {
    Peer& peer = peers_[neighbor.rank];
    peer.pid = neighbor.pid;
    peer.name = neighbor.name;
    peer.listener = neighbor.listener;
    door.members[neighbor.rank] = neighbor.pid;
  }
  settings_.sleepers->announce_to(
      [this](uint32_t number, int socket) { own_->add_sleeper(number, socket, settings_.sleepers); });
  door_.emplace(io, std::move(listener), std::move(door),
                [this](int rank, Descriptor socket) { admit(rank, std::move(socket)); });
}

// Sleepers first: a new one would be announced through own_. Windows that outlive the island then find no connection.
Island::~Island() {
  settings_.sleepers->announce_to({});
  own_->disconnect_all();
}

// --- connections

// Requires the lock. Connects at the first call. Where it throws std::bad_alloc, nothing has happened.
IslandConnection& Island::connection(int peer) {
  Peer& state = peers_.at(peer);
  if (state.connection) return *state.connection;
  IslandConnection& made = make_connection(peer);
  try {
    made.start();
  } catch (...) {
    forget_connection(state, peer);
    throw;
  }
  own_->settle();
  return made;
}

// Requires the lock. What it has to say first is in its queue.
IslandConnection& Island::make_connection(int peer) {
  Peer& state = peers_.at(peer);
  state.sockets = std::make_shared<SleeperSockets>();
  state.connection = std::make_unique<IslandConnection>(
      io_, [this, peer] { return dial(peer); },
      [this, peer](const IslandFrame& frame, Files files) { on_frame(peer, frame, std::move(files)); },
      [this, peer](IslandConnection::End end, const std::string& why) { on_end(peer, end, why); });
  try {
    own_->connect(peer, *state.connection, settings_.sleepers);
    book_.for_each_open([&](uint64_t id, IslandBook::Group& group) {
      if (group.members.count(peer) != 0) lend(state, id, group.page);
    });
  } catch (...) {
    forget_connection(state, peer);
    throw;
  }
  return *state.connection;
}

// Requires the lock. One that was never connected.
void Island::forget_connection(Peer& state, int peer) {
  own_->disconnect(peer);
  state.lent.clear();
  state.connection.reset();
}

// Requires the lock.
void Island::connect_all() {
  for (const auto& [rank, peer] : peers_) connection(rank);
}

// The kernel has the connection at once: the peer need not be awake.
IslandConnection::Dialed Island::dial(int peer) const {
  using End = IslandConnection::End;
  const Peer& state = peers_.at(peer);
  const auto failed = [](End end, const std::string& why) {
    return IslandConnection::Dialed{{}, false, end, "connecting its local socket: " + why};
  };
  int error = 0;
  IslandConnection::Dialed dialed;
  dialed.socket = connect_abstract(state.listener, error);
  if (!dialed.socket.valid()) {
    dialed.later = error == EAGAIN;
    if (dialed.later) return dialed;
    if (error == ECONNREFUSED) return failed(End::kGone, std::strerror(error));
    return failed(End::kUnmade, fmt::format("{} (RONDO_TRANSPORT=tcp needs none)", std::strerror(error)));
  }
  const std::string stranger = check_peer(dialed.socket.get(), state.pid);
  if (!stranger.empty()) return failed(End::kBroken, stranger);
  const IslandGreeting first{settings_.session, settings_.rank, peer};
  std::string why;
  switch (send_message(dialed.socket.get(), &first, sizeof first, {}, why)) {
    case Sent::kYes:
      return dialed;
    case Sent::kLater:
      dialed.socket.reset();
      dialed.later = true;
      return dialed;
    case Sent::kOver:
      break;
  }
  return failed(End::kGone, why);
}

// On the I/O thread.
void Island::admit(int peer, Descriptor socket) {
  IslandConnection* connection = nullptr;
  {
    std::lock_guard lock(mutex_);
    Peer& state = peers_.at(peer);
    connection = state.connection ? state.connection.get() : &make_connection(peer);
    own_->settle();
  }
  connection->add(std::move(socket));  // may end it, which takes the lock
}

// --- windows

// The pages are reserved and mapped here, outside the locks: for gigabytes that takes a second, and an error must come
// now and not as a SIGBUS later. Beyond kMostKept windows all peers are connected first, since every window keeps its
// descriptor open until all of them have it.
std::shared_ptr<Window> Island::make(size_t bytes, uint64_t name) {
  if (bytes == 0) throw Exception(ErrorCode::kInvalid, "shared memory of 0 bytes was asked for");
  auto file = std::make_shared<Descriptor>(make_memory_file(bytes, Pages::kReserved));
  auto memory = std::make_shared<Mapping>(file->get(), bytes, Mapping::Touch::kNow);
  if (own_->keeps_many()) {
    std::lock_guard lock(mutex_);
    connect_all();
  }
  return own_->add(bytes, std::move(memory), std::move(file), name);
}

WindowPlace Island::locate(const void* data, size_t bytes) const { return own_->locate(data, bytes); }

// Mapping the pages takes the kernel long, so it happens without the lock, on the thread that needs the window.
std::shared_ptr<Window> Island::find(int peer, uint64_t id) {
  std::shared_ptr<MappedWindow> window;
  {
    std::lock_guard lock(mutex_);
    const auto state = peers_.find(peer);
    if (state == peers_.end()) return nullptr;
    connection(peer);
    const auto found = state->second.windows.find(id);
    if (found == state->second.windows.end()) return nullptr;
    window = found->second;
  }
  if (peers_.size() < kManyPeers) window->populate_once();
  return window;
}

// The queues of the connections share the descriptor: it is closed once the last peer's copy is sent.
void Island::offer(std::span<const int> peers, uint64_t name, Descriptor descriptor) {
  const IslandFrame frame{.topic = IslandTopic::kOffer, .id = name};
  const auto kept = std::make_shared<Descriptor>(std::move(descriptor));
  std::lock_guard lock(mutex_);
  for (const int peer : peers) connection(peer).send(frame, {kept->get()}, kept);
}

// Connects where there is no connection yet: the offer may wait in the peer's queue for it.
Descriptor Island::take_offer(int peer, uint64_t name) {
  std::lock_guard lock(mutex_);
  const auto state = peers_.find(peer);
  if (state == peers_.end()) return {};
  connection(peer);
  const auto found = state->second.offers.find(name);
  if (found == state->second.offers.end()) return {};
  return std::move(state->second.offers.extract(found).mapped());
}

// Without the lock: peers_ and the peer's pid never change.
bool Island::pull(int peer, uint64_t address, std::byte* to, size_t bytes) {
  const auto state = peers_.find(peer);
  if (state == peers_.end() || !settings_.can_pull) return false;
  while (bytes > 0) {
    const iovec here{to, bytes};
    const iovec there{reinterpret_cast<void*>(address), bytes};
    const ssize_t moved = ::process_vm_readv(state->second.pid, &here, 1, &there, 1, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return false;
    to += moved;
    address += static_cast<uint64_t>(moved);
    bytes -= static_cast<size_t>(moved);
  }
  // The number may have been given to another process before the copy, but not while the peer's process lives.
  return is_running(process_of(state->second));
}

// The number was the peer's when it began to listen, and its listener ends with it: a handle is the peer's if the
// listener is still there once the handle is open.
const Descriptor& Island::process_of(Peer& peer) {
  static const Descriptor kNone;  // peer.process may be filled by another thread while this one looks
  if (peer.opened.load(std::memory_order_acquire)) return peer.process;
  std::lock_guard lock(mutex_);
  if (peer.opened.load(std::memory_order_relaxed)) return peer.process;
  Descriptor process = open_process(peer.pid);
  int error = 0;
  const Descriptor socket = connect_abstract(peer.listener, error);
  const bool listens = socket.valid() ? check_peer(socket.get(), peer.pid).empty() : error == EAGAIN;
  if (!process.valid() || !listens) return kNone;
  peer.process = std::move(process);
  peer.opened.store(true, std::memory_order_release);
  return peer.process;
}

// Without the lock, as pull(): the keys of peers_ never change.
bool Island::ended(int peer) const {
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.ended.load();
}

// --- communicators

// Moves the doorbells' flags into this rank's page, where the members can ring them, and announces the page to those
// peers that are connected. The others hear of it when they connect (make_connection()).
void Island::open(uint64_t communicator, const std::vector<int>& members, const std::shared_ptr<Doorbell>& doorbell,
                  const std::shared_ptr<Doorbell>& p2p_doorbell) {
  const auto page = std::make_shared<IslandBook::OwnPage>(IslandBook::OwnPage{pages_.take()});
  doorbell->share(flag_at(page->page->data, kDataFlag), page);
  p2p_doorbell->share(flag_at(page->page->data, kP2pFlag), page);
  std::lock_guard lock(mutex_);
  IslandBook::Group& group = book_.open(communicator, {members.begin(), members.end()});
  group.doorbell = doorbell;
  group.p2p_doorbell = p2p_doorbell;
  group.page = page;
  for (const int member : members) {
    const auto found = peers_.find(member);
    if (found != peers_.end() && found->second.connection) lend(found->second, communicator, page);
  }
}

// Requires the lock.
void Island::lend(Peer& peer, uint64_t communicator, const std::shared_ptr<IslandBook::OwnPage>& page) {
  if (peer.life->over.load()) return;
  const IslandFrame frame{.topic = IslandTopic::kPage,
                          .communicator = communicator,
                          .id = page->page->place.id,
                          .bytes = page->page->place.offset};
  peer.lent[communicator] = page;
  try {
    peer.connection->send(frame);
  } catch (...) {
    peer.lent.erase(communicator);
    throw;
  }
}

std::set<int> Island::streams_to(uint64_t communicator) {
  std::lock_guard lock(mutex_);
  const IslandBook::Group* group = book_.opened(communicator);
  return group != nullptr ? group->streams_to : std::set<int>{};
}

// What this rank made goes with the group, unless links and streams in use still hold it.
void Island::close(uint64_t communicator) {
  IslandBook::Group closed;  // ends without the lock
  std::lock_guard lock(mutex_);
  closed = book_.close(communicator);
}

void Island::keep(uint64_t communicator, std::shared_ptr<Window> window) {
  std::lock_guard lock(mutex_);
  if (IslandBook::Group* group = book_.opened(communicator)) group->page->windows.push_back(std::move(window));
}

// With the code of its cause: what this rank lacks (kSystem) is no fault of the peer's.
void Island::report(uint64_t communicator, int peer, const Error& why) const {
  const ErrorCode code = why.code == ErrorCode::kSystem ? why.code : ErrorCode::kNetwork;
  settings_.link_failed(
      communicator, peer,
      {code, fmt::format("sharing memory with {} failed: {}", peers_.at(peer).name, why.message), {peer}});
}

// The lower rank of a pair makes the memory of a link; the higher one asks for it (kWish) and finds it here later. So
// both may ask at once and there is one link. Errors are reported without the lock.
std::unique_ptr<Link> Island::take_link(const LinkKey& key, const LinkShape& shape) {
  RONDO_CHECK(sane_shape(shape), "a link holds 2 to 65 slices of at most 16 MiB");
  Error trouble;
  {
    std::lock_guard lock(mutex_);
    IslandBook::Group* group = book_.opened(key.communicator);
    if (group == nullptr) return nullptr;
    Peer& peer = peers_.at(key.peer);
    if (const auto found = group->links.find(key.peer); found != group->links.end()) {
      LinkMemory memory = std::move(found->second);
      group->links.erase(found);
      if (memory.shape.depth != shape.depth || memory.shape.slice_bytes != shape.slice_bytes) {
        trouble = {ErrorCode::kNetwork, "its links have another shape", {}};
      } else {
        return link_over(key, std::move(memory), *group);
      }
    } else if (peer.life->over.load()) {
      trouble = {ErrorCode::kNetwork, peer.end, {}};
    } else if (!group->made.insert(key.peer).second) {
      return nullptr;  // under way, or taken already
    } else if (settings_.rank < key.peer) {
      try {
        return link_over(key, make_link_memory(key, shape), *group);
      } catch (const Exception& failure) {
        trouble = failure.error();
      }
    } else {
      group->asked.insert(key.peer);
      connection(key.peer).send({.topic = IslandTopic::kWish,
                                 .communicator = key.communicator,
                                 .depth = shape.depth,
                                 .slice_bytes = shape.slice_bytes});
      return nullptr;
    }
  }
  report(key.communicator, key.peer, trouble);
  return nullptr;
}

// Requires the lock. Makes memory of frame.bytes, and hands it to the peer with the frame. Throws Exception(kSystem).
std::shared_ptr<Mapping> Island::share(int peer, const IslandFrame& frame) {
  auto file = std::make_shared<Descriptor>(make_memory_file(frame.bytes, Pages::kSparse));
  auto memory = std::make_shared<Mapping>(file->get(), frame.bytes, Mapping::Touch::kLater);
  connection(peer).send(frame, {file->get()}, file);
  return memory;
}

// Requires the lock. Throws Exception(kSystem).
LinkMemory Island::make_link_memory(const LinkKey& key, const LinkShape& shape) {
  const IslandFrame frame{.topic = IslandTopic::kLink,
                          .communicator = key.communicator,
                          .bytes = shared_link_bytes(shape),
                          .depth = shape.depth,
                          .slice_bytes = shape.slice_bytes};
  return {share(key.peer, frame), shape};
}

// Requires the lock.
// Creates the peer's entry where it has not announced its page yet: the bell in it is connected when the page comes.
std::unique_ptr<Link> Island::link_over(const LinkKey& key, LinkMemory memory, IslandBook::Group& group) {
  const bool first = settings_.rank < key.peer;
  return make_shared_link(end_of(std::move(memory.memory), first, peers_.at(key.peer), group.shown[key.peer].data),
                          memory.shape);
}

// One end of a channel over this memory; the end keeps it mapped.
ChannelEnd Island::end_of(std::shared_ptr<Mapping> memory, bool first, const Peer& peer,
                          std::shared_ptr<Bell> bell) const {
  std::byte* data = memory->data();
  return {std::move(memory), data, first, std::move(bell), peer.life, peer.name, stores()};
}

// Null until the peer has announced its page; the doorbell rings then (add_page()).
RankPage Island::page_of(uint64_t communicator, int rank) {
  Error trouble;
  {
    std::lock_guard lock(mutex_);
    IslandBook::Group* group = book_.opened(communicator);
    if (group == nullptr) return {};
    if (rank == settings_.rank) return {{group->page, group->page->page->data + kFlagBytes}, nullptr};
    // All members need each other's pages: if both connected, they would have two connections.
    if (rank < settings_.rank) connection(rank);
    const auto found = group->shown.find(rank);
    if (found != group->shown.end() && found->second.page) {
      return {{found->second.page, found->second.page.get() + kFlagBytes}, found->second.data};
    }
    const Peer& peer = peers_.at(rank);
    if (!peer.life->over.load()) return {};
    trouble = {ErrorCode::kNetwork, peer.end, {}};
  }
  report(communicator, rank, trouble);
  return {};
}

// The sender makes its stream at once; the peer finds it by take_stream_from(). Nothing waits for an answer.
std::unique_ptr<ByteStream> Island::take_stream_to(uint64_t communicator, int peer) {
  Error trouble;
  {
    std::lock_guard lock(mutex_);
    IslandBook::Group* group = book_.opened(communicator);
    if (group == nullptr) return nullptr;
    if (!group->streams_to.insert(peer).second) return nullptr;  // taken already
    try {
      return make_stream(communicator, peer, *group);
    } catch (const Exception& failure) {
      trouble = failure.error();
    }
  }
  report(communicator, peer, trouble);
  return nullptr;
}

// Requires the lock. Throws Exception.
std::unique_ptr<ByteStream> Island::make_stream(uint64_t communicator, int peer, IslandBook::Group& group) {
  const Peer& state = peers_.at(peer);
  if (state.life->over.load()) throw Exception(ErrorCode::kPeerLost, state.end);
  auto memory = share(
      peer,
      {.topic = IslandTopic::kStream, .communicator = communicator, .bytes = shared_stream_bytes(stream_shape())});
  return make_shared_stream(end_of(std::move(memory), true, state, group.shown[peer].p2p), buffers_of(group, peer));
}

// Both ends must choose alike: the number of the island's ranks is the same on all of them.
const BufferShape& Island::stream_shape() const {
  return peers_.size() < kManyPeers ? kStreamBuffers : kSmallStreamBuffers;
}

// The two streams of a pair share one set, whichever of them is made first.
std::shared_ptr<StreamBuffers> Island::buffers_of(IslandBook::Group& group, int peer) const {
  auto& buffers = group.buffers[peer];
  if (!buffers) buffers = std::make_shared<StreamBuffers>(stream_shape());
  return buffers;
}

// The oldest stream that has come and was not taken.
std::optional<std::pair<int, std::unique_ptr<ByteStream>>> Island::take_stream_from(uint64_t communicator) {
  std::lock_guard lock(mutex_);
  IslandBook::Group* group = book_.opened(communicator);
  if (group == nullptr || group->streams_from.empty()) return std::nullopt;
  auto [peer, offered] = std::move(group->streams_from.front());
  group->streams_from.pop_front();
  ChannelEnd end = end_of(std::move(offered.memory), false, peers_.at(peer), group->shown[peer].p2p);
  return std::pair(peer, make_shared_stream(std::move(end), buffers_of(*group, peer)));
}

// --- what the peers say, on the I/O thread

// Throws what is wrong with the frame, which ends the connection.
void Island::on_frame(int peer, const IslandFrame& frame, Files files) {
  Peer& state = peers_.at(peer);
  switch (frame.topic) {
    case IslandTopic::kWindow:
      return add_window(state, frame, files[0]);
    case IslandTopic::kDrop: {
      std::shared_ptr<Window> dropped;  // unmapped without the lock
      std::lock_guard lock(mutex_);
      if (const auto found = state.windows.find(frame.id); found != state.windows.end()) {
        dropped = std::move(found->second);
        state.windows.erase(found);
      }
      return;
    }
    case IslandTopic::kLink:
      return add_link(peer, frame, files[0]);
    case IslandTopic::kWish:
      return make_wished(peer, frame);
    case IslandTopic::kStream:
      return add_stream(peer, frame, files[0]);
    case IslandTopic::kPage:
      return add_page(peer, frame);
    case IslandTopic::kLetGo: {
      decltype(state.lent)::node_type page;  // ends without the lock
      std::lock_guard lock(mutex_);
      page = state.lent.extract(frame.communicator);
      if (!page.empty()) return;
      throw Exception(ErrorCode::kProtocol, "it lets go of a page that it does not have");
    }
    case IslandTopic::kSleeper:
      return add_sleeper(state, frame, std::move(files[0]));
    case IslandTopic::kOffer: {
      std::lock_guard lock(mutex_);
      return add_offer(state, frame, std::move(files[0]));
    }
  }
}

// Requires the lock. nullptr as the book's; throws where the peer has no part in it.
IslandBook::Group* Island::mentioned(int peer, uint64_t communicator) {
  IslandBook::Group* group = book_.mentioned(communicator);
  if (group != nullptr && group->open && group->members.count(peer) == 0) {
    throw Exception(ErrorCode::kProtocol, "it is no member of the communicator that it speaks of");
  }
  return group;
}

void Island::add_window(Peer& state, const IslandFrame& frame, const Descriptor& file) {
  // Its pages are mapped by the thread that first uses it (find): that takes a second for some gigabytes.
  auto memory = map_offered(file, frame.bytes, Mapping::Touch::kLater, Pages::kReserved);
  auto window = std::make_shared<MappedWindow>(frame.id, frame.bytes, std::move(memory), nullptr);
  std::vector<std::shared_ptr<Doorbell>> bells;  // an operation may wait for it
  {
    std::lock_guard lock(mutex_);
    if (frame.id == 0 || state.windows.size() == OwnWindows::kMost) {
      throw Exception(ErrorCode::kProtocol, "it offers more windows than can be mapped");
    }
    if (!state.windows.emplace(frame.id, std::move(window)).second) {
      throw Exception(ErrorCode::kProtocol, "it offered a window twice");
    }
    book_.for_each_open([&](uint64_t, IslandBook::Group& group) { bells.push_back(group.doorbell); });
  }
  for (const auto& bell : bells) bell->ring();
}

// Requires the lock. What the descriptor is, only the one who takes it can say.
void Island::add_offer(Peer& state, const IslandFrame& frame, Descriptor file) {
  if (state.offers.size() == kMaxOffers) {
    throw Exception(ErrorCode::kProtocol, "it offers more descriptors than can be kept");
  }
  if (!state.offers.emplace(frame.id, std::move(file)).second) {
    throw Exception(ErrorCode::kProtocol, "it offered a descriptor twice");
  }
}

// On the I/O thread, as all of these. The peer's numbers are checked before memory is mapped by them.
void Island::add_link(int peer, const IslandFrame& frame, const Descriptor& file) {
  const LinkShape shape{frame.depth, frame.slice_bytes};
  if (peer > settings_.rank || !sane_shape(shape) || frame.bytes != shared_link_bytes(shape)) {
    throw Exception(ErrorCode::kProtocol, "this is not how a link is made");
  }
  LinkMemory memory{map_offered(file, frame.bytes, Mapping::Touch::kLater), shape};
  std::shared_ptr<Doorbell> bell;
  {
    std::lock_guard lock(mutex_);
    IslandBook::Group* group = mentioned(peer, frame.communicator);
    if (group == nullptr) return;  // closed meanwhile
    group->made.insert(peer);
    group->asked.erase(peer);
    if (!group->links.emplace(peer, std::move(memory)).second) {
      throw Exception(ErrorCode::kProtocol, "it made a link twice");
    }
    bell = group->doorbell;
  }
  if (bell) bell->ring();
}

// The higher rank asks. If this rank made the link meanwhile for itself, the frame crossed with its own and is ignored.
void Island::make_wished(int peer, const IslandFrame& frame) {
  const LinkShape shape{frame.depth, frame.slice_bytes};
  if (peer < settings_.rank || !sane_shape(shape)) {
    throw Exception(ErrorCode::kProtocol, "this is not how a link is asked for");
  }
  std::lock_guard lock(mutex_);
  IslandBook::Group* group = mentioned(peer, frame.communicator);
  if (group == nullptr || !group->made.insert(peer).second) return;  // closed, or made meanwhile
  group->links.emplace(peer, make_link_memory({frame.communicator, peer}, shape));
}

// A stream may come before this rank opens the communicator: the book keeps it until then.
void Island::add_stream(int peer, const IslandFrame& frame, const Descriptor& file) {
  if (frame.bytes != shared_stream_bytes(stream_shape())) {
    throw Exception(ErrorCode::kProtocol, "this is not how a stream is made");
  }
  LinkMemory memory{map_offered(file, frame.bytes, Mapping::Touch::kLater), {}};
  std::shared_ptr<Doorbell> bell;
  {
    std::lock_guard lock(mutex_);
    IslandBook::Group* group = mentioned(peer, frame.communicator);
    if (group == nullptr) return;
    if (!group->streamed.insert(peer).second) throw Exception(ErrorCode::kProtocol, "it made a stream twice");
    group->streams_from.emplace_back(peer, std::move(memory));
    bell = group->p2p_doorbell;
  }
  if (bell) bell->ring();
  settings_.streamed(frame.communicator, peer);
}

// From here on this rank rings the peer's doorbells of that communicator.
void Island::add_page(int peer, const IslandFrame& frame) {
  std::shared_ptr<std::byte> page;  // if it is of no use, let go of without the lock
  std::shared_ptr<Doorbell> bell;
  {
    std::lock_guard lock(mutex_);
    Peer& state = peers_.at(peer);
    const auto found = state.windows.find(frame.id);
    std::byte* const data = found == state.windows.end()
                                ? nullptr
                                : data_at(*found->second, {frame.id, frame.bytes}, PageStore::kPageBytes);
    if (data == nullptr || frame.bytes % PageStore::kPageBytes != 0) {
      throw Exception(ErrorCode::kProtocol, "its page is not in memory that it has offered");
    }
    page = {std::make_shared<PeerPage>(found->second, own_, peer, frame.communicator), data};
    IslandBook::Group* group = mentioned(peer, frame.communicator);
    if (group == nullptr) return;
    IslandBook::Member& member = group->shown[peer];
    if (member.page) throw Exception(ErrorCode::kProtocol, "it announced its page twice");
    member.page = page;
    member.data->connect(flag_at(data, kDataFlag), state.sockets, page);
    member.p2p->connect(flag_at(data, kP2pFlag), state.sockets, page);
    bell = group->doorbell;
  }
  if (bell) bell->ring();
}

// A socket that is no bell could block ring(), which must never block.
void Island::add_sleeper(Peer& state, const IslandFrame& frame, Descriptor socket) {
  if (!is_bell(socket)) throw Exception(ErrorCode::kProtocol, "this wakes no sleeper");
  if (frame.id > SleeperSockets::kMost || !state.sockets->add(static_cast<uint32_t>(frame.id), std::move(socket))) {
    throw Exception(ErrorCode::kProtocol, "it has no such sleeper, or announced it twice");
  }
}

// What has come stays readable; a thread that waits for more looks again, and finds the end. Where the peer lives and
// has broken the protocol, no other part would say why, so every communicator with it fails.
void Island::on_end(int peer, IslandConnection::End end, const std::string& why) {
  std::vector<std::shared_ptr<Doorbell>> bells;
  const bool broken = end != IslandConnection::End::kGone;
  std::vector<uint64_t> waiting;                              // communicators that were promised a link, or are to know
  std::map<uint64_t, std::shared_ptr<MappedWindow>> dropped;  // unmapped without the lock; who works on one has it, too
  decltype(Peer::lent) lent;                                  // likewise
  {
    std::lock_guard lock(mutex_);
    Peer& state = peers_.at(peer);
    state.end = why;
    state.ended.store(!broken);
    std::swap(state.windows, dropped);
    if (!broken) std::swap(state.lent, lent);  // else it may still write there
    state.life->over.store(true, std::memory_order_seq_cst);
    book_.for_each_open([&](uint64_t id, IslandBook::Group& group) {
      bells.push_back(group.doorbell);
      bells.push_back(group.p2p_doorbell);
      if (group.asked.count(peer) != 0 || (broken && group.members.count(peer) != 0)) waiting.push_back(id);
    });
  }
  if (settings_.logger.shows(LogLevel::kTrace)) {
    settings_.logger.trace(fmt::format("the local connection to {} ended: {}", peers_.at(peer).name, why));
  }
  const ErrorCode code = end == IslandConnection::End::kUnmade ? ErrorCode::kSystem : ErrorCode::kNetwork;
  for (const uint64_t id : waiting) report(id, peer, {code, why, {}});
  for (const auto& bell : bells) bell->ring();
}

}  // namespace rondo
