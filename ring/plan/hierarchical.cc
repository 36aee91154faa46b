#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"
#include "ring/plan/ring.h"
#include "ring/plan/shapes.h"

namespace rondo {
namespace {

// Ranks by host, each list ascending.
std::vector<std::vector<int>> ranks_by_host(const Topology& topology) {
  std::vector<std::vector<int>> hosts(
      static_cast<size_t>(1 + *std::max_element(topology.host.begin(), topology.host.end())));
  for (int r = 0; r < topology.world(); ++r)
    hosts[static_cast<size_t>(topology.host[static_cast<size_t>(r)])].push_back(r);
  std::erase_if(hosts, [](const std::vector<int>& host) { return host.empty(); });
  return hosts;
}

// Where one rank stands: its host's place among the hosts, and its own place on that host. Hosts are numbered by
// Topology::host with gaps closed, which all ranks do alike.
struct Stand {
  explicit Stand(const PlanRequest& request) : hosts(ranks_by_host(request.topology)) {
    for (size_t h = 0; h < hosts.size(); ++h) {
      const auto it = std::find(hosts[h].begin(), hosts[h].end(), request.rank);
      if (it == hosts[h].end()) continue;
      host = static_cast<int>(h);
      local = static_cast<int>(it - hosts[h].begin());
    }
  }
  int host_count() const { return static_cast<int>(hosts.size()); }
  int host_size(int h) const { return static_cast<int>(hosts[static_cast<size_t>(h)].size()); }
  // The rank with local number l on host number h.
  int rank(int h, int l) const { return hosts[static_cast<size_t>(h)][static_cast<size_t>(l)]; }
  bool equal_sizes() const {
    return std::all_of(hosts.begin(), hosts.end(), [&](const auto& h) { return h.size() == hosts[0].size(); });
  }
  int largest_host() const {
    int size = 0;
    for (const auto& h : hosts) size = std::max(size, static_cast<int>(h.size()));
    return size;
  }

  std::vector<std::vector<int>> hosts;
  int host = 0;   // this rank's
  int local = 0;  // its index there
};

// All-reduce round a ring of one rank a host, whose members hold the folds of their hosts in their outputs, or, alone
// on a host, contributions as they are. At each complete block h: it is sent on to further(h) as well, then
// completed(h).
struct Between {
  std::vector<int> ranks;        // by host
  std::vector<uint32_t> blocks;  // the ring's block h
  int host = 0;                  // this rank's

  template <typename Further, typename Completed>
  void all_reduce(PlanBuilder& b, const Stand& at, Further further, Completed completed) const {
    const Ring ring(at.host_count(), host);
    const int n = ring.size(), prev = ranks[ring.block(-1)], next = ranks[ring.block(1)];
    // A rank alone on its host has folded nothing yet: its input is its host's fold.
    const bool alone = at.host_size(host) == 1;
    const auto held = [&](uint32_t c) { return alone ? b.own(c) : b.output(c); };
    const auto arriving = [&](int k) {
      const uint32_t c = blocks[ring.block(-k)];
      return k == 1 && at.host_size(ring.prev()) == 1 ? b.from_input(prev, c) : b.from(prev, c);
    };
    const uint32_t first = blocks[ring.block(0)];
    b.step({alone ? b.input(first) : b.output(first)}, {b.to(next, first)});
    for (int k = 1; k <= n - 2; ++k) {
      const Ref part = arriving(k);
      b.step({part, held(part.block)}, {b.to(next, part.block)});
    }
    for (int k = n - 1; k <= 2 * n - 2; ++k) {
      const int h = static_cast<int>(ring.block(-k));
      const Ref part = arriving(k);
      std::vector<Ref> sources(1, part), sends = further(h);
      if (k == n - 1) sources.push_back(held(part.block));
      if (k < 2 * n - 2) sends.insert(sends.begin(), b.to(next, part.block));
      b.wide_step(sources, b.output(part.block), sends, k == n - 1 ? uint16_t{kFinish} : uint16_t{0});
      completed(h);
    }
  }
};

// --- hosts of equal size: block l * hosts + h is folded inside every host at local rank l, goes round the ring of the
// local ranks l, and from there to the others of the host.

// Blocks first + l * stride, for every local rank l: its own is folded into the output, and sent on.
void reduce_scatter_inside(PlanBuilder& b, const Stand& at, int first, int stride, std::span<const Ref> sends) {
  const int size = at.host_size(at.host);
  const auto block = [&](int l) { return static_cast<uint32_t>(first + l * stride); };
  for (int k = 1; k < size; ++k) {
    const int l = (at.local + k) % size;
    b.send(block(l), at.rank(at.host, l));
  }
  const uint32_t c = block(at.local);
  std::vector<Ref> sources;
  for (int l = 0; l < size; ++l) sources.push_back(l == at.local ? b.own(c) : b.from_input(at.rank(at.host, l), c));
  b.wide_step(sources, b.output(c), sends);
}

void equal_hosts(PlanBuilder& b, const Stand& at) {
  const auto block = [&](int l, int h) { return static_cast<uint32_t>(l * at.host_count() + h); };
  // One block for each local rank at a time: more would overrun the links' depth, since all send before they receive.
  for (int h = 0; h < at.host_count(); ++h) reduce_scatter_inside(b, at, h, at.host_count(), {});
  Between between;
  between.host = at.host;
  for (int h = 0; h < at.host_count(); ++h) {
    between.ranks.push_back(at.rank(h, at.local));
    between.blocks.push_back(block(at.local, h));
  }
  const int size = at.host_size(at.host);
  const auto to_others = [&](int h) {
    std::vector<Ref> sends;
    for (int k = 1; k < size; ++k) sends.push_back(b.to(at.rank(at.host, (at.local + k) % size), block(at.local, h)));
    return sends;
  };
  const auto from_others = [&](int h) {
    for (int k = 1; k < size; ++k) {
      const int l = (at.local + size - k) % size;
      b.recv_copy(block(l, h), at.rank(at.host, l));
    }
  };
  between.all_reduce(b, at, to_others, from_others);
}

// --- two hosts of equal size: block l is folded inside both at local rank l, and both ranks l get both folds.

void two_hosts(PlanBuilder& b, const Stand& at) {
  const int size = at.host_size(0), partner = at.rank(1 - at.host, at.local);
  const auto mine = static_cast<uint32_t>(at.local);
  const Ref to_partner = b.to(partner, mine);
  reduce_scatter_inside(b, at, 0, 1, {&to_partner, 1});
  std::vector<Ref> folds{b.output(mine), b.from(partner, mine)}, sends;
  // Both ranks fold host 0's value first, so that they have the same bits.
  if (at.host == 1) std::swap(folds[0], folds[1]);
  for (int k = 1; k < size; ++k) sends.push_back(b.to(at.rank(at.host, (at.local + k) % size), mine));
  b.wide_step(folds, b.output(mine), sends, kFinish);
  for (int k = 1; k < size; ++k) {
    const int l = (at.local + size - k) % size;
    b.recv_copy(static_cast<uint32_t>(l), at.rank(at.host, l));
  }
}

// --- hosts of different sizes: the first rank of each host leads. Members give it their contributions, the leaders
// all-reduce round their ring, and each complete block goes to the members as it comes.

// Blocks arrive in the order in which the leader's ring completes them.
void member(PlanBuilder& b, const Stand& at) {
  const int n = at.host_count();
  const int leader = at.rank(at.host, 0);
  for (int c = 0; c < n; ++c) b.send(static_cast<uint32_t>(c), leader);
  const Ring ring(n, at.host);
  for (int k = n - 1; k <= 2 * n - 2; ++k) b.recv_copy(ring.block(-k), leader);  // in the leader's order
}

void leader(PlanBuilder& b, const Stand& at) {
  const int size = at.host_size(at.host);
  Between between;
  between.host = at.host;
  for (int h = 0; h < at.host_count(); ++h) {
    const uint32_t c = static_cast<uint32_t>(h);
    between.ranks.push_back(at.rank(h, 0));
    between.blocks.push_back(c);
    if (size == 1) continue;
    std::vector<Ref> sources(1, b.own(c));
    for (int l = 1; l < size; ++l) sources.push_back(b.from_input(at.rank(at.host, l), c));
    b.wide_step(sources, b.output(c), {});
  }
  const auto to_members = [&](int h) {
    std::vector<Ref> sends;
    for (int l = 1; l < size; ++l) sends.push_back(b.to(at.rank(at.host, l), static_cast<uint32_t>(h)));
    return sends;
  };
  between.all_reduce(b, at, to_members, [](int) {});
}

}  // namespace

// Data crosses the network once for each host instead of once for each rank. One host, or one rank a host, is a ring.
Plan build_hierarchical(const PlanRequest& request) {
  const Stand at(request);
  const int hosts = at.host_count(), size = at.largest_host();
  if (hosts == 1 || size == 1) return build_ring(request);
  const bool equal = at.equal_sizes(), two = hosts_exchange_folds(hosts, equal, request.coded);
  const int blocks = two ? size : equal ? hosts * size : hosts;
  PlanBuilder b(request, static_cast<uint32_t>(blocks), static_cast<uint32_t>(size - 1) + ring_max_peers(hosts));
  if (two) {
    two_hosts(b, at);
  } else if (equal) {
    equal_hosts(b, at);
  } else if (at.local == 0) {
    leader(b, at);
  } else {
    member(b, at);
  }
  return b.take();
}

}  // namespace rondo
