#include "ring/plan/estimate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ring/plan/build.h"
#include "ring/plan/layout.h"
#include "ring/plan/shapes.h"

namespace rondo {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// By the defaults of Config.
constexpr uint32_t kSlices = 4;
constexpr double kLargestSliceBytes = 256 * 1024;
// How the engine cuts a block (layout.h).
double slice_of(double block, double slices, Passing passing, bool loopback) {
  const auto smallest = static_cast<double>(smallest_slice_bytes(passing, loopback));
  return std::min(block, std::clamp(block / slices, smallest, kLargestSliceBytes));
}

// Blocks of the double trees share a link's slices.
constexpr double kTreeSlices = double{kSlices} / kTreeBlocksInFlight;

// One question to the model. n_: ranks; m_: bytes of the whole buffer; gamma_: microseconds a byte folded, 0 where
// nothing is folded. All in double; whole numbers up to 2^53 are exact.
class Estimate {
 public:
  Estimate(const EstimateRequest& request, const PairCosts& at, const CostModel& model, int chunks_in_flight)
      : at_(at),
        model_(model),
        collective_(request.collective),
        n_(at.world),
        m_(static_cast<double>(request.bytes)),
        gamma_(collective_reduces(request.collective) ? model.gamma_us_per_byte * request.fold_factor : 0),
        coded_(request.fold_factor > 1),
        chunks_in_flight_(chunks_in_flight) {}

  // A function an algorithm; plan_available() says which collectives have it.
  double us(Algorithm algorithm) const {
    if (over_windows(algorithm)) return window();
    if (algorithm == Algorithm::kOneShot) return one_shot();
    if (collective_ == Collective::kAllReduce && at_.crowded_cores > 0) return crowded_all_reduce(algorithm);
    switch (algorithm) {
      case Algorithm::kRing:
        return ring();
      case Algorithm::kDirect:
        return direct();
      case Algorithm::kRecursiveDoubling:
        return doubling();
      case Algorithm::kTree:
        return tree();
      case Algorithm::kHierarchical:
        return hierarchical();
      case Algorithm::kHalvingDoubling:
        return halving_doubling();
      case Algorithm::kDoubleTree:
        return double_tree();
      case Algorithm::kPat:
        return pat();
      default:
        return kNever;
    }
  }

 private:
  double ring() const {
    switch (collective_) {
      case Collective::kAllReduce:
        return ring_steps(n_ - 1, gamma_) + ring_steps(n_ - 2, 0) + ring_last(0);
      case Collective::kReduceScatter:
      case Collective::kAllGather:
        return ring_steps(n_ - 2, gamma_) + ring_last(gamma_);
      case Collective::kGather:
      case Collective::kScatter:
      case Collective::kAllToAll:
        return direct();
      case Collective::kBarrier:
        return hops() + at_.any.message_us;
      default:
        return chain();
    }
  }

  // Slices of the whole buffer follow one another from rank to rank.
  double chain() const {
    const double slice = slice_of(m_, kSlices, Passing::kChain, at_.over_loopback), beta = at_.ring.beta_us_per_byte;
    return (n_ - 1) * (at_.ring.alpha_us + (beta + gamma_) * slice) + std::max(beta, gamma_) * (m_ - slice);
  }

  // Bytes from one rank to another.
  double direct_block() const { return m_ / direct_blocks(collective_, at_.world); }

  // All send at once. Messages count on both ports where every rank sends to all and receives from all; those of
  // all_to_all count once.
  double direct() const {
    const bool both = collective_ == Collective::kAllReduce || collective_ == Collective::kReduceScatter ||
                      collective_ == Collective::kAllGather || collective_ == Collective::kBarrier;
    const double us = at_.any.alpha_us + (at_.all_beta_us_per_byte + (n_ - 1) * gamma_) * direct_block() +
                      (both ? 2 : 1) * (n_ - 2) * at_.any.message_us;
    return collective_ == Collective::kBarrier ? us + at_.any.message_us : us;
  }

  // Over windows (staged, what always works): the copies that wait for one another, and every rank folds its share of
  // the bytes; three times all hear from all.
  double window() const {
    const double barriers = 3 * (at_.any.alpha_us + 2 * (n_ - 2) * at_.any.message_us);
    const double others = m_ * (n_ - 1) / n_;
    double moved = 2 * others;  // in, and the results out
    switch (collective_) {
      case Collective::kReduceScatter:  // the fold takes them out
        moved = others;
        break;
      case Collective::kAllGather:
      case Collective::kGather:
      case Collective::kScatter:  // a block on one side, the others on the other
        moved = m_;
        break;
      case Collective::kBroadcast:
        moved = 2 * m_;
        break;
      default:
        break;
    }
    const double staged = barriers + moved * model_.copy_us_per_byte + (n_ - 1) / n_ * gamma_ * m_;
    return m_ <= kPostBytes ? std::min(staged, at_.any.alpha_us + one_shot()) : staged;
  }

  // Every rank copies once what others need of it, all hear from all once, and every rank takes what it needs from all.
  double one_shot() const {
    const double posted = static_cast<double>(most_posted_blocks(collective_, at_.world)) * direct_block();
    const double taken = collective_ == Collective::kBroadcast ? m_ : (n_ - 1) * direct_block();
    return at_.any.alpha_us + (posted + taken) * model_.post_us_per_byte;
  }

  // Fewer cores than ranks: whatever is waited for, the cores are busy. So what counts of an all_reduce is what all
  // ranks send and fold together, and how often every rank must have had its turn. A star has the least of both, but
  // one core does half of it. (A tree has as few messages, and was slower than doubling by a sixth: its ranks wait for
  // more turns than there are levels.) Halving sends as many bytes as a ring, in fewer messages.
  double crowded_all_reduce(Algorithm algorithm) const {
    const double others = n_ - 1, two_more = at_.members.extra > 0 ? 2 : 0;
    const double in_members = at_.members.count * at_.members.exchanges, with_extra = 2 * at_.members.extra;
    switch (algorithm) {
      case Algorithm::kRing:
        return crowded({2 * n_ * others, 2 * others * m_ * (1 + idle()), 2 * others});
      case Algorithm::kDirect:
        return crowded({n_ * others, n_ * others * m_, 1});
      case Algorithm::kRecursiveDoubling:
        return crowded({in_members + with_extra, (in_members + with_extra) * m_, at_.members.exchanges + two_more});
      case Algorithm::kHalvingDoubling:
        return crowded({2 * in_members + with_extra,
                        (2 * (at_.members.count - 1) + with_extra) * m_ * model_.crowded_halving_factor,
                        2 * at_.members.exchanges + two_more});
      case Algorithm::kStar:
        return crowded({2 * others, 2 * others * m_, 2, 0.5});
      default:
        return kNever;
    }
  }
  // A core is idle while all of its ranks wait, each of them half of the time.
  double idle() const { return std::exp2(-n_ / at_.crowded_cores); }

  struct Work {
    double messages, bytes;  // of all ranks together
    double turns;            // of every rank
    double one_core = 0;     // the share of messages and bytes that one core has to deal with, if it is the larger one
  };
  double crowded(const Work& work) const {
    const double share = std::max(1.0 / at_.crowded_cores, work.one_core);
    return share * model_.crowded_factor * (work.messages * at_.any.alpha_us + work.bytes * at_.any.beta_us_per_byte) +
           work.turns * n_ / at_.crowded_cores * at_.any.alpha_us;
  }

  // How many slices of a block follow one another.
  double slices() const { return wanted_slices(Passing::kOther, at_.hosts == 1, kSlices); }

  // Block after block to the next rank: slices are folded and passed on one by one, so that the port or the fold is
  // busy all the time, or, with few of them, a slice is awaited; the last block is awaited as a whole.
  double ring_steps(double steps, double gamma) const {
    const double b = m_ / n_, slice = slice_of(b, slices(), Passing::kOther, at_.over_loopback),
                 beta = at_.ring.beta_us_per_byte;
    return steps * std::max({beta * b, gamma * b, at_.ring.alpha_us + (beta + gamma) * slice});
  }
  double ring_last(double gamma) const {
    const double b = m_ / n_;
    return hop(at_.ring, b) + gamma * slice_of(b, slices(), Passing::kOther, at_.over_loopback);
  }

  // One message of that many bytes, alone on its port.
  static double hop(const PairCost& pair, double bytes) { return pair.alpha_us + pair.beta_us_per_byte * bytes; }

  // `blocks` of b bytes to a partner and as many from it, `chunks_in_flight` at a time. What comes while the last fold
  // is under way is folded behind it.
  double exchange(const PairCost& pair, double blocks, double b, double gamma) const {
    const double beta = pair.beta_us_per_byte;
    double us = 0;
    for (double left = blocks; left > 0.5; left -= chunks_in_flight_) {
      const double now = std::min<double>(left, chunks_in_flight_);
      us += pair.alpha_us + std::max(now * beta + gamma, beta + now * gamma) * b + 2 * (now - 1) * pair.message_us;
    }
    return us;
  }

  double doubling() const {
    double us = 0;
    for (const PairCost& pair : at_.exchange) us += hop(pair, m_) + gamma_ * m_;
    if (at_.members.extra > 0) us += 2 * hop(at_.companion, m_) + gamma_ * m_;
    return us;
  }

  // Down a tree or up, or, of all_reduce, both.
  double ways() const { return collective_ == Collective::kAllReduce ? 2 : 1; }
  // One way: a hop at each distance, one after the other.
  double hops() const {
    double us = 0;
    for (const PairCost& pair : at_.shift) us += hop(pair, m_);
    return us;
  }
  double tree() const { return ways() * hops() + at_.levels * gamma_ * m_; }

  // all_reduce has a block a member, the others a block a rank. Companions bring theirs first, and take away what
  // their members send them beside the rest.
  double halving_doubling() const {
    const bool folds = collective_ != Collective::kAllGather, spreads = collective_ != Collective::kReduceScatter;
    const double blocks = collective_ == Collective::kAllReduce ? at_.members.count : n_, b = m_ / blocks;
    double us = 0;
    for (int k = 0; k < at_.members.exchanges; ++k) {
      const double part = std::ceil(blocks / at_.members.count * at_.members.kept(k));
      if (folds) us += exchange(at_.exchange[static_cast<size_t>(k)], part, b, gamma_);
      if (spreads) us += exchange(at_.exchange[static_cast<size_t>(k)], part, b, 0);
    }
    if (at_.members.extra == 0) return us;
    const double beta = at_.companion.beta_us_per_byte, message = at_.companion.message_us;
    us += 2 * at_.companion.alpha_us;
    us += (folds ? (beta + gamma_) * m_ : beta * b) + (spreads ? beta * m_ : beta * b);
    return us + message * ways() * (blocks - 1);
  }

  // The moves of the plan, each an exchange at its distance.
  double pat() const {
    const double b = m_ / n_;
    double us = 0;
    each_pat_move(at_.world, chunks_in_flight_, [&](const PatMove& move) {
      us += exchange(at_.shift[static_cast<size_t>(std::countr_zero(static_cast<unsigned>(move.distance)))],
                     move.blocks(at_.world), b, gamma_);
    });
    return us;
  }

  // Blocks of a tree are two hops apart, and each way a port carries the data once; every round fills and empties the
  // trees with slices, two of which share the port of a node with two children.
  double double_tree() const {
    const double height = at_.levels, beta = at_.any.beta_us_per_byte;
    const double block = m_ / (2 * kBlocksPerTree),
                 slice = slice_of(block, kTreeSlices, Passing::kOther, at_.over_loopback);
    const double rounds = std::max(1.0, std::ceil(block / (kTreeSlices * kLargestSliceBytes)));
    return (ways() * height + 2 * (kBlocksPerTree - 1)) * at_.any.alpha_us + (ways() * beta + gamma_) * m_ +
           rounds * 2 * height * beta * slice + ways() * 2 * kBlocksPerTree * at_.any.message_us;
  }

  double hierarchical() const {
    const double h = at_.hosts, l = at_.largest_host;
    const PairCost &inside = at_.inside, &between = at_.between;
    const bool two = hosts_exchange_folds(at_.hosts, at_.equal_hosts, coded_);
    const double alphas =
        two ? 2 * inside.alpha_us + between.alpha_us : (h + 1) * inside.alpha_us + 2 * (h - 1) * between.alpha_us;
    if (!at_.equal_hosts) {  // through the leaders, whose ports carry both
      return alphas + m_ * (2 * (l - 1) * inside.beta_us_per_byte + 2 * (h - 1) / h * between.beta_us_per_byte) +
             gamma_ * m_ * (l - 1 + (h - 1) / h) + 2 * (l - 2) * inside.message_us;
    }
    return alphas + 2 * m_ * ((l - 1) / l * inside.beta_us_per_byte + (h - 1) / (h * l) * between.beta_us_per_byte) +
           gamma_ * m_ * ((l - 1) / l + (two ? 1 : (h - 1) / h) / l) + (two ? 1 : h) * 2 * (l - 2) * inside.message_us;
  }

  const PairCosts& at_;
  const CostModel& model_;
  Collective collective_;
  double n_, m_, gamma_;
  bool coded_;
  int chunks_in_flight_;
};

}  // namespace

double estimate_us(const EstimateRequest& request, const PairCosts& at, const CostModel& model, int chunks_in_flight) {
  if (at.world == 1) return 0;
  double us = Estimate(request, at, model, chunks_in_flight).us(request.algorithm);
  // The pass that scales what is sent: a ring's first block, half of it, or what goes to every peer.
  if (request.scale_at_source && collective_reduces(request.collective)) {
    const bool blocks = request.algorithm == Algorithm::kRing || request.algorithm == Algorithm::kHierarchical ||
                        request.algorithm == Algorithm::kPat;
    us += model.gamma_us_per_byte * static_cast<double>(request.bytes) / (blocks ? at.world : 1);
  }
  return us;
}

}  // namespace rondo
