#include "transport/fabrics/inproc_fabric.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <thread>

#include "ring/base/check.h"
#include "ring/base/control_groups.h"
#include "ring/base/cores.h"
#include "ring/base/descriptor.h"
#include "ring/base/interrupt.h"
#include "ring/base/own_thread.h"
#include "transport/control/control_logic.h"
#include "transport/fabrics/inproc_memory.h"
#include "transport/island/shared_link.h"
#include "transport/island/shared_stream.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// The clock of ControlLogic: it never goes back, and its beginning means nothing.
int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
}

// Makes a bell for the doorbell: the other ranks ring it as they ring that of another process.
std::shared_ptr<Bell> share(const std::shared_ptr<Doorbell>& doorbell) {
  auto flag = std::make_shared<std::atomic<uint32_t>>(0);
  doorbell->share(flag.get(), flag);
  return doorbell->bell();
}

// One rank's part of a communicator that it has open.
struct Group {
  CommunicatorEvents* events = nullptr;
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

// One rank of the process, as the hub sees it. Guarded by the hub's lock.
struct Rank {
  explicit Rank(const ControlSettings& settings) : logic(settings) {}
  Group* group(uint64_t communicator) {
    const auto found = groups.find(communicator);
    return found == groups.end() ? nullptr : &found->second;
  }
  ControlLogic logic;
  std::map<uint64_t, Group> groups;
};

// What the ranks of a communicator leave to those that have not closed it yet. A rank that has posted its data and gone
// may have done so before another one has mapped the window: its page and windows stay until the last heir has closed.
struct Legacy {
  std::set<int> heirs;  // ranks that have neither closed nor declined it
  std::vector<std::shared_ptr<Window>> windows;
  std::map<int, RankPage> pages;
};

// What the fabrics of the ranks share: the state of each, and the thread that carries control messages between them.
// One lock for all of it; events are delivered without it, since the engine may call the fabric from them. The ranks
// own the hub together; the last one to go joins the thread.
class InprocHub {
 public:
  // All ranks are neighbors, so messages are never passed on. No heartbeats: threads of one process do not die alone.
  explicit InprocHub(int world)
      : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), Descriptor::InChild::kInherited),
        names_(static_cast<size_t>(world), fmt::format("thread of pid {}", ::getpid())) {
    if (!event_.valid()) throw Exception(ErrorCode::kSystem, "eventfd: no descriptor is left (ulimit -n)");
    for (int rank = 0; rank < world; ++rank) {
      ControlSettings settings;
      settings.rank = rank;
      settings.names = names_;
      for (int other = 0; other < world; ++other) {
        if (other != rank) settings.neighbors.push_back(other);
      }
      ranks_.emplace_back(settings);
    }
    thread_ = start_own_thread("rondo-inproc", [this] { run(); });
  }

  // Actions that nobody has carried out yet are dropped: all fabrics have gone.
  ~InprocHub() {
    {
      std::lock_guard lock(mutex);
      stopping_ = true;
      notify();
    }
    thread_.join();
  }

  int event() const { return event_.get(); }
  std::string name(int rank) const { return rank_name(rank, names_); }

  // Changes one rank's control logic and leaves the rest to the thread. Without the lock.
  template <typename Change>
  void change(int rank, Change apply) {
    std::lock_guard lock(mutex);
    apply(at(rank).logic, now_ms());
    collect(rank);
  }

  // --- The rest requires the lock.
  std::mutex mutex;
  std::condition_variable changed;      // something was asked of the thread, or it has delivered an event
  std::map<uint64_t, Legacy> legacies;  // by communicator

  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  // What the rank's control logic wants done is for the thread from now on.
  void collect(int rank) {
    for (auto& action : at(rank).logic.take_actions()) actions_.emplace_back(rank, std::move(action));
    notify();
  }

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
    const Group &own = *at(rank).group(communicator), &other = *at(peer).group(communicator);
    const auto memory = plain_memory(bytes);
    const auto life = std::make_shared<PeerLife>();
    return {{memory, memory.get(), true, other.*bell, life, name(peer), own.stores},
            {memory, memory.get(), false, own.*bell, life, name(rank), other.stores}};
  }

  // What is left to the communicator's members. Its first member makes it: others may have renounced since.
  Legacy& legacy_of(uint64_t id, const std::vector<int>& members) {
    const auto [made, is_new] = legacies.try_emplace(id);
    if (is_new) made->second.heirs.insert(members.begin(), members.end());
    return made->second;
  }

  // close() waits while this holds: afterwards no event of the communicator is delivered.
  bool delivers(int rank, uint64_t communicator) const { return delivering_ == std::pair(rank, communicator); }

 private:
  // Wakes the thread, and those who wait for it in close() and shrink(). Requires the lock.
  void notify() {
    changed.notify_all();
    const uint64_t one = 1;
    if (std::exchange(asleep_, false)) static_cast<void>(!::write(event_.get(), &one, sizeof one));
  }

  // What serve() throws is a lack of memory; the thread goes on, since other communicators need it.
  void run() {
    while (true) {
      try {
        return serve();
      } catch (...) {
        fail_everything();
      }
    }
  }

  // Fails all communicators: a message between any two ranks was lost, for want of memory, and nothing says of which
  // communicator it was.
  void fail_everything() noexcept {
    std::lock_guard lock(mutex);
    delivering_ = {-1, 0};
    for (const Rank& rank : ranks_) {
      for (const auto& [id, group] : rank.groups) group.events->on_broken();
    }
    changed.notify_all();
  }

  // Performs what the ranks' logics ask for, one action at a time, and ticks them when one of them is due. The lock is
  // held except while an action is performed and while the thread sleeps.
  void serve() {
    std::unique_lock lock(mutex);
    while (!stopping_) {
      if (!actions_.empty()) {
        auto [rank, action] = std::move(actions_.front());
        actions_.pop_front();
        lock.unlock();
        std::visit([this, from = rank](auto& what) { perform(from, what); }, action);
        lock.lock();
        changed.notify_all();
        continue;
      }
      int64_t due = INT64_MAX;
      for (const Rank& rank : ranks_) due = std::min(due, rank.logic.next_time().value_or(INT64_MAX));
      if (due <= now_ms()) {
        for (int rank = 0; rank < world(); ++rank) {
          at(rank).logic.tick(now_ms());
          collect(rank);
        }
      } else {
        sleep(lock, std::min<int64_t>(due - now_ms(), 60'000));
      }
    }
  }

  // Until something was asked of the thread, or `ms` have passed. The event may be a signal handler's, too.
  void sleep(std::unique_lock<std::mutex>& lock, int64_t ms) {
    asleep_ = true;
    lock.unlock();
    pollfd wish{event_.get(), POLLIN, 0};
    const bool woken = ::poll(&wish, 1, static_cast<int>(ms)) > 0;
    uint64_t times = 0;
    if (woken) static_cast<void>(!::read(event_.get(), &times, sizeof times));
    std::vector<std::pair<int, uint64_t>> open;
    lock.lock();
    asleep_ = false;
    if (!woken) return;
    for (int rank = 0; rank < world(); ++rank) {
      for (const auto& [id, group] : at(rank).groups) open.emplace_back(rank, id);
    }
    lock.unlock();
    for (const auto& [rank, id] : open) deliver(rank, id, [](CommunicatorEvents& events) { events.on_wake(); });
    lock.lock();
  }

  // A message is delivered by calling the receiver's logic. A question is answered by the receiver's communicator
  // first, without the lock.
  void perform(int from, control::Send& send) {
    if (const auto* question = std::get_if<QueryMessage>(&send.body)) {
      const auto own = call_state(send.peer, question->communicator, question->sequence);
      change(send.peer, [&](ControlLogic& logic, int64_t) {
        if (own) logic.query(from, *question, *own);
      });
      return;
    }
    change(send.peer, [&](ControlLogic& logic, int64_t now) { logic.receive(now, from, send.body); });
  }
  void perform(int rank, control::Fail& fail) {
    deliver(rank, fail.communicator, [&](CommunicatorEvents& events) { events.on_failure(fail.error, fail.stage); });
  }
  void perform(int rank, control::PeerLeft& left) {
    deliver(rank, left.communicator,
            [&](CommunicatorEvents& events) { events.on_peer_left(left.peer, left.last_sequence); });
  }
  // Between threads there is no log of a single rank, and no connection to end.
  void perform(int, control::Note&) {}
  void perform(int, control::Drop&) {}
  void perform(int, control::Gone&) {}
  void perform(int, control::Cut&) {}

  // What this rank does at that sequence, asked without the lock.
  std::optional<CallState> call_state(int rank, uint64_t communicator, uint64_t sequence) {
    CallState answer;
    if (!deliver(rank, communicator, [&](CommunicatorEvents& events) { answer = events.call_state(sequence); })) {
      return std::nullopt;
    }
    if (!answer.takes_part(sequence)) answer.text = waits_beside(rank, communicator);
    return answer;
  }

  // What it waits in on another communicator; empty: in nothing.
  std::string waits_beside(int rank, uint64_t communicator) {
    std::vector<uint64_t> ids;
    {
      std::lock_guard lock(mutex);
      for (const auto& [id, group] : at(rank).groups) ids.push_back(id);
    }
    for (const uint64_t id : ids) {
      std::string call;
      if (id != communicator) deliver(rank, id, [&](CommunicatorEvents& events) { call = events.waits_in(); });
      if (call.empty()) continue;
      std::lock_guard lock(mutex);
      const auto* other = at(rank).logic.find(id);
      return other == nullptr ? "" : fmt::format("{} of {}", call, other->members.title());
    }
    return "";
  }

  // Calls the communicator's events without the lock; close() waits meanwhile. Only the hub's thread delivers, so one
  // pair says what is being delivered.
  template <typename Event>
  bool deliver(int rank, uint64_t communicator, Event event) {
    CommunicatorEvents* events = nullptr;
    {
      std::lock_guard lock(mutex);
      Group* found = at(rank).group(communicator);
      if (found == nullptr) return false;
      events = found->events;
      delivering_ = {rank, communicator};
    }
    event(*events);
    {
      std::lock_guard lock(mutex);
      delivering_ = {-1, 0};
    }
    changed.notify_all();
    return true;
  }

  int world() const { return static_cast<int>(ranks_.size()); }

  const Descriptor event_;
  const std::vector<std::string> names_;  // by rank
  std::deque<Rank> ranks_;
  std::deque<std::pair<int, control::Action>> actions_;  // by the rank whose logic wants them
  std::pair<int, uint64_t> delivering_{-1, 0};           // rank and communicator whose events are being called
  bool stopping_ = false;
  bool asleep_ = false;  // the thread
  std::thread thread_;
};

// The fabric of one rank. All state is in the hub, under its lock.
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
      // The hub's thread is the parent's, and may have had the lock; a thread of the child's own may have its number.
      std::construct_at(&hub_);
      return;
    }
    try {
      hub_->change(place_.rank, [](ControlLogic& logic, int64_t) { logic.leave(); });
    } catch (const std::bad_alloc&) {
      // Its communicators have said goodbye.
    }
  }

  const Place& place() const override { return place_; }
  const Topology& topology() const override { return topology_; }
  std::string peer_name(int peer) const override { return hub_->name(peer); }
  int64_t process(int) const override { return ::getpid(); }
  const std::shared_ptr<Sleepers>& sleepers() const override { return sleepers_; }

  // The page is zeroed by its making. The doorbells' flags need no place in it: share() gives each memory of its own.
  void open(uint64_t id, std::vector<int> members, CommunicatorEvents* events, std::shared_ptr<Doorbell> doorbell,
            std::shared_ptr<Doorbell> p2p_doorbell) override {
    Group opened{events, share(doorbell), share(p2p_doorbell), memory_.stores()};
    std::lock_guard lock(hub_->mutex);
    hub_->legacy_of(id, members).pages[place_.rank] = {plain_memory(kRankPageBytes), opened.bell};
    try {
      own().groups[id] = std::move(opened);
      own().logic.open(now_ms(), id, members);
      hub_->collect(place_.rank);
    } catch (...) {  // the caller ends with its events
      own().logic.undo_open(id);
      own().groups.erase(id);
      throw;
    }
    // Links and streams wait until both ends have opened.
    for (const int member : members) {
      if (const Group* group = hub_->at(member).group(id)) {
        group->bell->ring();
        group->p2p_bell->ring();
      }
    }
  }
  // Does what Fabric says, and lets go of what others have left for this rank.
  void decline(uint64_t id, const std::vector<int>& members, const Error& error) override {
    Legacy done;  // ends without the lock
    std::lock_guard lock(hub_->mutex);
    hub_->legacy_of(id, members);
    done = hub_->renounce(place_.rank, id);
    own().logic.decline(id, members, error);
    hub_->collect(place_.rank);
  }
  void made(uint64_t id) override {
    std::lock_guard lock(hub_->mutex);
    if (auto* open = own().logic.find(id)) open->life.made();
  }
  bool leave(uint64_t, uint64_t) override { return true; }  // close() does not wait either
  // Does not wait for the others' goodbyes: what a rank leaves to them stays in the hub (Legacy). Waits only for an
  // event that is being delivered.
  bool close(uint64_t id, uint64_t last_sequence, Clock::time_point) override {
    Legacy done;  // ends without the lock
    std::unique_lock lock(hub_->mutex);
    ControlLogic& logic = own().logic;
    bool all = false;
    try {
      logic.close(id, last_sequence, {});  // streams come at once
      hub_->collect(place_.rank);
      all = logic.all_left(id);
      logic.forget(id);
    } catch (const std::bad_alloc&) {
      logic.undo_open(id);  // what was not said is left out
    }
    own().groups.erase(id);
    done = hub_->renounce(place_.rank, id);
    hub_->changed.wait(lock, [&] { return !hub_->delivers(place_.rank, id); });
    return all;
  }

  // The first of the two ranks that asks makes both ends.
  std::unique_ptr<Link> take_link(const LinkKey& key, const LinkShape& shape) override {
    std::lock_guard lock(hub_->mutex);
    Group* own_group = own().group(key.communicator);
    if (own_group == nullptr) return nullptr;
    const auto found = own_group->links.find({key.peer, key.lane});
    if (found != own_group->links.end()) return std::move(own_group->links.extract(found).mapped());
    Group* other = hub_->at(key.peer).group(key.communicator);
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
    Group* own_group = own().group(communicator);
    Group* other = hub_->at(peer).group(communicator);
    if (own_group == nullptr || other == nullptr) return nullptr;
    auto [near, far] =
        hub_->ends(place_.rank, peer, communicator, shared_stream_bytes(kSmallStreamBuffers), &Group::p2p_bell);
    other->incoming.emplace_back(place_.rank, std::move(far));
    other->p2p_bell->ring();
    return own_group->stream_over(peer, std::move(near));
  }
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from(uint64_t communicator) override {
    std::lock_guard lock(hub_->mutex);
    Group* group = own().group(communicator);
    if (group == nullptr || group->incoming.empty()) return std::nullopt;
    auto [peer, end] = std::move(group->incoming.front());
    group->incoming.pop_front();
    return std::pair(peer, group->stream_over(peer, std::move(end)));
  }
  SharedMemory* shared_memory() override { return &memory_; }

  // Called by the communicator itself, so its events are alive.
  void stalled(uint64_t communicator, uint64_t sequence, Ask ask) override {
    CommunicatorEvents* events = nullptr;
    {
      std::lock_guard lock(hub_->mutex);
      if (const Group* group = own().group(communicator)) events = group->events;
    }
    if (events == nullptr) return;
    const CallState state = events->call_state(sequence);
    change([&](ControlLogic& logic, int64_t now) { logic.stalled(now, communicator, sequence, state, ask); });
  }
  std::vector<int> absent(uint64_t communicator, uint64_t sequence) override {
    std::lock_guard lock(hub_->mutex);
    const auto* open = own().logic.find(communicator);
    return open == nullptr ? std::vector<int>{} : open->inquiry.absent(sequence);
  }
  void link_failed(uint64_t communicator, int peer, const Error& error) override {
    change([&](ControlLogic& logic, int64_t now) { logic.link_failed(now, communicator, peer, error); });
  }
  void abort(uint64_t communicator, const Error& error) override {
    change([&](ControlLogic& logic, int64_t) { logic.abort(communicator, error); });
  }
  std::string blame(uint64_t communicator, uint64_t sequence) override {
    std::lock_guard lock(hub_->mutex);
    const auto* open = own().logic.find(communicator);
    return open == nullptr ? "" : open->inquiry.blame(now_ms(), sequence);
  }
  // The hub's thread drives the membership, and wakes this one after each action.
  Shrunk shrink(uint64_t communicator, std::chrono::milliseconds patience, bool opened) override {
    std::unique_lock lock(hub_->mutex);
    ControlLogic& logic = own().logic;
    logic.shrink(now_ms(), communicator, patience.count(), opened);
    hub_->collect(place_.rank);
    const auto done = [&] { return !logic.shrinking(communicator); };
    while (!hub_->changed.wait_for(lock, kBetweenInterruptQuestions, done)) {
      lock.unlock();
      end_wait_if_interrupted();
      lock.lock();
    }
    return logic.shrunk(communicator);
  }
  int wake_event() const override { return hub_->event(); }

 private:
  Rank& own() const { return hub_->at(place_.rank); }  // requires the lock
  template <typename Change>
  void change(Change apply) {
    hub_->change(place_.rank, apply);
  }

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
