"""rondo-trace on traces of real jobs: a rank that is stopped, one that is killed, clocks that differ.

    trace_test.py RONDO_RUN SCHEMA FOLDER      prints "pass NAME" or "fail NAME: why"
"""

import contextlib
import copy
import io
import json
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import traceback

import jsonschema
from jobs import Job

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "trace"))

import blame  # noqa: E402
import clocks  # noqa: E402
import read  # noqa: E402
import report  # noqa: E402
import rondo_trace  # noqa: E402

RUN, SCHEMA, FOLDER = sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text()), pathlib.Path(sys.argv[3])


def run_tool(*arguments):
    """What it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = rondo_trace.main([str(a) for a in arguments])
    assert status == 0, f"rondo-trace {arguments} ended with {status}"
    return printed.getvalue()


def section(report, title):
    """Its lines below the title."""
    _, _, rest = f"\n{report}".partition(f"\n{title}")
    assert rest, f"no section {title} in: {report}"
    return [line.strip() for line in rest.split("\n\n")[0].splitlines()[1:]]


def stopped(transport):
    """One of 4 ranks is stopped for 300 ms: every rank's sentence names it and that time."""
    folder = FOLDER / f"stopped-{transport}"
    with Job(RUN, folder, transport) as job:
        job.stop(2, 0.3)
    assert "calls" not in job.output and not job.output.strip(), job.output
    _, _, operations, members = rondo_trace.load(folder)
    said = blame.sentences(operations, members)
    for rank in range(4):
        longest = said[rank][0]
        assert 0.28e9 < longest[0] < 0.6e9, f"rank {rank}: {longest}"
        assert longest[2] == 2, f"rank {rank} blames another: {longest}"
        wanted = r"made no progress for|began all_reduce" if rank == 2 else r"waited [23]\d\d ms .* for rank 2\b"
        assert re.search(wanted, longest[1]), f"rank {rank}: {longest[1]}"
    report = run_tool("report", folder)
    assert section(report, "Late ones first")[1].startswith("rank 2 "), report
    for line in section(report, "Who waited for whom")[:3]:
        assert "for rank 2" in line or line.startswith("rank 2 "), line
    call = re.split("  +", section(report, "Calls")[1])
    assert call[0].startswith("all_reduce ") and len(call) == 7 and float(call[4]) > 0, call
    run_tool("merge", folder, "-o", FOLDER / "stopped.json")
    document = json.loads((FOLDER / "stopped.json").read_text())
    check_events(document)
    gaps = [e for e in document["traceEvents"] if e["ph"] == "X" and e["pid"] == 2 and e["dur"] > 280_000]
    assert gaps, "no span of rank 2 shows the gap"


def check_events(document):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    sample = dict(document, traceEvents=document["traceEvents"][:3000] + document["traceEvents"][-3000:])
    jsonschema.Draft202012Validator(SCHEMA).validate(sample)
    for wrong in ({"ph": "Q"}, {"cat": "other"}, {"ts": -1.0}):
        broken = copy.deepcopy(sample)
        next(e for e in broken["traceEvents"] if e["ph"] == "X").update(wrong)
        assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(broken), f"the schema takes {wrong}"
    last = {}
    for event in document["traceEvents"]:
        if event["ph"] == "X" and event["cat"] == "operation":
            thread = (event["pid"], event["tid"])
            assert event["ts"] >= last.get(thread, 0) - 0.002, "operations of a rank overlap"
            last[thread] = event["ts"] + event["dur"]


def killed():
    """One of 4 ranks is killed by SIGKILL: its trace is whole, the others' say who died."""
    folder = FOLDER / "killed"
    with Job(RUN, folder, "shm") as job:
        job.kill(1)
    ranks = read.read_folder(folder)
    assert sorted(ranks) == [0, 1, 2, 3]
    assert len(ranks[1].operations) > 10 and not ranks[1].failures
    # rondo-run ends the others at once: some hear of the death before, some do not.
    for rank in (0, 2, 3):
        failures = [(f["code"], f["ranks"]) for f in ranks[rank].failures]
        assert failures in ([], [("PEER_LOST", [1])]), failures
        assert failures or any(o.end is None for o in ranks[rank].operations.values()), f"rank {rank} ended well"
    ends = section(run_tool("report", folder), "Failures and open ends")
    assert any(re.search(r"trace ends inside|PEER_LOST", line) for line in ends), ends


def other_clock():
    """The clocks of two hosts are told from collectives: ranks 2 and 3 moved by 5 s come back to within the error."""
    folder, moved = FOLDER / "stopped-tcp", FOLDER / "moved"
    shutil.copytree(folder, moved)
    offset = 5_000_000_000
    for rank in (2, 3):
        path = moved / f"rank-{rank}.rondo-trace"
        data = bytearray(path.read_bytes())
        text = data[4096:4096 + 60 * 1024]
        data[4096:4096 + 60 * 1024] = re.sub(rb'"clock":"........', b'"clock":"anotherX', bytes(text), count=1)
        for at in range(4096 + 60 * 1024, len(data), 64):
            _, begin, end = struct.unpack_from("<QQQ", data, at)
            kind = data[at + 58]
            if kind and kind != read.ROUTE:
                struct.pack_into("<QQ", data, at + 8, begin + offset, end + offset)
        path.write_bytes(data)
    found = clocks.align(read.read_folder(moved))
    assert [c.ranks for c in found] == [[0, 1], [2, 3]], found
    assert found[1].error is not None and found[1].error < 2_000_000, found
    assert abs(found[1].offset + offset) <= found[1].error, found
    assert "clock estimated from collectives, ±" in run_tool("report", moved).splitlines()[0]


def rank_trace(rank, world, begins, waits=()):
    """Of all_reduce at these times, 1 ms each but for its waits: (begin, end, peer)."""
    about = {"rank": rank, "world": world, "host": "here", "pid": 1000 + rank, "monotonic_ns": 10**15, "clock": "one", "errors": [""]}
    trace = read.RankTrace(rank, about, {0: ("world", list(range(world)))}, [], 0, {}, [], 10**15)
    for number, begin in enumerate(begins, 2):
        mine = [read.Record(0, b, e, number, 0, 0, peer, 0, 0, 0, read.WAIT, 0, 0, 0) for b, e, peer in waits if begin <= b < begin + 10**7]
        end = max([begin + 10**6, *(w.end for w in mine)])
        trace.operations["world", number] = read.Operation("world", number, rank, begin, end, "all_reduce", 4096, waits=mine)
        trace.last = max(trace.last, end)
    return trace


def report_of(ranks):
    operations = {}
    for rank, trace in ranks.items():
        for key, operation in trace.operations.items():
            operations.setdefault(key, {})[rank] = operation
    return report.text(ranks, clocks.align(ranks), operations, {"world": list(range(len(ranks)))})


def many_ranks():
    """Of 64 ranks the late one stands on top, and most others are counted only."""
    start = 10**15
    ranks = {r: rank_trace(r, 64, [start + (5 * 10**6 if r == 41 else 0)], [] if r == 41 else [(start + 1000, start + 5 * 10**6 - 1, 41)])
             for r in range(64)}
    late = section(report_of(ranks), "Late ones first")
    assert late[1].startswith("rank 41 ") and len(late) == 1 + 8 + 1 and late[-1] == "and 56 more ranks", late


def no_operations():
    """Without operations no time is told: not since boot; with messages alone it is theirs."""
    empty = report_of({0: rank_trace(0, 1, [])})
    assert empty.startswith("1 rank, no operations; all ranks read one clock\n"), empty
    trace = rank_trace(0, 1, [])
    trace.messages = [read.Record(0, 10**15 - 2 * 10**6, 10**15, 0, 8, 0, 0, 0, 0, 0, read.MESSAGE, 0, 0, 0)]
    assert report_of({0: trace}).startswith("1 rank, no operations in 2 ms;")


def controls():
    """What a program has said is a line, also where it has the terminal's controls and line ends in it."""
    trace = rank_trace(0, 1, [10**15])
    trace.failures = [{"at": 10**15, "code": "ABORTED", "message": "one\x1b[2J\ntwo\u2028three\ud800"}]
    assert section(report_of({0: trace}), "Failures")[0].endswith(": ABORTED one [2J two three")


def head_has_seen_enough():
    """A reader that goes away early is no error: of tables, of events."""
    for arguments in (("report",), ("merge", "-o", "-")):
        process = subprocess.Popen([sys.executable, rondo_trace.__file__, arguments[0], FOLDER / "stopped-tcp", *arguments[1:]],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == (b"", 0), arguments


def refused(text, *files):
    folder = FOLDER / f"refused-{len(list(FOLDER.iterdir()))}"
    folder.mkdir()
    for name, data in files:
        (folder / name).write_bytes(data)
    try:
        read.read_folder(folder)
    except read.TraceError as error:
        assert text in str(error), str(error)
    else:
        raise AssertionError(f"{files} was taken")


def bad_files():
    """What is no trace is refused with a reason."""
    good = (FOLDER / "killed" / "rank-0.rondo-trace").read_bytes()
    name = "rank-0.rondo-trace"
    refused("RONDO_TRACE=")
    refused("not a trace", (name, b"RONDO"))
    refused("not a trace", (name, b"X" * len(good)))
    refused("it was cut off", (name, good[:-64]))
    refused("does not say which rank", (name, good[:4096] + b"\0" * 0 + good[4096:].replace(b'"rank"', b'"rang"', 1)))
    assert rondo_trace.main(["merge", str(FOLDER / "killed"), "-o", "/proc/none/x.json"]) == 1


def line_ends_in_words():
    """What a program has said may have Unicode's line ends in it."""
    data = bytearray((FOLDER / "killed" / "rank-0.rondo-trace").read_bytes())
    words = "one\u2028two\u2029three\u0085four"
    used = struct.unpack_from("<Q", data, 24)[0]
    line = json.dumps({"what": "failure", "at": 1, "code": "ABORTED", "message": words, "ranks": [0]}, ensure_ascii=False).encode() + b"\n"
    data[4096 + used:4096 + used + len(line)] = line
    struct.pack_into("<Q", data, 24, used + len(line))
    path = FOLDER / "words.rondo-trace"
    path.write_bytes(data)
    assert read.read_rank(path).failures[-1]["message"] == words


def lost_begin():
    """An operation whose begin the ring has lost starts at the first time that is left, though its route is older."""
    data = bytearray((FOLDER / "killed" / "rank-0.rondo-trace").read_bytes()[:4096 + 60 * 1024])
    struct.pack_into("<QQ", data, 8, 2, 3)  # two places, and three records so far
    start = 10**15
    for index, begin, end, kind in ((2, 0, 5000, read.ROUTE), (3, start, start + 10, read.WAIT)):
        data += struct.pack("<QQQQQIiIIHBBBBxx", index, begin, end, 77, 0, 0, -1, 0, 0, 0, kind, 0, 0, 0)
    path = FOLDER / "lost.rondo-trace"
    path.write_bytes(data)
    (operation,) = read.read_rank(path).operations.values()
    assert (operation.begin, len(operation.waits)) == (start, 1), operation


def linked_output():
    """A link keeps pointing at what is written."""
    page, link, null = FOLDER / "linked.json", FOLDER / "link.json", FOLDER / "null"
    page.write_text("old")
    for name, target in ((link, page), (null, "/dev/null")):
        name.symlink_to(target)
        run_tool("merge", FOLDER / "killed", "-o", name)
        assert name.is_symlink(), name
    assert json.loads(page.read_text())["traceEvents"] and not list(FOLDER.glob("*.part"))


def damaged_files():
    """A trace with wrong bytes, in its head, its text or its records, is read or refused, never more."""
    good = (FOLDER / "killed" / "rank-0.rondo-trace").read_bytes()
    records, kept = 4096 + 60 * 1024, 1024
    small = bytearray(good[:records + 64 * kept])
    struct.pack_into("<QQ", small, 8, kept, kept)
    used = struct.unpack_from("<Q", small, 24)[0]
    folder = FOLDER / "damaged"
    folder.mkdir()
    numbers, taken = random.Random(1), 0
    for _ in range(500):
        data = bytearray(small)
        first, last = numbers.choice([(0, 40), (4096, 4096 + used), (records, len(small)), (records, len(small))])
        for _ in range(numbers.choice([1, 8, 64])):
            data[numbers.randrange(first, last)] = numbers.randrange(256)
        (folder / "rank-0.rondo-trace").write_bytes(data)
        try:
            ranks, found, operations, members = rondo_trace.load(folder)
        except read.TraceError:
            continue
        report.text(ranks, found, operations, members)
        taken += 1
    assert 100 < taken < 500, f"{taken} of 500 were taken"


def main():
    for name, test in [("a stopped rank through shared memory", lambda: stopped("shm")),
                       ("a stopped rank over TCP", lambda: stopped("tcp")), ("a killed rank", killed),
                       ("clocks of two hosts", other_clock), ("64 ranks", many_ranks),
                       ("no operations", no_operations), ("words with controls", controls), ("a reader that goes away", head_has_seen_enough), ("files that are no traces", bad_files), ("line ends in words", line_ends_in_words), ("a lost begin", lost_begin),
                       ("an output that is a link", linked_output),
                       ("damaged files", damaged_files)]:
        try:
            test()
            print(f"pass trace: {name}", flush=True)
        except Exception as error:  # every test counts by itself
            print(f"fail trace: {name}: {' '.join(str(error).split())[:400]}", flush=True)
            traceback.print_exc()
    print("all traces looked at")


main()
