"""Python objects between ranks, as bytes with their lengths sent first."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rondo._arguments import counts_of_peers

if TYPE_CHECKING:
    from rondo.communicator import Communicator

_BYTES, _JSON, _PICKLE = b"b", b"j", b"p"


def encode(value: Any, trusted: bool) -> bytes:
    """Pickled among ranks that know the job's secret. Else bytes or JSON, which run nothing when read."""
    if trusted:
        return _PICKLE + pickle.dumps(value)
    if isinstance(value, bytes):
        return _BYTES + value
    import json  # here, because few need it

    try:
        text = json.dumps(value)
        kept = json.loads(text) == value
    except (TypeError, ValueError):
        kept = False
    if not kept:
        raise TypeError(
            f"a {type(value).__name__} cannot be sent as an object with RONDO_INSECURE=1, where anybody may be a rank: only "
            "bytes and what JSON keeps as it is may. Set RONDO_SECRET_FILE instead."
        )
    return _JSON + text.encode()


def decode(data: bytes, trusted: bool) -> Any:
    kind, body = data[:1], data[1:]
    if kind == _PICKLE and trusted:
        return pickle.loads(body)
    if kind == _BYTES:
        return body
    if kind == _JSON:
        import json

        return json.loads(body)
    raise ValueError(f"an object of kind {kind!r} came from another rank")


def broadcast(group: Communicator, value: Any, root: int) -> Any:
    trusted = group.authenticated
    with group._compound("broadcast_object") as exchanges:
        data = encode(value, trusted) if group.rank == root else b""
        length = np.array([len(data)], np.uint64)
        exchanges.broadcast(length, root)
        if group.rank == root:
            body = np.frombuffer(data, np.uint8).copy()
        else:
            body = np.empty(counts_of_peers(length, 1, group.rank, root)[0], np.uint8)
        exchanges.broadcast(body, root)
    return value if group.rank == root else decode(body.tobytes(), trusted)


def all_gather(group: Communicator, value: Any) -> list:
    trusted = group.authenticated
    with group._compound("all_gather_object") as exchanges:
        parts = exchanges.all_gather_v(np.frombuffer(encode(value, trusted), np.uint8))
    return [decode(part.tobytes(), trusted) for part in parts]


def gather(group: Communicator, value: Any, root: int) -> list | None:
    trusted = group.authenticated
    with group._compound("gather_object") as exchanges:
        parts = exchanges.gather_v(np.frombuffer(encode(value, trusted), np.uint8), root=root)
    return None if parts is None else [decode(part.tobytes(), trusted) for part in parts]


def scatter(group: Communicator, values: Sequence | None, root: int) -> Any:
    trusted, is_root = group.authenticated, group.rank == root
    if is_root and (values is None or len(values) != group.size):
        raise ValueError(f"scatter_object on rank {root}, which is root: values has to be {group.size} objects, one a rank")
    with group._compound("scatter_object") as exchanges:
        coded = [encode(value, trusted) for value in values] if is_root else []
        lengths = np.array([len(each) for each in coded], np.uint64)
        own = exchanges.scatter(lengths if is_root else None, root, np.empty(1, np.uint64))
        body = np.empty(counts_of_peers(own, 1, group.rank, root)[0], np.uint8)
        joined = np.frombuffer(b"".join(coded), np.uint8) if is_root else None
        exchanges.scatter_v(joined, lengths.tolist() if is_root else None, root, body)
    return decode(body.tobytes(), trusted)


def send(group: Communicator, value: Any, dest: int, tag: int, timeout: float | None) -> None:
    data = encode(value, group.authenticated)
    with group._compound("send_object", timeout) as exchanges:
        exchanges.send(np.array([len(data)], np.uint64), dest, tag, timeout=timeout)
        exchanges.send(np.frombuffer(data, np.uint8), dest, tag, timeout=timeout)


def receive(group: Communicator, source: int, tag: int, timeout: float | None) -> Any:
    trusted = group.authenticated
    with group._compound("recv_object", timeout) as exchanges:
        length = np.empty(1, np.uint64)
        first = exchanges.recv(length, source, tag, timeout=timeout)
        body = np.empty(counts_of_peers(length, 1, group.rank, first.source)[0], np.uint8)
        exchanges.recv(body, first.source, first.tag, timeout=timeout)
    return decode(body.tobytes(), trusted)
