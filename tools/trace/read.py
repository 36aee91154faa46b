"""Reads the traces that ranks leave (ring/engine/observe/trace_format.h)."""

import collections
import dataclasses
import json
import pathlib
import struct

_MAGIC = b"RONDOTR1"
_HEADER = struct.Struct("<8sQQQQ")
_HEADER_BYTES, _TEXT_BYTES = 4096, 60 * 1024
# A record, field by field as Record names them.
_SLOT = struct.Struct("<QQQQQIiIIBBBBxxxx")
BEGIN, ROUTE, END, STEP, TRANSFER, WAIT, STOPPED, MESSAGE = range(1, 9)
MEDIA = ["links", "posts", "windows"]
PATHS = ["link", "peer's memory", "staging memory", "post"]
DIRECTIONS = ["in", "out"]

Record = collections.namedtuple("Record", "index begin end number bytes communicator peer step round kind a b c")


class TraceError(Exception):
    """What is wrong with a folder or a file, and what to do."""


@dataclasses.dataclass
class Operation:
    """One collective as one rank saw it. Times in nanoseconds; end None: it was under way when the trace ended."""

    communicator: str
    number: int
    rank: int
    begin: int
    end: int | None = None
    collective: str = "collective"
    bytes: int = 0
    dtype: str = ""
    operator: str = ""
    algorithm: str = ""
    reason: str = ""
    medium: str = ""
    predicted: int = 0
    error: str = ""
    steps: list = dataclasses.field(default_factory=list)
    transfers: list = dataclasses.field(default_factory=list)
    waits: list = dataclasses.field(default_factory=list)
    stops: list = dataclasses.field(default_factory=list)

    @property
    def name(self):
        return f"{self.collective} #{self.number - 1}" if self.number > 1 else "start of the communicator"


@dataclasses.dataclass
class RankTrace:
    """All that one rank left."""

    rank: int
    about: dict
    communicators: dict  # number: (id, members)
    failures: list
    lost: int  # records that newer ones have replaced, or that cannot be read
    operations: dict  # (communicator id, number): Operation
    messages: list
    last: int  # the latest time in it

    @property
    def name(self):
        return f"rank {self.rank} ({self.about['host']})"


# What the lines of the text must have.
_LINES = {
    "rank": {"rank": int, "world": int, "host": str, "pid": int, "clock": str, "monotonic_ns": int, "collectives": list,
             "dtypes": list, "operators": list, "algorithms": list, "errors": list},
    "communicator": {"number": int, "id": str, "members": list},
    "failure": {"at": int, "code": str, "message": str},
    "reason": {"number": int, "text": str},
}


def _line(text):
    line = json.loads(text)
    wanted = _LINES.get(line["what"], {})  # others are for newer tools
    if wrong := [name for name, kind in wanted.items() if not isinstance(line[name], kind)]:
        raise ValueError(f"{', '.join(wrong)} of '{line['what']}'")
    return line


def _text(path, data, used):
    # Not splitlines(): a message may have what Unicode calls a line end.
    lines = data[_HEADER_BYTES:_HEADER_BYTES + used].decode("utf-8", "replace").split("\n")
    try:
        said = [_line(line) for line in lines if line]
    except (ValueError, KeyError, TypeError) as error:
        raise TraceError(f"{path}: its text is damaged ({error})") from None
    about = next((line for line in said if line["what"] == "rank"), None)
    if about is None:
        raise TraceError(f"{path}: it does not say which rank it is of; was it copied while the job started?")
    if not 0 <= about["rank"] < about["world"]:
        raise TraceError(f"{path}: its text is damaged (rank {about['rank']} of {about['world']})")
    for line in said:
        members = line["members"] if line["what"] == "communicator" else []
        if not all(isinstance(member, int) and 0 <= member < about["world"] for member in members):
            raise TraceError(f"{path}: its text is damaged (members of communicator {line['number']})")
    return about, said


def _records(data, slots, written):
    # The ring has the newest records, from any slot on: their numbers say which those are, and in which order.
    at = _HEADER_BYTES + _TEXT_BYTES
    records = [Record._make(fields) for fields in _SLOT.iter_unpack(data[at:at + slots * _SLOT.size])]
    return sorted(r for r in records if max(0, written - slots) < r.index <= written)


def read_rank(path):
    """The RankTrace of one file. Throws TraceError."""
    data = pathlib.Path(path).read_bytes()
    if len(data) < _HEADER_BYTES + _TEXT_BYTES or data[:8] != _MAGIC:
        raise TraceError(f"{path}: not a trace of this version of Rondo")
    _, slots, written, used, _ = _HEADER.unpack_from(data)
    if len(data) != _HEADER_BYTES + _TEXT_BYTES + slots * _SLOT.size or used > _TEXT_BYTES:
        raise TraceError(f"{path}: {len(data)} bytes, but its header says {slots} records: it was cut off")
    about, said = _text(path, data, used)
    records = _records(data, slots, written)
    trace = RankTrace(about["rank"], about, {}, [], max(0, written - slots), {}, [], 0)
    for line in said:
        if line["what"] == "communicator":
            trace.communicators[line["number"]] = (line["id"], line["members"])
        elif line["what"] == "failure":
            trace.failures.append(line)
    reasons = {line["number"]: line["text"] for line in said if line["what"] == "reason"}
    limits = _limits(about)
    for record in records:
        if _fits(trace, record, limits):
            _take(trace, record, reasons)
        else:
            trace.lost += 1
    trace.last = max([r.end for r in records if r.kind != ROUTE] + [f["at"] for f in trace.failures] +
                     [about["monotonic_ns"]])
    return trace


def _limits(about):
    """{kind: what a, b and c are below}."""
    collectives, algorithms, errors = len(about["collectives"]), len(about["algorithms"]), len(about["errors"])
    any_byte = 256
    return {BEGIN: (collectives, len(about["dtypes"]), len(about["operators"])), ROUTE: (algorithms, any_byte, len(MEDIA)),
            END: (errors, collectives, algorithms), STEP: (any_byte,) * 3,
            TRANSFER: (len(DIRECTIONS), len(PATHS), any_byte), WAIT: (any_byte,) * 3, STOPPED: (any_byte,) * 3,
            MESSAGE: (len(DIRECTIONS), errors, any_byte)}


def _fits(trace, r, limits):
    """False: a damaged record, or one of a communicator for which the text had no room."""
    known, limit = trace.communicators.get(r.communicator), limits.get(r.kind)
    if known is None or limit is None or r.a >= limit[0] or r.b >= limit[1] or r.c >= limit[2]:
        return False
    least = {TRANSFER: 0, WAIT: -1, MESSAGE: -1}.get(r.kind)
    return (least is None or least <= r.peer < len(known[1])) and (r.kind == ROUTE or r.begin <= r.end or r.end == 0)


def _take(trace, r, reasons):
    about = trace.about
    if r.kind == MESSAGE:
        trace.messages.append(r)
        return
    communicator = trace.communicators[r.communicator][0]
    key = (communicator, r.number)
    operation = trace.operations.get(key)
    if operation is None:
        # The ring has lost its begin: what is left of it starts here. A route has no time.
        if r.kind == ROUTE:
            return
        operation = trace.operations[key] = Operation(communicator, r.number, trace.rank, r.begin)
    if r.kind == BEGIN:
        operation.begin, operation.bytes = r.begin, r.bytes
        operation.collective, operation.dtype = about["collectives"][r.a], about["dtypes"][r.b]
        operation.operator = about["operators"][r.c]
    elif r.kind == ROUTE:
        operation.algorithm, operation.reason = about["algorithms"][r.a], reasons.get(r.b, "")
        operation.medium, operation.predicted = MEDIA[r.c], r.end
    elif r.kind == END:
        operation.begin, operation.end, operation.bytes = r.begin, r.end, r.bytes
        operation.collective, operation.algorithm = about["collectives"][r.b], about["algorithms"][r.c]
        operation.error = about["errors"][r.a] if r.a else ""
    else:
        {STEP: operation.steps, TRANSFER: operation.transfers, WAIT: operation.waits,
         STOPPED: operation.stops}[r.kind].append(r)


def read_folder(folder):
    """{rank: RankTrace} of a folder. Throws TraceError."""
    folder = pathlib.Path(folder)
    paths = sorted(folder.glob("rank-*.rondo-trace"))
    if not paths:
        raise TraceError(f"{folder}: no rank-*.rondo-trace in it; RONDO_TRACE={folder} makes them")
    ranks = {trace.rank: trace for trace in map(read_rank, paths)}
    worlds = {trace.about["world"] for trace in ranks.values()}
    if len(worlds) > 1:
        raise TraceError(f"{folder}: traces of jobs of {' and '.join(map(str, sorted(worlds)))} ranks: give each job a "
                         "folder of its own")
    return ranks
