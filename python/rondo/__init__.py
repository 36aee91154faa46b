"""Rondo: collective communication for processes that train a model together.

>>> import numpy as np, rondo
>>> group = rondo.init()                    # under rondo-run, torchrun, mpirun, srun or rondo.spawn
>>> group.all_reduce(gradient, op="avg")    # in place, on every rank
"""

from rondo import data, errors
from rondo._elastic import elastic
from rondo._library import native as _native
from rondo._trace import trace
from rondo.batch import Batch
from rondo.communicator import ANY_SOURCE, ANY_TAG, Communicator, SparseReport, Topology
from rondo.errors import *  # noqa: F403
from rondo.start import UniqueId, init, unique_id
from rondo.user_op import UserOp
from rondo.wire import Wire
from rondo.work import Matched, Message, Work

__version__ = _native.VERSION

__all__ = [
    "ANY_SOURCE", "ANY_TAG", "Batch", "Communicator", "DistOpt", "Matched", "Message", "SparseReport", "SpawnError", "Store",
    "Topology", "UniqueId", "UserOp", "Wire", "Work", "data", "elastic", "init", "spawn", "trace", "unique_id", *errors.__all__,
]  # fmt: skip


def __getattr__(name: str):
    # Imported by those who use it; for spawn, multiprocessing with it.
    if name == "Store":
        from rondo.store import Store

        globals()["Store"] = Store
        return Store
    if name in ("DistOpt", "NcclIdHolder"):
        from rondo import dist_opt as module

        globals().update(DistOpt=module.DistOpt, NcclIdHolder=module.NcclIdHolder)
        return globals()[name]
    if name in ("spawn", "SpawnError"):
        from rondo import _spawn as module

        globals().update(spawn=module.spawn, SpawnError=module.SpawnError)
        return globals()[name]
    raise AttributeError(f"module 'rondo' has no attribute {name!r}")
