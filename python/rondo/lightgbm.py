"""LightGBM's distributed training over a group: no ports, no list of machines, any launcher.

>>> group = rondo.init()
>>> with rondo.lightgbm.network(group) as network:
...     booster = lightgbm.train({**network, "objective": "binary"}, lightgbm.Dataset(my_rows, my_labels))
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import lightgbm

from rondo._library import native
from rondo.communicator import Communicator
from rondo.errors import Invalid

_LIBRARY = lightgbm.basic._LIB


@contextlib.contextmanager
def network(group: Communicator) -> Iterator[dict[str, Any]]:
    """What LightGBM's datasets and boosters of this thread communicate by, until the block ends. All ranks of the group
    enter it and make the same calls of LightGBM, each with its own rows.

    It gives the parameters that such a training needs, to which the program adds its own: "num_machines" and
    "tree_learner", "data" unless the program says "voting". "machines" and ports are not to be given. What fails in the
    group is raised as the group's error, not as a LightGBMError. The group makes no other calls meanwhile.
    """
    handle = group._open()
    try:
        throws = _LIBRARY._ZSt21__throw_runtime_errorPKc  # of the C++ library whose exceptions LightGBM catches
        init = _LIBRARY.LGBM_NetworkInitWithFunctions
    except AttributeError as error:
        raise Invalid(f"rank {group.rank}: this LightGBM, {lightgbm.__version__}, takes no foreign network: {error}") from None
    functions = native.lightgbm_network(handle, ctypes.cast(throws, ctypes.c_void_p).value)
    try:
        if group.size > 1 and init(group.size, group.rank, *map(ctypes.c_void_p, functions)) != 0:
            raise Invalid(f"rank {group.rank}: LightGBM: {_LIBRARY.LGBM_GetLastError().decode()}")
        yield {"num_machines": group.size, "tree_learner": "data" if group.size > 1 else "serial"}
    except lightgbm.basic.LightGBMError:
        failed = _leave()
        if failed is None:
            raise
        raise failed from None
    finally:
        _leave()


def _leave() -> Any:
    _LIBRARY.LGBM_NetworkFree()
    return native.lightgbm_network(None, 0)
