"""What the ranks of this user's jobs on this host say at their sockets, and it all as one document."""

import json
import os
import pathlib
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

# transport/tcp/listener.cc has it, too.
FOLDER = pathlib.Path(f"/tmp/rondo-{os.geteuid()}")
_NAME = re.compile(r"status-([0-9a-f]{8})-(\d+)\.sock")
OLD_S = 10.0
PATIENCE_S = 1.0  # a rank that runs answers within milliseconds

# Bytes that each rank sends over its busiest link, by byte of the call's buffers (rondo-bench has the same).
_SHARES = {"AllReduce": lambda n: 2 * (n - 1) / n, "Barrier": lambda n: 0}
_SHARES |= dict.fromkeys(["ReduceScatter", "AllGather", "Gather", "Scatter", "AllToAll"], lambda n: (n - 1) / n)


class Answer:
    """Of one socket. document: what the rank said; None: nothing, for the reason `why` (SILENT, DEAD, or another)."""

    SILENT = "does not answer: its process is stopped, or its core was taken"
    DEAD = "has ended without a goodbye"

    def __init__(self, session, rank, document=None, why=""):
        self.session, self.rank, self.document, self.why = session, rank, document, why


def ask(path):
    """None: the socket has been removed meanwhile."""
    session, rank = _NAME.fullmatch(path.name).groups()
    until = time.monotonic() + PATIENCE_S
    parts = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(path))
            while True:
                connection.settimeout(max(until - time.monotonic(), 0.001))
                part = connection.recv(1 << 20)
                if not part:
                    break
                parts.append(part)
            return Answer(session, int(rank), json.loads(b"".join(parts).decode(errors="replace")))
        except FileNotFoundError:
            return None
        except ConnectionRefusedError:
            return Answer(session, int(rank), why=Answer.DEAD)
        except (TimeoutError, BlockingIOError):
            return Answer(session, int(rank), why=Answer.SILENT)
        except PermissionError:
            return Answer(session, int(rank), why="is another user's")
        except (OSError, ValueError) as error:
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
    for answer in answers.values():
        for one in answer.document["communicators"] if answer.document else []:
            new = {"job": answer.document["job"], "session": session, "hash": one["hash"], "epoch": one["epoch"], "size": one["size"], "ranks": []}
            found.setdefault((one["hash"], one["epoch"]), new)["ranks"] += one["ranks"]
    if not found:
        found[""] = {"job": "", "session": session, "hash": "", "epoch": 0, "size": max(answers) + 1, "ranks": []}
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
