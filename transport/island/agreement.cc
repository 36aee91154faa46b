#include "transport/island/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>

#include "ring/base/fields.h"
#include "rondo/error.h"

namespace rondo {

// The most bytes of the text that says why memory is not shared.
constexpr size_t kMaxReasonBytes = 512;

static void fields(Fields& bytes, Report& report) {
  bytes.text<uint32_t>(report.reach, Store::kMaxValueBytes).text(report.why_not, kMaxReasonBytes);
}

static void fields(Fields& bytes, Islands& islands) {
  std::string pulls(islands.pulls.begin(), islands.pulls.end());
  bytes.list<uint32_t>(islands.island, Store::kMaxValueBytes, [&bytes](int& island) { bytes(island); })
      .text<uint32_t>(pulls, Store::kMaxValueBytes)
      .text(islands.why_not, kMaxReasonBytes);
  islands.pulls.assign(pulls.begin(), pulls.end());
}

namespace {

using Clock = std::chrono::steady_clock;

// Before the next look whether the start has failed: far below the time within which that is promised. A look costs the
// store one request.
constexpr std::chrono::milliseconds kLook{200};

// Keys of the store: a report of each rank, and the answer of rank 0.
std::string report_key(int rank) { return fmt::format("island/{}", rank); }
constexpr const char* kIslandsKey = "islands";

// Waits in short turns, so that the death of a rank ends the wait long before the deadline.
std::string wait_for(Store& store, const std::string& key, int from, Store::Deadline deadline,
                     const std::function<bool()>& start_failed) {
  while (true) {
    try {
      return store.get(key, std::min<Store::Deadline>(deadline, Clock::now() + kLook));
    } catch (const Exception& failure) {
      if (failure.code() != ErrorCode::kTimeout) throw;
    }
    if (start_failed()) {
      throw Exception(Error{ErrorCode::kBootstrap,
                            fmt::format("the start failed before rank {} said with whom it shares memory", from),
                            {}});
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

// The two lowest ranks of each class; -1: there is none.
struct Pair {
  int first = -1;
  int second = -1;
  bool holds(int rank) const { return rank == first || rank == second; }
};
// By class. Ranks are looked at in ascending order, so the first two of a class are its lowest.
std::vector<Pair> lowest_pairs(const Classes& classes) {
  std::vector<Pair> result;
  for (size_t rank = 0; rank < classes.number.size(); ++rank) {
    if (classes.number[rank] == Classes::kNone) continue;
    const auto number = static_cast<size_t>(classes.number[rank]);
    if (number >= result.size()) result.resize(number + 1);
    Pair& pair = result[number];
    if (pair.first < 0) {
      pair.first = static_cast<int>(rank);
    } else if (pair.second < 0) {
      pair.second = static_cast<int>(rank);
    }
  }
  return result;
}

// What the reports say of any two ranks of the world. Levels are ordered by strength: a way is as strong as its weakest
// trial.
class Findings {
 public:
  Findings(const std::vector<Report>& reports, const Classes& classes)
      : reports_(reports), classes_(classes), lowest_(lowest_pairs(classes)) {}

  bool share(int a, int b) const { return between(a, b) >= kShare; }
  bool pull(int a, int b) const { return between(a, b) == kPull; }

 private:
  enum Level { kNothing, kShare, kPull };

  // The strength of the weakest trial on the way from a to b: directly, or by way of the lowest ranks of their classes.
  Level between(int a, int b) const {
    const int class_a = number(a), class_b = number(b);
    if (class_a == Classes::kNone || class_b == Classes::kNone || host(a) != host(b)) return kNothing;
    const Pair& near_a = lowest_[static_cast<size_t>(class_a)];
    const Pair& near_b = lowest_[static_cast<size_t>(class_b)];
    if (class_a != class_b) {
      return std::min({both(a, near_a.first), both(near_a.first, near_b.first), both(near_b.first, b)});
    }
    if (near_a.holds(a) || near_a.holds(b)) return both(a, b);
    return std::max(std::min(both(a, near_a.first), both(near_a.first, b)),
                    std::min(both(a, near_a.second), both(near_a.second, b)));
  }
  // The lower of what both ends found.
  Level both(int a, int b) const { return a == b ? kPull : std::min(said(a, b), said(b, a)); }
  // What rank `from` found of `to`; its report may hold anything.
  Level said(int from, int to) const {
    const std::string& reach = reports_[static_cast<size_t>(from)].reach;
    if (static_cast<size_t>(to) >= reach.size()) return kNothing;
    const auto found = static_cast<Reach>(reach[static_cast<size_t>(to)]);
    return found == Reach::kPulls ? kPull : found == Reach::kShares ? kShare : kNothing;
  }
  int number(int rank) const { return classes_.number[static_cast<size_t>(rank)]; }
  int host(int rank) const { return classes_.host[static_cast<size_t>(rank)]; }

  const std::vector<Report>& reports_;
  const Classes& classes_;
  const std::vector<Pair> lowest_;
};

// One that is malformed, or of another world, reaches nobody.
Report decode_report(std::string_view bytes, size_t world) {
  const std::optional<Report> report = decoded<Report>(bytes);
  return report && report->reach.size() <= world ? *report : Report{};
}

// The store may be anybody's.
Islands decode(std::string_view bytes, size_t world) {
  std::optional<Islands> islands = decoded<Islands>(bytes);
  if (islands && islands->pulls.size() == world && (islands->island.empty() || islands->island.size() == world)) {
    return *std::move(islands);
  }
  throw Exception(ErrorCode::kProtocol, "rank 0's list of the islands is malformed");
}

}  // namespace

// A pure function of what all ranks know, so both ends of a pair try each other.
std::vector<int> tried_by(const Classes& classes, int rank) {
  const int own = classes.number[static_cast<size_t>(rank)];
  if (own == Classes::kNone) return {};
  const std::vector<Pair> lowest = lowest_pairs(classes);
  const Pair& near = lowest[static_cast<size_t>(own)];
  const int host = classes.host[static_cast<size_t>(rank)];
  std::vector<int> tried;
  for (int other = 0; other < static_cast<int>(classes.number.size()); ++other) {
    const int number = classes.number[static_cast<size_t>(other)];
    if (other == rank || number == Classes::kNone || classes.host[static_cast<size_t>(other)] != host) continue;
    const bool try_it = number == own ? near.holds(rank) || near.holds(other)
                                      : rank == near.first && other == lowest[static_cast<size_t>(number)].first;
    if (try_it) tried.push_back(other);
  }
  return tried;
}

// An island pulls only if all its pairs do.
Islands find_islands(const std::vector<Report>& reports, const Classes& classes) {
  const Findings findings(reports, classes);
  const int world = static_cast<int>(reports.size());
  Islands result;
  result.island.assign(reports.size(), -1);
  result.pulls.assign(reports.size(), false);
  for (const Report& report : reports) {
    if (result.why_not.empty()) result.why_not = report.why_not;
  }
  int islands = 0;
  for (int first = 0; first < world; ++first) {
    if (result.island[static_cast<size_t>(first)] >= 0) continue;
    std::vector<int> members{first};
    for (int next = first + 1; next < world; ++next) {
      const auto reached = [&](int member) { return findings.share(member, next); };
      if (result.island[static_cast<size_t>(next)] < 0 && std::all_of(members.begin(), members.end(), reached)) {
        members.push_back(next);
      }
    }
    if (members.size() < 2) continue;
    bool pulls = true;
    for (const int a : members) {
      for (const int b : members) pulls = pulls && findings.pull(a, b);
    }
    for (const int member : members) {
      result.island[static_cast<size_t>(member)] = islands;
      result.pulls[static_cast<size_t>(member)] = pulls;
    }
    ++islands;
  }
  if (islands == 0) result.island.clear();
  return result;
}

// Rank 0 alone decides: two ranks that each drew islands from the reports they had might differ. One key from each rank
// and one from rank 0: the store's load grows with the world, not with its square.
Islands agree_islands(Store& store, int rank, const Report& own, const Classes& classes, Store::Deadline deadline,
                      const std::function<bool()>& start_failed) {
  const size_t world = classes.number.size();
  if (rank != 0) {
    store.put(report_key(rank), encoded(own), deadline);
    return decode(wait_for(store, kIslandsKey, 0, deadline, start_failed), world);
  }
  std::vector<Report> reports{own};
  for (int other = 1; other < static_cast<int>(world); ++other) {
    reports.push_back(decode_report(wait_for(store, report_key(other), other, deadline, start_failed), world));
  }
  Islands islands = find_islands(reports, classes);
  islands.why_not.resize(std::min(islands.why_not.size(), kMaxReasonBytes));
  store.put(kIslandsKey, encoded(islands), deadline);
  return islands;
}

}  // namespace rondo
