"""Python objects between ranks, as bytes with their lengths sent first."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rondo.communicator import Communicator

_BYTES, _JSON, _PICKLE = b"b", b"j", b"p"


def encode(value: Any, one_host: bool) -> bytes:
    """Pickled inside one host: only its owner's processes are there. Else bytes or JSON, which run nothing when read."""
    if one_host:
        return _PICKLE + pickle.dumps(value)
    if isinstance(value, bytes):
        return _BYTES + value
    import json  # here, because only ranks of several hosts need it

    try:
        text = json.dumps(value)
        kept = json.loads(text) == value
    except (TypeError, ValueError):
        kept = False
    if not kept:
        raise TypeError(
            f"a {type(value).__name__} cannot go to another host as an object: only bytes and what JSON keeps as it is "
            "may, until ranks can prove who they are. Pass pickle.dumps(value) if you trust every rank's host."
        )
    return _JSON + text.encode()


def decode(data: bytes, one_host: bool) -> Any:
    kind, body = data[:1], data[1:]
    if kind == _PICKLE and one_host:
        return pickle.loads(body)
    if kind == _BYTES:
        return body
    if kind == _JSON:
        import json

        return json.loads(body)
    raise ValueError(f"an object of kind {kind!r} came from another rank")


def _encode_or_abort(group: Communicator, value: Any, one_host: bool) -> bytes:
    try:
        return encode(value, one_host)
    except Exception as error:
        # The others wait for it.
        group.abort(f"{type(error).__name__}: {error}")
        raise


def broadcast(group: Communicator, value: Any, root: int) -> Any:
    one_host = group.nodes == 1
    data = _encode_or_abort(group, value, one_host) if group.rank == root else b""
    length = np.array([len(data)], np.uint64)
    group.broadcast(length, root)
    body = np.frombuffer(data, np.uint8).copy() if group.rank == root else np.empty(int(length[0]), np.uint8)
    group.broadcast(body, root)
    return value if group.rank == root else decode(body.tobytes(), one_host)


def all_gather(group: Communicator, value: Any) -> list:
    one_host = group.nodes == 1
    data = np.frombuffer(_encode_or_abort(group, value, one_host), np.uint8)
    return [decode(part.tobytes(), one_host) for part in group.all_gather_v(data)]
