#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cross_copy.h"
#include "ring/base/descriptor.h"
#include "ring/base/log.h"
#include "transport/byte_stream.h"
#include "transport/fabric.h"
#include "transport/island/island_book.h"
#include "transport/island/island_connection.h"
#include "transport/island/island_door.h"
#include "transport/island/own_windows.h"
#include "transport/island/page_store.h"
#include "transport/island/reachability_probe.h"
#include "transport/island/shared_channel.h"
#include "transport/link.h"
#include "transport/shared_memory.h"

namespace asio {
class io_context;
}

namespace rondo {

// A rank's part of its island: windows, links, streams and pages in memory that it shares with the other ranks of it.
// Two ranks connect when one of them first needs the other, and announce then what they have made. It orders no access
// to the memory: links, streams and boards do that by their flags. Calls are for any thread; frames of the peers are
// handled on the I/O thread.
//
// mutex_ guards the book and the windows. Nothing is called out with it held but IslandConnection::send: link_failed
// and streamed call into the control plane, which has a lock of its own.
class Island final : public SharedMemory {
 public:
  struct Settings {
    int rank = 0;
    uint64_t session = 0;  // IslandDoor::Settings::session
    bool can_pull = false;
    std::shared_ptr<Sleepers> sleepers = std::make_shared<Sleepers>();  // shared with this rank's doorbells
    Logger logger;
    // A link to `peer` that was asked for will not come, or nothing that is shared with it can be trusted any more. On
    // any thread, without the lock.
    std::function<void(uint64_t communicator, int peer, const Error&)> link_failed;
    // take_stream_from() has the peer's stream. On the I/O thread, without the lock.
    std::function<void(uint64_t communicator, int peer)> streamed;
  };

  // listener: this rank's own, where the neighbors connect.
  Island(asio::io_context& io, Descriptor listener, const std::vector<Neighbor>& neighbors, Settings settings);
  // The I/O thread must have been stopped.
  ~Island() override;

  bool holds(int peer) const { return peers_.count(peer) != 0; }

  // --- as in Fabric; peers are of this island
  void open(uint64_t communicator, const std::vector<int>& members, const std::shared_ptr<Doorbell>& doorbell,
            const std::shared_ptr<Doorbell>& p2p_doorbell);
  void close(uint64_t communicator);
  std::unique_ptr<Link> take_link(const LinkKey& key, const LinkShape& shape);
  std::unique_ptr<ByteStream> take_stream_to(uint64_t communicator, int peer);
  RankPage page_of(uint64_t communicator, int rank);
  void keep(uint64_t communicator, std::shared_ptr<Window> window);
  std::optional<std::pair<int, std::unique_ptr<ByteStream>>> take_stream_from(uint64_t communicator);

  // The peers for whom take_stream_to() has made a stream.
  std::set<int> streams_to(uint64_t communicator);

  // --- SharedMemory
  std::shared_ptr<Window> make(size_t bytes, uint64_t name = 0) override;
  WindowPlace locate(const void* data, size_t bytes) const override;
  std::shared_ptr<Window> find(int peer, uint64_t id) override;
  void offer(std::span<const int> peers, uint64_t name, Descriptor descriptor) override;
  Descriptor take_offer(int peer, uint64_t name) override;
  bool can_pull() const override { return settings_.can_pull; }
  bool pull(int peer, uint64_t address, std::byte* to, size_t bytes) override;
  bool ended(int peer) const override;
  bool stops_alone() const override { return true; }

 private:
  struct PeerPage;
  // Another rank of the island. Guarded by mutex_, but for constants (pid, name, listener), atomics, and what says
  // otherwise.
  struct Peer {
    pid_t pid = 0;
    std::string name;
    std::string listener;
    std::shared_ptr<PeerLife> life = std::make_shared<PeerLife>();  // shared with the links
    std::unique_ptr<IslandConnection> connection;                   // null, as is the next: not needed yet
    std::shared_ptr<SleeperSockets> sockets;                        // shared with the bells
    Descriptor process;                                             // constant once `opened`
    std::atomic<bool> opened{false};
    std::map<uint64_t, std::shared_ptr<MappedWindow>> windows;  // shared with those who work on them
    std::map<uint64_t, Descriptor> offers;                      // by name; not taken yet
    // This rank's pages that it knows and has not let go of, by communicator.
    std::map<uint64_t, std::shared_ptr<IslandBook::OwnPage>> lent;
    std::string end;                 // why it is over
    std::atomic<bool> ended{false};  // its process has closed the connection, or died
  };
  using Files = std::vector<Descriptor>;

  // IslandConnection's handlers, on the I/O thread, without the lock.
  void on_frame(int peer, const IslandFrame& frame, Files files);
  void on_end(int peer, IslandConnection::End end, const std::string& why);
  // The handlers of frames. The frame is the peer's: each checks what it uses, and throws Exception(kProtocol), which
  // ends the connection.
  IslandBook::Group* mentioned(int peer, uint64_t communicator);
  void add_window(Peer& state, const IslandFrame& frame, const Descriptor& file);
  static void add_offer(Peer& state, const IslandFrame& frame, Descriptor file);
  void add_link(int peer, const IslandFrame& frame, const Descriptor& file);
  void make_wished(int peer, const IslandFrame& frame);
  void add_stream(int peer, const IslandFrame& frame, const Descriptor& file);
  void add_page(int peer, const IslandFrame& frame);
  void lend(Peer& peer, uint64_t communicator, const std::shared_ptr<IslandBook::OwnPage>& page);
  static void add_sleeper(Peer& state, const IslandFrame& frame, Descriptor socket);
  // What makes links and streams. All require the lock, but report(), which calls out.
  std::shared_ptr<Mapping> share(int peer, const IslandFrame& frame);
  LinkMemory make_link_memory(const LinkKey& key, const LinkShape& shape);
  std::unique_ptr<Link> link_over(const LinkKey& key, LinkMemory memory, IslandBook::Group& group);
  std::unique_ptr<ByteStream> make_stream(uint64_t communicator, int peer, IslandBook::Group& group);
  ChannelEnd end_of(std::shared_ptr<Mapping> memory, bool first, const Peer& peer, std::shared_ptr<Bell> bell) const;
  const BufferShape& stream_shape() const;
  std::shared_ptr<StreamBuffers> buffers_of(IslandBook::Group& group, int peer) const;
  void report(uint64_t communicator, int peer, const Error& why) const;

  // Connections; all but dial() and admit() require the lock.
  IslandConnection& connection(int peer);
  IslandConnection& make_connection(int peer);
  void forget_connection(Peer& state, int peer);
  void connect_all();
  IslandConnection::Dialed dial(int peer) const;
  void admit(int peer, Descriptor socket);
  // A handle of the peer's process, opened at the first pull(); not valid where the process cannot be told from another
  // one.
  const Descriptor& process_of(Peer& peer);

  asio::io_context& io_;
  const Settings settings_;
  std::map<int, Peer> peers_;              // the keys never change
  const std::shared_ptr<OwnWindows> own_;  // shared with the windows, which may outlive the island

  PageStore pages_;

  mutable std::mutex mutex_;  // taken before OwnWindows's
  IslandBook book_;
  std::optional<IslandDoor> door_;  // the last: it calls admit()
};

}  // namespace rondo
