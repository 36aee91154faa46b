"""Steps that are done again by the ranks that live, and by those that have come."""

from __future__ import annotations

from rondo._arguments import milliseconds
from rondo.communicator import Communicator
from rondo.errors import Error, Network, PeerLeft, PeerLost, Timeout, Unresponsive

_LOSSES = (PeerLost, PeerLeft, Unresponsive, Timeout, Network)
_GROW_TIMEOUT = 5.0  # seconds: who waits at RONDO_JOIN is there already


class elastic:  # noqa: N801
    """For the block of a step: where another rank is lost in it, the block ends, and the ranks that live have shrunk.
    After a step without a loss the processes that wait at RONDO_JOIN have been taken in. `committed` shows
    whether the step was done. Every rank must do the same steps again, so what the block changes is put back first. New
    ranks get the state by a broadcast of rank 0 at the first step of an epoch. Other errors leave the block.
    `timeout`: of Communicator.shrink().

    >>> recovery, epoch = rondo.elastic(rondo.init()), None
    >>> while recovery.group.committed < steps - 1:
    ...     with recovery as group:
    ...         if epoch != group.epoch:
    ...             group.broadcast(weights)
    ...             epoch = group.epoch
    ...         step = group.committed + 1
    ...         total = group.all_reduce(gradient, out=np.empty_like(gradient))
    ...         group.commit(step)
    ...     if recovery.group.committed == step:    # on all ranks, whichever saw the loss
    ...         weights -= rate * total / group.size
    """

    def __init__(self, group: Communicator, timeout: float | None = None):
        if not isinstance(group, Communicator):
            raise TypeError(f"group is a {type(group).__name__}; it is a rondo.Communicator")
        self.group = group
        milliseconds(timeout, group.rank)  # refused here, not at a loss
        self.timeout = timeout
        self.lost: Error | None = None  # the last loss

    def __enter__(self) -> Communicator:
        return self.group

    def __exit__(self, kind, error, trace) -> bool:
        if kind is None:
            try:
                self._take_in()
                return True
            except _LOSSES as loss:
                error = loss
        elif not issubclass(kind, _LOSSES) or issubclass(kind, Timeout) and self.group.error is None:  # of a probe
            return False
        self.lost = error
        self.group = self.group.shrink(self.timeout)
        return True

    def _take_in(self) -> None:
        newcomers = self.group.newcomers()
        if newcomers == 0:
            return
        try:
            self.group = self.group.grow(newcomers, _GROW_TIMEOUT)
        except Timeout:  # one of them has died meanwhile
            if self.group.error is not None:
                raise
