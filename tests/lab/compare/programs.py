"""Programs that measure: each is started with --sizes and --json, and leaves rows in that file."""

import ctypes
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

LONGEST_REASON = 200
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None)
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Failed(Exception):
    """A program gave no rows; the text says why."""


@dataclass
class Program:
    """command: without --sizes and --json."""

    command: list
    environment: dict = field(default_factory=dict)  # added to this process's; {scratch}: a folder of this run

    def text(self, sizes):
        """As one types it into a shell."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join(words + [shlex.join([*self.command, "--sizes", ",".join(sizes)])])


def parse_size(text):
    """Bytes of 8, 64K, 1.5M."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    return int(float(text[: len(text) - len(unit)]) * UNITS[unit])


def size_word(size):
    """As --sizes takes it: 8, 64K."""
    for unit in ("G", "M", "K"):
        if size and size % UNITS[unit] == 0:
            return f"{size // UNITS[unit]}{unit}"
    return str(size)


def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"


def end_on_signals():
    """SIGTERM and SIGHUP unwind like Ctrl-C, so that no program outlives this one."""

    def leave(number, _frame):
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)


def in_namespace(congestion, command):
    """The command in a network namespace: only a loopback interface, and that under the given congestion control, which
    libraries without such a setting take as the system's default. Wants root, or user namespaces."""
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    script = 'ip link set lo up && echo "$0" >/proc/sys/net/ipv4/tcp_congestion_control && exec "$@"'
    return ["unshare", *user, "--net", "sh", "-c", script, congestion, *command]


def _in_child():
    os.setsid()  # signals reach all that the program starts
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process):
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(2)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


def _last_words(log):
    """The last line but the launcher's own."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()
             if line.strip(" -\t") and not line.startswith("rondo-run: ")]
    return lines[-1][:LONGEST_REASON] if lines else "without a word"


def run(program, arguments, seconds, folder):
    """What a program wrote to standard output and error. Raises Failed."""
    log = pathlib.Path(folder, "log")
    command = [*program.command, *arguments]
    environment = {name: value.replace("{scratch}", str(folder)) for name, value in program.environment.items()}
    with open(log, "wb") as output:
        try:
            process = subprocess.Popen(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=output, preexec_fn=_in_child)
        except OSError as error:
            raise Failed(f"{command[0]}: {error.strerror}") from error
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"did not finish in {seconds:.0f} s") from error
        finally:
            _end(process)
    if code != 0:
        raise Failed(f"ended with code {code}: {_last_words(log)}")
    return log.read_text(errors="replace")


def ask(program, sizes, seconds):
    """The rows of one run of a program, one a size. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix="rondo-compare-") as folder:
        rows = pathlib.Path(folder, "rows.json")
        run(program, ["--sizes", ",".join(sizes), "--json", str(rows)], seconds, folder)
        answer = json.loads(rows.read_text())["rows"]
    if len(answer) != len(sizes):
        raise Failed(f"gave {len(answer)} answers for {','.join(sizes)}")
    return answer


def ask_bench(bench, *arguments, seconds=120):
    """The JSON that a subcommand of rondo-bench, or limits, prints. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix="rondo-compare-") as folder:
        return json.loads(run(Program([bench]), arguments, seconds, folder) or "null")
