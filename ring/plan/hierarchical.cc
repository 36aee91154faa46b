#include <algorithm>
#include <vector>

#include "ring/plan/builders.h"
#include "ring/plan/plan_builder.h"
#include "ring/plan/ring.h"

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

// Where one rank stands.
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

// --- hosts of equal size: block l * hosts + h is folded inside every host at local rank l, then round the ring of the
// local ranks l, where the ring order names it h, then gathered inside every host.

uint32_t block_of(const Stand& at, int l, int h) { return static_cast<uint32_t>(l * at.host_count() + h); }

// One block for each local rank at a time: more would overrun the links' depth, since all send before they receive.
void reduce_scatter_inside(PlanBuilder& b, const Stand& at, const Ring& ring) {
  const int prev = at.rank(at.host, ring.prev()), next = at.rank(at.host, ring.next());
  for (int h = 0; h < at.host_count(); ++h) {
    b.send(block_of(at, ring.rank_at(-1), h), next);
    for (int k = 2; k <= ring.size(); ++k) {
      const uint32_t c = block_of(at, ring.rank_at(-k), h);
      const Ref arriving = k == 2 ? b.from_input(prev, c) : b.from(prev, c);
      b.step({arriving, b.own(c)}, {k < ring.size() ? b.to(next, c) : b.output(c)});
    }
  }
}

// All-reduce round a ring whose members hold partial folds in their outputs. complete(c) are further targets of a
// complete block.
template <typename Raw, typename Further>
void all_reduce_between(PlanBuilder& b, const Ring& ring, int prev, int next, const std::vector<uint32_t>& blocks,
                        Raw raw, Further complete) {
  const int n = ring.size();
  const auto block = [&](int k) { return blocks[ring.block(k)]; };
  const auto held = [&](uint32_t c) { return raw(ring.rank_at(0)) ? b.own(c) : b.output(c); };
  const Ref mine = raw(ring.rank_at(0)) ? b.input(block(0)) : b.output(block(0));
  b.step({mine}, {b.to(next, block(0))});
  for (int k = 1; k <= n - 1; ++k) {
    const uint32_t c = block(-k);
    const Ref arriving = k == 1 && raw(ring.rank_at(-1)) ? b.from_input(prev, c) : b.from(prev, c);
    if (k < n - 1) {
      b.step({arriving, held(c)}, {b.to(next, c)});
      continue;
    }
    std::vector<Ref> sends = complete(c);
    sends.insert(sends.begin(), b.to(next, c));
    const Ref sources[2] = {arriving, held(c)};
    b.wide_step(sources, b.output(c), sends, kFinish);
  }
  for (int k = 0; k <= n - 2; ++k) {
    const uint32_t c = block(-k);
    std::vector<Ref> sends = complete(c);
    if (k < n - 2) sends.insert(sends.begin(), b.to(next, c));
    const Ref arriving = b.from(prev, c);
    b.wide_step({&arriving, 1}, b.output(c), sends);
  }
}

void all_gather_inside(PlanBuilder& b, const Stand& at, const Ring& ring) {
  const int prev = at.rank(at.host, ring.prev()), next = at.rank(at.host, ring.next());
  for (int h = 0; h < at.host_count(); ++h) {
    const uint32_t mine = block_of(at, ring.rank_at(0), h);
    b.step({b.output(mine)}, {b.to(next, mine)});
    for (int k = 1; k <= ring.size() - 2; ++k) b.recv_copy_send(block_of(at, ring.rank_at(-k), h), prev, next);
    b.recv_copy(block_of(at, ring.rank_at(1), h), prev);
  }
}

void equal_hosts(PlanBuilder& b, const Stand& at) {
  const Ring inside(at.host_size(at.host), at.local, Ring::Direction::kUp);
  const Ring between(at.host_count(), at.host, Ring::Direction::kUp);
  std::vector<uint32_t> blocks;
  for (int h = 0; h < at.host_count(); ++h) blocks.push_back(block_of(at, at.local, h));
  reduce_scatter_inside(b, at, inside);
  all_reduce_between(
      b, between, at.rank(between.prev(), at.local), at.rank(between.next(), at.local), blocks,
      [](int) { return false; }, [](uint32_t) { return std::vector<Ref>(); });
  all_gather_inside(b, at, inside);
}

// --- hosts of different sizes: the first rank of each host leads. Members give it their contributions, the leaders
// all-reduce round their ring, and each complete block goes to the members as it comes.

void member(PlanBuilder& b, const Stand& at) {
  const int n = at.host_count();
  const int leader = at.rank(at.host, 0);
  for (int c = 0; c < n; ++c) b.send(static_cast<uint32_t>(c), leader);
  const Ring ring(n, at.host, Ring::Direction::kUp);
  for (int k = n - 1; k < 2 * n - 1; ++k) b.recv_copy(ring.block(-k), leader);  // in the leader's order
}

void leader(PlanBuilder& b, const Stand& at) {
  const int n = at.host_count();
  const int size = at.host_size(at.host);
  for (uint32_t c = 0; c < static_cast<uint32_t>(n) && size > 1; ++c) {
    std::vector<Ref> sources(1, b.own(c));
    for (int l = 1; l < size; ++l) sources.push_back(b.from_input(at.rank(at.host, l), c));
    b.wide_step(sources, b.output(c), {});
  }
  const Ring ring(n, at.host, Ring::Direction::kUp);
  std::vector<uint32_t> blocks;
  for (uint32_t c = 0; c < static_cast<uint32_t>(n); ++c) blocks.push_back(c);
  const auto to_members = [&](uint32_t c) {
    std::vector<Ref> sends;
    for (int l = 1; l < size; ++l) sends.push_back(b.to(at.rank(at.host, l), c));
    return sends;
  };
  all_reduce_between(
      b, ring, at.rank(ring.prev(), 0), at.rank(ring.next(), 0), blocks, [&](int h) { return at.host_size(h) == 1; },
      to_members);
}

}  // namespace

Plan build_hierarchical(const PlanRequest& request) {
  const Stand at(request);
  const int hosts = at.host_count(), size = at.largest_host();
  if (hosts == 1 || size == 1) return build_ring(request);
  const bool equal = at.equal_sizes();
  const int chunks = equal ? hosts * size : hosts;
  const uint32_t inside = equal ? ring_fan(size) : static_cast<uint32_t>(size - 1);
  PlanBuilder b(request, static_cast<uint32_t>(chunks), inside + ring_fan(hosts));
  for (int lane = 0; lane < request.lanes; ++lane) {
    b.begin_lane();
    if (equal) {
      equal_hosts(b, at);
    } else if (at.local == 0) {
      leader(b, at);
    } else {
      member(b, at);
    }
  }
  return b.take();
}

}  // namespace rondo
