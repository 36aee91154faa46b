"""Arrays in the memory of a device, over a device without a GPU: tools/suites/python.sh builds it."""

import numpy as np
import pytest
from fake_cuda import LIBRARY, Device
from ranks import on, run

import rondo


@pytest.fixture(autouse=True)
def library(monkeypatch):
    monkeypatch.setenv("RONDO_DEVICE_LIBRARY", LIBRARY)


def every_call(group):
    device, r, n = Device(), group.rank, group.size
    on = {"stream": device.stream}
    out = {}

    def new(shape, dtype=np.int64):
        return device.array(np.full(shape, -1, dtype))

    x = device.array(np.array([1, 2]) + 2 * r)
    out["all_reduce"] = group.all_reduce(x, **on) is x and x.numpy().tolist() == [n * n, n * n + n]
    x = device.array(np.array([r, 7.5], np.float32))
    group.reduce(x, "max", root=1, **on)
    out["reduce"] = x.numpy().tolist() == [n - 1 if r == 1 else r, 7.5]
    x = device.array(np.array([r]))
    group.broadcast(x, root=1, **on)
    out["broadcast"] = x.numpy().tolist() == [1]
    mine, all_of_them = device.array(np.array([r, r])), new((n, 2))
    group.all_gather(mine, all_of_them, **on)
    out["all_gather"] = all_of_them.numpy().tolist() == [[i, i] for i in range(n)]
    part = new(1)
    group.reduce_scatter(device.array(np.arange(n) + r), out=part, **on)
    out["reduce_scatter"] = part.numpy().tolist() == [n * r + n * (n - 1) // 2]
    group.all_to_all(device.array(np.arange(n) + 10 * r), all_of := new(n), **on)
    out["all_to_all"] = all_of.numpy().tolist() == [r + 10 * i for i in range(n)]
    gathered = new((n, 1)) if r == 0 else None
    group.gather(device.array(np.array([r])), 0, gathered, **on)
    out["gather"] = r != 0 or gathered.numpy().ravel().tolist() == list(range(n))
    rows = device.array(np.arange(n) * 5) if r == 0 else None
    group.scatter(rows, 0, part, **on)
    out["scatter"] = part.numpy().tolist() == [5 * r]
    counts = [i + 1 for i in range(n)]
    rows = new(sum(counts))
    group.all_gather_v(device.array(np.full(r + 1, r)), counts, rows, **on)
    out["all_gather_v"] = rows.numpy().tolist() == [i for i in range(n) for _ in range(i + 1)]
    rows = new(sum(counts)) if r == 1 else None
    group.gather_v(device.array(np.full(r + 1, r)), counts if r == 1 else [0] * n, 1, rows, **on)
    out["gather_v"] = r != 1 or rows.numpy().tolist() == [i for i in range(n) for _ in range(i + 1)]
    group.barrier(**on)
    models = {"weights": device.array(np.array([r, 7.5])), "bias": device.array(np.array([r]))}
    group.broadcast_parameters(models, root=1, **on)
    out["broadcast_parameters"] = [m.numpy()[0] for m in models.values()] == [1, 1]
    arrays = [device.array(np.full(k, r, np.float32)) for k in (1, 1000, 3)]
    work = group.all_reduce_many(arrays, "avg", async_op=True, **on)
    out["all_reduce_many"] = work.wait() is not None and all(a.numpy()[-1] == (n - 1) / 2 for a in arrays)
    work = group.all_reduce(x, async_op=True, **on)
    work.wait_on(device.stream)
    out["async"] = work.wait() is x and x.numpy().tolist() == [n]
    incoming = new(3)
    got = group.sendrecv(device.array(np.array([r])), (r + 1) % n, incoming, (r - 1) % n, **on)
    out["sendrecv"] = got.bytes == 8 and incoming.numpy().tolist() == [(r - 1) % n, -1, -1]
    out["isend, irecv"] = messages_in_the_background(group, device)
    return out


def messages_in_the_background(group, device):
    """A ring of messages of several pieces; what is put into the streams later finds them, and may change what is sent."""
    r, n, count = group.rank, group.size, 3 << 20
    on = {"stream": device.stream}
    sent, received = device.array(np.full(count, r, np.int32)), device.array(np.full(count + 1, -1, np.int32))
    first = group.irecv(received, (r - 1) % n, 7, **on) if r != 0 else None
    sending = group.isend(sent, (r + 1) % n, tag=7, **on)
    group.all_reduce(sent, **on)
    receiving = first or group.irecv(received, (r - 1) % n, 7, **on)
    group.all_reduce(received, "max", **on)  # the first elements have come by now
    found = received.numpy()
    message = receiving.wait(30)
    sending.wait(30)
    return (
        message == ((r - 1) % n, 7, 4 * count)
        and (found[:count] == n - 1).all()
        and found[count] == -1
        and (sent.numpy() == n * (n - 1) // 2).all()
    )


@pytest.mark.parametrize("world", [2, 3])
def test_every_call(world):
    for result in run(world, every_call):
        assert all(result.values()), result


@on(2)
def test_mistakes(group):
    device = Device()
    x = device.array(np.arange(4))
    with pytest.raises(TypeError, match="pass the stream"):
        group.all_reduce(x)
    with pytest.raises(TypeError, match="in host memory"):
        group.all_reduce(np.arange(4), stream=device.stream)
    with pytest.raises(TypeError, match="pass out"):
        group.all_gather(x, stream=device.stream)
    with pytest.raises(TypeError, match="in host memory"):
        group.all_gather(x, np.empty((2, 4), np.int64), stream=device.stream)
    with pytest.raises(TypeError, match="array is in GPU memory; sparse_all_reduce"):
        group.sparse_all_reduce(device.array(np.ones(4, np.float32)))
    with pytest.raises(TypeError, match="cudaStream_t"):
        group.all_reduce(x, stream="legacy")
    for message in (group.isend, group.irecv):
        with pytest.raises(TypeError, match="pass the stream"):
            message(x, 1 - group.rank)
        with pytest.raises(TypeError, match="in host memory"):
            message(np.arange(4), 1 - group.rank, stream=device.stream)
    group.attach_device()
    assert group.all_reduce(x, stream=device.stream).numpy().tolist() == [0, 2, 4, 6]


def without_library(group):
    with pytest.raises(rondo.Unsupported, match="RONDO_DEVICE_LIBRARY"):
        group.attach_device()
    return group.all_reduce(np.ones(1))[0]


def test_without_library(monkeypatch):
    monkeypatch.setenv("RONDO_DEVICE_LIBRARY", "/nowhere.so")
    assert run(2, without_library) == [2, 2]
