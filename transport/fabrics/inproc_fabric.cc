#include "transport/fabrics/inproc_fabric.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <tuple>
#include <variant>

#include "ring/base/control_groups.h"
#include "ring/base/cores.h"
#include "transport/control/plane/control_driver.h"
#include "transport/control/plane/open_communicators.h"
#include "transport/control/plane/wake_event.h"
#include "transport/island/memory_file.h"
#include "transport/island/own_windows.h"
#include "transport/island/shared_link.h"
#include "transport/island/shared_stream.h"
#include "transport/tcp/io_thread.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// Between two tries of the I/O thread to carry out what there was no memory for. All communicators have failed by then,
// so that nobody is late.
constexpr std::chrono::milliseconds kBetweenTries{1};

// Makes a bell for the doorbell: the other ranks ring it as they ring that of another process.
std::shared_ptr<Bell> share(const std::shared_ptr<Doorbell>& doorbell) {
  auto flag = std::make_shared<std::atomic<uint32_t>>(0);
  doorbell->share(flag.get(), flag);
  return doorbell->bell();
}

// What ranks that are threads of one process have made. All of them look into this one book: nothing has to be
// announced, so nothing is kept for each pair of ranks, as IslandBook does.
struct InprocBook {
  // One rank's part of a communicator that it has open.
  struct Member {
    std::shared_ptr<Bell> bell, p2p_bell;                        // shared with pages, links and streams
    std::shared_ptr<const std::atomic<Stores>> stores;           // of the rank; shared likewise
    std::map<int, std::unique_ptr<Link>> links = {};             // that peers made; not taken
    std::deque<std::pair<int, ChannelEnd>> streams_from = {};    // that peers made; not taken
    std::map<int, std::shared_ptr<StreamBuffers>> buffers = {};  // by peer; shared with its streams

    std::unique_ptr<ByteStream> stream_over(int peer, ChannelEnd end) {
      auto& of_peer = buffers[peer];
      if (!of_peer) of_peer = std::make_shared<StreamBuffers>(kSmallStreamBuffers);
      return make_shared_stream(std::move(end), of_peer);
    }
  };
  // A rank that has posted its data and gone may have done so before another one has mapped the window: its page and
  // windows stay until the last heir has closed.
  struct Communicator {
    std::map<int, Member> members;  // by rank: those that have it open
    std::map<int, RankPage> pages;  // by rank: those that have opened it
    std::vector<std::shared_ptr<Window>> windows;
    std::set<int> heirs;  // ranks that have neither closed nor declined it
  };

  // nullptr: the rank does not have it open. Requires the lock.
  Member* member(uint64_t communicator, int rank) {
    const auto found = communicators.find(communicator);
    if (found == communicators.end()) return nullptr;
    const auto open = found->second.members.find(rank);
    return open == found->second.members.end() ? nullptr : &open->second;
  }
  // The first of the ranks makes it: others may have closed it since. Requires the lock.
  Communicator& mentioned(uint64_t id, const std::vector<int>& ranks) {
    const auto [made, is_new] = communicators.try_emplace(id);
    if (is_new) made->second.heirs.insert(ranks.begin(), ranks.end());
    return made->second;
  }

  std::mutex mutex;  // guards what follows; nothing is called out with it
  std::map<uint64_t, Communicator> communicators;
  // By maker, taker and name; not taken. Shared by the takers: an offer is one descriptor, for however many ranks.
  std::map<std::tuple<int, int, uint64_t>, std::shared_ptr<Descriptor>> offers;
};

// What the fabrics of the ranks share: the book, the windows and the control plane of each, and the one I/O thread that
// serves them all and carries their messages. The ranks own the hub together; the last one to go ends the thread.
class InprocHub {
 public:
  // All ranks are neighbors, so messages are never passed on. No heartbeats: threads of one process do not die alone.
  explicit InprocHub(int world)
      : thread_([this](const Error&) { break_all(); }), wake_(thread_.context(), [this] { on_wake(); }) {
    ControlSettings settings;
    settings.names.assign(static_cast<size_t>(world), fmt::format("thread of pid {}", ::getpid()));
    for (int rank = 0; rank < world; ++rank) {
      settings.rank = rank;
      settings.neighbors.clear();
      for (int other = 0; other < world; ++other) {
        if (other != rank) settings.neighbors.push_back(other);
      }
      ranks_.emplace_back(*this, settings);
    }
    wake_.listen();  // here, not posted: what it throws is the caller's, who has no ranks then
  }
  // Actions that nobody has carried out yet are dropped: all fabrics have gone.
  ~InprocHub() { thread_.stop(); }

  int event() const { return wake_.descriptor(); }
  ControlDriver& driver(int rank) { return at(rank).driver; }
  OpenCommunicators& communicators(int rank) { return at(rank).communicators; }
  OwnWindows& windows(int rank) { return *at(rank).windows; }

  InprocBook book;

 private:
  struct Rank {
    Rank(InprocHub& hub, ControlSettings settings)
        : driver(hub.thread_, hub.wake_,
                 {[&hub, from = settings.rank](const control::Action& action) { hub.carry_out(from, action); },
                  [](int, const ControlBody&) {}, [] { return std::vector<int>{}; }}),
          communicators(driver, nullptr) {
      driver.know(std::move(settings));
    }
    ControlDriver driver;
    OpenCommunicators communicators;
    const std::shared_ptr<OwnWindows> windows = std::make_shared<OwnWindows>(0);  // shared with the windows
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  // --- the I/O thread
  // A message between any two ranks was lost, for want of memory, and nothing says of which communicator it was. What
  // is left to be carried out, on_wake() finds. That throws again while there is no memory: without the pause it would
  // take a core from the threads that may give memory back.
  void break_all() noexcept {
    for (Rank& rank : ranks_) rank.communicators.break_all();
    std::this_thread::sleep_for(kBetweenTries);
    wake_.ring();
  }

  void on_wake() {
    for (Rank& rank : ranks_) {
      rank.communicators.wake_all();
      rank.driver.flush();
    }
  }

  // A message is received at once. What it brings about comes later: there may be hundreds of them. Between threads
  // there is no log of a single rank, and no connection to end.
  void carry_out(int from, const control::Action& action) {
    const auto* send = std::get_if<control::Send>(&action);
    if (send == nullptr) return static_cast<void>(at(from).communicators.carry_out(action));
    Rank& to = at(send->peer);
    if (const auto* question = std::get_if<QueryMessage>(&send->body)) {
      return to.communicators.on_query(from, *question);
    }
    to.driver.hold()->logic->receive(ControlDriver::now(), from, send->body);
    to.driver.flush_soon();
  }

  IoThread thread_;
  WakeEvent wake_;
  std::deque<Rank> ranks_;
};

// The fabric of one rank, and its island: memory is the process's own, and pulling is copying. All state is in the hub.
class InprocFabric final : public Fabric, public SharedMemory {
 public:
  InprocFabric(std::shared_ptr<InprocHub> hub, int rank, int world, const Config& config) : hub_(std::move(hub)) {
    if (config.shared_stores == "streamed") set_stores(Stores::kStreamed);
    place_ = {rank, world, rank, world, 0, 1};
    // Threads of one process are one host and one island.
    topology_.host.assign(static_cast<size_t>(world), 0);
    topology_.island.assign(static_cast<size_t>(world), 0);
    const cpu_set_t allowed = allowed_cores();
    const std::vector<CoreQuota> quotas(static_cast<size_t>(world), core_quota());
    topology_.cores.assign(static_cast<size_t>(world), cores_within(CPU_COUNT(&allowed), quotas));
  }
  ~InprocFabric() override {
    if (::getpid() != pid_) {
      // The hub's thread is the parent's, and may have had a lock; a thread of the child's own may have its number.
      std::construct_at(&hub_);
      return;
    }
    try {
      hub_->driver(place_.rank).tell_later([](ControlLogic& logic) { logic.leave(); });
    } catch (const std::bad_alloc&) {
      // Its communicators have said goodbye.
    }
  }

  const Place& place() const override { return place_; }
  const Topology& topology() const override { return topology_; }
  std::string peer_name(int peer) const override { return hub_->driver(place_.rank).peer_name(peer); }
  int64_t process(int) const override { return ::getpid(); }
  const std::shared_ptr<Sleepers>& sleepers() const override { return sleepers_; }

  // The page is zeroed by its making. The doorbells' flags need no place in it: share() gives each memory of its own.
  // Where the last step throws, decline() takes the others back.
  void open(uint64_t id, std::vector<int> members, CommunicatorEvents* events, std::shared_ptr<Doorbell> doorbell,
            std::shared_ptr<Doorbell> p2p_doorbell) override {
    InprocBook::Member opened{share(doorbell), share(p2p_doorbell), stores()};
    const auto page = std::make_shared<Mapping>(kRankPageBytes);
    {
      std::lock_guard lock(book().mutex);
      InprocBook::Communicator& made = book().mentioned(id, members);
      made.pages[place_.rank] = {{page, page->data()}, opened.bell};
      made.members[place_.rank] = std::move(opened);
      for (const auto& [rank, member] : made.members) {  // links and streams wait until both ends have opened
        member.bell->ring();
        member.p2p_bell->ring();
      }
    }
    communicators().open(id, std::move(members), events, std::move(doorbell), std::move(p2p_doorbell));
  }
  // Does what Fabric says, and lets go of what others have left for this rank.
  void decline(uint64_t id, const std::vector<int>& members, const Error& error) override {
    communicators().decline(id, members, error);
    {
      std::lock_guard lock(book().mutex);
      book().mentioned(id, members);
    }
    renounce(id);
  }
  void made(uint64_t id) override { communicators().made(id); }
  bool leave(uint64_t, uint64_t) override { return true; }  // close() does not wait either
  // Does not wait for the others' goodbyes: what a rank leaves to them stays in the book. Waits only for an event that
  // is being delivered.
  bool close(uint64_t id, uint64_t last_sequence, Clock::time_point) override {
    bool all = false;
    try {  // streams come at once, so no goodbye has to name them
      all = communicators().leave(id, last_sequence, [] { return std::set<int>{}; });
    } catch (const std::bad_alloc&) {
      // what was not said is left out
    }
    communicators().forget(id);
    renounce(id);
    return all;
  }

  // --- data
  // The first of the two ranks that asks makes both ends.
  std::unique_ptr<Link> take_link(const LinkKey& key, const LinkShape& shape) override {
    std::lock_guard lock(book().mutex);
    InprocBook::Member* const own = book().member(key.communicator, place_.rank);
    if (own == nullptr) return nullptr;
    if (auto made = own->links.extract(key.peer)) return std::move(made.mapped());
    InprocBook::Member* const other = book().member(key.communicator, key.peer);
    if (other == nullptr) return nullptr;
    auto [near, far] = ends(*own, key.peer, *other, shared_link_bytes(shape), &InprocBook::Member::bell);
    auto here = make_shared_link(std::move(near), shape), there = make_shared_link(std::move(far), shape);
    other->links[place_.rank] = std::move(there);
    other->bell->ring();
    return here;
  }
  // Both ends are made here; nullptr until the peer has opened the communicator, whose doorbell rings then.
  std::unique_ptr<ByteStream> take_stream_to(uint64_t communicator, int peer) override {
    std::lock_guard lock(book().mutex);
    InprocBook::Member* const own = book().member(communicator, place_.rank);
    InprocBook::Member* const other = book().member(communicator, peer);
    if (own == nullptr || other == nullptr) return nullptr;
    auto [near, far] =
        ends(*own, peer, *other, shared_stream_bytes(kSmallStreamBuffers), &InprocBook::Member::p2p_bell);
    other->streams_from.emplace_back(place_.rank, std::move(far));
    other->p2p_bell->ring();
    return own->stream_over(peer, std::move(near));
  }
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from(uint64_t communicator) override {
    std::lock_guard lock(book().mutex);
    InprocBook::Member* const own = book().member(communicator, place_.rank);
    if (own == nullptr || own->streams_from.empty()) return std::nullopt;
    auto [peer, end] = std::move(own->streams_from.front());
    own->streams_from.pop_front();
    return std::pair(peer, own->stream_over(peer, std::move(end)));
  }
  RankPage page_of(uint64_t communicator, int rank) override {
    std::lock_guard lock(book().mutex);
    const auto found = book().communicators.find(communicator);
    if (found == book().communicators.end()) return {};
    const auto page = found->second.pages.find(rank);
    return page == found->second.pages.end() ? RankPage{} : page->second;
  }
  void keep(uint64_t communicator, std::shared_ptr<Window> window) override {
    std::lock_guard lock(book().mutex);
    const auto found = book().communicators.find(communicator);
    if (found != book().communicators.end()) found->second.windows.push_back(std::move(window));
  }
  SharedMemory* shared_memory() override { return this; }

  // --- SharedMemory
  std::shared_ptr<Window> make(size_t bytes, uint64_t name) override {
    if (bytes == 0) throw Exception(ErrorCode::kInvalid, "shared memory of 0 bytes was asked for");
    return hub_->windows(place_.rank).add(bytes, std::make_shared<Mapping>(bytes), nullptr, name);
  }
  WindowPlace locate(const void* data, size_t bytes) const override {
    return hub_->windows(place_.rank).locate(data, bytes);
  }
  std::shared_ptr<Window> find(int peer, uint64_t id) override { return hub_->windows(peer).find(id); }
  // The last taker gets the descriptor itself, and the others a copy. Without takers it is closed.
  void offer(std::span<const int> peers, uint64_t name, Descriptor descriptor) override {
    const auto offered = std::make_shared<Descriptor>(std::move(descriptor));
    std::lock_guard lock(book().mutex);
    for (const int peer : peers) book().offers[{place_.rank, peer, name}] = offered;
  }
  Descriptor take_offer(int peer, uint64_t name) override {
    std::lock_guard lock(book().mutex);
    auto taken = book().offers.extract({peer, place_.rank, name});
    if (!taken) return {};
    if (taken.mapped().use_count() == 1) return std::move(*taken.mapped());
    Descriptor copy([&] { return ::fcntl(taken.mapped()->get(), F_DUPFD_CLOEXEC, 0); });
    if (!copy.valid()) throw Exception(ErrorCode::kSystem, "no descriptor is left for shared memory");
    return copy;
  }
  bool can_pull() const override { return true; }
  bool pull(int, uint64_t address, std::byte* to, size_t bytes) override {
    std::memcpy(to, reinterpret_cast<const std::byte*>(address), bytes);
    return true;
  }
  bool ended(int) const override { return false; }
  bool stops_alone() const override { return false; }

  // --- control
  void stalled(uint64_t communicator, uint64_t sequence, Ask ask) override {
    communicators().stalled(communicator, sequence, ask);
  }
  std::vector<int> absent(uint64_t communicator, uint64_t sequence) override {
    return communicators().absent(communicator, sequence);
  }
  void link_failed(uint64_t communicator, int peer, const Error& error) override {
    communicators().link_failed(communicator, peer, error);
  }
  void abort(uint64_t communicator, const Error& error) override { communicators().abort(communicator, error); }
  std::string blame(uint64_t communicator, uint64_t sequence) override {
    return communicators().blame(communicator, sequence);
  }
  Shrunk shrink(uint64_t communicator, std::chrono::milliseconds patience, bool opened) override {
    return communicators().shrink(communicator, patience, opened);
  }
  int wake_event() const override { return hub_->event(); }

 private:
  OpenCommunicators& communicators() const { return hub_->communicators(place_.rank); }
  InprocBook& book() const { return hub_->book; }

  // The rank inherits nothing of the communicator any more. With the last heir all goes that the ranks have left.
  void renounce(uint64_t id) {
    InprocBook::Member closed;  // these end without the lock
    InprocBook::Communicator left;
    std::lock_guard lock(book().mutex);
    const auto found = book().communicators.find(id);
    if (found == book().communicators.end()) return;
    InprocBook::Communicator& made = found->second;
    if (auto own = made.members.extract(place_.rank)) closed = std::move(own.mapped());
    made.heirs.erase(place_.rank);
    if (made.heirs.empty()) left = std::move(book().communicators.extract(found).mapped());
  }

  // The ends of a link or stream, over memory of its own. Requires the lock. bell: that of its kind.
  std::pair<ChannelEnd, ChannelEnd> ends(const InprocBook::Member& own, int peer, const InprocBook::Member& other,
                                         size_t bytes, std::shared_ptr<Bell> InprocBook::Member::*bell) const {
    const auto memory = std::make_shared<Mapping>(bytes);
    const auto life = std::make_shared<PeerLife>();
    return {{memory, memory->data(), true, other.*bell, life, peer_name(peer), own.stores},
            {memory, memory->data(), false, own.*bell, life, peer_name(place_.rank), other.stores}};
  }

  const pid_t pid_ = ::getpid();
  std::shared_ptr<InprocHub> hub_;  // shared by the ranks; never let go of in a forked child
  const std::shared_ptr<Sleepers> sleepers_ = std::make_shared<Sleepers>();  // shared with the doorbells
  Place place_;
  Topology topology_;
};

}  // namespace

std::vector<std::shared_ptr<Fabric>> make_inproc_fabrics(int world, const Config& config) {
  auto hub = std::make_shared<InprocHub>(world);
  std::vector<std::shared_ptr<Fabric>> fabrics;
  for (int rank = 0; rank < world; ++rank) {
    fabrics.push_back(std::make_shared<InprocFabric>(hub, rank, world, config));
  }
  return fabrics;
}

}  // namespace rondo
