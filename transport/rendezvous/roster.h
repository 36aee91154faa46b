#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ring/base/log.h"
#include "ring/base/types.h"
#include "rondo/error.h"
#include "rondo/store.h"

namespace rondo {

// Launch::cancelled.
using Cancelled = std::function<std::string()>;

// Every rank puts in its card (bytes; where it listens, what it wants shared) and gets those of all, by rank. Returns
// on all ranks or fails on all: rank 0 publishes the table only once it is complete. Throws Exception(kBootstrap): at
// the deadline, ranks() being those that have not come (on every rank that waits); at once if this rank's number is
// taken by another process, or its world size is not rank 0's: then the others are undisturbed and go on waiting for
// the right process; rank 0 logs the refusal within a second, and the error at the deadline names it; kPeerLost, naming
// it, within a second where a store at an address has seen the end of a rank that has come. Missing ranks are
// logged every 10 s meanwhile. Once `cancelled` says why they will not come, the start ends as by decline_roster() of
// rank 0. A card: at most 64 KiB.
std::vector<std::string> exchange_roster(Store& store, int rank, int world, std::string_view card,
                                         Store::Deadline deadline, const Logger& log, const Cancelled& cancelled = {});

// Instead of exchange_roster(): this rank cannot take part, and says why. The others fail at once with kBootstrap,
// naming it, instead of waiting for it. Never throws; takes a second at most.
void decline_roster(Store& store, int rank, int world, const Error& why, const Logger& log);

// For a process that could not serve the store, since another one does: throws kBootstrap, naming it, if that is this
// rank, and tells the ranks that wait.
void refuse_if_taken(Store& store, int rank, int world, Store::Deadline deadline, const Logger& log);

// Which ranks are on one host, found out before any of them listens: host[r] is the index of rank r's host, in order of
// first appearance, equal on all ranks. To be followed by exchange_roster(), and throws what that does.
std::vector<int> exchange_hosts(Store& store, int rank, int world, Store::Deadline deadline, const Logger& log,
                                const Cancelled& cancelled = {});

// Says that this rank needs the store no more, and waits until all have said so, at most 5 s and not beyond the
// deadline: so rank 0's server outlives their last use, and a rank that joins again at once does not meet the old
// store, which takes no newcomers from then on (StoreServer's last key). Never throws: leaving is no
// failure.
// cancelled: asked every 50 ms; true ends the wait, since a rank is known to be dead.
void roster_goodbye(
    Store& store, int world, Store::Deadline deadline, const std::function<bool()>& cancelled = [] { return false; });

// Rank 0 puts "<ranks> <its host>" there first of all.
inline constexpr std::string_view kRosterWorldKey = "roster/world";
// Exists once all ranks have said goodbye.
inline constexpr std::string_view kRosterEndKey = "roster/end";

// Replaces facts that the launcher did not say (-1) by those that the ranks' hosts say: host[r] is the index of rank
// r's host, in order of first appearance.
Place complete_place(const Place& place, const std::vector<int>& host);

}  // namespace rondo
