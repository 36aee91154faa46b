#include "mpi/core/collective.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "mpi/core/errors.h"
#include "mpi/core/fold.h"
#include "mpi/core/type.h"

namespace rondo_mpi {

using rondo::Call;

void Collective::go(const Call& call) {
  if (blocking_) {
    engine_.run(call);
  } else {
    work_ = engine_.start(call);
  }
}

// Runs at the end of the call, in the order of these calls.
void Collective::then(std::function<void()> function) { after_.push_back(std::move(function)); }

// nullptr where nothing is to be done.
std::function<void()> Collective::finish() {
  if (after_.empty() && kept_.empty()) return nullptr;
  return [after = std::move(after_), kept = std::move(kept_)] {
    for (const auto& function : after) function();
  };
}

// The memory is not initialized.
std::byte* Collective::keep(MPI_Count bytes) {
  auto made = std::make_shared_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
  kept_.push_back(made);
  return made.get();
}

const void* Collective::input(const Data& data) {
  if (data.count == 0 || data.type->dense) return data.data;
  std::byte* packed = keep(data.bytes());
  pack(*data.type, data.data, data.count, packed);
  return packed;
}

// Data that is not dense gets kept memory, which finish() unpacks.
std::byte* Collective::output(const Data& data) {
  if (data.count == 0 || data.type->dense) return static_cast<std::byte*>(data.data);
  std::byte* packed = keep(data.bytes());
  then([data, packed] { unpack(*data.type, data.data, data.count, packed, data.bytes()); });
  return packed;
}

// Parts as blocks of one memory, by ranks of the engine: where they lie, if each is dense and no peer has two; else
// packed.
Collective::View Collective::view(std::vector<Part>& parts, bool out, bool packed) {
  const auto ranks = static_cast<size_t>(comm_.engine->size());
  View made;
  made.counts.resize(ranks);
  made.displacements.resize(ranks);
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.peer < b.peer; });
  std::byte* least = nullptr;
  MPI_Count bytes = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Data& data = parts[i].data;
    bytes = sum(bytes, data.bytes());
    if (data.bytes() == 0) continue;
    packed = packed || !data.type->dense || (i > 0 && parts[i - 1].peer == parts[i].peer);
    auto* at = static_cast<std::byte*>(data.data);
    if (least == nullptr || at < least) least = at;
  }
  made.base = packed ? keep(bytes) : least;
  std::byte* next = made.base;
  for (const Part& part : parts) {
    const Data& data = part.data;
    const auto peer = static_cast<size_t>(part.peer);
    if (data.bytes() == 0) continue;
    if (!packed) {
      made.displacements[peer] = static_cast<uint64_t>(static_cast<std::byte*>(data.data) - made.base);
    } else {
      if (made.counts[peer] == 0) made.displacements[peer] = static_cast<uint64_t>(next - made.base);
      if (out) {
        then([data, next] { unpack(*data.type, data.data, data.count, next, data.bytes()); });
      } else {
        pack(*data.type, data.data, data.count, next);
      }
      next += data.bytes();
    }
    made.counts[peer] += static_cast<uint64_t>(data.bytes());
  }
  return made;
}

std::byte* Collective::View::end() const {
  uint64_t bytes = 0;
  for (size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] > 0) bytes = std::max(bytes, displacements[r] + counts[r]);
  }
  return base + bytes;
}

// A block that the memory meets is MPI_IN_PLACE, or a mistake that the engine finds.
bool Collective::View::surrounds(const void* memory, uint64_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(memory);
  const auto meets = [&](const std::byte* from, const std::byte* to) { return begin < to && from < begin + bytes; };
  for (size_t r = 0; r < counts.size(); ++r) {
    const std::byte* block = base + displacements[r];
    if (counts[r] > 0 && meets(block, block + counts[r])) return false;
  }
  return bytes > 0 && meets(base, end());
}

// An all_to_all with counts of 0 for ranks that this one does not talk to. Neighbors, intercommunicators and lists of
// types all become that.
void Collective::exchange(std::vector<Part> send, std::vector<Part> receive) {
  View in = view(send, false, false);
  View out = view(receive, true, false);
  if (out.base < in.end() && in.base < out.end()) {
    after_.clear();  // parts that lie among each other: both become one memory
    in = view(send, false, true);
    out = view(receive, true, true);
  }
  // Counts differ by rank: each pair of ranks agrees about its own.
  Call call{.collective = rondo::Collective::kAllToAll,
            .input = in.base,
            .output = out.base,
            .dtype = rondo::DType::kUint8,
            .uneven = true,
            .input_counts = in.counts,
            .output_counts = out.counts,
            .input_displacements = in.displacements,
            .output_displacements = out.displacements};
  go(call);
}

// MPI_ROOT and MPI_PROC_NULL are what ranks of the root's group give.
void Collective::check_root(int root) const {
  if (comm_.inter && (root == MPI_ROOT || root == MPI_PROC_NULL)) return;
  if (root >= 0 && root < comm_.peers()) return;
  fail(MPI_ERR_ROOT, "the communicator has ranks 0 to " + std::to_string(comm_.peers() - 1) + ", and no root " +
                         std::to_string(root));
}

// A rooted call of an intercommunicator: between the root and all of the other group. True: it was one, and is under
// way.
bool Collective::rooted_inter(int root, std::vector<Part> at_root, Data elsewhere, bool root_sends) {
  if (!comm_.inter) return false;
  std::vector<Part> own;
  if (root == MPI_ROOT) {
    own = std::move(at_root);
  } else if (root != MPI_PROC_NULL) {
    own = {{comm_.engine_rank(root), std::move(elsewhere)}};
  }
  const bool sends = (root == MPI_ROOT) == root_sends;
  exchange(sends ? own : std::vector<Part>{}, sends ? std::vector<Part>{} : own);
  return true;
}

void Collective::barrier() { go({.collective = rondo::Collective::kBarrier}); }

// The engine has one buffer for both sides: packed at the root, unpacked at the others.
void Collective::broadcast(Data data, int root) {
  check_root(root);
  std::vector<Part> all;
  if (comm_.inter && root == MPI_ROOT) {
    for (int r = 0; r < comm_.peers(); ++r) all.push_back({comm_.engine_rank(r), data});
  }
  if (rooted_inter(root, std::move(all), data, true)) return;
  const bool is_root = comm_.rank == root;
  void* bytes = is_root ? const_cast<void*>(input(data)) : output(data);
  go({.collective = rondo::Collective::kBroadcast,
      .input = bytes,
      .output = bytes,
      .count = static_cast<uint64_t>(data.bytes()),
      .dtype = rondo::DType::kUint8,
      .root = root});
}

namespace {

// The blocks of all ranks, of which `block` is the first.
Data all_of(const Data& block, int ranks) { return {block.data, product(block.count, ranks), block.type}; }
// Block r lies r extents of the whole block after the first, as MPI places them.
std::vector<Data> blocks_of(const Data& block, int ranks) {
  const MPI_Count stride = product(block.count, block.type->extent());
  std::vector<Data> blocks;
  for (int r = 0; r < ranks; ++r) {
    blocks.push_back({static_cast<std::byte*>(block.data) + product(r, stride), block.count, block.type});
  }
  return blocks;
}

std::vector<Part> parts_of(const Comm& comm, const std::vector<Data>& blocks) {
  std::vector<Part> parts;
  for (size_t r = 0; r < blocks.size(); ++r) parts.push_back({comm.engine_rank(static_cast<int>(r)), blocks[r]});
  return parts;
}

}  // namespace

// In these `count` is that of one rank's block.

void Collective::gather(Data send, Data receive, int root) {
  check_root(root);
  if (comm_.inter) {
    return gather_v(std::move(send), root == MPI_ROOT ? blocks_of(receive, comm_.peers()) : std::vector<Data>{}, root);
  }
  const bool is_root = comm_.rank == root;
  std::byte* out = nullptr;
  const void* in = nullptr;
  uint64_t bytes = 0;
  if (is_root) {
    bytes = static_cast<uint64_t>(receive.bytes());
    out = output(all_of(receive, comm_.size()));
    if (send.in_place()) {
      std::byte* own = out + static_cast<uint64_t>(root) * bytes;
      // The output is packed, so the own block is packed, too: in place the engine takes it from there.
      if (out != receive.data)
        pack(*receive.type, blocks_of(receive, comm_.size())[static_cast<size_t>(root)].data, receive.count, own);
      in = own;
    }
  } else {
    require(!send.in_place(), MPI_ERR_BUFFER, "MPI_IN_PLACE is for the root's send buffer");
  }
  if (in == nullptr) {
    in = input(send);
    if (is_root) {
      require(static_cast<uint64_t>(send.bytes()) == bytes, MPI_ERR_TRUNCATE,
              "the own block is not as long as the others");
    } else {
      bytes = static_cast<uint64_t>(send.bytes());
    }
  }
  go({.collective = rondo::Collective::kGather,
      .input = in,
      .output = out,
      .count = bytes,
      .dtype = rondo::DType::kUint8,
      .root = root});
}

// MPI demands blocks of one length on all ranks. Only the root knows two of them, and its own buffer may be longer.
void Collective::scatter(Data send, Data receive, int root) {
  check_root(root);
  if (comm_.inter) {
    return scatter_v(root == MPI_ROOT ? blocks_of(send, comm_.peers()) : std::vector<Data>{}, std::move(receive), root);
  }
  const bool is_root = comm_.rank == root;
  const void* in = nullptr;
  void* out = nullptr;
  uint64_t bytes = 0;
  if (is_root) {
    bytes = static_cast<uint64_t>(send.bytes());
    in = input(all_of(send, comm_.size()));
  }
  if (receive.in_place()) {
    require(is_root, MPI_ERR_BUFFER, "MPI_IN_PLACE is for the root's receive buffer");
    out = static_cast<std::byte*>(const_cast<void*>(in)) + static_cast<uint64_t>(root) * bytes;
  } else {
    if (!is_root) bytes = static_cast<uint64_t>(receive.bytes());
    require(static_cast<uint64_t>(receive.bytes()) >= bytes, MPI_ERR_TRUNCATE,
            "the own block is longer than the buffer");
    out = output(receive);
  }
  go({.collective = rondo::Collective::kScatter,
      .input = in,
      .output = out,
      .count = bytes,
      .dtype = rondo::DType::kUint8,
      .root = root});
}

// In place the own block lies in the output. Where that is packed, the block is packed into it first.
void Collective::all_gather(Data send, Data receive) {
  if (comm_.inter) return all_gather_v(std::move(send), blocks_of(receive, comm_.peers()));
  const auto bytes = static_cast<uint64_t>(receive.bytes());
  std::byte* out = output(all_of(receive, comm_.size()));
  const void* in = nullptr;
  if (send.in_place()) {
    std::byte* own = out + static_cast<uint64_t>(comm_.rank) * bytes;
    if (out != receive.data) {
      pack(*receive.type, blocks_of(receive, comm_.size())[static_cast<size_t>(comm_.rank)].data, receive.count, own);
    }
    in = own;
  } else {
    require(send.bytes() == receive.bytes(), MPI_ERR_TRUNCATE,
            "the blocks that are sent and received differ in length");
    in = input(send);
  }
  go({.collective = rondo::Collective::kAllGather,
      .input = in,
      .output = out,
      .count = bytes,
      .dtype = rondo::DType::kUint8});
}

// In place the input is a copy: the engine's all_to_all has two buffers.
void Collective::all_to_all(Data send, Data receive) {
  if (comm_.inter) return all_to_all_v(blocks_of(send, comm_.peers()), blocks_of(receive, comm_.peers()));
  const Data all = all_of(receive, comm_.size());
  const void* in = nullptr;
  if (send.in_place()) {
    std::byte* copy = keep(all.bytes());
    pack(*all.type, all.data, all.count, copy);
    in = copy;
  } else {
    require(send.bytes() == receive.bytes(), MPI_ERR_TRUNCATE,
            "the blocks that are sent and received differ in length");
    in = input(all_of(send, comm_.size()));
  }
  go({.collective = rondo::Collective::kAllToAll,
      .input = in,
      .output = output(all),
      .count = static_cast<uint64_t>(receive.bytes()),
      .dtype = rondo::DType::kUint8});
}

// Where the input lies between the blocks of the output, the engine would take it for an overlap (View::surrounds).
// Then the blocks are packed.
void Collective::gather_v(Data send, std::vector<Data> receive, int root) {
  check_root(root);
  if (rooted_inter(root, parts_of(comm_, receive), send, false)) return;
  const bool is_root = comm_.rank == root;
  std::vector<Part> parts;
  View out;
  if (is_root) {
    parts = parts_of(comm_, receive);
    const Data own = receive[static_cast<size_t>(root)];
    out = view(parts, true, false);
    if (send.in_place()) {
      send = own;
      std::byte* place = out.base + out.displacements[static_cast<size_t>(root)];
      if (own.bytes() > 0 && place != own.data) {
        pack(*own.type, own.data, own.count, place);
        send = {place, own.bytes(), byte_type()};
      }
    }
  }
  require(!send.in_place(), MPI_ERR_BUFFER, "MPI_IN_PLACE is for the root's send buffer");
  const void* in = input(send);
  const auto bytes = static_cast<uint64_t>(send.bytes());
  if (is_root && out.surrounds(in, bytes)) out = view(parts, true, true);
  go({.collective = rondo::Collective::kGather,
      .input = in,
      .output = out.base,
      .count = bytes,
      .dtype = rondo::DType::kUint8,
      .root = root,
      .uneven = true,
      .output_counts = out.counts,
      .output_displacements = out.displacements});
}

// Where the own buffer lies between the blocks of the input, the blocks are packed, as in gather_v().
void Collective::scatter_v(std::vector<Data> send, Data receive, int root) {
  check_root(root);
  if (rooted_inter(root, parts_of(comm_, send), receive, true)) return;
  const bool is_root = comm_.rank == root;
  std::vector<Part> parts;
  View in;
  if (is_root) {
    parts = parts_of(comm_, send);
    in = view(parts, false, false);
    if (receive.in_place()) {
      const auto own = static_cast<size_t>(root);
      receive = {in.base + in.displacements[own], static_cast<MPI_Count>(in.counts[own]), byte_type()};
    }
  }
  require(!receive.in_place(), MPI_ERR_BUFFER, "MPI_IN_PLACE is for the root's receive buffer");
  std::byte* out = output(receive);
  const auto bytes = static_cast<uint64_t>(receive.bytes());
  if (is_root && in.surrounds(out, bytes)) in = view(parts, false, true);
  go({.collective = rondo::Collective::kScatter,
      .input = in.base,
      .output = out,
      .count = bytes,
      .dtype = rondo::DType::kUint8,
      .root = root,
      .uneven = true,
      .input_counts = in.counts,
      .input_displacements = in.displacements});
}

// In an intercommunicator each rank sends its block to all of the other group, which is an exchange.
void Collective::all_gather_v(Data send, std::vector<Data> receive) {
  if (comm_.inter) {
    return exchange(parts_of(comm_, std::vector<Data>(static_cast<size_t>(comm_.peers()), send)),
                    parts_of(comm_, receive));
  }
  const auto rank = static_cast<size_t>(comm_.rank);
  std::vector<Part> parts = parts_of(comm_, receive);
  const Data own = receive[rank];
  View out = view(parts, true, false);
  if (send.in_place()) {
    std::byte* place = out.base + out.displacements[rank];
    if (own.bytes() > 0 && place != own.data) pack(*own.type, own.data, own.count, place);
    send = {place, own.bytes(), byte_type()};
  }
  require(send.bytes() == own.bytes(), MPI_ERR_TRUNCATE, "the own block differs in length from what is received of it");
  const void* in = input(send);
  if (out.surrounds(in, static_cast<uint64_t>(send.bytes()))) out = view(parts, true, true);
  go({.collective = rondo::Collective::kAllGather,
      .input = in,
      .output = out.base,
      .dtype = rondo::DType::kUint8,
      .uneven = true,
      .output_counts = out.counts,
      .output_displacements = out.displacements});
}

// In place what is received is sent: all of it is copied first, since blocks of other ranks overwrite it.
void Collective::all_to_all_v(std::vector<Data> send, std::vector<Data> receive) {
  std::vector<Part> from = parts_of(comm_, receive);
  if (send.empty()) {  // in place
    MPI_Count bytes = 0;
    for (const Part& part : from) bytes = sum(bytes, part.data.bytes());
    std::byte* copy = keep(bytes);
    for (const Part& part : from) {
      pack(*part.data.type, part.data.data, part.data.count, copy);
      send.push_back({copy, part.data.bytes(), byte_type()});
      copy += part.data.bytes();
    }
  }
  exchange(parts_of(comm_, send), std::move(from));
}

// --- Reductions

namespace {

// The engine calls it so. It may run on a thread of the engine, with parts of the buffers.
void fold_elements(const void* in, void* inout, size_t elements, void* context) {
  const auto& [op, type] = *static_cast<const Fold*>(context);
  fold_packed(*op, type, in, inout, static_cast<MPI_Count>(elements));
}

}  // namespace

// Reduces `send`; this rank's part of the result, if it has one, is `result`, elements from `from` on.
void Collective::reduce_by(Call& call, const Data& send, const Data& result, MPI_Count from, const Op& op) {
  const Type& type = *send.type;
  if (type.size == 0 && !comm_.inter) return;
  if (comm_.inter || type.size > rondo::kMostUserBytes) {
    return fold_here(call, send, result, from, {op.shared_from_this(), send.type});
  }
  if (engine_folds(op, type)) {
    call.input = send.data;
    call.output = result.data;
    call.dtype = *type.dtype;
    call.op = *op.engine;
    // Ranks that differ in the operation alone fold by their own each, unless RONDO_MPI_STRICT is set.
    call.options.any_op = !comm_.engine->config().mpi_strict;
  } else {
    call.input = input(send);
    call.output = result.count > 0 ? output(result) : nullptr;
    call.op = rondo::Op::kUser;
    const auto how = std::make_shared<Fold>(Fold{op.shared_from_this(), send.type});
    // The engine keeps the address of `how`, which kept_ holds until the call is over.
    call.options.user = {fold_elements, how.get(), static_cast<uint32_t>(type.size), op.commutative};
    kept_.push_back(how);
  }
  if (call.collective == rondo::Collective::kReduceScatter && call.input == result.data && send.count > 0) {
    std::byte* copy = keep(send.bytes());  // the engine's calls in place leave the result elsewhere
    std::memcpy(copy, call.input, static_cast<size_t>(send.bytes()));
    call.input = copy;
  }
  go(call);
}

// Reductions between the groups of an intercommunicator, and of elements that are too long for the engine: each rank
// that has a result gets all contributions, and folds them in the order of the ranks. It needs memory for the
// contributions of all ranks.
void Collective::fold_here(const Call& call, const Data& send, const Data& result, MPI_Count from, const Fold& how) {
  const bool rooted = call.collective == rondo::Collective::kReduce;
  const bool exclusive = call.collective == rondo::Collective::kExscan;
  const bool scans = exclusive || call.collective == rondo::Collective::kScan;
  const bool wants = !rooted || (comm_.inter ? call.root == MPI_ROOT : comm_.rank == call.root);
  const MPI_Count bytes = send.bytes();
  std::byte* all = wants ? keep(product(bytes, comm_.peers())) : nullptr;
  const Data packed{all, bytes, byte_type()};
  if (rooted) {
    gather(send, packed, call.root);
  } else {
    all_gather(send, packed);
  }
  const int blocks = scans ? comm_.rank + (exclusive ? 0 : 1) : comm_.peers();
  if (!wants || blocks == 0) return;
  then([=] {
    std::byte* block = all;
    for (int r = 1; r < blocks; ++r, block += bytes) {
      // Block r gets the fold of blocks 0 to r: in[i] op inout[i] keeps MPI's order.
      fold_packed(*how.op, how.type, block, block + bytes, send.count);
    }
    unpack(*result.type, result.data, result.count, block + from * result.type->size, result.bytes());
  });
}

// What is sent in place is where the result goes to.
Data Collective::reduced(Data send, void* receive, const Op& op) const {
  check_fold(op, *send.type);
  if (!send.in_place()) return send;
  require(!comm_.inter, MPI_ERR_BUFFER, "MPI_IN_PLACE is not for intercommunicators");
  send.data = receive;
  return send;
}

// A null root of an intercommunicator has neither data nor an operation to check.
void Collective::reduce(Data send, void* receive, const Op& op, int root) {
  check_root(root);
  const bool is_root = comm_.inter ? root == MPI_ROOT : comm_.rank == root;
  require(is_root || !send.in_place(), MPI_ERR_BUFFER, "MPI_IN_PLACE is for the root's send buffer");
  if (root != MPI_PROC_NULL) send = reduced(send, receive, op);
  const Data result{is_root ? receive : nullptr, is_root ? send.count : 0, send.type};
  Call call{.collective = rondo::Collective::kReduce, .count = static_cast<uint64_t>(send.count), .root = root};
  reduce_by(call, send, result, 0, op);
}

void Collective::all_reduce(Data send, void* receive, const Op& op) {
  send = reduced(send, receive, op);
  Call call{.collective = rondo::Collective::kAllReduce, .count = static_cast<uint64_t>(send.count)};
  reduce_by(call, send, {receive, send.count, send.type}, 0, op);
}

// The input is all blocks, the output is this rank's. `before` is where that block begins.
void Collective::reduce_scatter(Data send, void* receive, const std::vector<MPI_Count>& counts, bool even,
                                const Op& op) {
  const auto rank = static_cast<size_t>(comm_.rank);
  const std::vector<uint64_t> lengths(counts.begin(), counts.end());
  const auto count_of = [&](size_t r) { return even ? counts[0] : counts[r]; };
  MPI_Count before = 0;
  send.count = 0;
  for (size_t r = 0; r < comm_.members.size(); ++r) {
    if (r == rank) before = send.count;
    send.count = sum(send.count, count_of(r));
  }
  send = reduced(send, receive, op);
  Call call{.collective = rondo::Collective::kReduceScatter, .count = even ? lengths[0] : 0, .uneven = !even};
  if (!even) call.input_counts = lengths;
  reduce_by(call, send, {receive, count_of(rank), send.type}, before, op);
}

// Rank 0 of an exclusive scan has no result: its buffer stays as it is.
void Collective::scan(Data send, void* receive, const Op& op, bool exclusive) {
  send = reduced(send, receive, op);
  const Data result{receive, exclusive && comm_.rank == 0 ? 0 : send.count, send.type};
  Call call{.collective = exclusive ? rondo::Collective::kExscan : rondo::Collective::kScan,
            .count = static_cast<uint64_t>(send.count)};
  reduce_by(call, send, result, 0, op);
}

}  // namespace rondo_mpi
