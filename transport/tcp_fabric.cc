#include "transport/tcp_fabric.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <utility>

#include "ring/base/log.h"
#include "transport/descriptor_budget.h"
#include "transport/peer_card.h"
#include "transport/rendezvous/address.h"
#include "transport/rendezvous/roster.h"
#include "transport/socket.h"
#include "transport/stream_link.h"
#include "transport/switchboard.h"
#include "transport/wire.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// Strangers may take this share of the descriptors that are left, up to the cap.
constexpr size_t kMostPending = 128;
constexpr size_t kMostEarly = 1024;
// After a failed start: for others to ask why. One that lives asks within a fraction of it; more than a dead listener
// takes to be found out (dial.cc).
constexpr std::chrono::seconds kFarewell{2};

uint64_t random_number() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) | device();
}

Switchboard::Settings settings_of(const Launch& launch, const Config& config, size_t descriptors) {
  Switchboard::Settings settings;
  settings.rank = launch.place.rank;
  settings.world = launch.place.world;
  settings.job_id = bounded_job_id(launch.job_id);
  settings.config = config;
  settings.addresses = listen_addresses(launch, config);
  settings.ports = data_port_range(config);
  settings.logger = Logger(config.debug, launch.place.rank);
  settings.max_pending = std::clamp<size_t>(descriptors / 4, 8, kMostPending);
  settings.max_early = std::clamp<size_t>(descriptors / 4, 8, kMostEarly);
  return settings;
}

PeerCard card_of(const Launch& launch, const Config& config, const std::vector<Endpoint>& endpoints) {
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
  card.config = config.describe();
  card.endpoints = endpoints;
  return card;
}

class TcpFabric : public Fabric {
 public:
  TcpFabric(const Launch& launch, const std::shared_ptr<Store>& store, const Config& config, Store::Deadline deadline)
      : config_(config) {
    const size_t descriptors =
        ensure_descriptors(descriptors_needed(launch.place.world, config.lanes, config.connections));
    board_ = std::make_unique<Switchboard>(settings_of(launch, config, descriptors));
    const std::string card = encode(card_of(launch, config, board_->endpoints()));
    Roster roster(exchange_roster(*store, launch.place.rank, launch.place.world, card, deadline,
                                  Logger(config.debug, launch.place.rank)));
    topology_ = roster.topology();
    place_ = complete_place(launch.place, topology_.host);
    try {
      board_->connect(std::move(roster), deadline);
      roster_goodbye(*store, place_.world, deadline, [this] { return board_->anyone_lost(); });
    } catch (const Exception&) {
      // The others hear why, before the end of the connections tells them less.
      board_->leave(Switchboard::Farewell::kFailedStart, Clock::now() + kFarewell);
      throw;
    }
  }

  ~TcpFabric() override {
    if (forked()) {
      // The I/O thread is the parent's; so is what its connections say. The child's copies of the sockets were closed
      // when it was forked.
      static_cast<void>(board_.release());
      return;
    }
    board_->leave(Switchboard::Farewell::kGoodbye,
                  Clock::now() + std::chrono::milliseconds(config_.destroy_timeout_ms));
  }

  const Place& place() const override { return place_; }
  const Topology& topology() const override { return topology_; }
  std::string peer_name(int peer) const override { return board_->peer_name(peer); }

  void open(uint64_t id, std::vector<int> members, CommunicatorEvents* events, std::shared_ptr<Doorbell> doorbell,
            std::shared_ptr<Doorbell> p2p_doorbell) override {
    board().open(id, std::move(members), events, std::move(doorbell), std::move(p2p_doorbell));
  }

  bool close(uint64_t id, uint64_t last_sequence, Clock::time_point deadline) override {
    return board().close(id, last_sequence, deadline);
  }

  std::unique_ptr<Link> take_link(const LinkKey& key, const LinkShape& shape) override {
    const LinkName name{key.communicator, LinkKind::kData, key.peer, key.lane};
    std::vector<Descriptor> sockets = board().take(name);
    if (sockets.empty()) return nullptr;
    std::vector<std::unique_ptr<ByteStream>> streams;
    for (Descriptor& socket : sockets) streams.push_back(make_stream(name, std::move(socket)));
    return make_stream_link(std::move(streams), shape, peer_name(key.peer));
  }

  std::unique_ptr<ByteStream> take_stream_to(uint64_t communicator, int peer) override {
    const LinkName name{communicator, LinkKind::kStreamTo, peer, 0};
    std::vector<Descriptor> sockets = board().take(name);
    return sockets.empty() ? nullptr : make_stream(name, std::move(sockets.front()));
  }

  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from(uint64_t communicator) override {
    auto found = board().take_stream_from(communicator);
    if (!found) return std::nullopt;
    const LinkName name{communicator, LinkKind::kStreamFrom, found->first, 0};
    return std::pair(found->first, make_stream(name, std::move(found->second)));
  }

  void stalled(uint64_t communicator, uint64_t sequence) override { board().stalled(communicator, sequence); }
  std::vector<int> absent(uint64_t communicator, uint64_t sequence) override {
    return board().absent(communicator, sequence);
  }
  void link_failed(uint64_t communicator, int peer, const Error& error) override {
    board().link_failed(communicator, peer, error);
  }
  void abort(uint64_t communicator, const Error& error) override { board().abort(communicator, error); }

 private:
  bool forked() const { return ::getpid() != pid_; }

  Switchboard& board() const {
    if (forked()) {
      throw Exception(ErrorCode::kInvalid,
                      fmt::format("this group belongs to process {}, which forked this one; a child must join a group "
                                  "of its own",
                                  pid_));
    }
    return *board_;
  }

  std::unique_ptr<ByteStream> make_stream(const LinkName& name, Descriptor socket) {
    // Closed meanwhile by another thread: nobody sleeps on the link, and it will not be used.
    if (const auto doorbell = board_->doorbell(name)) doorbell->watch(socket.get());
    return std::make_unique<SocketStream>(std::move(socket), peer_name(name.peer));
  }

  const pid_t pid_ = ::getpid();
  const Config config_;
  Place place_;
  Topology topology_;
  std::unique_ptr<Switchboard> board_;
};

}  // namespace

std::shared_ptr<Fabric> join_tcp(const Launch& launch, const std::shared_ptr<Store>& store, const Config& config,
                                 Store::Deadline deadline) {
  config.check();
  check_tuning(tuning_of(config));
  return std::make_shared<TcpFabric>(launch, store, config, deadline);
}

}  // namespace rondo
