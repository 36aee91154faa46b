#include "transport/shared/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "rondo/error.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// The dead are noticed so often while their report is waited for.
constexpr std::chrono::milliseconds kLook{200};

std::string report_key(int rank) { return fmt::format("island/{}", rank); }
std::string table_key(size_t part) { return fmt::format("islands/{}", part); }

std::string wait_for(Store& store, const std::string& key, int from, Store::Deadline deadline,
                     const std::function<bool(int)>& gone) {
  while (true) {
    try {
      return store.get(key, std::min<Store::Deadline>(deadline, Clock::now() + kLook));
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

}  // namespace

std::vector<Report> exchange_reports(Store& store, int rank, const Report& own, Store::Deadline deadline,
                                     const std::function<bool(int rank)>& gone) {
  const size_t world = own.size();
  std::string table;
  if (rank == 0) {
    table = own;
    for (size_t r = 1; r < world; ++r) {
      Report report = wait_for(store, report_key(static_cast<int>(r)), static_cast<int>(r), deadline, gone);
      report.resize(world, static_cast<char>(Reach::kNone));
      table += report;
    }
    for (size_t at = 0, part = 0; at < table.size(); at += Store::kMaxValueBytes) {
      store.put(table_key(part++), std::string_view(table).substr(at, Store::kMaxValueBytes), deadline);
    }
  } else {
    store.put(report_key(rank), own, deadline);
    for (size_t part = 0; table.size() < world * world; ++part) {
      table += wait_for(store, table_key(part), 0, deadline, gone);
    }
  }
  std::vector<Report> reports;
  for (size_t r = 0; r < world; ++r) reports.push_back(table.substr(r * world, world));
  return reports;
}

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

}  // namespace rondo
