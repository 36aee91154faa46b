"""Rondo: collective communication for processes that train a model together.

>>> import numpy as np, rondo
>>> group = rondo.init()                    # under rondo-run, torchrun, mpirun, srun or rondo.spawn
>>> group.all_reduce(gradient, op="avg")    # in place, on every rank
"""

import importlib
from typing import TYPE_CHECKING

from rondo import data, errors
from rondo._elastic import elastic
from rondo._library import native as _native
from rondo._trace import trace
from rondo.batch import Batch
from rondo.calls import ANY_SOURCE, ANY_TAG
from rondo.communicator import Communicator, SparseReport, Topology
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


# Imported by those who use it; for spawn, multiprocessing with it.
_MODULES = {"Store": "store", "DistOpt": "dist_opt", "NcclIdHolder": "dist_opt", "spawn": "_spawn", "SpawnError": "_spawn"}
if TYPE_CHECKING:
    from rondo._spawn import SpawnError, spawn
    from rondo.dist_opt import DistOpt, NcclIdHolder  # noqa: F401
    from rondo.store import Store
else:

    def __getattr__(name: str):
        if name not in _MODULES:
            raise AttributeError(f"module 'rondo' has no attribute {name!r}")
        globals()[name] = value = getattr(importlib.import_module(f"rondo.{_MODULES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__", "__file__", "__name__", "__path__", "__version__"])
