#include "ring/api/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "ring/base/caught.h"
#include "ring/base/fields.h"
#include "ring/base/log.h"
#include "ring/engine/observe/metrics_output.h"
#include "transport/fabrics/process_fabric.h"
#include "transport/rendezvous/environment.h"
#include "transport/rendezvous/rendezvous_url.h"
#include "transport/rendezvous/secret.h"

namespace rondo {
namespace {

using Milliseconds = std::chrono::milliseconds;

// The most bytes of rank 0's answer to the others: a path or an address, and names.
constexpr size_t kInvitationBytes = 1024;

// What rank 0 tells the others of its Invitation.
struct Offer {
  ErrorCode refusal = ErrorCode::kOk;
  std::string job_id, text;
};

void fields(Fields& bytes, Offer& offer) {
  bytes.within<uint16_t>(offer.refusal, ErrorCode::kOk, static_cast<ErrorCode>(kErrorCodes - 1))
      .text(offer.job_id, kInvitationBytes / 4)
      .text(offer.text, kInvitationBytes / 2);
}

// The limit of a start whose ranks are all there. Two of them that fall silent in it, one after the other, are
// found out within it.
Milliseconds start_limit(const Config& config) {
  const int64_t silence_ms = config.suspicion_ms > 0 ? 2 * config.suspicion_ms : config.start_timeout_ms;
  return Milliseconds(std::min(config.start_timeout_ms, silence_ms + config.handshake_timeout_ms));
}

// How long newcomers() waits before it tries again to serve an address that another process serves.
constexpr std::chrono::seconds kDoorPause{1};
// How long the name in that address may take to be looked up: all ranks wait in newcomers() meanwhile.
constexpr Milliseconds kDoorPatience{250};
// How long a newcomer waits for the members' agreement beyond their own time: what Membership takes after that.
Milliseconds agreement_limit(const Config& config) {
  constexpr int64_t kSuspicionMs = 10'000, kEndMs = 5'000;  // as of its settings; the first where none is configured
  return Milliseconds((config.suspicion_ms > 0 ? config.suspicion_ms : kSuspicionMs) + kEndMs);
}

// What traces and metrics say of this process. The numbers are those of the job at its start, and stay when it shrinks
// or grows.
ObservedRank observed_rank(const Fabric& fabric, const Config& config) {
  const Place& place = fabric.place();
  ObservedRank about;
  about.rank = place.rank;
  about.world = place.world;
  about.local_rank = place.local_rank;
  about.node = place.node;
  about.name = fabric.peer_name(place.rank);
  about.host = fabric.topology().host;
  about.settings = config.describe();
  return about;
}

// The observer's numbers of the ranks of a world in which the members are the first ranks. Newcomers get
// numbers that the observer does not count.
std::vector<int> observed_ranks(const CommunicatorContext& context, int world) {
  std::vector<int> ranks;
  for (const int member : context.members) {
    ranks.push_back(context.observed_ranks.empty() ? member : context.observed_ranks[static_cast<size_t>(member)]);
  }
  for (int r = static_cast<int>(ranks.size()); r < world; ++r) ranks.push_back(std::numeric_limits<int>::max());
  return ranks;
}

// Copies rank 0's bytes to all ranks.
void broadcast(CommunicatorState& group, void* data, size_t bytes, Purpose purpose, Milliseconds timeout) {
  Call call;
  call.collective = Collective::kBroadcast;
  call.input = call.output = data;
  call.count = bytes;
  call.dtype = DType::kUint8;
  call.root = 0;
  call.options.purpose = purpose;
  call.options.timeout = timeout;
  group.calls().run(call);
}

// Opens the meeting point of rank 0, which may stand still for a while. If rank 0 is lost the group has failed,
// and no more time is spent on it.
std::shared_ptr<Store> reach_store(const CommunicatorState& group, const Launch& launch, Store::Deadline deadline) {
  const Config& config = group.context().config;
  while (true) {
    const auto attempt = std::chrono::steady_clock::now() + Milliseconds(config.handshake_timeout_ms);
    try {
      return open_store(launch, config, std::min<Store::Deadline>(attempt, deadline));
    } catch (const Exception&) {
      const bool again = std::chrono::steady_clock::now() >= attempt && attempt < deadline;
      if (!again || group.context().failure.get() != nullptr) throw;
    }
  }
}

}  // namespace

std::shared_ptr<CommunicatorState> world_group(std::shared_ptr<Fabric> fabric, WorldOptions world) {
  CommunicatorState::Options options;
  for (int r = 0; r < fabric->place().world; ++r) options.members.push_back(r);
  options.fabric = std::move(fabric);
  options.observer = world.observer ? std::move(world.observer)
                                    : make_observer(observed_rank(*options.fabric, world.config), world.config);
  options.observed_ranks = std::move(world.observed_ranks);
  options.id = 1;
  options.epoch = world.epoch;
  options.config = std::move(world.config);
  options.memory_before = std::move(world.memory_before);
  options.lineage = std::move(world.lineage);
  options.worker =
      Worker::make(CommunicatorState::worker_policy(options.config, *options.fabric), options.fabric->sleepers());
  return std::make_shared<CommunicatorState>(std::move(options));
}

// Rank 0's answer to grow(), which all ranks have called: a refusal, or where the new start meets.
struct Growth::Invitation {
  ErrorCode refusal = ErrorCode::kOk;  // and why, in `text`
  std::string text, job_id;            // where the start meets
  // Rank 0's alone.
  std::vector<std::string> newcomers = {};
  Seat seat = {};
  std::shared_ptr<Store> store = {};
};

// A newcomer knows the secret of the user or of a file, but no unique id: the members use that secret, too.
Growth::Growth(Launch launch, const Config& config) : launch_(std::move(launch)) {
  if (!launch_.newcomers.empty()) launch_.secret = find_secret(config, {}, Environment::current());
}

// A start that fails is tried again until the deadline: ranks or other newcomers may have died in it, and the
// job will take this process in with its next grow(). An interruption and a wrong argument end it at once.
std::shared_ptr<CommunicatorState> Growth::enter(const Config& config, Store::Deadline deadline) {
  while (true) {
    const Seat seat = await_seat(launch_, config, deadline);
    const auto until = std::chrono::steady_clock::now() + seat.patience;
    const Logger log(config.debug, seat.rank);
    try {
      const Launch launch = launch_of(launch_, seat, until);
      auto group =
          world_group(join_processes(launch, open_store(launch, config, until), config, until), {config, seat.epoch});
      group->calls().meet_neighbors(Purpose::kJoin, until);
      group->groups().enter(seat.patience + Milliseconds(config.start_timeout_ms) + agreement_limit(config));
      return group;
    } catch (const Exception& failure) {
      if (failure.code() == ErrorCode::kInterrupted || failure.code() == ErrorCode::kInvalid ||
          std::chrono::steady_clock::now() >= deadline) {
        throw;
      }
      log.warn(fmt::format("this process was not taken in as rank {} of {}, and asks again: {}", seat.rank, seat.world,
                           failure.what()));
    }
  }
}

Door& Growth::door(const Config& config, Store::Deadline deadline) {
  if (!door_) door_ = std::make_unique<Door>(launch_, config, deadline);
  return *door_;
}

void Growth::end() noexcept {
  try {
    if (door_) door_->end();
  } catch (const std::exception&) {
    // Without memory: they see the end of the connection, and wait on.
  }
}

int Growth::newcomers(CommunicatorState& group) {
  if (launch_.newcomers.empty()) return 0;
  return group.context().with_memory([&] { return count_newcomers(group); });
}

// Rank 0 asks its door, then tells all ranks. An address that it cannot serve counts as nobody waiting, with a
// warning.
int Growth::count_newcomers(CommunicatorState& group) {
  int32_t waiting = 0;
  if (group.rank() == 0 && (door_ || Clock::now() >= try_door_at_)) {
    const Config& config = group.context().config;
    try {
      waiting = door(config, Clock::now() + kDoorPatience).waiting();
    } catch (const Exception& failure) {  // such as one that was left out, and serves it until it ends
      try_door_at_ = Clock::now() + kDoorPause;
      Logger(config.debug, 0).warn(fmt::format("newcomers cannot be heard: {}", failure.what()));
    }
  }
  broadcast(group, &waiting, sizeof waiting, Purpose::kNewcomers, {});
  return waiting;
}

// How long newcomers are waited for. Throws what is wrong with this rank's own call.
Milliseconds Growth::wait_of(CommunicatorState& group, int newcomers, Milliseconds timeout) const {
  constexpr int kMost = 1'000'000;
  const auto invalid = [&](const std::string& why) {
    throw Exception(ErrorCode::kInvalid, fmt::format("grow on rank {}: {}", group.rank(), why));
  };
  if (newcomers < 1 || newcomers > kMost) invalid(fmt::format("newcomers is {}; it must be 1 to {}", newcomers, kMost));
  if (launch_.newcomers.empty()) invalid("nothing says where newcomers find this job: set RONDO_JOIN on all ranks");
  return group.groups().patience_of(timeout, "grow");
}

// Whether all ranks take in as many, and none refuses its own call, for which the others would wait. Before rank 0 lets
// anybody in: it would go on without those that know better.
void Growth::agree(CommunicatorState& group, int newcomers, bool refused, Milliseconds timeout) {
  struct Wish {
    int32_t newcomers, refused;
  };
  const std::vector<Wish> asked = group.calls().gather(Wish{newcomers, refused}, Purpose::kGrow, timeout);
  const CommunicatorContext& context = group.context();
  const auto find = [&](const auto& is) { return std::find_if(asked.begin(), asked.end(), is) - asked.begin(); };
  const auto world = static_cast<ptrdiff_t>(asked.size());
  if (refused) return;  // it has its reason
  if (const auto other = find([](const Wish& wish) { return wish.refused != 0; }); other != world) {
    const int r = static_cast<int>(other);
    throw Exception(
        Error{ErrorCode::kInvalid,
              fmt::format("{} has refused its own call, for {} newcomers: its error says why; all ranks can "
                          "call again",
                          context.name(r), asked[static_cast<size_t>(other)].newcomers),
              {r}});
  }
  const auto other = find([&](const Wish& wish) { return wish.newcomers != asked[0].newcomers; });
  if (other == world) return;
  const int r = static_cast<int>(other);
  group.context().fail({ErrorCode::kMismatch,
                        fmt::format("{} takes in {} newcomers, {} {}", context.name(0), asked[0].newcomers,
                                    context.name(r), asked[static_cast<size_t>(other)].newcomers),
                        {0, r}});
  group.context().check_usable();
}

// Rank 0 waits for the newcomers and tells the others. An error on rank 0 is thrown on all ranks, and the
// communicator goes on.
Growth::Invitation Growth::invite(CommunicatorState& group, int newcomers, Milliseconds wait) {
  const Milliseconds limit = wait + group.groups().patience_of({}, "grow");
  Invitation made;
  std::array<char, kInvitationBytes> bytes{};
  if (group.rank() == 0) {
    const Config& config = group.context().config;
    const auto deadline = std::chrono::steady_clock::now() + wait;
    try {
      const Door& served = door(config, deadline);
      if (served.on_one_host() && !group.context().fabric->topology().one_host()) {
        throw Exception(ErrorCode::kInvalid,
                        fmt::format("RONDO_JOIN=\"{}\" is of one host, and the ranks are on several: it must be "
                                    "tcp://host:port with names that all hosts know",
                                    launch_.newcomers));
      }
      // The others leave a call that has failed at once, and wait for this rank in shrink().
      const auto failed = [&] { return group.context().failure.get() != nullptr; };
      made.newcomers = served.await(static_cast<size_t>(newcomers), deadline, failed);
      if (made.newcomers.size() < static_cast<size_t>(newcomers)) {
        throw Exception(ErrorCode::kTimeout,
                        fmt::format("{} of {} newcomers came within {} ms at RONDO_JOIN=\"{}\"", made.newcomers.size(),
                                    newcomers, wait.count(), launch_.newcomers));
      }
      const Milliseconds patience = start_limit(config);
      made.seat = {group.size(), group.size() + newcomers, group.context().epoch + 1, patience, "", "", {}};
      made.store = door_->serve_start(made.seat, std::chrono::steady_clock::now() + patience);
      made.text = made.seat.rendezvous;
      made.job_id = made.seat.job_id;
    } catch (...) {
      const Error why = caught();
      if (why.code == ErrorCode::kInterrupted) {  // on this rank alone
        group.abort("grow() was interrupted while it waited for newcomers");
        throw;
      }
      made.refusal = why.code;
      made.text = why.message;
    }
    const std::string offer = encoded(Offer{made.refusal, made.job_id, made.text});
    std::copy(offer.begin(), offer.end(), bytes.begin());
  }
  broadcast(group, bytes.data(), bytes.size(), Purpose::kGrow, limit);
  Fields in({bytes.data(), bytes.size()});
  Offer offer;
  in(offer);
  if (!in.ok()) throw Exception(ErrorCode::kProtocol, "rank 0's invitation is malformed");
  made.refusal = offer.refusal;
  made.job_id = offer.job_id;
  made.text = offer.text;
  if (made.refusal != ErrorCode::kOk) throw Exception(made.refusal, made.text);
  return made;
}

// The start of all ranks and the newcomers. Rank 0 admits these first, and gives up if one of them goes away.
std::shared_ptr<CommunicatorState> Growth::open(CommunicatorState& group, int newcomers, Invitation invitation) {
  const Config& config = group.context().config;
  const Milliseconds limit = start_limit(config);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const int world = group.size() + newcomers;
  Launch launch = launch_of(launch_, {group.rank(), world, 0, limit, invitation.job_id, invitation.text, {}}, deadline);
  if (group.rank() == 0) {
    door_->admit(invitation.newcomers, invitation.seat);
    launch.cancelled = [&]() -> std::string {
      if (const Error* lost = group.context().failure.get()) return lost->message;
      return door_->any_gone(invitation.newcomers) ? "a newcomer has gone" : "";
    };
  } else {
    invitation.store = reach_store(group, launch, deadline);
  }
  auto fabric = join_processes(launch, std::exchange(invitation.store, nullptr), config, deadline);
  WorldOptions options{config, group.context().epoch + 1};
  options.observer = group.context().observed.observer;
  options.observed_ranks = observed_ranks(group.context(), world);
  if (!group.allocations()->empty()) options.memory_before = group.allocations();
  options.lineage = group.lineage();
  auto opened = world_group(std::move(fabric), std::move(options));
  opened->calls().meet_neighbors(Purpose::kJoin, deadline);
  return opened;
}

std::shared_ptr<CommunicatorState> Growth::grow(CommunicatorState& group, OutsideBatch outside, int newcomers,
                                                Milliseconds timeout) {
  Milliseconds wait{0};
  Error refusal;
  try {
    wait = wait_of(group, newcomers, timeout);
  } catch (const Exception& failure) {
    refusal = failure.error();
  }
  group.context().check_usable();
  Invitation invitation = group.context().with_memory([&] {
    try {
      agree(group, newcomers, !refusal.ok(), wait + group.groups().patience_of({}, "grow"));
      return refusal.ok() ? invite(group, newcomers, wait) : Invitation{};
    } catch (const Exception& failure) {
      throw Exception(Error{failure.code(), fmt::format("grow on rank {}: {}", group.rank(), failure.what()),
                            failure.error().ranks});
    }
  });
  if (!refusal.ok()) throw Exception(refusal);
  // Rank 0 serves it until the members have agreed: one that comes to it late hears there how the start has ended.
  const std::shared_ptr<Store> meeting_point = invitation.store;
  try {
    group.groups().hold(open(group, newcomers, std::move(invitation)));
  } catch (...) {
    const Error why = caught();
    if (why.code == ErrorCode::kInterrupted) throw;
    Logger(group.context().config.debug, group.rank())
        .warn(fmt::format("grow: the ranks go on without newcomers: {}", why.message));
  }
  return group.groups().go_on(outside, group.groups().patience_of({}, "grow"), "grow");
}

}  // namespace rondo
