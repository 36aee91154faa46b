"""Steps that are done again by the ranks that live."""

from __future__ import annotations

from rondo.communicator import Communicator
from rondo.errors import Error, Network, PeerLeft, PeerLost, Timeout, Unresponsive

_LOSSES = (PeerLost, PeerLeft, Unresponsive, Timeout, Network)


class elastic:  # noqa: N801
    """For the block of a step: where another rank is lost in it, the block ends, and the ranks that live have shrunk.
    Whether the step was done shows a variable that its last line sets; every rank must do the same steps again, so what
    the block changes is put back first. Other errors leave the block. `timeout`: of Communicator.shrink().

    >>> recovery = rondo.elastic(rondo.init())
    >>> while step < steps:
    ...     with recovery as group:
    ...         total = group.all_reduce(gradient, out=np.empty_like(gradient))
    ...         group.commit(step)
    ...     if recovery.group.committed == step:    # on all ranks, whichever saw the loss
    ...         weights, step = weights - rate * total / group.size, step + 1
    """

    def __init__(self, group: Communicator, timeout: float | None = None):
        if not isinstance(group, Communicator):
            raise TypeError(f"group is a {type(group).__name__}; it is a rondo.Communicator")
        self.group = group
        self.timeout = timeout
        self.lost: Error | None = None  # the last loss

    def __enter__(self) -> Communicator:
        return self.group

    def __exit__(self, kind, error, trace) -> bool:
        if kind is None or not issubclass(kind, _LOSSES):
            return False
        self.lost = error
        self.group = self.group.shrink(self.timeout)
        return True
