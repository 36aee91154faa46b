"""rondo-top on real jobs: one that runs, one with a stopped rank, one with a killed rank, and none.

    top_test.py RONDO_RUN FOLDER      prints "pass NAME" or "fail NAME: why"
"""

import contextlib
import io
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "top"))

import rondo_top  # noqa: E402
import screen  # noqa: E402
import status  # noqa: E402
from jobs import Job  # noqa: E402

RUN, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
TOP = pathlib.Path(rondo_top.__file__)
os.environ.update(RONDO_STATUS="1", RONDO_HEARTBEAT_MS="200")


def top(*arguments):
    """(exit code, standard output, standard error)"""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = rondo_top.main(["--interval", "0.3", *arguments])
    return code, out.getvalue(), err.getvalue()


def world(job):
    """The world's communicator of this job, as --json has it."""
    code, out, err = top("--json")
    assert code == 0 and not err, (code, err)
    document = json.loads(out)
    assert document["communicators_count"] == len(document["communicators"])
    pids = set(job.pids.values())
    (one,) = [c for c in document["communicators"] if c["hash"] == "0x1" and pids & {rank["pid"] for rank in c["ranks"]}]
    return one


def answer_to(path, request):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(path))
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 20), b"")).decode()


def answers_http():
    """A rank's socket has its metrics, as Prometheus reads them, and its status, for those who speak HTTP."""
    with Job(RUN, FOLDER / "http", "shm") as job:
        one = world(job)
        (path,) = status.FOLDER.glob(f"status-{one['session']}-0.sock")
        for name, begins in (("metrics", "# HELP rondo_"), ("", "{")):
            head, body = answer_to(path, f"GET /{name} HTTP/1.1\r\nHost: rank\r\n\r\n".encode()).split("\r\n\r\n", 1)
            assert head.startswith("HTTP/1.1 200 OK") and body.startswith(begins), (head, body[:100])
        assert json.loads(answer_to(path, b""))["rank"] == 0


def runs():
    """Ranks that run are all there, with rates, and none is late."""
    with Job(RUN, FOLDER / "runs", "shm") as job:
        one = world(job)
        assert [rank["pid"] for rank in one["ranks"]] == [job.pids[rank] for rank in range(4)]
        assert one["size"] == one["ranks_count"] == 4 and one["missing_ranks"] == []
        for rank in one["ranks"]:
            assert rank["calls_per_second"] > 10 and rank["bus_bytes_per_second"] > 1e6, rank
            assert rank["links"] == {"shared_memory": 3, "tcp": 0} and rank["status"]["async_error"] == 0
            # Each pair of calls has 256 KiB and 8 bytes.
            assert abs(rank["collective_bytes"]["AllReduce"] / rank["collective_counts"]["AllReduce"] - (2**18 + 8) / 2) < 2**16
        assert status.late(one) == set()
        code, out, _ = top("--once")
        assert out.startswith(f"job.py ({one['session']}), communicator 0x1: 4 ranks"), out
        assert code == 0 and "all_reduce(count=" in out or "between calls" in out, out
    assert not list(status.FOLDER.glob(f"status-{one['session']}-*")), "sockets stay"


def stopped():
    """A rank that is stopped is late, does not answer, and the others' sentence names it."""
    with Job(RUN, FOLDER / "stopped", "tcp") as job:
        os.kill(job.pids[2], signal.SIGSTOP)
        try:
            until = time.monotonic() + 20
            one = world(job)
            while not any(rank["blame"] for rank in one["ranks"]):
                assert time.monotonic() < until, one
                one = world(job)
            assert status.late(one) == {2}, one
            assert one["missing_ranks"][0]["status"] == {"unresponsive": True, "considered_dead": False}, one
            for rank in one["ranks"]:
                assert rank["waits_for"] in ([2], []) and not rank["call"]["finished"], rank
            sentence = next(rank["blame"] for rank in one["ranks"] if rank["blame"])
            assert f"for rank 2 (host {one['ranks'][0]['host']}, pid {job.pids[2]})" in sentence, sentence
            lines = top("--once")[1].splitlines()
            assert any(re.match("late +2 does not answer", line) for line in lines), lines
            assert any("the ranks waited" in line for line in lines), lines
        finally:
            os.kill(job.pids[2], signal.SIGCONT)


def killed():
    """The socket of a rank that was killed says so, and the next job removes it."""
    with Job(RUN, FOLDER / "killed", "shm") as job:
        session = world(job)["session"]
        job.kill(1)
    dead = [answer for answer in status.ask_all()[session].values() if answer.why == status.Answer.DEAD]
    assert 1 in [answer.rank for answer in dead], dead
    with Job(RUN, FOLDER / "after", "shm"):
        assert session not in status.ask_all()


def document_of(size, host, late=(), elsewhere=()):
    """A communicator of these ranks in a call, of which some wait for a late one, and one that is idle."""
    def rank(number, finished):
        return {"rank": number, "host": host, "pid": 4000000 + number, "error": "", "collective_counts": {"AllReduce": 10**7}, "message": None,
                "collective_bytes": {}, "links": {"shared_memory": 31, "tcp": 32}, "waits_for": [] if finished else sorted(late), "blame": "",
                "call": {"text": "all_reduce(count=65536, float32, max, hierarchical)", "finished": finished, "since_ms": 2500},
                "calls_per_second": 0, "bus_bytes_per_second": 123456789}
    away = {"why": "has no socket on this host", "status": {"unresponsive": False, "considered_dead": False}}
    both = [{"program": "train.py", "job": "a", "session": "00000001", "hash": name, "epoch": 0, "size": size,
             "ranks": [rank(number, finished) for number in range(size) if number not in elsewhere],
             "missing_ranks": [dict(away, rank=number) for number in elsewhere]} for name, finished in (("0x1", True), ("0x2", False))]
    return {"timestamp": "2026-01-01 00:00:00", "communicators": both}


def fits():
    """Every width: no line is longer, each says the call and how long, late ranks come first, idle communicators are counted alone."""
    document = document_of(64, "a-very-long-host-name-of-a-cloud-instance-0123456789", late={41}, elsewhere=range(48, 64))
    for width in (40, 60, 80, 100, 200):
        lines = screen.lines_of(document, width=width)
        assert max(map(len, lines)) <= width, (width, lines)
        rows = [line for line in lines if re.match(r"(late)? +\d+ ", line)]
        assert len(rows) == 48 and re.match("late +41 ", rows[0]) and rows[1].split()[0] == "0", rows
        assert all("in all_" in row and row.endswith("for 2.5 s") for row in rows), rows
        assert lines[0].startswith("train.py (00000001), communicator 0x2"), lines[0]
        assert any(line.startswith("  rank 48-63 has no socket") for line in lines), lines
        assert lines[-1].startswith("1 idle communicators are hidden"), lines[-1]
        assert len(screen.lines_of(document, everything=True, width=width)) > 100
    del document["communicators"][1]
    assert len(screen.lines_of(document)) > 48, "the first communicator of an idle job is hidden"


def others_words():
    """Names and reasons of programs that have ends of lines or move the cursor stay in their line."""
    document = document_of(1, "here")
    document["communicators"][1]["ranks"][0]["error"] = "aborted: a trace\n  of Python\033[2J\x9b2J"
    document["communicators"][1]["program"] = "a\r\nb"
    plain, other = screen.lines_of(document_of(1, "here")), screen.lines_of(document)
    assert len(plain) == len(other) and all(line.isprintable() for line in other), other
    assert any("failed: aborted: a trace   of Python [2J" in line for line in other), other


def other_versions():
    """What another version answers, or no JSON at all, is of that rank alone."""
    folder = FOLDER / "versions"
    folder.mkdir()
    good = document_of(1, "here")["communicators"][0]
    rank = good["ranks"][0]
    answers = [b"", b"1", b"null", b"[]", b"{}", b"[" * 100_000, *(json.dumps({"job": "a", "communicators": [one]}).encode() for one in (
        good, {}, dict(good, ranks=[1]), dict(good, ranks=[dict(rank, links={})]), dict(good, ranks=[dict(rank, call={})]),
        *(dict(good, ranks=[{key: value for key, value in rank.items() if key != name}]) for name in ("host", "call", "waits_for"))))]
    with contextlib.ExitStack() as stack:
        for number, answer in enumerate(answers):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(folder / f"status-00000001-{number}.sock"))
            listener.listen()
            threading.Thread(target=lambda listener, answer: listener.accept()[0].sendall(answer), args=(listener, answer)).start()
        asked = status.ask_all(folder)["00000001"]
    read = [number for number, answer in asked.items() if answer.document is not None]
    assert read == [6], {number: asked[number].why for number in asked}
    assert "of another version" in asked[4].why and "can be read" in asked[0].why, (asked[4].why, asked[0].why)


def live():
    """On a terminal: the lines that fit, and how many do not; Ctrl-C ends it and brings back what stood there."""
    with Job(RUN, FOLDER / "live", "shm"):
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (4, 60))
        process = subprocess.Popen([sys.executable, TOP, "--interval", "0.2"], stdin=slave, stdout=slave, stderr=slave)
        try:
            read_until(master, "3 more lines")
            process.send_signal(signal.SIGINT)
            read_until(master, "\033[?1049l")
            assert process.wait(10) == 0
        finally:
            process.kill()
            os.close(master)
            os.close(slave)


def read_until(terminal, wanted):
    until, read = time.monotonic() + 10, ""
    while wanted not in read:
        assert select.select([terminal], [], [], max(until - time.monotonic(), 0))[0], f"no {wanted!r} in {read[-500:]!r}"
        read += os.read(terminal, 1 << 16).decode(errors="replace")
    rows = re.split(r"\033\[[0-9?]*[A-Za-z]|[\r\n]+", read)
    assert max(map(len, rows)) <= 60, rows


def strangers():
    """Sockets that say nothing, and a folder that this user may not read, are named."""
    folder = FOLDER / "sockets"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "status-00000001-0.sock"))
        assert status.ask_all(folder)["00000001"][0].why == status.Answer.DEAD
        listener.listen()
        assert status.ask_all(folder)["00000001"][0].why == status.Answer.SILENT
        os.utime(folder / "status-00000001-0.sock", (1, 1))
        assert "00000001" in status.ask_all(folder)
    os.utime(folder / "status-00000001-0.sock")
    (one,) = status.collect(folder)["communicators"]
    assert one["missing_ranks"][0]["status"]["considered_dead"], one
    os.utime(folder / "status-00000001-0.sock", (1, 1))
    assert status.ask_all(folder) == {} and list(folder.iterdir()) == [], "a job that has died long ago"
    if os.geteuid() == 0:
        os.chmod(folder, 0o700)
        status.collect.__defaults__ = (folder,)
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            code, _, err = top("--json")
            os._exit(0 if code == 2 and f"{folder} is not readable by user 65534" in err else 1)
        assert os.waitpid(child, 0)[1] == 0


def nothing():
    """Without a job, without a terminal, and with a wrong interval there are words and an exit code."""
    status.collect.__defaults__ = (FOLDER / "none",)
    assert top("--once") == (1, "", f"rondo-top: {screen.NO_JOB}\n")
    for arguments, words in (([], "no terminal"), (["--interval", "0"], "0 s is not between")):
        done = subprocess.run([sys.executable, TOP, *arguments], capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 2 and words in done.stderr, done


def main():
    for test in (runs, answers_http, stopped, killed, fits, others_words, other_versions, live, strangers, nothing):
        try:
            test()
            print(f"pass rondo-top: {test.__name__}")
        except Exception:  # noqa: BLE001
            print(f"fail rondo-top: {test.__name__}: {traceback.format_exc()!r}")
    print("all of rondo-top looked at")


main()
