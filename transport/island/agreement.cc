#include "transport/island/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "ring/base/bytes.h"
#include "rondo/error.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// The dead are looked for so often while their report is waited for, then less often: a wait that ends costs the store
// a new connection.
constexpr std::chrono::milliseconds kFirstLook{200};
constexpr std::chrono::milliseconds kLastLook{2'000};

std::string report_key(int rank) { return fmt::format("island/{}", rank); }
constexpr const char* kIslandsKey = "islands";

std::string wait_for(Store& store, const std::string& key, int from, Store::Deadline deadline,
                     const std::function<bool(int)>& gone) {
  for (auto look = kFirstLook;; look = std::min(2 * look, kLastLook)) {
    try {
      return store.get(key, std::min<Store::Deadline>(deadline, Clock::now() + look));
    } catch (const Exception& failure) {
      if (failure.code() != ErrorCode::kTimeout) throw;
    }
    if (gone(from)) {
      throw Exception(
          Error{ErrorCode::kPeerLost, fmt::format("rank {} died while the group was starting", from), {from}});
    }
    if (Clock::now() >= deadline) {
      throw Exception(Error{ErrorCode::kBootstrap,
                            fmt::format("rank {} did not say with whom it shares memory within the start's deadline "
                                        "(RONDO_START_TIMEOUT_MS)",
                                        from),
                            {from}});
    }
  }
}

Reach reach(const std::vector<Report>& reports, size_t from, size_t to) {
  return to < reports[from].size() ? static_cast<Reach>(reports[from][to]) : Reach::kNone;
}

bool share(const std::vector<Report>& reports, size_t a, size_t b) {
  const auto shares = [](Reach r) { return r == Reach::kShares || r == Reach::kPulls; };
  return shares(reach(reports, a, b)) && shares(reach(reports, b, a));
}

bool pull(const std::vector<Report>& reports, size_t a, size_t b) {
  return reach(reports, a, b) == Reach::kPulls && reach(reports, b, a) == Reach::kPulls;
}

std::string encode(const Islands& islands) {
  ByteWriter writer;
  writer.u32(static_cast<uint32_t>(islands.island.size()));
  for (const int island : islands.island) writer.u32(static_cast<uint32_t>(island));
  for (const bool pulls : islands.pulls) writer.u8(pulls);
  return writer.take();
}

Islands decode(std::string_view bytes, size_t world) {
  ByteReader reader(bytes);
  Islands islands;
  const size_t listed = reader.u32();
  if (listed == 0 || listed == world) {
    for (size_t i = 0; i < listed; ++i) islands.island.push_back(static_cast<int>(reader.u32()));
    for (size_t i = 0; i < world; ++i) islands.pulls.push_back(reader.u8() != 0);
    if (reader.done()) return islands;
  }
  throw Exception(ErrorCode::kProtocol, "rank 0's list of the islands is malformed");
}

}  // namespace

Islands find_islands(const std::vector<Report>& reports) {
  const size_t world = reports.size();
  Islands result;
  result.island.assign(world, -1);
  result.pulls.assign(world, false);
  int islands = 0;
  std::vector<bool> placed(world, false);
  for (size_t first = 0; first < world; ++first) {
    if (placed[first]) continue;
    std::vector<size_t> members{first};
    for (size_t next = first + 1; next < world; ++next) {
      const auto reached = [&](size_t member) { return share(reports, member, next); };
      if (!placed[next] && std::all_of(members.begin(), members.end(), reached)) members.push_back(next);
    }
    if (members.size() < 2) continue;
    bool pulls = true;
    for (const size_t a : members) {
      for (const size_t b : members) pulls &= a == b || pull(reports, a, b);
    }
    for (const size_t member : members) {
      placed[member] = true;
      result.island[member] = islands;
      result.pulls[member] = pulls;
    }
    ++islands;
  }
  if (islands == 0) result.island.clear();
  return result;
}

Islands agree_islands(Store& store, int rank, const Report& own, Store::Deadline deadline,
                      const std::function<bool(int rank)>& gone) {
  if (rank != 0) {
    store.put(report_key(rank), own, deadline);
    return decode(wait_for(store, kIslandsKey, 0, deadline, gone), own.size());
  }
  std::vector<Report> reports{own};
  for (int other = 1; other < static_cast<int>(own.size()); ++other) {
    reports.push_back(wait_for(store, report_key(other), other, deadline, gone));
  }
  const Islands islands = find_islands(reports);
  store.put(kIslandsKey, encode(islands), deadline);
  return islands;
}

}  // namespace rondo
