"""A trace in the Chrome trace event format (docs/trace-schema.json). A process is a rank; its threads are the
operations of a communicator, their steps, and messages."""

from read import DIRECTIONS, PATHS

# Thread numbers: communicator * this for operations, and one more for their steps.
_THREADS = 2
_MESSAGES = 1_000_000


def _event(name, category, rank, thread, begin, end, start, **details):
    return {"name": name, "cat": category, "ph": "X", "pid": rank, "tid": thread, "ts": (begin - start) / 1000,
            "dur": max(end - begin, 0) / 1000, "args": details}


def _name(kind, rank, thread, text):
    return {"name": kind, "ph": "M", "pid": rank, "tid": thread, "args": {"name": text}}


def _steps(operation, members, rank, thread, start):
    reads = {}
    for r in operation.transfers:
        text = f"{DIRECTIONS[r.a]}: rank {members[r.peer]}, {r.bytes} bytes, {PATHS[r.b]}"
        reads.setdefault((r.end, r.step), []).append(text)
    for s in operation.steps:
        yield _event(f"step {s.step}", "step", rank, thread + 1, s.begin, s.end, start, step=s.step,
                     round=s.round, bytes=s.bytes, transfers=reads.get((s.end, s.step), []))
    for w in operation.waits:
        name = f"waits for rank {members[w.peer]}" if w.peer >= 0 else "waits for its own sends"
        yield _event(name, "wait", rank, thread + 1, w.begin, w.end, start, step=w.step, round=w.round)


def _operation(operation, members, rank, thread, start, last):
    end = operation.end if operation.end is not None else last
    details = {"bytes": operation.bytes, "dtype": operation.dtype, "operator": operation.operator,
               "algorithm": operation.algorithm, "why": operation.reason, "medium": operation.medium,
               "predicted_us": operation.predicted / 1000, "communicator": operation.communicator,
               "ended": operation.end is not None, "error": operation.error}
    yield _event(operation.name, "operation", rank, thread, operation.begin, end, start, **details)
    yield from _steps(operation, members, rank, thread, start)
    for s in operation.stops:
        yield _event("made no progress", "stopped", rank, thread, s.begin, s.end, start)


def _rows(spans):
    """(row, span): spans of one row do not overlap."""
    ends = []
    for span in sorted(spans, key=lambda r: r.begin):
        row = next((i for i, end in enumerate(ends) if end <= span.begin), len(ends))
        ends[row:row + 1] = [span.end]
        yield row, span


def _messages(trace, start):
    for row, m in _rows(trace.messages):
        members = trace.communicators[m.communicator][1]
        peer = f"rank {members[m.peer]}" if m.peer >= 0 else "any rank"
        yield _event(f"{'send to' if m.a else 'recv from'} {peer}", "message", trace.rank, _MESSAGES + row, m.begin,
                     m.end, start, bytes=m.bytes, tag=m.number, error=trace.about["errors"][m.b] if m.b else "")


def beginning(ranks):
    """When the first operation or message began; None: there is none."""
    begins = [o.begin for t in ranks.values() for o in t.operations.values()]
    begins += [m.begin for t in ranks.values() for m in t.messages]
    return min(begins, default=None)


def events(ranks, clocks):
    """The whole document, as json.dump takes it."""
    start = beginning(ranks)
    out = []
    for rank, trace in sorted(ranks.items()):
        out.append(_name("process_name", rank, 0, f"{trace.name}, pid {trace.about['pid']}"))
        out.append({"name": "process_sort_index", "ph": "M", "pid": rank, "tid": 0, "args": {"sort_index": rank}})
        for number, (identity, members) in trace.communicators.items():
            thread = number * _THREADS
            mine = [o for o in trace.operations.values() if o.communicator == identity]
            if not mine:
                continue
            out.append(_name("thread_name", rank, thread, f"communicator {number}: {len(members)} ranks"))
            if any(o.steps or o.waits for o in mine):
                out.append(_name("thread_name", rank, thread + 1, f"communicator {number}, steps"))
            for operation in mine:
                out += _operation(operation, members, rank, thread, start, trace.last)
        out += _messages(trace, start)
    about = [{"ranks": c.ranks, "offset_ns": c.offset, "error_ns": c.error} for c in clocks]
    return {"displayTimeUnit": "ns", "traceEvents": out, "otherData": {"clocks": about, "records_lost": {
        str(rank): trace.lost for rank, trace in sorted(ranks.items())}}}
