#include "transport/rendezvous/door.h"

#include <fmt/format.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <thread>

#include "ring/base/fields.h"
#include "ring/base/figures.h"
#include "ring/base/interrupt.h"
#include "ring/base/log.h"
#include "rondo/error.h"
#include "transport/auth/crypto.h"
#include "transport/rendezvous/address.h"
#include "transport/rendezvous/served_store.h"

namespace rondo {

using namespace std::chrono_literals;

// door is not sent: a newcomer has it already.
static void fields(Fields& bytes, Seat& seat) {
  int64_t patience_ms = seat.patience.count();
  bytes(seat.rank, seat.world, seat.epoch, patience_ms)
      .text<uint32_t>(seat.job_id, Store::kMaxKeyBytes)
      .text<uint32_t>(seat.rendezvous, Store::kMaxKeyBytes);
  constexpr auto kLongestStart = 24h * 30;  // the most of RONDO_START_TIMEOUT_MS, so of a seat's patience
  seat.patience = std::chrono::milliseconds(patience_ms);
  bytes.require(seat.rank >= 0 && seat.rank < seat.world && seat.world <= kMaxWorld);
  bytes.require(seat.patience > 0ms && seat.patience <= kLongestStart);
}

namespace {

using Clock = std::chrono::steady_clock;
using Kind = RendezvousUrl::Kind;

constexpr auto kPoll = 2ms;             // for newcomers that are not there yet
constexpr auto kReconnectPause = 50ms;  // after the rank that served the door has gone

// The random name that tells one start from another.
constexpr size_t kNameBytes = 16;
// With a dot, that name and a closing zero byte it is a unix socket's.
constexpr size_t kMostPathBytes = sizeof(sockaddr_un::sun_path) - kNameBytes - 2;

// Newcomers draw their numbers by adding to kArrivedKey, and wait for the key of their number.
constexpr std::string_view kArrivedKey = "arrived";
constexpr std::string_view kSeatPrefix = "seat/";

// In the order of the list. Throws kInvalid for one that is malformed.
std::vector<RendezvousUrl> door_addresses(const std::string& addresses) {
  std::vector<RendezvousUrl> urls;
  for (size_t begin = 0; begin <= addresses.size();) {
    const size_t end = std::min(addresses.find(',', begin), addresses.size());
    urls.push_back(parse_rendezvous(addresses.substr(begin, end - begin)));
    begin = end + 1;
  }
  return urls;
}

// The first address of the list that is this machine's. Names that cannot be resolved here are for the error only.
RendezvousUrl own_address(const std::string& addresses, Store::Deadline deadline) {
  std::string unknown;
  for (const RendezvousUrl& url : door_addresses(addresses)) {
    try {
      if (url.kind == Kind::kUnix || names_this_machine(url.host, deadline)) return url;
    } catch (const Exception& failure) {  // a name that is not known here
      if (failure.code() != ErrorCode::kNetwork) throw;
      unknown += fmt::format(" ({})", failure.what());
    }
  }
  throw Exception(
      ErrorCode::kInvalid,
      fmt::format("RONDO_JOIN=\"{}\" names no address of this machine{}: newcomers could not find this rank", addresses,
                  unknown));
}

// Whether such a start stays on one host.
bool stays_on_one_host(const RendezvousUrl& url, Store::Deadline deadline) {
  return url.kind == Kind::kUnix || is_loopback_host(url.host, deadline);
}

// Hexadecimal digits.
std::string random_name() {
  std::array<uint8_t, kNameBytes / 2> bytes;
  fill_random(bytes);
  return to_hex(as_text(bytes));
}

// Empty bytes are the farewell of a job that ends (Door::end()).
Seat decode(const std::string& bytes) {
  if (bytes.empty()) throw Exception(ErrorCode::kPeerLeft, "the job has ended, and has taken no newcomer in");
  std::optional<Seat> seat = decoded<Seat>(bytes);
  if (!seat) throw Exception(ErrorCode::kProtocol, "the ranks' answer to this newcomer is malformed");
  return *std::move(seat);
}

// Tries all addresses of the list in turn: any rank may serve the door, and another one after it has gone.
StreamStore::Options client_of(const Launch& launch, const Config& config) {
  const std::vector<RendezvousUrl> urls = door_addresses(launch.newcomers);
  StreamStore::Options options = client_options(urls.front(), launch, config);
  options.name = launch.newcomers;
  options.addresses = [urls](Store::Deadline deadline) {
    std::vector<SocketAddress> all;
    for (const RendezvousUrl& url : urls) {
      try {
        for (SocketAddress& address : addresses_of(url, deadline)) all.push_back(std::move(address));
      } catch (const Exception& unknown) {
        if (unknown.code() != ErrorCode::kNetwork) throw;
      }
    }
    return all;
  };
  return options;
}

}  // namespace

// A unix path gets a name appended at each start (serve_start()), and must still fit a socket's address.
void check_door_addresses(const std::string& addresses) {
  if (addresses.empty()) return;
  for (const RendezvousUrl& url : door_addresses(addresses)) {
    if (url.path.size() > kMostPathBytes) {
      throw Exception(ErrorCode::kInvalid,
                      fmt::format("RONDO_JOIN=\"{}\" is not allowed: a path has {} bytes at most, since each grow() "
                                  "adds a name to it",
                                  addresses, kMostPathBytes));
    }
    if (url.kind == Kind::kUnix || (url.kind == Kind::kTcp && url.port != 0)) continue;
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("RONDO_JOIN=\"{}\" is not allowed: it must be addresses, comma-separated, each "
                                "tcp://host:port with a port that is not 0, or unix:///path",
                                addresses));
  }
}

// The launcher's facts were about another start: all but the secret and the settings are set anew.
Launch launch_of(const Launch& launch, const Seat& seat, Store::Deadline deadline) {
  Launch start = launch;
  start.place = Place{seat.rank, seat.world, -1, -1, -1, -1};
  start.job_id = seat.job_id;
  start.ended = -1;  // of other numbers
  start.rendezvous = seat.rendezvous;
  start.one_host = stays_on_one_host(parse_rendezvous(seat.rendezvous), deadline);
  return start;
}

// A newcomer draws a number and waits for the seat of that number. If the rank that serves goes, it begins again at the
// next one. A connection that comes too late for connect() is tried once more by add(), which then throws kTimeout.
Seat await_seat(const Launch& launch, const Config& config, Store::Deadline deadline) {
  const auto began = Clock::now();
  while (true) {
    const auto store = std::make_shared<StreamStore>(client_of(launch, config));
    try {
      store->connect(deadline);
    } catch (const Exception& failure) {
      if (failure.code() != ErrorCode::kTimeout) throw;
    }
    try {
      const int64_t number = store->add(kArrivedKey, 1, deadline);
      Seat seat = decode(store->get(fmt::format("{}{:012}", kSeatPrefix, number), deadline));
      seat.door = store;
      return seat;
    } catch (const Exception& failure) {
      const bool gone = failure.code() == ErrorCode::kBootstrap || failure.code() == ErrorCode::kTimeout;
      if (!gone) throw;
    }
    if (Clock::now() >= deadline) {
      throw Exception(
          ErrorCode::kTimeout,
          fmt::format("no rank took this process in within {} ms (RONDO_START_TIMEOUT_MS) at RONDO_JOIN=\"{}\": does "
                      "the job run, and do its ranks call grow()?",
                      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - began).count(),
                      launch.newcomers));
    }
    std::this_thread::sleep_for(kReconnectPause);
  }
}

Door::Door(const Launch& launch, const Config& config, Store::Deadline deadline)
    : launch_(launch),
      config_(config),
      url_(own_address(launch.newcomers, deadline)),
      on_one_host_(stays_on_one_host(url_, deadline)),
      store_(std::make_unique<StoreServer>(server_options(url_, launch, config, deadline))) {}
Door::~Door() = default;

// The second call of callers() waits for the server's thread, which has sent by then.
void Door::end() const {
  for (const StoreServer::Caller& caller : store_->callers()) store_->answer(caller.key, "");
  store_->callers();  // it has been sent
}

int Door::waiting() const { return static_cast<int>(store_->waiting()); }

// Polls: newcomers come seconds apart, and the count of those who wait is one load.
std::vector<std::string> Door::await(size_t count, Store::Deadline deadline,
                                     const std::function<bool()>& cancelled) const {
  while (true) {
    std::vector<std::string> newcomers;
    if (store_->waiting() > 0) {
      for (StoreServer::Caller& caller : store_->callers()) {
        if (caller.waits && newcomers.size() < count) newcomers.push_back(std::move(caller.key));
      }
    }
    if (newcomers.size() == count || Clock::now() >= deadline || cancelled()) return newcomers;
    end_wait_if_interrupted();
    std::this_thread::sleep_for(kPoll);
  }
}

// Each start meets at an address and under a job id of its own, so that a late process of an earlier start cannot join
// it.
std::shared_ptr<Store> Door::serve_start(Seat& seat, Store::Deadline deadline) const {
  RendezvousUrl url = url_;
  const std::string name = random_name();
  seat.job_id = "grow-" + name;
  if (url.kind == Kind::kUnix) url.path += "." + name;
  url.port = 0;  // any
  seat.rendezvous = url.kind == Kind::kUnix ? "unix://" + url.path : tcp_url(url.host, url_.port);
  std::shared_ptr<Store> store = serve_store(url, launch_of(launch_, seat, deadline), config_, deadline, &url.port);
  if (url.kind == Kind::kTcp) seat.rendezvous = tcp_url(url.host, url.port);
  return store;
}

// A seat is the answer to the newcomer's get(), and is not kept: one that has gone meanwhile takes none.
void Door::admit(const std::vector<std::string>& newcomers, Seat seat) const {
  for (const std::string& key : newcomers) {
    store_->answer(key, encoded(seat));
    ++seat.rank;
  }
}

// A newcomer stays connected until its start is over, so a connection that is missing is a death.
bool Door::any_gone(const std::vector<std::string>& newcomers) const {
  const std::vector<StoreServer::Caller> callers = store_->callers();
  return !std::all_of(newcomers.begin(), newcomers.end(), [&](const std::string& key) {
    return std::any_of(callers.begin(), callers.end(),
                       [&](const StoreServer::Caller& caller) { return caller.key == key; });
  });
}

}  // namespace rondo
