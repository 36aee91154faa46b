"""Values go by index, however each rank's tensors lie: random views against plain tensors, seeds printed."""

import random

import pytest
import ranks
import torch
import torch.distributed as dist
from made import equal, folded
from views import Written, plain, read_view, values

from rondo.torch import _group

TYPES = (torch.int16, torch.int64, torch.float32, torch.bfloat16, torch.complex64)
SEEDS = 250


class Turn:
    """One call of all ranks: what they agree on, and the layouts of each."""

    def __init__(self, seed, rank, world):
        self.rank, self.world = rank, world
        self.agreed = random.Random(seed)
        self.own = [random.Random(1000 * seed + r + 1) for r in range(world)]  # every rank draws all ranks' inputs
        self.outputs = random.Random(1000 * seed + 500 + rank)
        self.dtype = self.agreed.choice(TYPES)
        self.shape = [self.agreed.choice((0, 1, 2, 3, 5)) for _ in range(self.agreed.choice((0, 1, 2, 3, 4, 4)))]
        self.root = self.agreed.randrange(world)
        self.kind = self.agreed.choice(("none", "wait", "future", "poll"))

    def inputs(self, shape=None):
        """Every rank's, to read from."""
        return [read_view(self.own[r], self.shape if shape is None else shape, self.dtype) for r in range(self.world)]

    def output(self, shape=None, begins_with=None):
        return Written(self.outputs, self.shape if shape is None else shape, self.dtype, begins_with)

    def call(self, function, *arguments, **options):
        work = function(*arguments, async_op=self.kind != "none", **options)
        if self.kind == "wait":
            work.wait()
        elif self.kind == "future":
            work.get_future().wait()
        elif self.kind == "poll":
            while not work.is_completed():
                pass
            assert work.is_success() and work.exception() is None

    @property
    def wide(self):
        """A block a rank along the first dimension."""
        return [self.world * (self.shape[0] if self.shape else 1), *self.shape[1:]]

    def part(self, tensor):
        """This rank's of a tensor of the shape `wide`, flat."""
        return tensor.reshape(self.world, tensor.numel() // self.world)[self.rank]


def all_reduce(t):
    begins = [values(t.own[r], t.shape, t.dtype) for r in range(t.world)]
    output = t.output(begins_with=begins[t.rank])
    t.call(dist.all_reduce, output.tensor)
    output.check(folded(begins, dist.ReduceOp.SUM), "all_reduce")


def operator(t):
    begins = [values(t.own[r], t.shape, t.dtype) for r in range(t.world)]
    output = t.output(begins_with=begins[t.rank])
    inputs = t.inputs(t.wide)
    with torch.no_grad():
        torch.ops.rondo.all_reduce_(output.tensor)
        gathered = torch.ops.rondo.all_gather(inputs[t.rank])
        scattered = torch.ops.rondo.reduce_scatter(inputs[t.rank])
    output.check(folded(begins, dist.ReduceOp.SUM), "all_reduce_")
    equal(plain(gathered), torch.cat([plain(i) for i in inputs]), "torch.ops.rondo.all_gather")
    reduced = folded([plain(i) for i in inputs], dist.ReduceOp.SUM)
    equal(plain(scattered).flatten(), t.part(reduced), "torch.ops.rondo.reduce_scatter")


def reduce(t):
    begins = [values(t.own[r], t.shape, t.dtype) for r in range(t.world)]
    output = t.output(begins_with=begins[t.rank])
    t.call(dist.reduce, output.tensor, t.root)
    output.check(folded(begins, dist.ReduceOp.SUM) if t.rank == t.root else begins[t.rank], "reduce")


def broadcast(t):
    inputs = t.inputs()
    output = t.output()
    t.call(dist.broadcast, inputs[t.rank] if t.rank == t.root else output.tensor, t.root)
    if t.rank != t.root:
        output.check(plain(inputs[t.root]), "broadcast")


def all_gather(t):
    inputs = t.inputs()
    outputs = [t.output() for _ in range(t.world)]
    t.call(dist.all_gather, [o.tensor for o in outputs], inputs[t.rank])
    for output, given in zip(outputs, inputs, strict=True):
        output.check(plain(given), "all_gather")


def all_gather_into_tensor(t):
    inputs = t.inputs()
    output = t.output(t.wide)
    t.call(dist.all_gather_into_tensor, output.tensor, inputs[t.rank])
    output.check(torch.cat([plain(i).reshape(t.shape or [1]) for i in inputs]), "all_gather_into_tensor")


def gather(t):
    inputs = t.inputs()
    outputs = [t.output() for _ in range(t.world)]
    t.call(dist.gather, inputs[t.rank], [o.tensor for o in outputs] if t.rank == t.root else None, t.root)
    for output, given in zip(outputs, inputs, strict=True):
        if t.rank == t.root:
            output.check(plain(given), "gather")


def scatter(t):
    lists = [t.inputs() for _ in range(t.world)]  # to each rank, the root's is sent
    output = t.output()
    sent = [lists[r][t.root] for r in range(t.world)]
    t.call(dist.scatter, output.tensor, sent if t.rank == t.root else None, t.root)
    output.check(plain(sent[t.rank]), "scatter")


def reduce_scatter(t):
    lists = [t.inputs() for _ in range(t.world)]  # [to][from]
    output = t.output()
    t.call(dist.reduce_scatter, output.tensor, [lists[r][t.rank] for r in range(t.world)])
    output.check(folded([plain(i) for i in lists[t.rank]], dist.ReduceOp.SUM), "reduce_scatter")


def reduce_scatter_tensor(t):
    inputs = t.inputs(t.wide)
    output = t.output()
    t.call(dist.reduce_scatter_tensor, output.tensor, inputs[t.rank])
    reduced = folded([plain(i) for i in inputs], dist.ReduceOp.SUM)
    output.check(t.part(reduced).reshape(t.shape), "reduce_scatter_tensor")


def all_to_all(t):
    lists = [t.inputs() for _ in range(t.world)]  # [to][from]
    outputs = [t.output() for _ in range(t.world)]
    t.call(dist.all_to_all, [o.tensor for o in outputs], [lists[r][t.rank] for r in range(t.world)])
    for r, output in enumerate(outputs):
        output.check(plain(lists[t.rank][r]), "all_to_all")


def all_to_all_single(t):
    inputs = t.inputs(t.wide)
    output = t.output(t.wide)
    t.call(dist.all_to_all_single, output.tensor, inputs[t.rank])
    output.check(torch.cat([t.part(plain(i)) for i in inputs]).reshape(t.wide), "all_to_all_single")


def coalesced(t):
    t.kind = "none" if t.kind == "none" else "wait"  # torch gives futures here
    begins = [[values(t.own[r], t.shape, t.dtype) for _ in range(3)] for r in range(t.world)]
    outputs = [t.output(begins_with=b) for b in begins[t.rank]]
    t.call(dist.all_reduce_coalesced, [o.tensor for o in outputs])
    for i, output in enumerate(outputs):
        output.check(folded([begins[r][i] for r in range(t.world)], dist.ReduceOp.SUM), "all_reduce_coalesced")
    inputs = [t.inputs() for _ in range(2)]
    outputs = [[t.output() for _ in inputs] for _ in range(t.world)]
    t.call(dist.all_gather_coalesced, [[o.tensor for o in each] for each in outputs], [i[t.rank] for i in inputs])
    for r in range(t.world):
        for i, output in enumerate(outputs[r]):
            output.check(plain(inputs[i][r]), "all_gather_coalesced")


def managed(t):
    """Calls of one coalescing manager."""
    inputs, outputs = [t.inputs() for _ in range(2)], [t.output(t.wide) for _ in range(2)]
    with dist._coalescing_manager(async_ops=t.kind != "none") as manager:
        for output, given in zip(outputs, inputs, strict=True):
            dist.all_gather_into_tensor(output.tensor, given[t.rank])
    if t.kind != "none":
        manager.wait()
    for output, given in zip(outputs, inputs, strict=True):
        output.check(torch.cat([plain(i).reshape(t.shape or [1]) for i in given]), "all_gather in a manager")


def messages(t):
    right, left = (t.rank + 1) % t.world, (t.rank - 1) % t.world
    inputs, output = t.inputs(), t.output()
    if t.kind == "none" and t.rank == 0:
        dist.send(inputs[0], right)
        dist.recv(output.tensor, left)
    elif t.kind == "none":
        dist.recv(output.tensor, left)
        dist.send(inputs[t.rank], right)
    elif t.kind == "future":
        ops = [dist.P2POp(dist.isend, inputs[t.rank], right), dist.P2POp(dist.irecv, output.tensor, left)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    else:
        works = [dist.irecv(output.tensor, left), dist.isend(inputs[t.rank], right)]
        for work in works:
            work.wait()
    output.check(plain(inputs[left]), "message")


CALLS = (
    all_reduce, operator, reduce, broadcast, all_gather, all_gather_into_tensor, gather, scatter, reduce_scatter,
    reduce_scatter_tensor, all_to_all, all_to_all_single, coalesced, managed, messages,
)  # fmt: skip


TAKE_CONJUGATES = (operator, gather, reduce, reduce_scatter)  # torch itself refuses them elsewhere


def random_views(rank, begin):
    world = dist.get_world_size()
    for seed in range(begin, begin + SEEDS):
        turn = Turn(seed, rank, world)
        call = turn.agreed.choice(CALLS)
        if turn.dtype.is_complex and call not in TAKE_CONJUGATES:
            turn.dtype = torch.float32
        try:
            call(turn)
        except BaseException as error:
            what = f"{call.__name__}, {turn.dtype}, {turn.shape}, {turn.kind}"
            raise AssertionError(f"seed {seed}, rank {rank} of {world}: {what}: {error}") from error


@pytest.mark.parametrize("world", (2, 3))
def test_random_views(world):
    ranks.run(world, random_views, 10_000 * world)


@ranks.on(2)
def test_what_cannot_be_written_is_refused(rank):
    """Before anything happens, and on the rank that passed it: the others' call meets this rank's next one."""
    outputs = {
        "expanded": torch.zeros(1, 4).expand(3, 4),
        "windows": torch.zeros(14).unfold(0, 4, 2)[:3],
    }
    world = [torch.zeros(3, 4), torch.zeros(3, 4)]
    calls = (
        lambda t: dist.all_reduce(t),
        lambda t: dist.all_reduce(t, async_op=True),
        lambda t: torch.ops.rondo.all_reduce_(t),
        lambda t: dist.all_gather([t, world[1]], world[0]),
        lambda t: dist.recv(t, 0),
        lambda t: dist.broadcast(t, 0),
        lambda t: dist.reduce_scatter(t, world),
        lambda t: dist.all_reduce_coalesced([world[0], t]),
        lambda t: dist.all_to_all([world[0], t], world),
    )
    for name, output in outputs.items():
        for call in calls if rank == 1 else ():
            with pytest.raises(ValueError, match=r"\[3, 4\] and strides .* \.clone\(\)"):
                call(output)
        tensor = torch.ones(2, 2)
        dist.all_reduce(tensor)
        equal(tensor, torch.full((2, 2), 2.0), f"after {name}")
    # By as_strided, without two elements at one place, though not one dimension inside another.
    woven = torch.zeros(8).as_strided((2, 3), (3, 2))
    woven.copy_(torch.arange(6.0).reshape(2, 3) + rank)
    dist.all_reduce(woven)
    equal(woven.contiguous(), torch.arange(6.0).reshape(2, 3) * 2 + 1, "woven")
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:  # it ends by such an error: the others are told why
        store.wait(["woven"])  # an abort may overtake the end of the call before
        try:
            dist.all_reduce(outputs["expanded"])
        except ValueError as error:
            _group.extension()._leave(f"ValueError: {error}")
    else:
        store.set("woven", "ended")
        with pytest.raises(dist.DistBackendError, match=r"ABORTED \(rank 1\).*ValueError.*cannot be written"):
            dist.all_reduce(torch.ones(3, 4))


@ranks.on(2)
def test_quantized(rank):
    """torch's own functions refuse quantized tensors. Calls of the backend move their integers, by index; the scales
    are the receiver's."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    grid = torch.arange(12.0).reshape(3, 4) + rank
    other = torch.arange(12.0).reshape(3, 4) + 1 - rank

    def per_tensor(t):
        return torch.quantize_per_tensor(t, 0.5, 2, torch.qint8)

    def per_channel(t):
        return torch.quantize_per_channel(t, torch.tensor([0.5, 0.25, 1.0]), torch.zeros(3, dtype=torch.int64), 0, torch.quint8)

    with pytest.raises(NotImplementedError, match="QuantizedCPU"):
        dist.broadcast(per_tensor(grid), 0)
    for made in (per_tensor, per_channel):
        for lie in (lambda t: t, lambda t: t[:, 1:3], lambda t: t.t())[: 3 if made is per_tensor else 2]:
            given, expected = lie(made(grid)), lie(made(other)).int_repr()
            received = lie(made(torch.zeros(3, 4)))
            sent = backend.send([given], 1 - rank, 0)
            backend.recv([received], 1 - rank, 0).wait()
            sent.wait()
            equal(received.int_repr(), expected, f"message, {made.__name__}")
            outputs = [lie(made(torch.zeros(3, 4))) for _ in range(2)]
            backend.allgather([outputs], [given]).wait()
            equal(outputs[1 - rank].int_repr(), expected, f"all_gather, {made.__name__}")
    with pytest.raises(ValueError, match="cannot be reduced"):
        backend.allreduce([per_tensor(grid)])
    halves = torch.quantize_per_channel(grid, torch.ones(3), torch.zeros(3), 0, torch.quint4x2)
    with pytest.raises(ValueError, match="several elements in a byte"):
        backend.broadcast(halves, 0)


@ranks.on(2)
def test_autograd_is_left_alone(rank):
    """Leaves that require a gradient, dense or not, with gradients enabled and without; a loss that is reduced on the
    way to backward()."""
    for lie in (lambda t: t, lambda t: t[:, ::2]):
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with mode():
                leaf = torch.nn.Parameter(lie(torch.full((4, 8), rank + 1.0)))
                work = dist.all_reduce(leaf, async_op=True)
            work.wait()
            equal(leaf.detach().contiguous(), torch.full(leaf.shape, 3.0), "a leaf")
            outputs = [torch.zeros(leaf.shape) for _ in range(2)]
            dist.all_gather(outputs, leaf)
            assert not any(output.requires_grad for output in outputs)
        leaf = torch.nn.Parameter(lie(torch.full((4, 8), rank + 1.0)))
        loss = (leaf * leaf).sum()
        dist.all_reduce(loss)
        loss.backward()
        equal(leaf.grad.contiguous(), torch.full(leaf.shape, 2.0 * (rank + 1)), "the gradient")


@ranks.on(2)
def test_strides_that_only_one_rank_has(rank):
    image = torch.arange(120.0).reshape(2, 3, 4, 5)
    lies = image.contiguous(memory_format=torch.channels_last) if rank == 0 else image.clone()
    dist.all_reduce(lies)
    equal(lies.contiguous(), 2 * image, "channels last on one rank")
    shared = image.contiguous(memory_format=torch.channels_last) if rank == 0 else torch.zeros(2, 3, 4, 5)
    dist.broadcast(shared, 0)
    equal(shared.contiguous(), image, "broadcast of channels last")
    orthogonal = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(5))).Q
    received = torch.zeros(5, 5)
    if rank == 0:
        dist.send(orthogonal, 1)
    else:
        dist.recv(received, 0)
        equal(received, orthogonal.contiguous(), "Q of a QR decomposition")
