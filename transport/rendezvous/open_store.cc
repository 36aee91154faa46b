#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/hash.h"
#include "ring/base/log.h"
#include "rondo/error.h"
#include "transport/rendezvous/address.h"
#include "transport/rendezvous/launch.h"
#include "transport/rendezvous/meeting_file.h"
#include "transport/rendezvous/pmi.h"
#include "transport/rendezvous/pmix.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/rendezvous/roster.h"
#include "transport/rendezvous/secret.h"
#include "transport/rendezvous/served_store.h"
#include "transport/store/memory_store.h"
#include "transport/store/store_server.h"
#include "transport/store/stream_store.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/socket_options.h"

namespace rondo {
namespace {

using Kind = RendezvousUrl::Kind;

// Rank 0's store: the server, and a client of it like everybody else's. The client is destroyed last, and finds the
// server gone; the server's destructor closes all connections.
class ServedStore : public StreamStore {
 public:
  ServedStore(StoreServer::Options server, StreamStore::Options client)
      : StreamStore(std::move(client)), server_(std::move(server)) {}

 private:
  StoreServer server_;
};

constexpr const char* kEverywhere = "0.0.0.0";
// How long rank 0 waits for an earlier run's to let go of the file, as it does for a port (listener.h).
constexpr auto kTakenPatience = std::chrono::seconds(5);

// What to set where the port is taken.
std::string port_advice(const Launch& launch) {
  if (launch.launcher == "torchrun") {
    return "Under torchrun the port is MASTER_PORT + 1, since torchrun's own store has MASTER_PORT; set "
           "RONDO_MASTER_PORT to a free port on all ranks";
  }
  return "Set RONDO_MASTER_PORT (or MASTER_PORT) to a free port on all ranks";
}

// Hosts are not known, and this job may not listen beyond loopback: rank 0 then serves its own host only.
bool stays_on_loopback(const RendezvousUrl& url, const Launch& launch, const Config& config) {
  return url.kind == Kind::kTcp && hosts_unknown(launch) && exposure_of(config, launch.secret) == Exposure::kLoopback;
}

// A name that leads to loopback on this host (/etc/hosts), and elsewhere on the others.
bool names_loopback(const RendezvousUrl& url, Store::Deadline deadline) {
  return url.kind == Kind::kTcp && !is_number(url.host) && is_loopback_host(url.host, deadline);
}

// Where rank 0 listens, which is not always the address that the ranks are given.
std::string serving_host(const RendezvousUrl& url, const Launch& launch, const Config& config,
                         Store::Deadline deadline) {
  try {
    if (stays_on_loopback(url, launch, config) && names_this_machine(url.host, deadline)) return loopback_address();
    const bool others = !launch.one_host && exposure_of(config, launch.secret) == Exposure::kNetwork;
    if (others && names_loopback(url, deadline)) return kEverywhere;
  } catch (const Exception& e) {
    if (e.code() != ErrorCode::kNetwork) throw;  // a name that nobody knows: listen_tcp says so
  }
  return url.host;
}

// At a port of its own choice, which others are told, rank 0 takes one that a firewall lets through, as a unique id
// does.
Listener listen_for_store(const RendezvousUrl& url, const Launch& launch, const Config& config,
                          Store::Deadline deadline) {
  if (url.kind == Kind::kUnix) return listen_unix(url.path, deadline);
  const std::string host = serving_host(url, launch, config, deadline);
  const Exposure exposure = exposure_of(config, launch.secret);
  if (url.port == 0 && is_number(host) && !is_loopback_host(host)) {
    check_may_listen_beyond_loopback(host, exposure);
    return listen_in_range(host, data_port_range(config));
  }
  return listen_tcp(host, url.port, port_advice(launch), exposure, deadline);
}

// The store's name in messages: without the key of a unique id.
std::string name_of(const RendezvousUrl& url) {
  if (url.kind == Kind::kUnix) return "unix://" + url.path;
  if (url.kind == Kind::kUnique) return fmt::format("{} (a unique id)", tcp_url(url.host, url.port));
  if (url.kind == Kind::kFile) return "file://" + url.path;
  return tcp_url(url.host, url.port);
}

// Without a permission to listen beyond loopback rank 0 serves there only, or, where there are known to be several
// hosts, not at all: a rank that would wait for it in vain says why.
void refuse_other_host(const RendezvousUrl& url, const Launch& launch, const Config& config, Store::Deadline deadline) {
  if (launch.one_host || exposure_of(config, launch.secret) != Exposure::kLoopback) return;
  const bool unknown = hosts_unknown(launch);
  if (url.kind == Kind::kFile ? unknown : url.kind != Kind::kTcp) return;  // the file says more (addresses_in_file())
  try {
    const bool tcp = url.kind == Kind::kTcp;
    if (tcp && (unknown ? names_this_machine(url.host, deadline) : is_loopback_host(url.host, deadline))) return;
  } catch (const Exception& e) {
    if (e.code() == ErrorCode::kNetwork) return;  // it may become known while the job starts
    throw;
  }
  throw Exception(
      ErrorCode::kInvalid,
      fmt::format("rank {} {} {}, so this job would listen where other machines can "
                  "connect: set RONDO_SECRET_FILE to a file that only you can read, the same on every "
                  "host, or RONDO_INSECURE=1 if the network is trusted",
                  launch.place.rank, unknown ? "is not on the host of" : "belongs to a job of several hosts around",
                  name_of(url)));
}

// Called where rank 0 could not listen. Asks the one that listens there, and throws what it answers: it is another rank
// 0 of this job, another job or another program. Returns where nothing answers.
void ask_occupant(const RendezvousUrl& url, const Launch& launch, const Config& config, Store::Deadline deadline) {
  constexpr auto kPatience = std::chrono::seconds(2);
  deadline = std::min<Store::Deadline>(deadline, std::chrono::steady_clock::now() + kPatience);
  try {
    StreamStore store(client_options(url, launch, config));
    store.connect(deadline);
    refuse_if_taken(store, launch.place.rank, launch.place.world, deadline, Logger(config.debug, launch.place.rank));
  } catch (const Exception& failure) {
    if (failure.code() != ErrorCode::kTimeout) throw;
  }
}

// For a message.
bool names_loopback_now(const RendezvousUrl& url) {
  try {
    return names_loopback(url, std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
  } catch (const Exception&) {
    return false;
  }
}

// The other ranks' way: connects to rank 0's store, and says that rank 0 is missing where it cannot.
std::shared_ptr<Store> reach(const RendezvousUrl& url, const Launch& launch, const Config& config,
                             Store::Deadline deadline) {
  refuse_other_host(url, launch, config, deadline);
  // Where this rank may not trust the folder rank 0 cannot serve there, and has no other way to say so.
  if (url.kind == Kind::kUnix && url.path.starts_with(private_directory() + "/")) make_private_directory();
  auto store = std::make_shared<StreamStore>(client_options(url, launch, config));
  try {
    store->connect(deadline);
  } catch (const Exception& e) {
    if (e.code() != ErrorCode::kTimeout || url.kind == Kind::kUnique) throw;
    const bool here = !launch.one_host && names_loopback_now(url);
    throw Exception(Error{ErrorCode::kBootstrap,
                          fmt::format("rank 0 is missing: {}. Is rank 0 running, and does every rank have the same "
                                      "MASTER_ADDR and MASTER_PORT, or RONDO_RENDEZVOUS?{}",
                                      e.what(),
                                      here ? " That name leads to this host here: if rank 0 is on another one, "
                                             "MASTER_ADDR must be its address"
                                           : ""),
                          {0}});
  }
  return store;
}

// PMI_FD is read from the environment of the process, since the descriptor belongs to the process.
PmiClient& introduced_pmi(Store::Deadline deadline) {
  PmiClient& pmi = process_pmi(static_cast<int>(Environment::current().need("PMI_FD", 0, 1 << 20, "PMI_RANK")));
  pmi.init(deadline);
  return pmi;
}

// What rank 0 says through the launcher's server: where it serves the store or, after this mark, why it cannot.
constexpr char kRefusal = '!';
constexpr size_t kMostReasonBytes = 512;  // such a server may have little room
// How long a rank 0 that cannot serve waits for the others to read why.
constexpr auto kTellLimit = std::chrono::seconds(5);
// How long its file stays, which the others look at every 100 ms.
constexpr auto kReadTime = std::chrono::seconds(1);

// Where rank 0 serves at a port of its own choice. Before hosts are known a file's readers may be anywhere.
std::string host_of_own_port(Kind kind, const Launch& launch, const Config& config) {
  if (kind != Kind::kFile || !hosts_unknown(launch)) return listen_addresses(launch, config).front();
  return exposure_of(config, launch.secret) == Exposure::kLoopback ? loopback_address() : reachable_address(config);
}

// kind: how the ranks meet. say: to all of them.
std::shared_ptr<Store> serve_and_say(Kind kind, const Launch& launch, const Config& config, Store::Deadline deadline,
                                     const std::function<void(const std::string&, Store::Deadline)>& say) {
  RendezvousUrl url;
  url.kind = Kind::kTcp;
  std::shared_ptr<Store> store;
  try {
    url.host = host_of_own_port(kind, launch, config);
    store = serve_store(url, launch, config, deadline, &url.port);
  } catch (...) {
    const Error why = caught();
    try {
      say(kRefusal + why.message.substr(0, kMostReasonBytes),
          std::min<Store::Deadline>(deadline, std::chrono::steady_clock::now() + kTellLimit));
    } catch (const std::exception&) {
      // The server has gone, or a rank has not come: nobody waits any more, or nothing can be done.
    }
    throw Exception(why);
  }
  say(tcp_url(url.host, url.port), deadline);
  return store;
}

void throw_refusal(const std::string& said) {
  if (!said.starts_with(kRefusal)) return;
  throw Exception(Error{ErrorCode::kBootstrap, fmt::format("rank 0 cannot start: {}", said.substr(1)), {0}});
}

// said: by rank 0, through the launcher's server.
std::shared_ptr<Store> reach_as_said(const std::string& said, const Launch& launch, const Config& config,
                                     Store::Deadline deadline) {
  throw_refusal(said);
  return reach(parse_rendezvous(said), launch, config, deadline);
}

// On one host the server's name space names a socket; on several rank 0 publishes its address through the server.
std::shared_ptr<Store> meet_by_pmi(const Launch& launch, const Config& config, Store::Deadline deadline) {
  PmiClient& pmi = introduced_pmi(deadline);
  std::string meeting = fmt::format("rondo{}", pmi.next_meeting());
  if (launch.one_host) {
    RendezvousUrl url;
    uint64_t hash = Hash64().add(std::string_view(pmi.name_space())).add(std::string_view(meeting)).value();
    url.kind = Kind::kUnix;
    url.path = fmt::format("{}/pmi-{:016x}.sock", private_directory(), hash);
    return launch.place.rank == 0 ? serve_store(url, launch, config, deadline) : reach(url, launch, config, deadline);
  }
  if (launch.place.rank == 0) {
    return serve_and_say(Kind::kPmi, launch, config, deadline, [&](const std::string& said, Store::Deadline until) {
      pmi.put(meeting, said, until);
      pmi.barrier(until);
    });
  }
  pmi.barrier(deadline);
  return reach_as_said(pmi.get(meeting, deadline), launch, config, deadline);
}

// Rank 0's store at an address that is in the file while it is served. Both end with what is returned, the store first.
std::shared_ptr<Store> serve_by_file(const RendezvousUrl& url, const Launch& launch, const Config& config,
                                     Store::Deadline deadline) {
  struct Meeting {
    explicit Meeting(const std::string& path) : file(path) {}
    MeetingFile file;
    std::shared_ptr<Store> store;
  };
  const auto meeting = std::make_shared<Meeting>(url.path);
  const auto now = std::chrono::steady_clock::now();
  if (!meeting->file.lock(std::min<Store::Deadline>(now + (deadline - now) / 2, now + kTakenPatience))) {
    ask_occupant(url, launch, config, deadline);
    throw Exception(ErrorCode::kBootstrap,
                    fmt::format("the meeting file {} is in use by a running process: another rank 0 of this job, or "
                                "another job (set another path, or RONDO_JOB_ID)",
                                url.path));
  }
  const auto say = [&](const std::string& said, Store::Deadline until) {
    meeting->file.say(fmt::format("{} {}", host_identity(), said));
    if (!said.starts_with(kRefusal)) return;
    wait_ready(-1, 0, std::min<Store::Deadline>(until, std::chrono::steady_clock::now() + kReadTime));
  };
  meeting->store = serve_and_say(url.kind, launch, config, deadline, say);
  return {meeting, meeting->store.get()};
}

// "host identity, address" or why there is none, as serve_by_file() has said it. On its own host alone rank 0 serves
// without a permission to listen for other hosts.
std::vector<SocketAddress> addresses_in_file(const std::string& path, Store::Deadline deadline) {
  const std::string words = said_in_file(path);
  if (words.empty()) return {};
  const size_t space = words.find(' ');
  const std::string host = words.substr(0, space), said = space == std::string::npos ? "" : words.substr(space + 1);
  throw_refusal(said);
  const RendezvousUrl url = parse_rendezvous(said);
  if (url.kind != Kind::kTcp) {
    throw Exception(ErrorCode::kBootstrap, fmt::format("the meeting file {} holds no address of rank 0", path));
  }
  if (is_loopback_host(url.host, deadline) && host != host_identity()) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("rank 0 of file://{} is on another host, and listens there for its own host alone: set "
                                "RONDO_SECRET_FILE to a file that only you can read, the same on every host, or "
                                "RONDO_INSECURE=1 if the network is trusted. Where one of them is set, rank 0's host "
                                "needs a network that the others reach (RONDO_SOCKET_IFNAME)",
                                path));
  }
  return resolve(url.host, url.port, deadline);
}

// Rank 0 publishes its address through the launcher's PMIx server.
std::shared_ptr<Store> meet_by_pmix(const Launch& launch, const Config& config, Store::Deadline deadline) {
  PmixClient& pmix = PmixClient::of_process();
  const std::string meeting = fmt::format("rondo{}", pmix.next_meeting());
  if (launch.place.rank == 0) {
    return serve_and_say(Kind::kPmix, launch, config, deadline,
                         [&](const std::string& said, Store::Deadline) { pmix.put(meeting, said); });
  }
  return reach_as_said(pmix.get(0, meeting, deadline), launch, config, deadline);
}

}  // namespace

std::vector<SocketAddress> addresses_of(const RendezvousUrl& url, Store::Deadline deadline) {
  if (url.kind == Kind::kUnix) return {unix_address(url.path)};
  if (url.kind == Kind::kFile) return addresses_in_file(url.path, deadline);
  std::vector<SocketAddress> addresses = resolve(url.host, url.port, deadline);
  if (url.kind == Kind::kTcp && names_this_machine(url.host, deadline)) {  // where rank 0 serves without a permission
    for (const SocketAddress& loopback : resolve(loopback_address(), url.port)) addresses.push_back(loopback);
  }
  return addresses;
}

// The secret is in the Authenticator as derived keys only.
StreamStore::Options client_options(const RendezvousUrl& url, const Launch& launch, const Config& config) {
  StreamStore::Options options;
  options.addresses = [url](Store::Deadline deadline) { return addresses_of(url, deadline); };
  options.name = name_of(url);
  options.job_id = url.kind == Kind::kUnique ? kUniqueJobId : launch.job_id;
  options.auth = Authenticator(launch.secret);
  options.encrypt = config.encrypt;
  options.handshake_ms = config.handshake_timeout_ms;
  options.silence_ms = store_silence_ms(config);
  options.log = Logger(config.debug, launch.place.rank);
  return options;
}

// A rank may be silent between two requests for as long as a start takes (idle_ms).
StoreServer::Options server_options(const RendezvousUrl& url, const Launch& launch, const Config& config,
                                    Store::Deadline deadline) {
  StoreServer::Options server;
  server.listener = listen_for_store(url, launch, config, deadline);
  server.job_id = launch.job_id;
  server.auth = Authenticator(launch.secret);
  server.encrypt = config.encrypt;
  server.idle_ms = config.start_timeout_ms + config.handshake_timeout_ms;
  server.handshake_ms = config.handshake_timeout_ms;
  server.silence_ms = store_silence_ms(config);
  server.log = Logger(config.debug, launch.place.rank);
  return server;
}

std::shared_ptr<Store> serve_store(const RendezvousUrl& url, const Launch& launch, const Config& config,
                                   Store::Deadline deadline, uint16_t* port_found) {
  StoreServer::Options server;
  try {
    const auto now = std::chrono::steady_clock::now();
    server = server_options(url, launch, config, now + (deadline - now) / 2);  // the rest is for ask_occupant()
  } catch (const Exception& failure) {
    const bool asked = url.kind == Kind::kUnix || url.port != 0;  // at an address of its own choice nobody can be
    if (failure.code() == ErrorCode::kBootstrap && asked) ask_occupant(url, launch, config, deadline);
    throw;
  }
  server.world = launch.place.world;
  server.last_key = kRosterEndKey;
  SocketAddress address = server.listener.address;
  uint16_t port = address.port();
  StreamStore::Options client = client_options(url, launch, config);
  client.name = address.text();
  // A wildcard address cannot be connected to everywhere; the same port on loopback can.
  if (address.is_any()) address = resolve(address.family() == AF_INET ? "127.0.0.1" : "::1", port).front();
  client.addresses = [address](Store::Deadline) { return std::vector<SocketAddress>{address}; };
  auto store = std::make_shared<ServedStore>(std::move(server), std::move(client));
  store->connect(deadline);
  if (port_found != nullptr) *port_found = port;
  return store;
}

// The job's id may be a PMI server's, which is asked for here: so this may block until the start's deadline.
Launch find_launch(const LaunchRequest& request, const Config& config) {
  Launch launch = find_launch_in(request, Environment::current());
  if (launch.job_id.empty()) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(config.start_timeout_ms);
    launch.job_id = introduced_pmi(deadline).name_space();
  }
  const RendezvousUrl url = parse_rendezvous(launch.rendezvous);
  if (launch.place.world > 1 || is_newcomer(launch) || url.kind == Kind::kUnique) {
    launch.secret = find_secret(config, url, Environment::current());
  }
  return launch;
}

// The caller and the fabric share the store: it lives until the last of them is done.
std::shared_ptr<Store> open_store(const Launch& launch, const Config& config, Store::Deadline deadline) {
  RendezvousUrl url = parse_rendezvous(launch.rendezvous);
  switch (url.kind) {
    case Kind::kNone:
      return std::make_shared<MemoryStore>();
    case Kind::kFile:
      if (launch.place.rank == 0) return serve_by_file(url, launch, config, deadline);
      return reach(url, launch, config, deadline);
    case Kind::kUnique:
      return reach(url, launch, config, deadline);
    case Kind::kStore:
      throw Exception(ErrorCode::kInvalid, "the rendezvous store: means a store of the program's own: none was given");
    case Kind::kPmi:
      return meet_by_pmi(launch, config, deadline);
    case Kind::kPmix:
      return meet_by_pmix(launch, config, deadline);
    case Kind::kTcp:
    case Kind::kUnix:
      break;
  }
  return launch.place.rank == 0 ? serve_store(url, launch, config, deadline) : reach(url, launch, config, deadline);
}

}  // namespace rondo
