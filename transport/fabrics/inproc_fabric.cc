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
#include <tuple>

#include "ring/base/check.h"
#include "ring/base/core_quota.h"
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

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
}

// Others ring it as they ring that of another process.
std::shared_ptr<Bell> share(const std::shared_ptr<Doorbell>& doorbell) {
  auto flag = std::make_shared<std::atomic<uint32_t>>(0);
  doorbell->share(flag.get(), flag);
  return doorbell->bell();
}

// What the fabrics share: who has opened what, the links between them, and the thread that carries control messages.
// One lock for all of it; events are delivered without it.
class InprocHub {
 public:
  explicit InprocHub(int world)
      : world_(world), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), Descriptor::InChild::kInherited) {
    if (!event_.valid()) throw Exception(ErrorCode::kSystem, "eventfd: no descriptor is left (ulimit -n)");
    for (int rank = 0; rank < world; ++rank) {
      ControlLogic::Settings settings;
      settings.rank = rank;
      for (int other = 0; other < world; ++other) {
        settings.names.push_back(fmt::format("thread of pid {}", getpid()));
        if (other != rank) settings.neighbors.push_back(other);
      }
      ranks_.push_back(std::make_unique<RankState>(settings));
    }
    thread_ = start_own_thread("rondo-inproc", [this] { run(); });
  }

  ~InprocHub() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      notify();
    }
    thread_.join();
  }

  int world() const { return world_; }

  struct OpenGroup {
    CommunicatorEvents* events = nullptr;
    std::shared_ptr<Bell> bell;                                  // shared with the engine, links and streams
    std::shared_ptr<Bell> p2p_bell;                              // likewise
    std::deque<std::pair<int, ChannelEnd>> incoming = {};        // streams that were made and not taken
    std::map<int, std::shared_ptr<StreamBuffers>> buffers = {};  // by peer; shared with its streams
  };

  // What the ranks of a communicator leave to those that have not closed it yet: one that has posted its data and gone
  // may have done so before another has mapped the window.
  struct Legacy {
    std::set<int> heirs;  // ranks that have neither closed nor declined it
    std::vector<std::shared_ptr<Window>> windows;
    std::map<int, RankPage> pages;
  };

  // Changes one rank's control logic and leaves the rest to the thread.
  template <typename Change>
  void change(int rank, Change apply) {
    std::lock_guard lock(mutex_);
    apply(state(rank).logic, now_ms());
    collect(rank);
  }

  std::string name(int rank, int peer) {
    std::lock_guard lock(mutex_);
    return state(rank).logic.name(peer);
  }

  // Called by the communicator itself, so its events are alive.
  void stalled(int rank, uint64_t communicator, uint64_t sequence, Ask ask) {
    CommunicatorEvents* events = nullptr;
    {
      std::lock_guard lock(mutex_);
      if (OpenGroup* own = group(rank, communicator)) events = own->events;
    }
    if (events == nullptr) return;
    const CallState own = events->call_state(sequence);
    change(rank, [&](ControlLogic& logic, int64_t now) { logic.stalled(now, communicator, sequence, own, ask); });
  }

  int event() const { return event_.get(); }

  std::string blame(int rank, uint64_t communicator, uint64_t sequence) {
    std::lock_guard lock(mutex_);
    return state(rank).logic.blame(now_ms(), communicator, sequence);
  }

  Shrunk shrink(int rank, uint64_t communicator, std::chrono::milliseconds patience, bool opened) {
    std::unique_lock lock(mutex_);
    ControlLogic& logic = state(rank).logic;
    logic.shrink(now_ms(), communicator, patience.count(), opened);
    collect(rank);
    while (!changed_.wait_for(lock, kBetweenInterruptQuestions, [&] { return !logic.shrinking(communicator); })) {
      lock.unlock();
      end_wait_if_interrupted();
      lock.lock();
    }
    return logic.shrunk(communicator);
  }

  std::vector<int> absent(int rank, uint64_t communicator, uint64_t sequence) {
    std::lock_guard lock(mutex_);
    return state(rank).logic.absent(communicator, sequence);
  }

  void open(int rank, uint64_t id, const std::vector<int>& members, OpenGroup group) {
    std::lock_guard lock(mutex_);
    Legacy& legacy = legacies_[id];
    legacy.heirs.insert(members.begin(), members.end());
    legacy.pages[rank] = {plain_memory(kRankPageBytes), group.bell};
    try {
      state(rank).groups[id] = std::move(group);
      state(rank).logic.open(now_ms(), id, members);
      collect(rank);
    } catch (...) {  // the caller ends with its events
      state(rank).logic.undo_open(id);
      state(rank).groups.erase(id);
      throw;
    }
    // Links and streams wait until both ends have opened.
    for (const int member : members) {
      const auto found = state(member).groups.find(id);
      if (found == state(member).groups.end()) continue;
      found->second.bell->ring();
      found->second.p2p_bell->ring();
    }
  }

  // Waits for no goodbye: what was sent lies in memory that outlives its sender, so leaving is no crash to anybody; and
  // one thread may destroy all ranks, one after the other.
  bool close(int rank, uint64_t id, uint64_t last_sequence) {
    Legacy done;  // let go without the lock
    std::unique_lock lock(mutex_);
    RankState& own = state(rank);
    bool all = false;
    try {
      own.logic.close(id, last_sequence, {});  // streams come at once
      collect(rank);
      all = own.logic.all_left(id);
      own.logic.forget(id);
    } catch (const std::bad_alloc&) {
      own.logic.undo_open(id);  // what was not said is left out
    }
    own.groups.erase(id);
    done = renounce(rank, id);
    std::erase_if(links_, [&](const auto& entry) {
      const auto& [communicator, low, high, lane, owner] = entry.first;
      return communicator == id && owner == rank;
    });
    changed_.wait(lock, [&] { return delivering_ != std::pair(rank, id); });
    return all;
  }

  std::unique_ptr<Link> take_link(int rank, const LinkKey& key, const LinkShape& shape) {
    std::lock_guard lock(mutex_);
    OpenGroup* own = group(rank, key.communicator);
    OpenGroup* other = group(key.peer, key.communicator);
    const int low = std::min(rank, key.peer);
    const int high = std::max(rank, key.peer);
    const auto mine = links_.find({key.communicator, low, high, key.lane, rank});
    if (mine != links_.end()) {
      auto link = std::move(mine->second);
      links_.erase(mine);
      return link;
    }
    if (own == nullptr || other == nullptr) return nullptr;
    auto [near, far] = ends(rank, key.peer, shared_link_bytes(shape), own->bell, other->bell);
    auto here = make_shared_link(std::move(near), shape), there = make_shared_link(std::move(far), shape);
    links_[{key.communicator, low, high, key.lane, key.peer}] = std::move(there);
    other->bell->ring();
    return here;
  }

  RankPage page_of(uint64_t communicator, int rank) {
    std::lock_guard lock(mutex_);
    const auto legacy = legacies_.find(communicator);
    if (legacy == legacies_.end()) return {};
    const auto page = legacy->second.pages.find(rank);
    return page == legacy->second.pages.end() ? RankPage{} : page->second;
  }

  // The window of a communicator that is open.
  void keep(uint64_t communicator, const std::shared_ptr<Window>& window) {
    std::lock_guard lock(mutex_);
    const auto legacy = legacies_.find(communicator);
    if (legacy != legacies_.end()) legacy->second.windows.push_back(window);
  }

  void decline(int rank, uint64_t id, const std::vector<int>& members, const Error& error) {
    Legacy done;  // let go without the lock
    std::lock_guard lock(mutex_);
    legacies_[id].heirs.insert(members.begin(), members.end());
    done = renounce(rank, id);
    state(rank).logic.decline(now_ms(), id, members, error);
    collect(rank);
  }

  void made(int rank, uint64_t id) {
    std::lock_guard lock(mutex_);
    state(rank).logic.made(id);
  }

  std::unique_ptr<ByteStream> take_stream_to(int rank, uint64_t communicator, int peer) {
    std::lock_guard lock(mutex_);
    OpenGroup* own = group(rank, communicator);
    OpenGroup* other = group(peer, communicator);
    if (own == nullptr || other == nullptr) return nullptr;
    auto [near, far] = ends(rank, peer, shared_stream_bytes(kSmallStreamBuffers), own->p2p_bell, other->p2p_bell);
    other->incoming.emplace_back(rank, std::move(far));
    other->p2p_bell->ring();
    return make_shared_stream(std::move(near), buffers_of(*own, peer));
  }

  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from(int rank, uint64_t communicator) {
    std::lock_guard lock(mutex_);
    OpenGroup* own = group(rank, communicator);
    if (own == nullptr || own->incoming.empty()) return std::nullopt;
    auto [peer, end] = std::move(own->incoming.front());
    own->incoming.pop_front();
    return std::pair(peer, make_shared_stream(std::move(end), buffers_of(*own, peer)));
  }

  // What this rank does at that sequence, asked without the lock.
  std::optional<CallState> call_state(int rank, uint64_t communicator, uint64_t sequence) {
    CallState answer;
    if (!deliver(rank, communicator, [&](CommunicatorEvents& events) { answer = events.call_state(sequence); })) {
      return std::nullopt;
    }
    if (!answer.takes_part(sequence)) answer.text = waits_beside(rank, communicator);
    return answer;
  }

 private:
  struct RankState {
    explicit RankState(const ControlLogic::Settings& settings) : logic(settings) {}
    ControlLogic logic;
    std::map<uint64_t, OpenGroup> groups;
  };

  // What it waits in on another communicator; empty: in nothing.
  std::string waits_beside(int rank, uint64_t communicator) {
    std::vector<uint64_t> ids;
    {
      std::lock_guard lock(mutex_);
      ids = state(rank).logic.beside(communicator);
    }
    std::string call;
    for (const uint64_t id : ids) {
      deliver(rank, id, [&](CommunicatorEvents& events) { call = events.waits_in(); });
      if (call.empty()) continue;
      std::lock_guard lock(mutex_);
      return state(rank).logic.elsewhere(id, call);
    }
    return "";
  }

  // What nobody inherits any more.
  Legacy renounce(int rank, uint64_t id) {
    const auto found = legacies_.find(id);
    if (found == legacies_.end()) return {};
    found->second.heirs.erase(rank);
    return found->second.heirs.empty() ? std::move(legacies_.extract(found).mapped()) : Legacy{};
  }

  RankState& state(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  OpenGroup* group(int rank, uint64_t communicator) {
    const auto found = state(rank).groups.find(communicator);
    return found == state(rank).groups.end() ? nullptr : &found->second;
  }

  static std::shared_ptr<StreamBuffers> buffers_of(OpenGroup& group, int peer) {
    auto& buffers = group.buffers[peer];
    if (!buffers) buffers = std::make_shared<StreamBuffers>(kSmallStreamBuffers);
    return buffers;
  }

  // The ends of a link or stream, over memory of its own.
  std::pair<ChannelEnd, ChannelEnd> ends(int rank, int peer, size_t bytes, const std::shared_ptr<Bell>& own,
                                         const std::shared_ptr<Bell>& others) {
    const auto memory = plain_memory(bytes);
    const auto life = std::make_shared<PeerLife>();
    return {{memory, memory.get(), true, others, life, state(rank).logic.name(peer)},
            {memory, memory.get(), false, own, life, state(peer).logic.name(rank)}};
  }

  void collect(int rank) {
    for (auto& action : state(rank).logic.take_actions()) actions_.emplace_back(rank, std::move(action));
    notify();
  }

  // Under the lock: wakes the thread, and those who wait in close().
  void notify() {
    changed_.notify_all();
    const uint64_t one = 1;
    if (std::exchange(asleep_, false)) static_cast<void>(!::write(event_.get(), &one, sizeof one));
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
    for (int rank = 0; rank < world_; ++rank) {
      for (const auto& [id, group] : state(rank).groups) open.emplace_back(rank, id);
    }
    lock.unlock();
    for (const auto& [rank, id] : open) deliver(rank, id, [](CommunicatorEvents& events) { events.on_wake(); });
    lock.lock();
  }

  void run() {
    while (true) {
      try {
        return serve();
      } catch (...) {
        fail_everything();
      }
    }
  }

  // Between any ranks: a message was lost, for want of memory, and nothing says of which communicator.
  void fail_everything() noexcept {
    std::lock_guard lock(mutex_);
    delivering_ = {-1, 0};
    for (const auto& rank : ranks_) {
      for (const auto& [id, group] : rank->groups) group.events->on_broken();
    }
    changed_.notify_all();
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (!actions_.empty()) {
        auto [rank, action] = std::move(actions_.front());
        actions_.pop_front();
        lock.unlock();
        std::visit([this, from = rank](auto& what) { perform(from, what); }, action);
        lock.lock();
        changed_.notify_all();
        continue;
      }
      const int64_t due = next_time();
      if (due <= now_ms()) {
        for (int rank = 0; rank < world_; ++rank) {
          state(rank).logic.tick(now_ms());
          collect(rank);
        }
      } else {
        sleep(lock, std::min<int64_t>(due - now_ms(), 60'000));
      }
    }
  }

  int64_t next_time() const {
    int64_t due = INT64_MAX;
    for (const auto& rank : ranks_) due = std::min(due, rank->logic.next_time().value_or(INT64_MAX));
    return due;
  }

  void perform(int from, ControlLogic::Send& send) {
    if (const auto* question = std::get_if<QueryMessage>(&send.body)) {
      const auto own = call_state(send.peer, question->communicator, question->sequence);
      change(send.peer, [&](ControlLogic& logic, int64_t) {
        if (own) logic.query(from, *question, *own);
      });
      return;
    }
    change(send.peer, [&](ControlLogic& logic, int64_t now) { logic.receive(now, from, send.body); });
  }
  void perform(int rank, ControlLogic::Fail& fail) {
    deliver(rank, fail.communicator, [&](CommunicatorEvents& events) { events.on_failure(fail.error, fail.stage); });
  }
  void perform(int rank, ControlLogic::PeerLeft& left) {
    deliver(rank, left.communicator,
            [&](CommunicatorEvents& events) { events.on_peer_left(left.peer, left.last_sequence); });
  }
  void perform(int, ControlLogic::Note&) {}
  void perform(int, ControlLogic::Drop&) {}
  void perform(int, ControlLogic::Gone&) {}
  void perform(int, ControlLogic::Cut&) {}

  // Calls the communicator's events without the lock; close() waits meanwhile. Only the hub's thread delivers.
  template <typename Event>
  bool deliver(int rank, uint64_t communicator, Event event) {
    CommunicatorEvents* events = nullptr;
    {
      std::lock_guard lock(mutex_);
      OpenGroup* found = group(rank, communicator);
      if (found == nullptr) return false;
      events = found->events;
      delivering_ = {rank, communicator};
    }
    event(*events);
    {
      std::lock_guard lock(mutex_);
      delivering_ = {-1, 0};
    }
    changed_.notify_all();
    return true;
  }

  const int world_;
  const Descriptor event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<RankState>> ranks_;
  std::map<std::tuple<uint64_t, int, int, int, int>, std::unique_ptr<Link>>
      links_;                            // communicator, low, high, lane, owner
  std::map<uint64_t, Legacy> legacies_;  // by communicator
  std::deque<std::pair<int, ControlLogic::Action>> actions_;
  std::pair<int, uint64_t> delivering_{-1, 0};
  bool stopping_ = false;
  bool asleep_ = false;  // the thread
  std::thread thread_;
};

class InprocFabric final : public Fabric {
 public:
  InprocFabric(std::shared_ptr<InprocHub> hub, std::shared_ptr<InprocWindows> windows, int rank)
      : hub_(std::move(hub)), memory_(make_inproc_memory(std::move(windows), rank)) {
    const int world = hub_->world();
    place_ = {rank, world, rank, world, 0, 1};
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
  std::string peer_name(int peer) const override { return hub_->name(place_.rank, peer); }
  int64_t process(int) const override { return ::getpid(); }
  const std::shared_ptr<Sleepers>& sleepers() const override { return sleepers_; }

  void open(uint64_t id, std::vector<int> members, CommunicatorEvents* events, std::shared_ptr<Doorbell> doorbell,
            std::shared_ptr<Doorbell> p2p_doorbell) override {
    hub_->open(place_.rank, id, members, {events, share(doorbell), share(p2p_doorbell)});
  }
  void decline(uint64_t id, const std::vector<int>& members, const Error& error) override {
    hub_->decline(place_.rank, id, members, error);
  }
  void made(uint64_t id) override { hub_->made(place_.rank, id); }
  bool leave(uint64_t, uint64_t) override { return true; }  // close() does not wait either
  bool close(uint64_t id, uint64_t last_sequence, Clock::time_point) override {
    return hub_->close(place_.rank, id, last_sequence);
  }

  std::unique_ptr<Link> take_link(const LinkKey& key, const LinkShape& shape) override {
    return hub_->take_link(place_.rank, key, shape);
  }
  RankPage page_of(uint64_t communicator, int rank) override { return hub_->page_of(communicator, rank); }
  void keep(uint64_t communicator, std::shared_ptr<Window> window) override { hub_->keep(communicator, window); }
  std::unique_ptr<ByteStream> take_stream_to(uint64_t communicator, int peer) override {
    return hub_->take_stream_to(place_.rank, communicator, peer);
  }
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from(uint64_t communicator) override {
    return hub_->take_stream_from(place_.rank, communicator);
  }

  SharedMemory* shared_memory() override { return memory_.get(); }

  void stalled(uint64_t communicator, uint64_t sequence, Ask ask) override {
    hub_->stalled(place_.rank, communicator, sequence, ask);
  }
  std::vector<int> absent(uint64_t communicator, uint64_t sequence) override {
    return hub_->absent(place_.rank, communicator, sequence);
  }
  void link_failed(uint64_t communicator, int peer, const Error& error) override {
    hub_->change(place_.rank,
                 [&](ControlLogic& logic, int64_t now) { logic.link_failed(now, communicator, peer, error); });
  }
  void abort(uint64_t communicator, const Error& error) override {
    hub_->change(place_.rank, [&](ControlLogic& logic, int64_t now) { logic.abort(now, communicator, error); });
  }
  std::string blame(uint64_t communicator, uint64_t sequence) override {
    return hub_->blame(place_.rank, communicator, sequence);
  }
  Shrunk shrink(uint64_t communicator, std::chrono::milliseconds patience, bool opened) override {
    return hub_->shrink(place_.rank, communicator, patience, opened);
  }
  int wake_event() const override { return hub_->event(); }

 private:
  const pid_t pid_ = ::getpid();
  std::shared_ptr<InprocHub> hub_;  // shared by the ranks; never let go of in a forked child
  std::unique_ptr<SharedMemory> memory_;
  const std::shared_ptr<Sleepers> sleepers_ = std::make_shared<Sleepers>();  // shared with the doorbells
  Place place_;
  Topology topology_;
};

}  // namespace

std::vector<std::shared_ptr<Fabric>> make_inproc_fabrics(int world, const Config&) {
  auto hub = std::make_shared<InprocHub>(world);
  const auto windows = make_inproc_windows();
  std::vector<std::shared_ptr<Fabric>> fabrics;
  for (int rank = 0; rank < world; ++rank) fabrics.push_back(std::make_shared<InprocFabric>(hub, windows, rank));
  return fabrics;
}

}  // namespace rondo
