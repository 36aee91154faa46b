"""What the ranks of this user's jobs on this host say at their sockets, and it all as one document."""

import collections
import contextlib
import json
import os
import pathlib
import re
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor



def outside_id(map_text, identifier):
    """As in transport/tcp/listener.h."""
    for line in map_text.splitlines():
        inside, outside, count = map(int, line.split())
        if inside <= identifier < inside + count:
            return outside + identifier - inside
    return identifier


def folder():
    with contextlib.suppress(OSError), open("/proc/self/uid_map") as file:
        return pathlib.Path(f"/tmp/rondo-{outside_id(file.read(), os.geteuid())}")
    return pathlib.Path(f"/tmp/rondo-{os.geteuid()}")


FOLDER = folder()
_NAME = re.compile(r"status-([0-9a-f]{8})-(\d+)\.sock")
OLD_S = 10.0
PATIENCE_S = 1.0  # a rank that runs answers within milliseconds

# Bytes that each rank sends over its busiest link, by byte of the call's buffers (rondo-bench has the same).
_SHARES = {"AllReduce": lambda n: 2 * (n - 1) / n, "Barrier": lambda n: 0}
_SHARES |= dict.fromkeys(["ReduceScatter", "AllGather", "Gather", "Scatter", "AllToAll"], lambda n: (n - 1) / n)

# What an answer must have.
_ANSWER = {"job": str, "communicators": list}
_COMMUNICATOR = {"hash": str, "size": int, "epoch": int, "ranks": list}
_RANK = {"rank": int, "host": str, "pid": int, "error": str, "collective_counts": dict, "collective_bytes": dict, "links": dict,
         "waits_for": list, "blame": str, "call": dict | None, "message": dict | None}
_LINKS = {"shared_memory": int, "tcp": int}
_CALL = {"text": str, "finished": bool, "since_ms": int}
_MESSAGE = {"text": str, "since_ms": int}


class Answer:
    """Of one socket. document: what the rank said; None: nothing, for the reason `why` (SILENT, DEAD, or another).
    program: its name, empty where no process listens."""

    SILENT = "does not answer: its process is stopped, or its core was taken"
    DEAD = "has ended without a goodbye"

    def __init__(self, session, rank, document=None, why="", program=""):
        self.session, self.rank, self.document, self.why, self.program = session, rank, document, why, program


def program_of(connection):
    """The name of the program that listens at the other end: of `python3 -u train.py` it is train.py."""
    pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:  # it has ended, or is in another container
        return ""
    names = words[:1]
    if re.match(r"python[0-9.]*$", os.path.basename(words[0])):
        names = [word for word in words[1:] if word and not word.startswith("-")] or names
    return os.path.basename(names[0])


def _check(value, wanted):
    if not isinstance(value, dict) or not all(isinstance(value.get(name, ...), kind) for name, kind in wanted.items()):
        raise ValueError("it is of another version of Rondo")


def document_of(answer):
    """What the bytes of an answer say. Raises ValueError, RecursionError."""
    document = json.loads(answer.decode(errors="replace"))
    _check(document, _ANSWER)
    for one in document["communicators"]:
        _check(one, _COMMUNICATOR)
        for rank in one["ranks"]:
            _check(rank, _RANK)
            _check(rank["links"], _LINKS)
            for value, wanted in ((rank["call"], _CALL), (rank["message"], _MESSAGE)):
                if value is not None:
                    _check(value, wanted)
    return document


def ask(path):
    """None: the socket has been removed meanwhile."""
    session, rank = _NAME.fullmatch(path.name).groups()
    until = time.monotonic() + PATIENCE_S
    parts, program = [], ""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(path))
            connection.shutdown(socket.SHUT_WR)  # it asks for nothing else
            program = program_of(connection)
            while True:
                connection.settimeout(max(until - time.monotonic(), 0.001))
                part = connection.recv(1 << 20)
                if not part:
                    break
                parts.append(part)
            return Answer(session, int(rank), document_of(b"".join(parts)), program=program)
        except FileNotFoundError:
            return None
        except ConnectionRefusedError:
            return Answer(session, int(rank), why=Answer.DEAD)
        except (TimeoutError, BlockingIOError):
            return Answer(session, int(rank), why=Answer.SILENT, program=program)
        except PermissionError:
            return Answer(session, int(rank), why="is another user's")
        except (OSError, ValueError, RecursionError) as error:
            return Answer(session, int(rank), why=f"gave no answer that can be read ({error})")


def ask_all(folder=FOLDER):
    """{session: {rank: Answer}}. Raises PermissionError where this user may not look."""
    try:
        paths = sorted(p for p in pathlib.Path(folder).iterdir() if _NAME.fullmatch(p.name))
    except FileNotFoundError:
        return {}
    jobs = {}
    with ThreadPoolExecutor(64) as pool:
        for answer in pool.map(ask, paths):
            if answer is not None:
                jobs.setdefault(answer.session, {})[answer.rank] = answer
    for session in [session for session, answers in jobs.items() if all(answer.why == Answer.DEAD for answer in answers.values())]:
        if remove_old([path for path in paths if _NAME.fullmatch(path.name)[1] == session]):
            del jobs[session]
    return jobs


def remove_old(paths):
    """The sockets of a job whose ranks have all been killed some time ago: a new one may not listen yet. True: removed."""
    try:
        if any(time.time() - path.stat().st_mtime < OLD_S for path in paths):
            return False
        for path in paths:
            path.unlink()
    except FileNotFoundError:  # another rondo-top, or a new job, did the rest
        pass
    return True


def collect(folder=FOLDER):
    """The jobs as one document, in the form of NCCL's `ncclras -f json`, with more fields."""
    began = time.monotonic()
    jobs = ask_all(folder)
    communicators = [one for session, answers in jobs.items() for one in communicators_of(session, answers)]
    silent = sum(answer.why == Answer.SILENT for answers in jobs.values() for answer in answers.values())
    return {"timestamp": time.strftime("%F %T"), "communicators_count": len(communicators), "communicators": communicators,
            "ras": {"collection_time_sec": round(time.monotonic() - began, 3), "timeouts_count": silent}}


def communicators_of(session, answers):
    """Of one job. Where no rank answers its ranks are those of a communicator without a hash."""
    found = {}
    program = collections.Counter(answer.program for answer in answers.values() if answer.program).most_common(1)
    program = program[0][0] if program else ""
    for answer in answers.values():
        for one in answer.document["communicators"] if answer.document else []:
            new = {"program": program, "job": answer.document["job"], "session": session, "hash": one["hash"], "epoch": one["epoch"], "size": one["size"], "ranks": []}
            found.setdefault((one["hash"], one["epoch"]), new)["ranks"] += one["ranks"]
    if not found:
        found[""] = {"program": program, "job": "", "session": session, "hash": "", "epoch": 0, "size": max(answers) + 1, "ranks": []}
    for one in found.values():
        one["ranks"].sort(key=lambda rank: rank["rank"])
        known = {rank["rank"] for rank in one["ranks"]}
        # Sockets are named by the ranks of the first communicator.
        named = answers if one["hash"] in ("0x1", "") else {}
        one["missing_ranks"] = [missing(rank, named.get(rank)) for rank in range(one["size"]) if rank not in known]
        one["ranks_count"], one["missing_ranks_count"] = len(known), len(one["missing_ranks"])
    return found.values()


def missing(rank, answer):
    why = answer.why if answer else "has no socket on this host: it is on another one, or has left"
    return {"rank": rank, "status": {"unresponsive": why == Answer.SILENT, "considered_dead": why == Answer.DEAD}, "why": why}


def add_rates(before, after, seconds):
    """Calls and bus bytes a second of each rank, from two documents so far apart."""
    earlier = {key: rank for one in before["communicators"] for key, rank in _ranks(one)}
    for one in after["communicators"]:
        for key, rank in _ranks(one):
            then = earlier.get(key)
            if then is None:
                continue
            calls = {name: number - then["collective_counts"].get(name, 0) for name, number in rank["collective_counts"].items()}
            moved = {name: number - then["collective_bytes"].get(name, 0) for name, number in rank["collective_bytes"].items()}
            rank["calls_per_second"] = round(sum(calls.values()) / seconds, 1)
            rank["bus_bytes_per_second"] = round(
                sum(number * _SHARES.get(name, lambda n: 1)(one["size"]) for name, number in moved.items()) / seconds)


def _ranks(one):
    for rank in one["ranks"]:
        yield (one["session"], one["hash"], one["epoch"], rank["rank"], rank["pid"]), rank


def late(one):
    """The ranks of a communicator that others wait for, or that do not answer."""
    waited_for = {peer for rank in one["ranks"] for peer in rank["waits_for"]}
    return waited_for | {rank["rank"] for rank in one["missing_ranks"] if any(rank["status"].values())}


def idle(one):
    """True: no rank of it is in a call or has made one since the last look, none is late, none has failed."""
    busy = (rank for rank in one["ranks"] if rank["error"] or rank["message"] or rank.get("calls_per_second") or
            (rank["call"] and not rank["call"]["finished"]))
    return not late(one) and next(busy, None) is None


def shown(document):
    """The communicators that are worth a look, those with late ranks first: of each job all that are not idle, or its first."""
    out = []
    for session in dict.fromkeys(one["session"] for one in document["communicators"]):
        mine = [one for one in document["communicators"] if one["session"] == session]
        out += [one for one in mine if not idle(one)] or mine[:1]
    return sorted(out, key=lambda one: not late(one))
