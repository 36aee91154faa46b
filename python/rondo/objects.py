"""Python objects between ranks, as bytes."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rondo._arguments import counts_of_peers, whole_number
from rondo.calls import ANY_SOURCE

if TYPE_CHECKING:
    from rondo.communicator import Communicator

_BYTES, _JSON, _PICKLE = b"b", b"j", b"p"


def encode(value: Any, trusted: bool) -> bytes:
    """Pickled among ranks that know the job's secret. Else bytes or JSON, which run nothing when read."""
    if trusted:
        return _PICKLE + pickle.dumps(value, 5)
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


def decode(data: Any, trusted: bool) -> Any:
    """data: bytes, or what has them."""
    data = memoryview(data)
    kind, body = bytes(data[:1]), data[1:]
    if kind == _PICKLE and trusted:
        return pickle.loads(body)
    if kind == _BYTES:
        return bytes(body)
    if kind == _JSON:
        import json

        return json.loads(bytes(body))
    raise ValueError(f"an object of kind {kind!r} came from another rank")


# The first exchange of a call: blocks of two lengths and the beginning of an object. What fits needs no other; 512 bytes
# cost 0.1 us more than 8.
_BLOCK, _LENGTHS = 512, struct.Struct("=QQ")
_ROOM = _BLOCK - _LENGTHS.size


def _block(data: bytes, longest: int) -> np.ndarray:
    """longest: bytes of the longest object of the call."""
    block = np.empty(_BLOCK, np.uint8)
    _LENGTHS.pack_into(block, 0, len(data), longest)
    beginning = data[:_ROOM]
    block.data[_LENGTHS.size : _LENGTHS.size + len(beginning)] = beginning
    return block


def _part(blocks: np.ndarray, index: int, length: int) -> memoryview:
    begin = index * _BLOCK + _LENGTHS.size
    return blocks.data[begin : begin + length]


class ObjectCalls:
    """A part of Communicator."""

    def broadcast_object(self: Communicator, value: Any = None, root: int = 0) -> Any:
        """Root's `value` on every rank: anything that pickle takes. With RONDO_INSECURE=1, where anybody may be a rank:
        bytes, and what JSON keeps as it is; else TypeError on root and rondo.Aborted elsewhere.

        >>> settings = group.broadcast_object({"lr": 0.01} if group.rank == 0 else None)
        """
        root = whole_number(root, "root", self.rank)
        trusted, is_root = self.authenticated, self.rank == root
        with self._compound("broadcast_object") as exchanges:
            data = encode(value, trusted) if is_root else b""
            block = _block(data, len(data))
            exchanges.broadcast(block, root)
            length, _ = _LENGTHS.unpack_from(block)
            counts_of_peers([length], 1, self.rank, root)
            body = _part(block, 0, length)
            if length > _ROOM:
                body = np.frombuffer(data, np.uint8).copy() if is_root else np.empty(length, np.uint8)
                exchanges.broadcast(body, root)
        return value if is_root else decode(body, trusted)

    def all_gather_object(self: Communicator, value: Any) -> list:
        """The values of all ranks, by rank; what a value may be: see broadcast_object().

        >>> group.all_gather_object(group.rank * 10)                 # 2 ranks
        [0, 10]
        """
        trusted, size = self.authenticated, self.size
        with self._compound("all_gather_object") as exchanges:
            data = encode(value, trusted)
            blocks = np.empty(size * _BLOCK, np.uint8)
            exchanges.all_gather(_block(data, len(data)), blocks)
            said = [_LENGTHS.unpack_from(blocks, rank * _BLOCK)[0] for rank in range(size)]
            lengths = counts_of_peers(said, 1, self.rank)
            if max(lengths) <= _ROOM:
                parts = [_part(blocks, rank, length) for rank, length in enumerate(lengths)]
            else:
                parts = exchanges.all_gather_v(np.frombuffer(data, np.uint8), lengths)
        return [decode(part, trusted) for part in parts]

    def gather_object(self: Communicator, value: Any, root: int = 0) -> list | None:
        """The values of all ranks, by rank, on root; None elsewhere. What a value may be: see broadcast_object().

        >>> group.gather_object(group.rank * 10)                     # 2 ranks: on rank 0
        [0, 10]
        """
        root = whole_number(root, "root", self.rank)
        trusted = self.authenticated
        with self._compound("gather_object") as exchanges:
            parts = exchanges.gather_v(np.frombuffer(encode(value, trusted), np.uint8), root=root)
        return None if parts is None else [decode(part, trusted) for part in parts]

    def scatter_object(self: Communicator, values: Sequence | None = None, root: int = 0) -> Any:
        """Root's values[rank]; values is read on root only. What a value may be: see broadcast_object().

        >>> group.scatter_object(["a", "b"] if group.rank == 0 else None)    # 2 ranks: on rank 1
        'b'
        """
        root = whole_number(root, "root", self.rank)
        trusted, is_root = self.authenticated, self.rank == root
        if is_root and (values is None or len(values) != self.size):
            raise ValueError(f"scatter_object on rank {root}, which is root: values has to be {self.size} objects, one a rank")
        with self._compound("scatter_object") as exchanges:
            coded = [encode(value, trusted) for value in values] if is_root else []
            longest = max(map(len, coded), default=0)
            block = np.empty(_BLOCK, np.uint8)
            exchanges.scatter(np.concatenate([_block(each, longest) for each in coded]) if is_root else None, root, block)
            length, longest = _LENGTHS.unpack_from(block)
            counts_of_peers([length], 1, self.rank, root)
            body = _part(block, 0, length)
            if longest > _ROOM:
                body = np.empty(length, np.uint8)
                joined = np.frombuffer(b"".join(coded), np.uint8) if is_root else None
                exchanges.scatter_v(joined, [len(each) for each in coded] if is_root else None, root, body)
        return decode(body, trusted)

    def send_object(self: Communicator, value: Any, dest: int, tag: int = 0, *, timeout: float | None = None) -> None:
        """Sends an object to a rank that calls recv_object(), as one message with this tag. What a value may be: see
        broadcast_object().

        >>> group.send_object({"step": 3}, dest=1)
        """
        dest, tag = whole_number(dest, "dest", self.rank), whole_number(tag, "tag", self.rank)
        data = encode(value, self.authenticated)
        with self._compound("send_object", timeout) as exchanges:
            exchanges.send(np.frombuffer(data, np.uint8), dest, tag, timeout=timeout)

    def recv_object(self: Communicator, source: int = ANY_SOURCE, tag: int = 0, *, timeout: float | None = None) -> Any:
        """The object that a rank sent by send_object().

        >>> group.recv_object(source=0)
        {'step': 3}
        """
        source, tag = whole_number(source, "source", self.rank), whole_number(tag, "tag", self.rank)
        trusted = self.authenticated
        with self._compound("recv_object", timeout) as exchanges:
            matched = exchanges.mprobe(source, tag, timeout=timeout)
            body = np.empty(matched.bytes, np.uint8)
            exchanges.mrecv(body, matched, timeout=timeout)
        return decode(body, trusted)
