#include "transport/fabrics/inproc_fabric.h"

#include <fmt/format.h>
#include <unistd.h>

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <variant>

#include "ring/base/control_groups.h"
#include "ring/base/cores.h"
#include "transport/control/plane/control_driver.h"
#include "transport/control/plane/open_communicators.h"
#include "transport/control/plane/wake_event.h"
#include "transport/fabrics/inproc_memory.h"
#include "transport/island/shared_link.h"
#include "transport/island/shared_stream.h"
#include "transport/tcp/io_thread.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// Makes a bell for the doorbell: the other ranks ring it as they ring that of another process.
std::shared_ptr<Bell> share(const std::shared_ptr<Doorbell>& doorbell) {
  auto flag = std::make_shared<std::atomic<uint32_t>>(0);
  doorbell->share(flag.get(), flag);
  return doorbell->bell();
}

// Streams between threads come at once: no goodbye has to name them.
std::set<int> no_streams() { return {}; }

// One rank's part of a communicator that it has open.
struct Group {
  std::shared_ptr<Bell> bell;                                       // shared with the engine, links and streams
  std::shared_ptr<Bell> p2p_bell;                                   // likewise
  std::shared_ptr<const std::atomic<Stores>> stores;                // of the rank; shared with links and streams
  std::map<std::pair<int, int>, std::unique_ptr<Link>> links = {};  // by peer and lane: the peer made it; not taken
  std::deque<std::pair<int, ChannelEnd>> incoming = {};             // streams that peers made; not taken
  std::map<int, std::shared_ptr<StreamBuffers>> buffers = {};       // by peer; shared with its streams

  std::unique_ptr<ByteStream> stream_over(int peer, ChannelEnd end) {
    auto& of_peer = buffers[peer];
    if (!of_peer) of_peer = std::make_shared<StreamBuffers>(kSmallStreamBuffers);
    return make_shared_stream(std::move(end), of_peer);
  }
};

// What the ranks of a communicator leave to those that have not closed it yet. A rank that has posted its data and gone
// may have done so before another one has mapped the window: its page and windows stay until the last heir has closed.
struct Legacy {
  std::set<int> heirs;  // ranks that have neither closed nor declined it
  std::vector<std::shared_ptr<Window>> windows;
  std::map<int, RankPage> pages;
};

// What the fabrics of the ranks share: the control plane of each, the one I/O thread that serves them all and carries
// their messages, and what they find in memory. The ranks own the hub together; the last one to go ends the thread.
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
    thread_.post([this] { wake_.listen(); });
  }
  // Actions that nobody has carried out yet are dropped: all fabrics have gone.
  ~InprocHub() { thread_.stop(); }

  int event() const { return wake_.descriptor(); }
  ControlDriver& driver(int rank) { return at(rank).driver; }
  OpenCommunicators& communicators(int rank) { return at(rank).communicators; }

  // --- The rest requires this lock, with which nothing is called out. A driver's is not taken with it.
  std::mutex mutex;
  std::map<uint64_t, Legacy> legacies;  // by communicator

  // nullptr: the rank does not have it open.
  Group* group(int rank, uint64_t communicator) {
    auto& groups = at(rank).groups;
    const auto found = groups.find(communicator);
    return found == groups.end() ? nullptr : &found->second;
  }
  std::map<uint64_t, Group>& groups(int rank) { return at(rank).groups; }

  // The rank inherits nothing of the communicator any more. Returns what then nobody does.
  Legacy renounce(int rank, uint64_t id) {
    const auto found = legacies.find(id);
    if (found == legacies.end()) return {};
    found->second.heirs.erase(rank);
    return found->second.heirs.empty() ? std::move(legacies.extract(found).mapped()) : Legacy{};
  }

  // The ends of a link or stream, over memory of its own, between two ranks that have opened the communicator. bell:
  // that of its kind.
  std::pair<ChannelEnd, ChannelEnd> ends(int rank, int peer, uint64_t communicator, size_t bytes,
                                         std::shared_ptr<Bell> Group::*bell) {
    const Group &own = *group(rank, communicator), &other = *group(peer, communicator);
    const auto memory = plain_memory(bytes);
    const auto life = std::make_shared<PeerLife>();
    return {{memory, memory.get(), true, other.*bell, life, driver(rank).peer_name(peer), own.stores},
            {memory, memory.get(), false, own.*bell, life, driver(rank).peer_name(rank), other.stores}};
  }

  // What is left to the communicator's members. Its first member makes it: others may have renounced since.
  Legacy& legacy_of(uint64_t id, const std::vector<int>& members) {
    const auto [made, is_new] = legacies.try_emplace(id);
    if (is_new) made->second.heirs.insert(members.begin(), members.end());
    return made->second;
  }

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
    std::map<uint64_t, Group> groups;  // by communicator
  };
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  // --- the I/O thread
  // A message between any two ranks was lost, for want of memory, and nothing says of which communicator it was. What is
  // left to be carried out, on_wake() finds.
  void break_all() noexcept {
    for (Rank& rank : ranks_) rank.communicators.break_all();
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

// The fabric of one rank. All state is in the hub.
class InprocFabric final : public Fabric {
 public:
  InprocFabric(std::shared_ptr<InprocHub> hub, std::shared_ptr<InprocWindows> windows, int rank, int world,
               const Config& config)
      : hub_(std::move(hub)), memory_(std::move(windows), rank) {
    if (config.shared_stores == "streamed") memory_.set_stores(Stores::kStreamed);
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
  void open(uint64_t id, std::vector<int> members, CommunicatorEvents* events, std::shared_ptr<Doorbell> doorbell,
            std::shared_ptr<Doorbell> p2p_doorbell) override {
    Group opened{share(doorbell), share(p2p_doorbell), memory_.stores()};
    {
      std::lock_guard lock(hub_->mutex);
      hub_->legacy_of(id, members).pages[place_.rank] = {plain_memory(kRankPageBytes), opened.bell};
      hub_->groups(place_.rank)[id] = std::move(opened);
    }
    try {
      communicators().open(id, members, events, std::move(doorbell), std::move(p2p_doorbell));
    } catch (...) {  // what it has left goes when it declines
      std::lock_guard lock(hub_->mutex);
      hub_->groups(place_.rank).erase(id);
      throw;
    }
    // Links and streams wait until both ends have opened.
    std::lock_guard lock(hub_->mutex);
    for (const int member : members) {
      if (const Group* group = hub_->group(member, id)) {
        group->bell->ring();
        group->p2p_bell->ring();
      }
    }
  }
  // Does what Fabric says, and lets go of what others have left for this rank.
  void decline(uint64_t id, const std::vector<int>& members, const Error& error) override {
    communicators().decline(id, members, error);
    Legacy done;  // ends without the lock
    std::lock_guard lock(hub_->mutex);
    hub_->legacy_of(id, members);
    done = hub_->renounce(place_.rank, id);
  }
  void made(uint64_t id) override { communicators().made(id); }
  bool leave(uint64_t, uint64_t) override { return true; }  // close() does not wait either
  // Does not wait for the others' goodbyes: what a rank leaves to them stays in the hub (Legacy). Waits only for an
  // event that is being delivered.
  bool close(uint64_t id, uint64_t last_sequence, Clock::time_point) override {
    bool all = false;
    try {
      all = communicators().leave(id, last_sequence, no_streams);
    } catch (const std::bad_alloc&) {
      // what was not said is left out
    }
    communicators().forget(id);
    Group closed;  // these end without the lock
    Legacy done;
    std::lock_guard lock(hub_->mutex);
    if (Group* own = hub_->group(place_.rank, id)) closed = std::move(*own);
    hub_->groups(place_.rank).erase(id);
    done = hub_->renounce(place_.rank, id);
    return all;
  }

  // The first of the two ranks that asks makes both ends.
  std::unique_ptr<Link> take_link(const LinkKey& key, const LinkShape& shape) override {
    std::lock_guard lock(hub_->mutex);
    Group* own_group = hub_->group(place_.rank, key.communicator);
    if (own_group == nullptr) return nullptr;
    const auto found = own_group->links.find({key.peer, key.lane});
    if (found != own_group->links.end()) return std::move(own_group->links.extract(found).mapped());
    Group* other = hub_->group(key.peer, key.communicator);
    if (other == nullptr) return nullptr;
    auto [near, far] = hub_->ends(place_.rank, key.peer, key.communicator, shared_link_bytes(shape), &Group::bell);
    auto here = make_shared_link(std::move(near), shape), there = make_shared_link(std::move(far), shape);
    other->links[{place_.rank, key.lane}] = std::move(there);
    other->bell->ring();
    return here;
  }
  RankPage page_of(uint64_t communicator, int rank) override {
    std::lock_guard lock(hub_->mutex);
    const auto legacy = hub_->legacies.find(communicator);
    if (legacy == hub_->legacies.end()) return {};
    const auto page = legacy->second.pages.find(rank);
    return page == legacy->second.pages.end() ? RankPage{} : page->second;
  }
  void keep(uint64_t communicator, std::shared_ptr<Window> window) override {
    std::lock_guard lock(hub_->mutex);
    const auto legacy = hub_->legacies.find(communicator);
    if (legacy != hub_->legacies.end()) legacy->second.windows.push_back(std::move(window));
  }
  // Both ends are made here; nullptr until the peer has opened the communicator, whose doorbell rings then.
  std::unique_ptr<ByteStream> take_stream_to(uint64_t communicator, int peer) override {
    std::lock_guard lock(hub_->mutex);
    Group* own_group = hub_->group(place_.rank, communicator);
    Group* other = hub_->group(peer, communicator);
    if (own_group == nullptr || other == nullptr) return nullptr;
    auto [near, far] =
        hub_->ends(place_.rank, peer, communicator, shared_stream_bytes(kSmallStreamBuffers), &Group::p2p_bell);
    other->incoming.emplace_back(place_.rank, std::move(far));
    other->p2p_bell->ring();
    return own_group->stream_over(peer, std::move(near));
  }
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from(uint64_t communicator) override {
    std::lock_guard lock(hub_->mutex);
    Group* group = hub_->group(place_.rank, communicator);
    if (group == nullptr || group->incoming.empty()) return std::nullopt;
    auto [peer, end] = std::move(group->incoming.front());
    group->incoming.pop_front();
    return std::pair(peer, group->stream_over(peer, std::move(end)));
  }
  SharedMemory* shared_memory() override { return &memory_; }

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

  const pid_t pid_ = ::getpid();
  std::shared_ptr<InprocHub> hub_;  // shared by the ranks; never let go of in a forked child
  InprocMemory memory_;
  const std::shared_ptr<Sleepers> sleepers_ = std::make_shared<Sleepers>();  // shared with the doorbells
  Place place_;
  Topology topology_;
};

}  // namespace

std::vector<std::shared_ptr<Fabric>> make_inproc_fabrics(int world, const Config& config) {
  auto hub = std::make_shared<InprocHub>(world);
  const auto windows = std::make_shared<InprocWindows>();
  std::vector<std::shared_ptr<Fabric>> fabrics;
  for (int rank = 0; rank < world; ++rank) {
    fabrics.push_back(std::make_shared<InprocFabric>(hub, windows, rank, world, config));
  }
  return fabrics;
}

}  // namespace rondo
