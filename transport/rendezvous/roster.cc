#include "transport/rendezvous/roster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <numeric>
#include <optional>
#include <thread>

#include "ring/base/caught.h"
#include "ring/base/check.h"
#include "ring/base/fields.h"
#include "ring/base/host_name.h"
#include "rondo/error.h"
#include "transport/auth/crypto.h"
#include "transport/rendezvous/address.h"
#include "transport/rendezvous/launch.h"
#include "transport/store/store_server.h"
#include "transport/store/stream_store.h"

namespace rondo {
namespace {

using Clock = std::chrono::steady_clock;

// Bounds of what another process has put into the store.
constexpr size_t kMaxCardBytes = 64 * 1024;
constexpr size_t kMaxHostBytes = 256;
constexpr size_t kMaxReasonBytes = 4096;
constexpr auto kLogInterval = std::chrono::seconds(10);
// How often rank 0 tells the others who is missing, for those whose deadline comes before its own.
constexpr auto kPublishInterval = std::chrono::seconds(1);
// After the deadline: to fetch the names of the missing for the message.
constexpr auto kGrace = std::chrono::seconds(1);
// How long a rank that cannot start waits for rank 0, to tell it why.
constexpr auto kDeclineLimit = std::chrono::seconds(5);
constexpr auto kGoodbyeLimit = std::chrono::seconds(5);
// All are through within this, as a rule; after it every pause asks whether there is hope.
constexpr auto kUsualGoodbye = std::chrono::milliseconds(200);
constexpr auto kHopePause = std::chrono::milliseconds(50);
// How often rank 0 looks whether a rank that has come was lost, and which ranks have come besides the lowest missing.
constexpr auto kVerdictPause = std::chrono::milliseconds(500);
// Between two looks of rank 0 whether all have heard a bad end.
constexpr auto kAcknowledgePause = std::chrono::milliseconds(2);

// The exchanges, in this order.
constexpr std::string_view kHosts = "hosts";
constexpr std::string_view kRoster = "roster";
constexpr std::string_view kDepartedKey = "roster/departed";

// The keys of one exchange.
struct Keys {
  explicit Keys(std::string_view name) : prefix(name) {}
  std::string world() const { return prefix + "/world"; }
  std::string card(int rank) const { return fmt::format("{}/card/{}", prefix, rank); }
  std::string missing() const { return prefix + "/missing"; }
  // The last process that was refused, and why, in words.
  std::string refused() const { return prefix + "/refused"; }
  // What everybody waits for: "complete <parts> <whom rank 0 has seen refused>", "failed <missing>", "declined <rank>
  // <why>" or "lost <rank> <why>".
  std::string verdict() const { return prefix + "/verdict"; }
  std::string acknowledged() const { return prefix + "/told"; }
  std::string part(size_t part) const { return fmt::format("{}/part/{}", prefix, part); }
  const std::string prefix;
};

std::string text_of(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, ",")); }
std::string text_of(const Error& error) { return fmt::format("{}: {}", error_code_name(error.code), error.message); }

// Another process wrote the text: what is no rank of this world is left out.
std::vector<int> parse_ranks(std::string_view text, int world) {
  std::vector<int> ranks;
  while (!text.empty()) {
    size_t comma = std::min(text.find(','), text.size());
    int rank = std::atoi(std::string(text.substr(0, comma)).c_str());
    if (rank >= 0 && rank < world) ranks.push_back(rank);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return ranks;
}

// For messages: a long list is cut.
std::string short_text(const std::vector<int>& ranks) {
  constexpr size_t kShown = 16;
  if (ranks.size() <= kShown) return fmt::format("{}", fmt::join(ranks, ", "));
  return fmt::format("{} and {} more", fmt::join(ranks.begin(), ranks.begin() + kShown, ", "), ranks.size() - kShown);
}

// What a rank puts under its key: its content as given, and who it is, for messages about it.
struct RosterCard {
  std::string host;
  uint32_t pid = 0;
  uint64_t nonce = 0;  // tells two processes apart that are alike in everything else
  std::string content;
  std::string declines;  // not empty: why this rank cannot take part
};

void fields(Fields& bytes, RosterCard& card) {
  bytes.text<uint32_t>(card.host, kMaxHostBytes)(card.pid, card.nonce)
      .text<uint32_t>(card.content, kMaxCardBytes)
      .text<uint32_t>(card.declines, kMaxReasonBytes);
}

// Any process may have put it there.
RosterCard decode(std::string_view bytes, int rank) {
  std::optional<RosterCard> card = decoded<RosterCard>(bytes);
  if (!card) throw Exception(ErrorCode::kProtocol, fmt::format("the card of rank {} is malformed", rank));
  return *std::move(card);
}

// What rank 0 publishes: the content of each card, by rank.
struct Table {
  std::vector<std::string> cards;
};

void fields(Fields& bytes, Table& table) {
  bytes.list<uint32_t>(table.cards, kMaxWorld,
                       [&bytes](std::string& card) { bytes.text<uint32_t>(card, kMaxCardBytes); });
}

// In the stores that see the end of their clients. A program's own store does not.
void leave_will(Store& store, const std::string& key, std::string_view value, Store::Deadline deadline) {
  if (auto* stream = dynamic_cast<StreamStore*>(&store)) stream->leave_will(key, value, deadline);
}

// Whether the key is there by the deadline.
bool await_key(Store& store, std::string_view key, Store::Deadline deadline) {
  try {
    store.get(key, deadline);
    return true;
  } catch (const Exception& failure) {
    if (failure.code() != ErrorCode::kTimeout) throw;
    return false;
  }
}

std::vector<int> all_ranks(int world) {
  std::vector<int> ranks(static_cast<size_t>(world));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// What is said or asked once more when a start has failed: the store may have gone, and then nothing is to be done.
template <typename Call>
bool quietly(Call&& call) {
  try {
    call();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// One exchange of cards through a store, which knows only put, get, add and compare_set. The verdict is one key, set
// once by compare_set: whichever rank decides first, all ranks read the same outcome. Rank 0 collects the cards and
// publishes the table; the others wait for the verdict. A rank that comes leaves a will, so that its death is a
// verdict, too.
class RosterExchange {
 public:
  struct Settings {
    std::string_view name;  // of the exchange: what its keys begin with
    int rank;
    int world;
    Store::Deadline deadline;
    const Logger& log;
    const Cancelled& cancelled;
  };
  RosterExchange(Store& store, const Settings& settings)
      : store_(store),
        keys_(settings.name),
        rank_(settings.rank),
        world_(settings.world),
        deadline_(settings.deadline),
        log_(settings.log),
        cancelled_(settings.cancelled),
        start_(Clock::now()) {}

  std::vector<std::string> exchange(std::string_view content) {
    try {
      return meet(content);
    } catch (...) {
      if (come_) say_why(text_of(caught()));  // the others count on a rank that has come
      throw;
    }
  }

  void decline(const std::string& why) {
    claim("", why.substr(0, kMaxReasonBytes));
    if (rank_ != 0) return say_why(why);
    store_.put(keys_.world(), fmt::format("{} {}", world_, host_name()), deadline_);
    cards_.assign(static_cast<size_t>(world_), "");
    std::vector<int> missing = all_ranks(world_);
    look(&missing);
    tell(fmt::format("declined {} {}", declined_by_, *declined_), present(missing));
  }

  // Does what claim() does where the rank is taken, for a process that cannot even serve the store.
  void refuse_if_taken() {
    const auto there = store_.try_get(keys_.card(rank_), deadline_);
    if (there) refuse_as_second({host_name(), static_cast<uint32_t>(::getpid()), 0, "", ""}, decode(*there, rank_));
  }

 private:
  // The will comes before the card: once others count on this rank, its death must be heard.
  std::vector<std::string> meet(std::string_view content) {
    for (const std::string& verdict : fateful()) leave_will(store_, verdict, will(), deadline_);
    if (rank_ == 0) {
      claim(content);
      store_.put(keys_.world(), fmt::format("{} {}", world_, host_name()), deadline_);
      collect();
    } else {
      compare_world();
      claim(content);
    }
    return fetch();
  }

  // Leaves the reason as the verdict, if there is none yet: before the end of this process, which is one by its will.
  void say_why(const std::string& why) {
    quietly([&] {
      const std::string words =
          fmt::format("declined {} host {} pid {}: {}", rank_, host_name(), ::getpid(), why.substr(0, kMaxReasonBytes));
      for (const std::string& verdict : fateful()) store_.compare_set(verdict, "", words, Clock::now() + kGrace);
    });
  }

  // --- entering

  // The verdicts that this rank's end decides: that of this exchange, and that of the next one, in which it has left no
  // will yet.
  std::vector<std::string> fateful() const {
    std::vector<std::string> verdicts{keys_.verdict()};
    if (keys_.prefix == kHosts) verdicts.push_back(Keys(kRoster).verdict());
    return verdicts;
  }

  std::string will() const { return fmt::format("lost {} host {} pid {}: ", rank_, host_name(), ::getpid()); }

  // A process that is refused, and no rank, ends.
  void withdraw_will() {
    for (const std::string& verdict : fateful()) leave_will(store_, verdict, "", deadline_);
  }

  // compare_set lets one process have the number; a second one with the same rank is refused and disturbs nobody.
  void claim(std::string_view content, const std::string& declines = "") {
    RosterCard card{host_name(), static_cast<uint32_t>(::getpid()), 0, std::string(content), declines};
    card.nonce = random_number();
    std::string mine = encoded(card);
    std::string there = store_.compare_set(keys_.card(rank_), "", mine, deadline_);
    come_ = there == mine;
    if (come_) return;
    withdraw_will();
    refuse_as_second(card, decode(there, rank_));
  }

  // This process is refused, and the rank that has the number goes on.
  [[noreturn]] void refuse_as_second(const RosterCard& card, const RosterCard& other) {
    tell_refusal(fmt::format("a second rank {}, host {} pid {}, was refused", rank_, card.host, card.pid));
    throw Exception(ErrorCode::kBootstrap,
                    fmt::format("rank {} is already taken by host {} pid {}; this process (host {} pid {}) is refused: "
                                "give each process its own rank, or wait until the earlier run has ended",
                                rank_, other.host, other.pid, card.host, card.pid));
  }

  // This rank has put no card there yet, so whoever waits for the right process loses nothing by its refusal.
  void compare_world() {
    std::string text = wait_for(keys_.world());
    int world = std::atoi(text.c_str());
    if (world == world_) return;
    withdraw_will();
    tell_refusal(fmt::format("rank {}, host {} pid {}, was refused: it says that the world has {} ranks, not {}", rank_,
                             host_name(), ::getpid(), world_, world));
    throw Exception(ErrorCode::kBootstrap,
                    fmt::format("rank {} says that the world has {} ranks, but rank 0 ({}) says {}: this process is "
                                "refused; start all ranks with the same world size",
                                rank_, world_, text.substr(std::min(text.size(), text.find(' ') + 1)), world));
  }

  // To the ranks that go on waiting: they may wait for this one.
  void tell_refusal(const std::string& text) {
    quietly([&] { store_.put(keys_.refused(), text, Clock::now() + kGrace); });
  }

  // "" where none was refused. The text is another process's: of a bounded length.
  std::string refusal() {
    constexpr size_t kMostBytes = 512;
    std::string text;
    quietly([&] { text = store_.try_get(keys_.refused(), Clock::now() + kGrace).value_or(""); });
    return text.substr(0, kMostBytes);
  }

  // For the error of those that have waited in vain.
  std::string refused_meanwhile() {
    std::string text = refusal();
    if (!text.empty()) return text;
    quietly([&] {
      const auto from = store_.try_get(StoreServer::kWrongSecretKey, Clock::now() + kGrace);
      if (from) text = fmt::format("a process at {} was refused, since it has another secret than this job", *from);
    });
    return text;
  }

  // --- rank 0

  // Takes one card after the other, by one request each. Now and then it looks for all that are missing, for a verdict
  // of others, a cancelled launch and the deadline.
  void collect() {
    cards_.assign(static_cast<size_t>(world_), "");
    std::vector<int> missing = all_ranks(world_);
    Clock::time_point next_publish = Clock::now(), next_look = next_publish;
    while (true) {
      const bool looks = Clock::now() >= std::min<Clock::time_point>(next_look, deadline_);
      if (looks) {
        look(&missing);
        next_look = Clock::now() + kVerdictPause;
      }
      if (!declined_ && !missing.empty() && cancelled_) {
        if (std::string why = cancelled_(); !why.empty()) declined_ = std::move(why), declined_by_ = 0;
      }
      if (declined_) {
        if (!looks) look(&missing);  // who has come since the last look is to hear it, too
        tell(fmt::format("declined {} {}", declined_by_, *declined_), present(missing));
        throw_declined(declined_by_, *declined_);
      }
      if (looks) {
        if (const auto verdict = store_.try_get(keys_.verdict(), deadline_ + kGrace)) {
          await_acknowledgements(present(missing));
          heed(*verdict, refused_meanwhile());
        }
      }
      if (missing.empty()) break;
      Clock::time_point now = Clock::now();
      if (now >= next_publish || now >= deadline_) {
        store_.put(keys_.missing(), text_of(missing), std::max<Store::Deadline>(deadline_, now + kGrace));
        next_publish = now + kPublishInterval;
        log_refusal();
      }
      if (now >= deadline_ && !looks) continue;
      if (now >= deadline_) fail(missing);
      log_missing(missing);
      const auto pause = cancelled_ ? kHopePause : kVerdictPause;
      await_first(&missing, std::min({next_publish, next_look, deadline_, Store::Deadline(now + pause)}));
    }
    publish();
  }

  // The card of the lowest rank that is missing, if it comes by then.
  void await_first(std::vector<int>* missing, Store::Deadline until) {
    try {
      take(missing->front(), store_.get(keys_.card(missing->front()), until));
      missing->erase(missing->begin());
    } catch (const Exception& failure) {
      if (failure.code() != ErrorCode::kTimeout) throw;
    }
  }

  // Takes the cards that have come: a request for each that has not, too.
  void look(std::vector<int>* missing) {
    Store::Deadline grace = std::max<Store::Deadline>(deadline_, Clock::now() + kGrace);
    std::erase_if(*missing, [&](int r) {
      const std::optional<std::string> card = store_.try_get(keys_.card(r), grace);
      if (card) take(r, *card);
      return card.has_value();
    });
  }

  void take(int r, std::string_view card) {
    RosterCard decoded = decode(card, r);
    if (!decoded.declines.empty()) {
      declined_by_ = r;
      declined_ = fmt::format("host {} pid {}: {}", decoded.host, decoded.pid, decoded.declines);
    }
    cards_[static_cast<size_t>(r)] = std::move(decoded.content);
  }

  // Ranks that are to acknowledge a bad end: those that have come, but for rank 0 and the one that declined.
  size_t present(const std::vector<int>& missing) const {
    return cards_.size() - missing.size() - 1 - (declined_ && declined_by_ != 0 ? 1 : 0);
  }

  // Each once, within kPublishInterval.
  void log_refusal() {
    std::string text = refusal();
    if (text == logged_refusal_) return;
    log_.warn(text + "; the others go on waiting for the right process");
    logged_refusal_ = std::move(text);
  }

  // The deadline has come. All that wait hear who was missing.
  void fail(const std::vector<int>& missing) {
    const std::string refused = refused_meanwhile();
    tell("failed " + text_of(missing), present(missing));
    throw_missing(missing, refused);
  }

  // The store may end with this process: the ranks that have come hear the verdict first.
  void tell(const std::string& verdict, size_t others) {
    if (propose(verdict)) await_acknowledgements(others);
  }

  // The first verdict counts. False: the store has gone.
  bool propose(const std::string& verdict) {
    return quietly([&] { store_.compare_set(keys_.verdict(), "", verdict, Clock::now() + kGrace); });
  }

  // One that died, or does not listen, is not waited for any longer than kGrace.
  void await_acknowledgements(size_t others) {
    const Store::Deadline grace = Clock::now() + kGrace;
    quietly([&] {
      while (store_.add(keys_.acknowledged(), 0, grace) < static_cast<int64_t>(others) && Clock::now() < grace) {
        std::this_thread::sleep_for(kAcknowledgePause);
      }
    });
  }

  // Tells rank 0 that this rank knows how it ended.
  void acknowledge() {
    quietly([&] { store_.add(keys_.acknowledged(), 1, Clock::now() + kGrace); });
  }

  // The table in values of the store's size.
  void publish() {
    const std::string bytes = encoded(Table{cards_});
    size_t parts = 0;
    for (size_t at = 0; at < bytes.size(); at += Store::kMaxValueBytes) {
      store_.put(keys_.part(parts++), std::string_view(bytes).substr(at, Store::kMaxValueBytes), deadline_);
    }
    const std::string complete = fmt::format("complete {} {}", parts, refusal());
    const std::string verdict = store_.compare_set(keys_.verdict(), "", complete, deadline_);
    if (verdict == complete) return;
    await_acknowledgements(cards_.size() - 1);
    heed(verdict, refusal());
  }

  // --- everybody

  // Rank 0 has the cards. The others put its table together from the parts. The number of parts and the table are rank
  // 0's, and the number of cards must be the world.
  std::vector<std::string> fetch() {
    std::string verdict = wait_for(keys_.verdict());
    if (verdict.rfind("complete ", 0) != 0) {
      const std::string refused = refused_meanwhile();  // rank 0, who may serve it, goes when all have acknowledged
      acknowledge();
      heed(verdict, refused);
    }
    int parts = 0, read = 0;
    std::sscanf(verdict.c_str(), "complete %d %n", &parts, &read);
    if (const std::string refused = verdict.substr(static_cast<size_t>(read)); !refused.empty()) {
      log_.warn(
          fmt::format("the ranks have met, but {}: if another job meets here, too, its ranks and those of this one "
                      "may be mixed; RONDO_JOB_ID or another port keeps them apart",
                      refused));
    }
    if (rank_ == 0) return cards_;
    const size_t most =
        sizeof(uint32_t) + static_cast<size_t>(world_) * (sizeof(uint32_t) + kMaxCardBytes);  // longer: malformed
    std::string table;
    for (int part = 0; part < parts && table.size() <= most; ++part) table += get_part(static_cast<size_t>(part));
    std::optional<Table> cards = decoded<Table>(table);
    if (!cards || cards->cards.size() != static_cast<size_t>(world_)) {
      throw Exception(ErrorCode::kProtocol, "rank 0's table of ranks is malformed");
    }
    return std::move(cards->cards);
  }

  // The first value beyond a few bytes that comes from rank 0.
  std::string get_part(size_t part) {
    try {
      return store_.get(keys_.part(part), deadline_);
    } catch (const Exception& late) {
      if (late.code() != ErrorCode::kTimeout) throw;
      throw Exception(
          Error{ErrorCode::kNetwork,
                fmt::format("rank 0's short answers have come to rank {}, and its table of ranks has not: do "
                            "large packets vanish between the two (the MTU)? {}",
                            rank_, late.what()),
                {0, rank_}});
    }
  }

  // Throws what a verdict other than "complete" says. Its text is another process's: rank and form are checked.
  [[noreturn]] void heed(const std::string& verdict, const std::string& refused) {
    constexpr std::string_view kFailed = "failed ";
    if (verdict.rfind(kFailed, 0) == 0) throw_missing(parse_ranks(verdict.substr(kFailed.size()), world_), refused);
    int rank = -1, read = 0;
    const bool lost = std::sscanf(verdict.c_str(), "lost %d %n", &rank, &read) == 1;
    if ((!lost && std::sscanf(verdict.c_str(), "declined %d %n", &rank, &read) != 1) || rank < 0 || rank >= world_) {
      throw Exception(ErrorCode::kProtocol, "the verdict on the start is malformed");
    }
    const std::string why = verdict.substr(static_cast<size_t>(read));
    if (!lost) throw_declined(rank, why);
    throw Exception(Error{
        ErrorCode::kPeerLost, fmt::format("rank {} was lost while the group was starting: {}", rank, why), {rank}});
  }

  // Waits for what rank 0 puts, naming who is missing every 10 s and at the deadline.
  std::string wait_for(std::string_view key) {
    while (true) {
      const Store::Deadline until = std::min<Store::Deadline>(deadline_, next_log_);
      const bool names = Clock::now() >= until;
      std::vector<int> missing;
      try {
        if (!names) return store_.get(key, until);
        missing = ask_missing();
      } catch (const Exception& e) {  // a store that is late with the names as well, as in an outage, is asked again
        if (e.code() != ErrorCode::kTimeout || (names && Clock::now() >= deadline_)) throw;
        continue;
      }
      if (Clock::now() >= deadline_) {
        const std::string refused = refused_meanwhile();
        give_up(missing);
        throw_missing(missing, refused);
      }
      log_missing(missing);
    }
  }

  // No rank's start can succeed without this one.
  void give_up(const std::vector<int>& missing) {
    propose("failed " + text_of(missing));
    acknowledge();
  }

  // Rank 0's list may be a second old: ranks that have come since are taken off it. Of a long list only the beginning
  // is looked at, so that thousands of waiting ranks do not flood the store.
  std::vector<int> ask_missing() {
    constexpr int kLooks = 256;
    Store::Deadline grace = Clock::now() + kGrace;
    if (!store_.try_get(keys_.card(0), grace)) return {0};
    std::vector<int> missing = parse_ranks(store_.try_get(keys_.missing(), grace).value_or(""), world_);
    int looks = 0;
    std::erase_if(missing, [&](int r) { return looks++ < kLooks && store_.try_get(keys_.card(r), grace).has_value(); });
    return missing;
  }

  // At most once in kLogInterval.
  void log_missing(const std::vector<int>& missing) {
    Clock::time_point now = Clock::now();
    if (now < next_log_) return;
    next_log_ = now + kLogInterval;
    using std::chrono::duration_cast, std::chrono::seconds;
    log_.warn(fmt::format("{} s into the start, of {} ranks these are missing: {} (giving up in {} s)",
                          duration_cast<seconds>(now - start_).count(), world_, short_text(missing),
                          duration_cast<seconds>(deadline_ - now).count()));
  }

  [[noreturn]] void throw_declined(int rank, const std::string& why) const {
    throw Exception(Error{ErrorCode::kBootstrap, fmt::format("rank {} cannot start: {}", rank, why), {rank}});
  }

  [[noreturn]] void throw_missing(const std::vector<int>& missing, const std::string& refused) {
    std::string who = missing.empty() ? "rank 0 did not complete the table of ranks"
                                      : fmt::format("of {} ranks these have not come: {}", world_, short_text(missing));
    throw Exception(
        Error{ErrorCode::kBootstrap,
              fmt::format("{} (waited {} ms; RONDO_START_TIMEOUT_MS sets how long){}{}: are they running, and "
                          "do they name the same rendezvous and job?",
                          who, std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_).count(),
                          refused.empty() ? "" : "; ", refused),
              missing});
  }

  Store& store_;
  const Keys keys_;
  const int rank_;
  const int world_;
  const Store::Deadline deadline_;
  const Logger& log_;
  const Cancelled& cancelled_;
  const Clock::time_point start_;
  Clock::time_point next_log_ = Clock::now() + kLogInterval;
  bool come_ = false;                    // this rank's card is there
  std::vector<std::string> cards_;       // rank 0
  std::string logged_refusal_;           // rank 0
  std::optional<std::string> declined_;  // rank 0: why one of them cannot start
  int declined_by_ = -1;
};

// Where it fails, the others wait for this rank until their deadline.
void decline(std::string_view name, Store& store, int rank, int world, const Error& why, const Logger& log) {
  quietly([&] {
    RosterExchange(store, {name, rank, world, Clock::now() + kDeclineLimit, log, {}}).decline(text_of(why));
  });
}

}  // namespace

std::vector<std::string> exchange_roster(Store& store, int rank, int world, std::string_view card,
                                         Store::Deadline deadline, const Logger& log, const Cancelled& cancelled) {
  RONDO_CHECK(rank >= 0 && rank < world, "the launch has been checked");
  if (card.size() > kMaxCardBytes) {
    throw Exception(ErrorCode::kInvalid,
                    fmt::format("a card of {} bytes: at most {} are allowed", card.size(), size_t{kMaxCardBytes}));
  }
  return RosterExchange(store, {kRoster, rank, world, deadline, log, cancelled}).exchange(card);
}

void decline_roster(Store& store, int rank, int world, const Error& why, const Logger& log) {
  decline(kRoster, store, rank, world, why, log);
}

void refuse_if_taken(Store& store, int rank, int world, Store::Deadline deadline, const Logger& log) {
  for (const std::string_view name : {kRoster, kHosts}) {
    RosterExchange(store, {name, rank, world, deadline, log, {}}).refuse_if_taken();
  }
}

std::vector<int> exchange_hosts(Store& store, int rank, int world, Store::Deadline deadline, const Logger& log,
                                const Cancelled& cancelled) {
  RONDO_CHECK(rank >= 0 && rank < world, "the launch has been checked");
  std::string own;
  try {
    own = host_identity();
  } catch (const Exception& e) {
    decline(kHosts, store, rank, world, e.error(), log);
    throw;
  }
  std::map<std::string, int> seen;
  std::vector<int> host;
  for (const std::string& identity :
       RosterExchange(store, {kHosts, rank, world, deadline, log, cancelled}).exchange(own)) {
    host.push_back(seen.emplace(identity, static_cast<int>(seen.size())).first->second);
  }
  return host;
}

void roster_goodbye(Store& store, int world, Store::Deadline deadline, const std::function<bool()>& cancelled) {
  deadline = std::min<Store::Deadline>(deadline, Clock::now() + kGoodbyeLimit);
  try {
    if (store.add(kDepartedKey, 1, deadline) == world) store.put(kRosterEndKey, "1", deadline);
    if (await_key(store, kRosterEndKey, std::min<Store::Deadline>(deadline, Clock::now() + kUsualGoodbye))) return;
    while (!cancelled() && !store.try_get(kRosterEndKey, deadline) && Clock::now() < deadline) {
      std::this_thread::sleep_for(kHopePause);
    }
  } catch (const Exception&) {
    // Somebody died, or rank 0 has gone already: nobody is served by waiting longer.
  }
}

// What the launcher has said stays, also where the hosts say something else.
Place complete_place(const Place& place, const std::vector<int>& host) {
  Place complete = place;
  const int mine = host[static_cast<size_t>(place.rank)];
  if (place.local_world < 0) complete.local_world = static_cast<int>(std::count(host.begin(), host.end(), mine));
  if (place.local_rank < 0) {
    complete.local_rank = static_cast<int>(std::count(host.begin(), host.begin() + place.rank, mine));
  }
  if (place.node < 0) complete.node = mine;
  if (place.nodes < 0) complete.nodes = 1 + *std::max_element(host.begin(), host.end());
  return complete;
}

}  // namespace rondo
