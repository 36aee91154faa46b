#include "transport/fabrics/process_fabric.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/control_groups.h"
#include "ring/base/cores.h"
#include "ring/base/hash.h"
#include "ring/base/host_name.h"
#include "ring/base/interrupt.h"
#include "ring/base/log.h"
#include "ring/base/process_starts.h"
#include "ring/base/system_error.h"
#include "transport/auth/crypto.h"
#include "transport/control/plane/control_plane.h"
#include "transport/control/status.h"
#include "transport/fabrics/descriptor_budget.h"
#include "transport/hello/wire.h"
#include "transport/island/agreement.h"
#include "transport/island/island.h"
#include "transport/island/reachability_probe.h"
#include "transport/rendezvous/address.h"
#include "transport/rendezvous/peer_card.h"
#include "transport/rendezvous/roster.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/sealed_stream.h"
#include "transport/tcp/socket_stream.h"
#include "transport/tcp/stream_link.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// How long a rank stays after a failed start, for others to ask why. A rank that lives asks within a fraction of it. It
// is more than a dial takes to find out that a listener is dead (dial.cc).
constexpr std::chrono::seconds kFarewell{2};
// Time for the I/O thread to say goodbye to the ranks that listen, where one that does not has used up the deadline.
constexpr std::chrono::milliseconds kLastWords{100};
// The longest that a rank waits for others to fetch the cards, where these do not fit together: one may have died.
constexpr std::chrono::seconds kFetchTime{1};

// The limits of what strangers may take are set here, by the descriptors that are left.
PlaneSettings settings_of(const Launch& launch, const Config& config, const Authenticator& auth, size_t descriptors) {
  PlaneSettings settings;
  settings.rank = launch.place.rank;
  settings.world = launch.place.world;
  settings.job_id = bounded_job_id(launch.job_id);
  settings.ended = launch.ended;
  settings.config = config;
  settings.addresses = listen_addresses(launch, config);
  settings.ports = data_port_range(config);
  settings.logger = Logger(config.debug, launch.place.rank);
  settings.auth = auth;
  const DoorBounds bounds = door_bounds(launch.place.world, config, descriptors);
  settings.max_known = bounds.known;
  settings.max_pending = bounds.pending;
  settings.max_early = bounds.early;
  return settings;
}

// What this rank publishes of itself. Nothing of it is trusted: the others check it against its proof (Roster).
PeerCard card_of(const Launch& launch, const Config& config, const std::vector<Endpoint>& endpoints,
                 const ProbeListener* listener) {
  PeerCard card;
  card.wire_version = kWireVersion;
  card.rank = static_cast<uint32_t>(launch.place.rank);
  card.world = static_cast<uint32_t>(launch.place.world);
  card.pid = static_cast<uint32_t>(::getpid());
  card.job_id = bounded_job_id(launch.job_id);
  card.host_identity = host_identity();
  card.host_name = host_name();
  card.instance = random_number();
  card.shared_hash = config.shared_hash();
  card.config = changes_of(config);
  card.endpoints = endpoints;
  card.cores = pack_cores(allowed_cores());
  card.quota = core_quota();
  card.process_class = process_class();
  if (listener != nullptr) card.probe_listener = listener->name();
  return card;
}

// Ranks that all turn out to be on one host need not listen beyond loopback. The hosts are exchanged before anything
// listens, since where to listen follows from them.
Launch with_hosts(const Launch& launch, Store& store, const Config& config, Store::Deadline deadline) {
  if (!hosts_unknown(launch)) return launch;
  const Place& place = launch.place;
  const std::vector<int> host =
      exchange_hosts(store, place.rank, place.world, deadline, Logger(config.debug, place.rank), launch.cancelled);
  Launch known = launch;
  known.place = complete_place(place, host);
  known.one_host = known.place.local_world == place.world;
  return known;
}

// Numbers the process classes by host. A rank that cannot tell its class has one of its own, so it tries all others.
Classes classes_of(const Roster& roster, const Topology& topology) {
  Classes classes{topology.host, {}};
  std::map<std::pair<int, uint64_t>, int> known;
  int numbers = 0;
  for (int rank = 0; rank < roster.world(); ++rank) {
    const PeerCard& card = roster.card(rank);
    int number = Classes::kNone;
    if (!card.probe_listener.empty()) {
      const std::pair key(topology.host[static_cast<size_t>(rank)], card.process_class);
      number = card.process_class == 0 ? numbers : known.emplace(key, numbers).first->second;
      numbers = std::max(numbers, number + 1);
    }
    classes.number.push_back(number);
  }
  return classes;
}

// The process ids of the ranks on this host; 0 for all others.
std::vector<int64_t> processes_of(const Roster& roster, const Topology& topology, int own) {
  std::vector<int64_t> processes(topology.host.size(), 0);
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    const bool here = topology.host[rank] == topology.host[static_cast<size_t>(own)];
    if (here) processes[rank] = roster.card(static_cast<int>(rank)).pid;
  }
  return processes;
}

// Every rank finds the same fault in the same cards: where there is one, rank 0's store stays until all have them.
Roster roster_of(const std::vector<std::string>& cards, const Authenticator& auth, Store& store,
                 Store::Deadline deadline) {
  try {
    return Roster(cards, auth);
  } catch (...) {
    const Error why = caught();
    const Store::Deadline late = std::chrono::steady_clock::now() + kFetchTime;
    roster_goodbye(store, static_cast<int>(cards.size()), std::min<Store::Deadline>(deadline, late),
                   [] { return false; });
    throw Exception(why);
  }
}

bool any_host_of_several(const Topology& topology) {
  return std::set<int>(topology.host.begin(), topology.host.end()).size() < topology.host.size();
}

// The fabric of one process: the control plane, the island and the status server, and which of them a call goes to. It
// has no state of its own about communicators. The I/O thread belongs to the control plane, so island_ and status_ end
// only after it has been stopped.
//
// The start, in the constructor: descriptors and listeners, the exchange of cards at the store, control connections,
// the island, and goodbye to the store. A failure before the roster is known is said through the store, one after it
// over the control connections (give_up()).
class ProcessFabric : public Fabric {
 public:
  ProcessFabric(const Launch& launch, const std::shared_ptr<Store>& store, const Config& config,
                Store::Deadline deadline)
      : config_(config), authenticated_(launch.place.world == 1 || launch.secret.exists()) {
    const Authenticator auth(launch.secret);
    const Logger log(config.debug, launch.place.rank);
    std::optional<ProbeListener> probe_listener;
    std::string card;
    try {
      const size_t descriptors = ensure_descriptors(descriptors_of_rank(launch.place, config));
      sleepers_ = std::make_shared<Sleepers>();
      control_ = std::make_unique<ControlPlane>(settings_of(launch, config, auth, descriptors));
      if (config.transport != "tcp" && launch.place.world > 1) probe_listener.emplace(launch.place.world);
      const PeerCard own = card_of(launch, config, control_->endpoints(), probe_listener ? &*probe_listener : nullptr);
      card = seal_card(encode(own), auth);
    } catch (...) {
      const Error why = caught();
      decline_roster(*store, launch.place.rank, launch.place.world, why, log);
      throw Exception(why);
    }
    const Roster roster =
        roster_of(exchange_roster(*store, launch.place.rank, launch.place.world, card, deadline, log, launch.cancelled),
                  auth, *store, deadline);
    topology_ = roster.topology();
    place_ = complete_place(launch.place, topology_.host);
    processes_ = processes_of(roster, topology_, place_.rank);
    control_->know(roster);  // from here on this rank can say why it fails
    std::optional<Error> refusal;
    try {
      control_->connect(roster, deadline);
      if (probe_listener) refusal = form_island(*probe_listener, roster, *store, deadline);
      if (config.status) serve_status(bounded_job_id(launch.job_id), roster.session(), deadline);
      roster_goodbye(*store, place_.world, deadline, [this] { return control_->anyone_lost(); });
    } catch (...) {
      give_up(control_->cause_of(caught()));
    }
    if (refusal) give_up(*refusal);
    if (place_.world > 1) groups_joined.fetch_add(1);
  }

  // Says goodbye while the I/O thread runs, stops it, and only then ends what it has served.
  ~ProcessFabric() override {
    if (place_.world > 1) groups_joined.fetch_sub(1);
    if (forked()) {
      // The I/O thread is the parent's; so is what its connections say. The child's copies of the sockets were closed
      // when it was forked.
      static_cast<void>(status_.release());
      static_cast<void>(island_.release());
      static_cast<void>(control_.release());
      return;
    }
    if (leave_by_.load() == Clock::time_point{}) {
      leave_by_.store(Clock::now() + std::chrono::milliseconds(config_.destroy_timeout_ms));
    }
    control_->leave(Farewell::kGoodbye, std::max(leave_by_.load(), Clock::now() + kLastWords));
    control_->stop();
    status_.reset();
    island_.reset();
  }

  const Place& place() const override { return place_; }
  const Topology& topology() const override { return topology_; }
  std::string peer_name(int peer) const override { return control_->peer_name(peer); }
  int64_t process(int peer) const override { return processes_[static_cast<size_t>(peer)]; }
  bool authenticated() const override { return authenticated_; }
  const std::shared_ptr<Sleepers>& sleepers() const override { return sleepers_; }

  // The island first: it moves the doorbells' flags into its page, which must precede their first use.
  void open(uint64_t id, std::vector<int> members, CommunicatorEvents* events, std::shared_ptr<Doorbell> doorbell,
            std::shared_ptr<Doorbell> p2p_doorbell) override {
    OpenCommunicators& communicators = this->communicators();
    try {
      if (island_) island_->open(id, members, doorbell, p2p_doorbell);
      communicators.open(id, std::move(members), events, std::move(doorbell), std::move(p2p_doorbell));
    } catch (...) {
      if (island_) island_->close(id);
      throw;
    }
  }

  void decline(uint64_t id, const std::vector<int>& members, const Error& error) override {
    communicators().decline(id, members, error);
    if (island_) island_->close(id);  // lets go of what the others have said about it
  }

  void made(uint64_t id) override {
    communicators().made(id);
    started_.store(true);
  }

  bool leave(uint64_t id, uint64_t last_sequence) override {
    return communicators().leave(id, last_sequence, [this, id] { return streams_in_island(id); });
  }

  bool close(uint64_t id, uint64_t last_sequence, Clock::time_point deadline) override {
    // A start that has failed waits for no rank that is stopped longer than it takes to say why.
    leave_by_.store(started_.load() ? deadline : std::min<Clock::time_point>(deadline, Clock::now() + kFarewell));
    const bool all = communicators().close(
        id, last_sequence, [this, id] { return streams_in_island(id); }, deadline);
    if (!all && wait_interrupted()) leave_by_.store(Clock::now());
    if (island_) island_->close(id);
    return all;
  }

  // Inside the island through memory, else over as many sockets as Config::connections says.
  std::unique_ptr<Link> take_link(const LinkKey& key, const LinkShape& shape) override {
    if (neighbor(key.peer)) return island_->take_link(key, shape);
    const LinkName name{key.communicator, LinkKind::kData, key.peer};
    std::vector<SecuredSocket> sockets = control().links().take(name);
    if (sockets.empty()) return nullptr;
    std::vector<std::unique_ptr<ByteStream>> streams;
    for (SecuredSocket& socket : sockets) streams.push_back(make_stream(name, std::move(socket)));
    LinkShape checked = shape;
    checked.checked = checksums(key.peer);
    return make_stream_link(std::move(streams), checked, peer_name(key.peer));
  }

  // "auto": between hosts only. TCP's own sum of 16 bits misses errors on real networks; on one host nothing is
  // between. Equal at both ends: it follows from settings that are shared, and from hosts and islands that all ranks
  // know alike.
  bool checksums(int peer) const override {
    if (config_.checksum != "auto") return config_.checksum == "on" && !neighbor(peer);
    if (config_.encrypt) return false;  // its records are verified
    return topology_.host[static_cast<size_t>(peer)] != topology_.host[static_cast<size_t>(place_.rank)];
  }

  RankPage page_of(uint64_t communicator, int rank) override {
    return island_ && (rank == place_.rank || neighbor(rank)) ? island_->page_of(communicator, rank) : RankPage{};
  }

  void keep(uint64_t communicator, std::shared_ptr<Window> window) override {
    island_->keep(communicator, std::move(window));
  }

  // Through memory where this rank and the peer share it, else over a socket that this rank dials.
  std::unique_ptr<ByteStream> take_stream_to(uint64_t communicator, int peer) override {
    if (neighbor(peer)) return island_->take_stream_to(communicator, peer);
    const LinkName name{communicator, LinkKind::kStreamTo, peer};
    std::vector<SecuredSocket> sockets = control().links().take(name);
    return sockets.empty() ? nullptr : make_stream(name, std::move(sockets.front()));
  }

  // A peer opens its stream either way, so both are looked at.
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from(uint64_t communicator) override {
    auto found = control().links().take_stream_from(communicator);
    if (!found && island_) return island_->take_stream_from(communicator);
    if (!found) return std::nullopt;
    const LinkName name{communicator, LinkKind::kStreamFrom, found->first};
    return std::pair(found->first, make_stream(name, std::move(found->second)));
  }

  SharedMemory* shared_memory() override { return island_.get(); }

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
  int wake_event() const override { return control_->wake_event(); }

 private:
  // In a forked child neither the I/O thread nor the connections are there.
  bool forked() const { return ::getpid() != pid_; }

  // Calls that would reach other ranks go by this, so that a forked child never uses the parent's connections.
  ControlPlane& control() const {
    if (forked()) {
      throw Exception(ErrorCode::kInvalid,
                      fmt::format("this group belongs to process {}, which forked this one; a child must join a group "
                                  "of its own",
                                  pid_));
    }
    return *control_;
  }
  OpenCommunicators& communicators() const { return control().communicators(); }

  // The peers to which this rank has opened p2p streams through memory: goodbyes name them.
  std::set<int> streams_in_island(uint64_t id) const { return island_ ? island_->streams_to(id) : std::set<int>{}; }
  // Whether data to that rank goes through shared memory. Throws in a forked child.
  bool neighbor(int peer) const {
    control();
    return island_ && island_->holds(peer);
  }

  // The others get the reason before they see the end of the connections.
  [[noreturn]] void give_up(const Error& why) {
    control_->fail_start(why);
    control_->leave(Farewell::kFailedStart, Clock::now() + kFarewell);
    control_->stop();  // before the island and the status
    throw Exception(why);
  }

  // The socket's path has the session and the rank, so that the ranks of two jobs do not meet at one.
  void serve_status(const std::string& job, uint64_t known, Store::Deadline deadline) {
    const auto session = static_cast<uint32_t>(Hash64().add(known).value());
    const std::string path = fmt::format("{}/status-{:08x}-{}.sock", private_directory(), session, place_.rank);
    const auto status = [this, job, session] {
      return status_json({.job = job,
                          .session = session,
                          .rank = place_.rank,
                          .world = place_.world,
                          .host = host_name(),
                          .slowest = control_->links().slowest(),
                          .communicators = control_->communicators().status()});
    };
    status_ = std::make_unique<StatusServer>(
        control_->context(), listen_unix(path, deadline), [this, status](std::string_view request) {
          if (!request.starts_with("GET ")) return status();
          const bool metrics = request.starts_with("GET /metrics ");
          return http_answer(metrics ? kPrometheusType : "application/json",
                             metrics ? control_->communicators().metrics() : status());
        });
  }

  // Classes of ranks follow from the cards, each rank tries a few others, and rank 0 draws the islands from what all
  // have found. Returns why the start must end all the same, where the settings ask for more than there is.
  std::optional<Error> form_island(ProbeListener& listener, const Roster& roster, Store& store,
                                   Store::Deadline deadline) {
    if (!any_host_of_several(topology_)) return lack_of_island({});
    const auto gone = [this](int rank) { return control_->gone(rank); };
    const Classes classes = classes_of(roster, topology_);
    const std::vector<ProbeResult> results =
        probe_peers(listener, probe_order(roster, tried_by(classes, place_.rank), deadline, gone));
    const Islands islands = agree_islands(store, place_.rank, report_of(listener, results), classes, deadline,
                                          [this] { return control_->anyone_lost(); });
    topology_.island = islands.island;
    const WhyNot why_not = [&](int rank) { return reason(rank, listener, results, islands); };
    warn_of_fallback(why_not);
    if (auto lack = lack_of_island(why_not)) return lack;
    std::vector<Neighbor> neighbors;
    for (int rank = 0; rank < place_.world; ++rank) {
      if (rank != place_.rank && topology_.share_memory(place_.rank, rank))
        neighbors.push_back(neighbor_of(roster, rank));
    }
    if (neighbors.empty()) return std::nullopt;
    Island::Settings settings;
    settings.rank = place_.rank;
    settings.session = roster.session();
    settings.sleepers = sleepers_;
    settings.can_pull = islands.pulls[static_cast<size_t>(place_.rank)];
    settings.logger = Logger(config_.debug, place_.rank);
    if (!settings.can_pull) {
      settings.logger.info(
          "not all ranks of this host may read each other's memory (process_vm_readv; kernel.yama.ptrace_scope, or "
          "containers): buffers that are not registered are copied through shared memory, by no single copy");
    }
    // Both are called without the island's lock, and control_ outlives the island.
    settings.link_failed = [this](uint64_t communicator, int peer, const Error& error) {
      control_->communicators().link_failed(communicator, peer, error);
    };
    settings.streamed = [this](uint64_t communicator, int peer) {
      control_->communicators().streamed(communicator, peer);
    };
    island_ = std::make_unique<Island>(control_->context(), listener.take_socket(), neighbors, std::move(settings));
    if (config_.shared_stores == "streamed") island_->set_stores(Stores::kStreamed);
    return std::nullopt;
  }

  // Who is tried, and for how long.
  ProbeOrder probe_order(const Roster& roster, const std::vector<int>& peers, Store::Deadline deadline,
                         const std::function<bool(int)>& gone) const {
    ProbeOrder order;
    order.rank = place_.rank;
    order.world = place_.world;
    order.session = roster.session();
    order.deadline = deadline;
    order.patience = std::chrono::milliseconds(config_.handshake_timeout_ms);
    order.gone = gone;
    for (const int rank : peers) order.peers.push_back(neighbor_of(roster, rank));
    return order;
  }
  Neighbor neighbor_of(const Roster& roster, int rank) const {
    const PeerCard& card = roster.card(rank);
    return {rank, static_cast<pid_t>(card.pid), peer_name(rank), card.probe_listener};
  }

  // What this rank tells rank 0 about the ranks that it tried; the first reason only, for one line of the log.
  Report report_of(const ProbeListener& listener, const std::vector<ProbeResult>& results) const {
    Report report{std::string(static_cast<size_t>(place_.world), static_cast<char>(Reach::kNone)), ""};
    if (!listener.why().empty()) report.why_not = fmt::format("rank {}: {}", place_.rank, listener.why());
    for (const ProbeResult& result : results) {
      if (result.why_not.empty()) {
        report.reach[static_cast<size_t>(result.rank)] =
            static_cast<char>(result.pulls ? Reach::kPulls : Reach::kShares);
      } else if (report.why_not.empty()) {
        report.why_not = fmt::format("rank {} towards rank {}: {}", place_.rank, result.rank, result.why_not);
      }
    }
    return report;
  }

  // Why this rank shares no memory with one of its host: what it found itself, else the first that any rank found.
  static std::string reason(int rank, const ProbeListener& listener, const std::vector<ProbeResult>& results,
                            const Islands& islands) {
    for (const ProbeResult& result : results) {
      if (result.rank == rank && !result.why_not.empty()) return result.why_not;
    }
    if (!listener.why().empty()) return listener.why();
    return islands.why_not.empty() ? "not all ranks of the host reach each other" : islands.why_not;
  }
  using WhyNot = std::function<std::string(int rank)>;

  // Whether that rank is on this rank's host, whatever they can share.
  bool shares_host(int rank) const {
    return topology_.host[static_cast<size_t>(rank)] == topology_.host[static_cast<size_t>(place_.rank)];
  }

  // In one line, with one reason: a host of many ranks has many pairs.
  void warn_of_fallback(const WhyNot& why_not) const {
    int first = -1, others = -1;
    for (int rank = 0; rank < place_.world; ++rank) {
      if (rank == place_.rank || !shares_host(rank) || topology_.share_memory(place_.rank, rank)) continue;
      if (++others == 0) first = rank;
    }
    if (first < 0) return;
    Logger(config_.debug, place_.rank)
        .warn(fmt::format("no shared memory with {}{}, which is on this host: {}; data goes over TCP", peer_name(first),
                          others > 0 ? fmt::format(" and {} more", others) : "", why_not(first)));
  }

  // RONDO_TRANSPORT=shm means every pair. The same verdict on all ranks, since they know the same islands.
  std::optional<Error> lack_of_island(const WhyNot& why_not) const {
    if (config_.transport != "shm" || topology_.one_island()) return std::nullopt;
    int other = 0;
    while (other == place_.rank || topology_.share_memory(place_.rank, other)) ++other;
    return Error{
        ErrorCode::kBootstrap,
        fmt::format("RONDO_TRANSPORT=shm, but rank {} and {} do not share memory: {}; use auto or tcp", place_.rank,
                    peer_name(other), shares_host(other) ? why_not(other) : "they are on different hosts"),
        {other}};
  }

  // The watch is destroyed with the stream, before its socket is closed.
  std::unique_ptr<ByteStream> make_stream(const LinkName& name, SecuredSocket secured) {
    std::shared_ptr<void> watched = watch(name, secured.socket);
    const std::string peer = peer_name(name.peer);
    auto plain = std::make_unique<SocketStream>(std::move(secured.socket), peer, std::move(watched));
    if (!secured.session) return plain;
    return make_sealed_stream(std::move(plain), std::move(secured.session), peer);
  }

  // Watches the socket for DataSockets and the doorbell, until the stream ends. Where the communicator was closed
  // meanwhile by another thread there is no doorbell: no thread sleeps on the link, and it will not be used.
  std::shared_ptr<void> watch(const LinkName& name, const Descriptor& socket) {
    struct Watches {
      std::shared_ptr<void> data, doorbell;
    };
    auto watches = std::make_shared<Watches>();
    watches->data = control_->links().watch(name, socket.get());
    if (const auto doorbell = control_->communicators().doorbell(name))
      watches->doorbell = doorbell->watch(socket.get());
    return watches;
  }

  // The process that joined: a forked child compares its own.
  const pid_t pid_ = ::getpid();
  const Config config_;
  const bool authenticated_;
  Place place_;
  std::vector<int64_t> processes_;
  Topology topology_;
  // The deadline of the last communicator's destroy(), of which leaving is a part; none yet.
  std::atomic<Clock::time_point> leave_by_{};
  std::atomic<bool> started_{false};    // a communicator was made
  std::shared_ptr<Sleepers> sleepers_;  // shared with the doorbells
  std::unique_ptr<ControlPlane> control_;
  std::unique_ptr<StatusServer> status_;  // null: nobody has asked. Served by the I/O thread of the control plane
  std::unique_ptr<Island>
      island_;  // null: this rank shares memory with no other. Served by the I/O thread of the control plane.
};

}  // namespace

// Settings are checked before anything is opened: a mistake has no side effect.
std::shared_ptr<Fabric> join_processes(const Launch& launch, const std::shared_ptr<Store>& store, const Config& config,
                                       Store::Deadline deadline) {
  config.check();
  check_tuning(tuning_of(config));
  try {
    return std::make_shared<ProcessFabric>(with_hosts(launch, *store, config, deadline), store, config, deadline);
  } catch (const std::system_error& failure) {  // Asio's
    throw Exception(system_error("joining", failure.code().value()));
  }
}

}  // namespace rondo
