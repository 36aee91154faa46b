"""Works, futures, groups, deadlines and failures: what waits, what ends, what is said and to whom."""

import datetime
import fcntl
import os
import pwd
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest
import ranks
import torch
import torch.distributed as dist
from made import equal

import rondo.torch
from rondo.torch import build

CPU = torch.device("cpu")


def backend_of(group=None):
    return (group or dist.group.WORLD)._get_backend(CPU)


@ranks.on(2)
def test_works_and_futures(rank):
    tensor = torch.ones(5)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait(datetime.timedelta(seconds=20))
    assert work.is_completed() and work.is_success() and work.exception() is None
    assert work.result()[0] is not None and torch.equal(work.result()[0], tensor)

    tensor = torch.ones(5)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert future.then(lambda done: done.value()[0].sum().item()).wait() == 10.0

    # A function of a future may start and await other operations.
    def again(done):
        return dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0]

    result = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(again).wait()
    equal(result, torch.full((3,), 4.0), "all_reduce in then()")

    # All at once, with futures and without.
    tensors = [torch.full((n + 1,), float(n)) for n in range(60)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    futures = [work.get_future() for work in works[::3]]
    for future in futures:
        future.wait()
    for work in reversed(works):
        work.wait()
    for n, t in enumerate(tensors):
        equal(t, torch.full((n + 1,), 2.0 * n), "many at once")
    equal(works[0].get_future().wait()[0], tensors[0], "a future of what has ended")


@ranks.on(2)
def test_dropped_works(rank):
    """Nobody keeps the Work, nor the tensors of which copies were taken."""
    outputs = torch.zeros(2, 8)[:, ::2]
    for _ in range(20):
        dist.all_reduce(torch.ones(10000), async_op=True)
        dist.all_gather_into_tensor(outputs, torch.full((4,), rank + 1.0), async_op=True)
    dist.barrier()
    deadline = time.monotonic() + 20
    while not torch.equal(outputs, torch.tensor([[1.0] * 4, [2.0] * 4])):
        assert time.monotonic() < deadline, outputs
        time.sleep(0.01)


@ranks.on(2)
def test_bad_arguments(rank):
    """ValueError before anything happens: the group goes on."""
    with pytest.raises(ValueError, match="11 elements; it needs the input's 5 times 2"):
        dist.all_gather_into_tensor(torch.empty(11), torch.empty(5))
    with pytest.raises(ValueError, match="BAND|bitwise|float32"):
        dist.all_reduce(torch.ones(1), dist.ReduceOp.BAND)
    with pytest.raises(ValueError, match="SUM and AVG only"):
        backend_of().allreduce([torch.ones(1, dtype=torch.complex64)], dist.ReduceOp.MAX)
    with pytest.raises(ValueError, match="cannot be reduced"):
        dist.all_reduce(torch.zeros(4, dtype=torch.float8_e4m3fnuz))
    with pytest.raises(ValueError, match="adds up to 3"):
        dist.all_to_all_single(torch.empty(4), torch.empty(4), [2, 2], [1, 2])
    with pytest.raises(ValueError, match="added only"):
        dist.all_reduce(torch.eye(2).to_sparse(), dist.ReduceOp.MAX)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == 2


@ranks.on(2)
def test_unsupported(rank):
    """What some of torch's backends have and this one has not: each says so, and the group goes on."""
    world, store = dist.group.WORLD, dist.HashStore()
    calls = {
        "missing implementation of merge": lambda: world.merge_remote_group(store, 2, datetime.timedelta(seconds=5)),
        "takes no pg_options": lambda: dist.new_group([0, 1], pg_options=3),
        "a tensor is on meta, and the call is on cpu": lambda: backend_of().allreduce([torch.ones(2, device="meta")]),
    }
    for text, call in calls.items():
        with pytest.raises((RuntimeError, ValueError, TypeError, NotImplementedError), match=text):
            call()
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == 2


def failing(fn, *patterns):
    """fn() raises DistBackendError, whose text has every pattern; how long it took in seconds."""
    begin = time.monotonic()
    with pytest.raises(dist.DistBackendError) as raised:
        fn()
    for pattern in patterns:
        assert pattern in str(raised.value), f"{pattern!r} is not in: {raised.value}"
    return time.monotonic() - begin


@ranks.on(2)
def test_mismatch(rank):
    tensor = torch.ones(3 + rank)
    failing(lambda: dist.all_reduce(tensor), "rondo MISMATCH", "ranks 0, 1", "3", "4")
    failing(lambda: dist.barrier(), "rondo MISMATCH")  # it stays what it is


@ranks.on(2)
def test_timeouts(rank):
    group = dist.new_group([0, 1], timeout=datetime.timedelta(milliseconds=700))
    if rank == 0:
        took = failing(lambda: dist.all_reduce(torch.ones(1), group=group), "rondo TIMEOUT", "(rank 1)")
        assert 0.5 < took < 10
        work = dist.irecv(torch.ones(1), 1)
        took = failing(lambda: work.wait(datetime.timedelta(milliseconds=300)), "under way after 300 ms")
        assert 0.2 < took < 5
        assert not work.is_completed()
        dist.send(torch.ones(1), 1)
        work.wait()
    else:
        dist.recv(torch.zeros(1), 0)
        dist.send(torch.ones(1), 0)
    store = dist.distributed_c10d._get_default_store()
    dist.group.WORLD.set_timeout(datetime.timedelta(milliseconds=600))
    if rank == 0:
        failing(dist.barrier, "rondo TIMEOUT", "(rank 1)")
        store.set("over", "yes")
    else:
        store.wait(["over"])


@ranks.on(2)
def test_abort(rank):
    work = dist.irecv(torch.ones(1), 1 - rank)
    future = dist.irecv(torch.ones(1), 1 - rank).get_future()
    if rank == 0:  # once rank 1 waits for its messages, and for nothing else
        dist.recv(torch.ones(1), 1, tag=1)
        backend_of().abort()
    else:
        ready = dist.isend(torch.ones(1), 0, tag=1)
    took = failing(work.wait, "rondo ABORTED", "rank 0 aborted its process group")
    assert took < 5
    with pytest.raises(RuntimeError, match="ABORTED"):
        future.wait()
    failing(lambda: dist.all_reduce(torch.ones(1)), "rondo ABORTED")
    if rank == 1:
        assert ready.is_completed()


def test_death(tmp_path):
    """A rank that is killed during a call: the others know within seconds which one it was."""
    results, errors = ranks.start(3, _killed, (f"file://{tmp_path}/store",), 60)
    assert results[0] and results[2], errors
    assert set(errors) == {1} and "exit code -9" in errors[1]


def _killed(rank, url):
    torch.set_num_threads(1)
    dist.init_process_group("rondo", init_method=url, rank=rank, world_size=3)
    dist.barrier()
    ranks.wait_for_all(1)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    took = failing(lambda: dist.all_reduce(torch.ones(1 << 20), async_op=True).wait(), "rondo PEER_LOST", "(rank 1)")
    failing(lambda: dist.all_reduce(torch.ones(1)), "(rank 1)")
    return took < 10


@ranks.on(2)
def test_destroyed(rank):
    backend = backend_of()
    left = dist.irecv(torch.ones(1), 1 - rank)
    dist.destroy_process_group()
    failing(lambda: backend.allreduce([torch.ones(1)]), "has been destroyed")
    failing(left.wait, "rondo")  # CLOSED, or PEER_LEFT if the other was first


def test_again_and_again(tmp_path):
    """Ten times init and destroy: as many descriptors and nearly as many threads as after the first."""
    results, errors = ranks.start(2, _again, (str(tmp_path),), 120)
    assert not errors, errors
    for counts in results:
        assert counts[-1] <= counts[0], f"descriptors after each turn: {counts}"


def _again(rank, folder):
    torch.set_num_threads(1)
    counts = []
    for turn in range(10):
        dist.init_process_group("rondo", init_method=f"file://{folder}/{turn}", rank=rank, world_size=2)
        dist.new_group([0, 1])
        tensor = torch.ones(1000)
        dist.all_reduce(tensor)
        assert tensor[0] == 2
        dist.destroy_process_group()
        counts.append(len(os.listdir("/proc/self/fd")))
    return counts


def test_one_store_again(tmp_path):
    """The same store object serves one group after another: keys of the first are not met by the second."""
    results, errors = ranks.start(2, _one_store, (str(tmp_path / "store"),), 60)
    assert not errors, errors
    assert results == [[2.0] * 4] * 2


def _one_store(rank, path):
    torch.set_num_threads(1)
    store, sums = dist.FileStore(path, 2), []
    for _ in range(4):
        dist.init_process_group("rondo", store=store, rank=rank, world_size=2)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        sums.append(tensor.item())
        dist.destroy_process_group()
    return sums


class FolderStore(dist.Store):
    """A file a key; the methods that torch's documentation asks for."""

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def _path(self, key):
        return os.path.join(self.folder, key.replace("/", "%"))

    def set(self, key, value):
        scratch = f"{self._path(key)}.{os.getpid()}"
        with open(scratch, "wb") as file:
            file.write(value if isinstance(value, bytes) else value.encode())
        os.rename(scratch, self._path(key))

    def get(self, key):
        self.wait([key])
        with open(self._path(key), "rb") as file:
            return file.read()

    def add(self, key, amount):
        with open(os.path.join(self.folder, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            total = (int(self.get(key)) if self.check([key]) else 0) + amount
            self.set(key, str(total))
        return total

    def check(self, keys):
        return all(os.path.exists(self._path(key)) for key in keys)

    def wait(self, keys, timeout=datetime.timedelta(seconds=30)):
        deadline = time.monotonic() + timeout.total_seconds()
        while not self.check(keys):
            assert time.monotonic() < deadline, keys
            time.sleep(0.01)


def test_a_store_of_five_methods(tmp_path):
    results, errors = ranks.start(3, _with_five_methods, (str(tmp_path),), 60)
    assert not errors, errors
    assert results[0] == 6.0 and sorted(results[1:], key=str) == [6.0, "taken"]


def _with_five_methods(rank, folder):
    """Two processes say that they are rank 1: one of them is refused."""
    torch.set_num_threads(1)
    store, limit = FolderStore(folder), datetime.timedelta(seconds=20)  # torch does not keep the store's Python half
    try:
        dist.init_process_group("rondo", store=store, rank=min(rank, 1), world_size=2, timeout=limit)
    except dist.DistBackendError as error:
        assert "rank 1 is already taken" in str(error), error
        return "taken"
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, group=dist.new_group([0, 1]))
    dist.barrier()
    objects = [None, None]
    dist.all_gather_object(objects, dist.get_rank())
    assert objects == [0, 1]
    dist.destroy_process_group()
    return tensor.item() + 2


def test_a_late_rank_is_no_warning(capfd):
    """torch's TCP store warns of waits that end without their key: ranks that start seconds apart are no such case."""
    listener = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    results, errors = ranks.start(2, _one_late, (listener.port,), 60)
    assert results == [2.0, 2.0], errors
    assert "timed out" not in capfd.readouterr().err


def _one_late(rank, port):
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, None, False)
    if rank == 1:
        time.sleep(2.5)
    dist.init_process_group("rondo", store=store, rank=rank, world_size=2)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return tensor.item()


def test_a_launcher_that_only_one_rank_knows(tmp_path):
    """Variables of a launcher on one rank, and none or others on the next: the group starts all the same."""
    results, errors = ranks.start(3, _placed_by_launcher, (f"file://{tmp_path}/store",), 60)
    assert results == [6.0, 6.0, 6.0], errors


def _placed_by_launcher(rank, url):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        os.environ.pop(name, None)
    if rank == 0:
        os.environ.update(RANK="0", WORLD_SIZE="3", LOCAL_RANK="0", LOCAL_WORLD_SIZE="3")
    if rank == 1:
        os.environ.update(RANK="1", WORLD_SIZE="3", LOCAL_RANK="5", LOCAL_WORLD_SIZE="2")
    limit = datetime.timedelta(seconds=20)
    dist.init_process_group("rondo", init_method=url, rank=rank, world_size=3, timeout=limit)
    tensor = torch.tensor(1.0 + rank)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return tensor.item()


@ranks.on(2)
def test_forked_child(rank):
    """A forked child gets a clear error, and its end leaves the group alone (workers of a DataLoader are such)."""
    data = torch.utils.data.DataLoader(torch.arange(40.0), batch_size=4, num_workers=2, multiprocessing_context="fork")
    for batch in data:
        dist.all_reduce(batch)
    pid = os.fork()
    if pid == 0:
        try:
            dist.all_reduce(torch.ones(1))
        except dist.DistBackendError as error:
            os._exit(7 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    assert tensor.item() == 2


def received_by_future(rank, key):
    """What rank 1 sends when rank 0 has asked for the future of its receive: a thread of the module completes it."""
    store, tensor = dist.distributed_c10d._get_default_store(), torch.zeros(1)
    if rank == 1:
        store.wait([key])
        dist.send(tensor + 1, 0)
        return 1
    future = dist.irecv(tensor, 1).get_future()
    store.set(key, "yes")
    deadline = time.monotonic() + 20
    while not future.done():
        assert time.monotonic() < deadline, "the future is not complete"
        time.sleep(0.01)
    return tensor.item()


@ranks.on(2)
def test_forked_child_with_a_group_of_its_own(rank):
    """It completes futures: its parent's threads, which wait for the next one, are not its own."""
    store = dist.PrefixStore("child", dist.distributed_c10d._get_default_store())
    assert received_by_future(rank, "asked") == 1
    dist.barrier()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            dist.destroy_process_group()
            dist.init_process_group("rondo", store=store, rank=rank, world_size=2)
            code = 7 if received_by_future(rank, "asked") == 1 else 2
            dist.destroy_process_group()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_details(monkeypatch):
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    ranks.run(2, details)


def details(rank):
    """torch's own checks around every call, by sequence numbers."""
    dist.set_debug_level_from_env()
    group = dist.new_group([0, 1])
    for turn in range(3):
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        dist.all_gather([torch.empty(3), torch.empty(3)], tensor, group=group)
    equal(tensor, torch.full((3,), 2.0), "all_reduce under DETAIL")
    with pytest.raises(RuntimeError, match="mismatch|Detected"):
        dist.all_reduce(torch.ones(2 + rank), group=group)


@ranks.on(2)
def test_ctrl_c_in_a_call(rank):
    """What the signal's handler raised comes out of a blocking call and of a wait, once."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["interrupted"])
        with pytest.raises(dist.DistBackendError, match=r"ABORTED \(rank 0\).*interrupted"):
            for _ in range(2):  # the first may have all it needs: rank 0 had begun it
                dist.all_reduce(torch.ones(1))
        return
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        dist.all_reduce(torch.ones(1))
    store.set("interrupted", "yes")
    with pytest.raises(dist.DistBackendError, match="interrupted"):  # the group has failed
        dist.all_reduce(torch.ones(1))


@ranks.on(2)
def test_ctrl_c_at_the_end_of_a_wait(rank):
    """A wait of 100 ms asks for signals as its time is over, while another thread drives the operation: what the handler
    raised comes out, not that the operation goes on."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["interrupted"])
        return
    work, other = (dist.all_reduce(torch.ones(16)[::2], async_op=True) for _ in range(2))
    driver = threading.Thread(target=pytest.raises, args=(dist.DistBackendError, other.wait))
    driver.start()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            with pytest.raises(dist.DistBackendError, match="is still under way after 100 ms"):
                work.wait(datetime.timedelta(milliseconds=100))
    backend_of().abort()  # the signal may have come between two waits
    driver.join()
    store.set("interrupted", "yes")
    with pytest.raises(dist.DistBackendError):
        work.wait()


@ranks.on(2, limit=60)
def test_a_handler_destroys_the_group(rank):
    """As jobs do that a scheduler stops: the handler of a signal runs in the call that waits, and that call ends."""
    if rank == 1:
        failing(lambda: dist.recv(torch.ones(1), 0), "ABORTED (rank 0)", "destroyed during a call")
        return
    signal.signal(signal.SIGALRM, lambda *_: dist.destroy_process_group())
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    assert failing(lambda: dist.all_reduce(torch.ones(1)), "destroyed during a call") < 20
    assert not dist.is_initialized()


@ranks.on(2)
def test_a_handler_raises_after_the_group_has_failed(rank):
    """The call has failed by something else when the handler raises: what it raised comes out of that call all the same."""
    if rank == 1:
        failing(lambda: dist.recv(torch.ones(1), 0), "ABORTED (rank 0)")
        return

    def stop(*_):
        backend_of().abort()
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(KeyboardInterrupt):
        dist.all_reduce(torch.ones(1))
    failing(lambda: dist.all_reduce(torch.ones(1)), "ABORTED (rank 0)")


@pytest.mark.parametrize(
    ("version", "interface"),
    [("2.14.0", "2.14"), ("2.14.1+cu130", "2.14"), ("2.15.0a0+git12", "2.15.0a0+git12"), ("2.16.0.dev20261101", "2.16.0.dev20261101")],
)
def test_releases_share_a_library(version, interface, tmp_path):
    assert a_torch(version, tmp_path).interface == interface


def a_torch(version, folder):
    (folder / "version.py").write_text(f"__version__ = '{version}'\n")
    return build.Torch(folder)


def test_a_torch_that_is_too_old_is_named(tmp_path):
    with pytest.raises(build.BuildError, match=r"torch 2\.8\.1\+cpu is too old: the backend needs torch 2\.9 or newer"):
        build.build(a_torch("2.8.1+cpu", tmp_path), tmp_path)


def test_a_user_without_a_home_has_the_library_beside_the_package_and_else_a_temporary_folder(tmp_path, monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "RONDO_TORCH_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # KeyError: the user is in no list
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(RuntimeError):
        Path.home()
    assert build._writable_folder().parent == tmp_path
    monkeypatch.setattr(build, "_BESIDE", tmp_path)
    beside = tmp_path / build.file_name(build.installed())
    beside.touch()
    assert build.find() == beside


def test_registered_twice():
    rondo.torch.register()
    rondo.torch.register()
    assert "rondo" in dist.Backend.backend_list and dist.Backend.backend_list.count("rondo") == 1
    assert dist.Backend("rondo") == "rondo" and dist.Backend.default_device_backend_map["cpu"] == "gloo"
