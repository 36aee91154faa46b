"""torch's own multi-process tests of backends, as they lie in the installed torch, on a backend of our choice.

    BACKEND=rondo WORLD_SIZE=2 python -m pytest -rA tests/torch/upstream.py

What these tests ask of "gloo" by name they ask of BACKEND here: its name is replaced while the file is read. Ranks are
forked. DDP's logs name no backend of an extension but "custom".
"""

import importlib.util
import os
import sys
import tempfile
import types

os.environ.setdefault("BACKEND", "rondo")
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
os.environ.setdefault("INIT_METHOD", f"file://{os.environ['TEMP_DIR']}/shared_init_file")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "100")

import torch
import torch.multiprocessing
from torch.testing._internal import common_distributed

import rondo.torch

torch.set_num_threads(1)
BACKEND = os.environ["BACKEND"]
_MODULE = "torch.testing._internal.distributed.distributed_test"

# As gloo: which worlds the collectives need, and which features there are.
for _features in (common_distributed.DistTestCases.skip_collective, common_distributed.DistTestCases.backend_feature):
    for _backends in _features.values():
        if "gloo" in _backends:
            _backends.add(BACKEND)


def _load() -> types.ModuleType:
    path = importlib.util.find_spec(_MODULE).origin
    with open(path, encoding="utf-8") as file:
        source = file.read().replace('"gloo"', f'"{BACKEND}"')
    source = source.replace(f'"backend_name") == "{BACKEND}"', '"backend_name") == "gloo"')  # its own settings follow
    if BACKEND == "rondo":
        source = source.replace('get("backend_name"), dist.get_backend(group_id)', 'get("backend_name"), "custom"')
    source = source.replace("if backend == dist.Backend.GLOO:", f'if backend in ("gloo", "{BACKEND}"):')
    module = types.ModuleType(_MODULE)
    module.__file__ = path
    sys.modules[_MODULE] = module
    exec(compile(source, path, "exec"), module.__dict__)
    for profiled in ("", "CUDA_", "SEND_RECV_"):
        getattr(module, f"{profiled}PROFILING_SUPPORTED_BACKENDS").append(BACKEND)
    return module


_tests = _load()
if BACKEND == "rondo":
    from rondo.torch import _group

    _group.extension()  # once, before the ranks are forked


class TestUpstream(_tests.TestDistBackend, _tests.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

