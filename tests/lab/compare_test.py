"""tests/lab/compare: settings of peers, contests of fake ones, bars of stored answers, two builds in turn."""

import contextlib
import copy
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import types
import unittest
from dataclasses import replace
from unittest import mock

sys.path.insert(0, "tests/lab/compare")

import bars  # noqa: E402  the path is set first
import beside
import campaign
import promises
import report
from contest import Answers, Contest
from peers import Places, Question, Unable, read_peers, settings_of
from programs import Failed, Program, ask, ask_bench, parse_size, size_text

MACHINE = {"cores": 2, "congestion_controls": ["reno", "bbr"], "congestion_control": "bbr", "steal_share": 0}
DATA = pathlib.Path("tests/lab/data")
# Rows for each size: time_us from $TIME, wrong elements from $WRONG.
ANSWER = """
while [ $# -gt 0 ]; do case $1 in --sizes) sizes=$2;; --json) json=$2;; esac; shift; done
rows=
for size in $(echo $sizes | sed 's/K/*1024/g; s/M/*1048576/g; s/,/ /g'); do
  size=$(($size))
  rows="$rows${rows:+,}{\\"bytes\\": $size, \\"time_us\\": $TIME, \\"busbw_gbps\\": 1, \\"cpu_s_per_gb\\": null,
    \\"algorithm\\": \\"x\\", \\"wrong\\": ${WRONG:-0}}"
done
echo "{\\"rows\\": [$rows]}" >$json
"""


def silent(_text):
    pass


class Folder(unittest.TestCase):
    """A folder of peers whose mpiexec is a script."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.places = Places((self.root,), {"rondo-bench": "/bin/rondo-bench", "rondo-run": "/bin/rondo-run"})

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return str(path)

    def add_mpi(self, name, body):
        self.write(f"peers/{name}/bench", "")
        self.write(f"peers/{name}/bin/mpiexec", body)

    def contest(self, libraries, seconds=20, cores=2, outside=1, **question):
        question = Question(**{"sizes": ("8",), **question})
        return Contest(question, libraries, read_peers(), self.places, {**MACHINE, "cores": cores}, seconds, outside)

    def lines(self, name):
        return len((self.root / name).read_text().splitlines())


def take_run(contest, turns):
    contest.begin_run()
    for _ in range(turns):
        contest.take_turn(silent)


class Settings(Folder):
    def test_every_value_of_peers_toml_has_a_source(self):
        for name, peer in read_peers().items():
            for part in peer.get("when", []):
                self.assertTrue(part["source"], name)
            for axis in peer.get("axis", []):
                for choice in axis["choices"] if axis["choices"] != "allowed" else []:
                    self.assertTrue(choice["source"], (name, choice))

    def test_a_library_is_not_asked_what_its_table_excludes(self):
        for name in ("gloo_bench", "peers/oneccl/bench"):
            self.write(name, "")
        for library, question, why in [("gloo", {"transport": "tcp", "calls": "async"}, "only calls blocking"),
                                       ("gloo-busy", {"transport": "tcp", "sizes": ("64M",)}, "wait for ever"),
                                       ("gloo", {"transport": "shm"}, "only transport tcp"),
                                       ("mpich", {}, "not built: tests/lab/peers/build_mpi.sh mpich")]:
            with self.assertRaisesRegex(Unable, why):
                settings_of(library, read_peers()[library], Question(**question), self.places, MACHINE)


class Contests(Folder):
    def test_the_fastest_right_setting_counts_and_slow_ones_are_dropped(self):
        self.add_mpi("openmpi", 'case $PEER_SETTING in ring*) TIME=2;; default) TIME=1; WRONG=1;; *) TIME=9;; esac'
                     + ANSWER)
        self.add_mpi("mpich", "TIME=4" + ANSWER)
        contest = self.contest(["mpich", "openmpi"])
        take_run(contest, 1)
        take_run(contest, 1)
        answers = contest.answers
        self.assertEqual(answers.median("openmpi", 8)["algorithm"], "ring, heap kept")
        self.assertEqual(answers.best(1, "openmpi", 8)["time_us"], 2)
        self.assertEqual(answers.why_missing("openmpi"), "")
        statuses = [tried.status for tried in contest.tried]
        self.assertEqual(statuses.count("slower than another setting at every size"), 10)
        self.assertEqual(statuses.count("no right answer"), 1)

    def test_who_was_slow_by_chance_in_one_turn_stays(self):
        count = self.root / "count"
        # The n-th answer of "default" takes 10 / n; the others 25 each.
        self.add_mpi("openmpi", f"case $PEER_SETTING in default) echo >>{count}; TIME=$((10 / $(wc -l <{count})));; "
                     "*) TIME=25;; esac" + ANSWER)
        contest = self.contest(["openmpi"])
        take_run(contest, 2)
        self.assertEqual(contest.answers.best(0, "openmpi", 8)["time_us"], 5)
        self.assertTrue(all(tried.sizes for tried in contest.tried))
        take_run(contest, 3)
        self.assertEqual(contest.answers.best(1, "openmpi", 8)["time_us"], 2)
        self.assertEqual(self.lines("count"), 5)
        self.assertEqual(sum(bool(tried.sizes) for tried in contest.tried), 1)

    def test_few_settings_are_asked_as_often_as_many_up_to_four_times(self):
        self.add_mpi("openmpi", f"echo >>{self.root}/many; TIME=10" + ANSWER)
        self.add_mpi("mpich", f"echo >>{self.root}/few; case $PEER_SETTING in default) TIME=4;; *) TIME=20;; esac"
                     + ANSWER)
        contest = self.contest(["mpich", "openmpi"])
        take_run(contest, 1)
        few, many = self.lines("few"), self.lines("many")
        take_run(contest, 1)
        self.assertEqual(self.lines("few"), few + 4)
        self.assertEqual(self.lines("many"), 2 * many)

    def test_libraries_are_asked_as_often_as_the_machine_has_settings(self):
        self.add_mpi("mpich", f"echo >>{self.root}/asked; case $PEER_SETTING in default) TIME=4;; *) TIME=20;; esac"
                     + ANSWER)
        contest = self.contest(["mpich"], outside=3)
        take_run(contest, 1)
        first = self.lines("asked")
        take_run(contest, 2)
        self.assertEqual(self.lines("asked"), first + 2 * 3)
        self.assertEqual(contest.answers.count("mpich", 8), 2 * 3)

    def test_a_program_that_fails_is_asked_size_by_size_and_loses_those_that_fail_alone(self):
        # Fails at 16, answers at 8.
        self.add_mpi("mpich", 'case "$*" in *"--sizes 16"*) exit 9;; *,*) exit 8;; esac; TIME=4' + ANSWER)
        for cores in (2, 1):  # found out by a failure; with more ranks than cores from the start
            contest = self.contest(["mpich"], cores=cores, sizes=("8", "16"), collective="all_gather")
            take_run(contest, 2)
            self.assertEqual(contest.answers.best(0, "mpich", 8)["time_us"], 4)
            for tried in contest.tried:
                self.assertEqual((tried.sizes, tried.status), (["8"], "ended with code 9: without a word"))
            take_run(contest, 1)
            self.assertIsNotNone(contest.answers.best(1, "mpich", 8))
            self.assertEqual(contest.answers.why_missing("mpich"), "")

    def test_who_is_not_there_fails_or_never_ends_leaves_a_line_and_bounded_time(self):
        self.add_mpi("openmpi", "echo 'no such device' >&2; exit 3")
        self.add_mpi("mpich", f"sleep 1000 & echo $! >{self.root}/child; sleep 1000")
        contest = self.contest(["openmpi", "mpich", "intelmpi", "gloo"], seconds=0.3, collective="all_gather")
        take_run(contest, 1)
        self.assertEqual(contest.answers.why_missing("openmpi"), "ended with code 3: no such device")
        self.assertEqual(contest.answers.why_missing("mpich"), "did not finish in 0 s")
        self.assertEqual(contest.answers.why_missing("intelmpi"), "not built: tests/lab/peers/build_mpi.sh intelmpi")
        self.assertTrue(contest.answers.why_missing("gloo"))
        child = int((self.root / "child").read_text())
        deadline = time.monotonic() + 20  # killed; it ends when it next gets a core
        while runs(child) and time.monotonic() < deadline:
            pass
        self.assertFalse(runs(child))


def runs(pid):
    """Whether the process is there and is no zombie, which has no command line."""
    try:
        return bool(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


def stored():
    content = json.loads((DATA / "answers.json").read_text())
    contests = []
    for one in content["contests"]:
        question = Question(**{**one["question"], "sizes": tuple(one["question"]["sizes"])})
        contests.append(Answers(question, one["libraries"], one["runs"], one["missing"]))
    return contests, content["figures"]


def bar(against, kind="at most", bound=1.0, transport="shm", buffers="plain", congestion=""):
    return bars.Bar(transport, congestion, buffers, 2, 64 << 20, against, kind, bound)


def key_of(judged):
    return tuple(judged[name] for name in ("collective", "calls", "transport", "buffers", "world", "bytes", "ratio"))


def answers_of(one, runs, missing=()):
    """runs: of each {library: (time_us, CPU seconds a GB)}."""
    size = 64 << 20
    rows = [[[library, "s", "64M", {"bytes": size, "time_us": time, "cpu_s_per_gb": cpu, "wrong": 0,
                                    "busbw_gbps": size / time / 1e3}] for library, (time, cpu) in run.items()]
            for run in runs]
    return Answers(one.question(("64M",), 1), ["rondo"], rows, dict(missing))


TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
         "null": type(None)}


def violation(schema, value, where="file"):
    """What breaks the part of JSON Schema that docs/bench-schema.json uses, or None."""
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(isinstance(value, TYPES[one]) and (one == "boolean") == isinstance(value, bool)
                         for one in types):
        return f"{where}: wrong type"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where}: not among the allowed values"
    if isinstance(value, (int, float)) and (value < schema.get("minimum", value) or
                                            value > schema.get("maximum", value) or
                                            "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]):
        return f"{where}: out of range"
    inner = []
    if isinstance(value, list):
        inner = [violation(schema.get("items", {}), one, f"{where}[]") for one in value]
    if isinstance(value, dict):
        known = schema.get("properties", {})
        inner = [f"{where}: lacks {name}" for name in schema.get("required", []) if name not in value]
        inner += [violation(known[name], one, f"{where}.{name}") if name in known else
                  None if schema.get("additionalProperties", True) else f"{where}: unknown {name}"
                  for name, one in value.items()]
    return next(filter(None, inner), None)


SCHEMA = json.loads(pathlib.Path("docs/bench-schema.json").read_text())


@unittest.skipUnless("RONDO_BENCH" in os.environ, "RONDO_BENCH names no rondo-bench")
class Files(Folder):
    def rows(self, *arguments):
        path = self.root / "out.json"
        subprocess.run([os.environ["RONDO_BENCH"], *arguments, "--json", path], check=True, stdout=subprocess.DEVNULL)
        return json.loads(path.read_text())

    def test_what_rondo_bench_writes_fits_the_schema_and_the_schema_is_strict(self):
        good = self.rows("--inproc", "--ranks", "2", "--collective", "all", "--sizes", "8", "-n", "1")
        self.assertIsNone(violation(SCHEMA, good))
        self.assertEqual(len(good["rows"]), 18)
        for name in good:
            self.assertEqual(violation(SCHEMA, {key: one for key, one in good.items() if key != name}),
                             f"file: lacks {name}")
        for name in good["rows"][0]:
            bad = copy.deepcopy(good)
            bad["rows"][0][name] = []
            self.assertEqual(violation(SCHEMA, bad), f"file.rows[].{name}: wrong type")
            del bad["rows"][0][name]
            self.assertEqual(violation(SCHEMA, bad), f"file.rows[]: lacks {name}")
        for name, value in [("speed", 1), ("collective", "allreduce"), ("time_us", -1)]:
            bad = copy.deepcopy(good)
            bad["rows"][0][name] = value
            self.assertIsNotNone(violation(SCHEMA, bad))

    def test_rows_say_whether_calls_are_blocking_and_messages_are_right_either_way(self):
        for blocking, calls in [("1", "blocking"), ("0", "async")]:
            content = self.rows("--inproc", "--ranks", "2", "--collective", "sendrecv,pingpong,burst",
                                "--sizes", "8,64K", "-n", "5", "-z", blocking)
            self.assertEqual([(row["collective"], row["bytes"], row["calls"], row["wrong"]) for row in content["rows"]],
                             [(name, size, calls, 0) for name in ("sendrecv", "pingpong", "burst") for size in (8, 64 << 10)])

    def test_a_ping_pong_of_an_odd_number_of_ranks_is_refused_and_left_out_of_all(self):
        refused = subprocess.run([os.environ["RONDO_BENCH"], "--ranks", "3", "--collective", "pingpong"],
                                 capture_output=True, text=True)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--collective pingpong: needs an even number of ranks, not 3; start 4 (--ranks 4)", refused.stderr)
        content = self.rows("--inproc", "--ranks", "3", "--collective", "all", "--sizes", "8", "-n", "1")
        self.assertNotIn("pingpong", [row["collective"] for row in content["rows"]])

    def test_what_bars_ask_of_the_machine_is_answered(self):
        bench = os.environ["RONDO_BENCH"]
        programs = {"rondo-bench": bench, "limits": str(pathlib.Path(bench).parents[1] / "tests/lab/limits")}
        for against, (program, word) in campaign.SUBCOMMANDS.items():
            with self.subTest(against):
                answer = ask_bench(programs[program], word, "--ranks", "2", "--sizes", str(1 << 20))
                self.assertGreater(answer.get("gbps") or answer["us"], 0)

    def test_limits_are_in_the_file_and_shares_never_above_1_05(self):
        content = self.rows("--transport", "tcp", "--sizes", "1M", "-n", "5")
        self.assertIsNone(violation(SCHEMA, content))
        self.assertEqual([limit["bytes"] for limit in content["limits"]["tcp"]], [1 << 20])
        self.assertTrue(all((row["share_of_limit"] or 0) <= 1.05 for row in content["rows"]))


class Bars(unittest.TestCase):
    def test_stored_answers_give_the_bars_that_they_gave_to_the_program_before_this_one(self):
        contests, figures = stored()
        wanted = {key_of(one): one for one in json.loads((DATA / "bars.json").read_text())}
        verdicts = set()
        for one in bars.read_bars():
            got = bars.judge(one, contests, figures).json()
            want = wanted.pop(key_of(got))
            verdicts.add(got["verdict"])
            for field in ("kind", "bound", "verdict", "why_not"):
                self.assertEqual(got[field], want[field], one.name())
            self.assertEqual(len(got["runs"]), len(want["runs"]))
            for ours, theirs in zip([*got["runs"], got["median"] or 0], [*want["runs"], want["median"] or 0]):
                self.assertAlmostEqual(ours, theirs, places=12)
        self.assertEqual(wanted, {})
        self.assertEqual(verdicts, {"HOLDS", "MISSED", "NOT JUDGED"})

    def test_the_table_has_each_promise_once(self):
        names = [one.name() for one in bars.read_bars()]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(sum(one.world == 8 for one in bars.read_bars()), 8)  # four sizes over either transport

    def test_each_question_is_asked_once_at_the_sizes_of_its_bars_and_nobody_in_vain(self):
        questions = bars.questions_of(bars.read_bars(), 1)
        of = {(q.collective, q.transport, q.congestion, q.buffers, q.world, q.calls): (q.sizes, *asked)
              for q, asked in questions.items()}
        self.assertEqual(len(of), len(questions))
        peers = bars.MPIS + bars.ONECCL
        four = ("8", "64K", "1M", "64M")
        for question, asked in [
            (("all_reduce", "shm", "", "plain", 2, "blocking"), (("8", "64K", "256K", "1M", "64M"), ["rondo", *peers], 1)),
            (("all_reduce", "shm", "", "registered", 2, "blocking"), (four, ["rondo"], 1)),
            (("all_reduce", "tcp", "reno", "plain", 4, "blocking"), (four, ["rondo", *peers, *bars.GLOOS], 1)),
            (("all_reduce", "tcp", "", "plain", 2, "blocking"), (four, ["rondo", *bars.GLOOS], 3)),
            (("sendrecv", "shm", "", "plain", 2, "async"), (("8", "4K", "64K", "1M", "16M"), ["rondo", *bars.MPIS], 1)),
        ]:
            self.assertEqual(of[question], asked)
        only_registered = [one for one in bars.read_bars() if one.buffers == "registered" and one.size == 8]
        self.assertEqual({q.buffers for q in bars.questions_of(only_registered, 1)}, {"plain", "registered"})

    def test_pieces_are_all_bars_once_and_a_size_each_where_ranks_share_cores(self):
        pieces = bars.pieces_of(bars.read_bars(), cores=4)
        self.assertEqual(sorted(one.name() for piece in pieces.values() for one in piece),
                         sorted(one.name() for one in bars.read_bars()))
        self.assertEqual({one.size for one in pieces["4-shm-all_reduce"]}, {8, 64 << 10, 1 << 20, 64 << 20})
        self.assertEqual({one.size for one in pieces["8-tcp-all_reduce-64K"]}, {64 << 10})
        for name, calls in [("2-shm-sendrecv", "blocking"), ("2-shm-sendrecv-async", "async")]:
            self.assertEqual({one.calls for one in pieces[name]}, {calls})
        self.assertIn("sendrecv, async calls, shm plain, 2 ranks, 8 B, time / best MPI",
                      [one.name() for one in pieces["2-shm-sendrecv-async"]])

    def test_answers_to_blocking_calls_are_none_to_asynchronous_ones(self):
        one = bar("best MPI")
        answers = answers_of(one, [{"rondo": (6, None), "mpich": (4, None)}], {"openmpi": "did not finish in 40 s",
                                                                              "intelmpi": "did not finish in 40 s"})
        self.assertEqual(bars.judge(one, [answers], [{}]).ratios, [1.5])
        self.assertEqual(bars.judge(replace(one, calls="async"), [answers], [{}]).missing, "not asked")

    def test_the_median_of_the_runs_decides(self):
        share = bar("raw TCP", "at least", 0.85)
        self.assertEqual(bars.Judged(share, [0.2, 0.86, 0.9, 0.84, 0.9]).verdict(), "HOLDS")
        self.assertEqual(bars.Judged(share, [0.84, 0.86, 0.9, 0.84, 0.84]).verdict(), "MISSED")
        time = bars.Judged(bar("exchange", bound=1.5, transport="tcp"), [1.5, 1.5, 9, 1.4, 1.6])
        self.assertEqual(time.verdict(), "HOLDS")
        self.assertIn("median 1.500, at most 1.50", time.text())
        missing = bars.Judged(bar("raw TCP", "at least", transport="tcp"), [], "no peer")
        self.assertEqual(missing.text(), "NOT JUDGED all_reduce, tcp plain, 2 ranks, 64 MiB, share of raw TCP: no peer")

    def test_the_best_of_some_mpis_is_no_bar_but_slow_is_an_answer(self):
        one = bar("best peer", transport="tcp")
        run = {"rondo": (6, None), "openmpi": (8, None), "gloo": (4, None)}
        judge = lambda which, why: bars.judge(which, [answers_of(which, [run], why.items())], [{}])
        self.assertEqual(judge(one, {"mpich": "no mpiexec"}).missing, "mpich: no mpiexec")
        slow = {"mpich": "did not finish in 40 s", "intelmpi": "did not finish in 40 s"}
        self.assertEqual(judge(one, slow).ratios, [1.5])
        gloo = bar("Gloo's best", transport="tcp")
        self.assertEqual(judge(gloo, {"mpich": "no mpiexec"}).ratios, [1.5])
        self.assertEqual(bars.judge(bar("best MPI", congestion="reno"), [], []).missing[:20], "no network namespace")

    def test_nobody_is_faster_than_raw_tcp(self):
        one = bar("raw TCP", "at least", transport="tcp")
        answers = answers_of(one, [{"rondo": ((64 << 20) / 4e3, None)}])  # 4 GB/s
        self.assertEqual(len(bars.judge(one, [answers], [{"raw TCP, 2": 3.9}]).ratios), 1)
        impossible = bars.judge(one, [answers], [{"raw TCP, 2": 3.5}])
        self.assertEqual((impossible.verdict(), impossible.missing),
                         ("NOT JUDGED", "a share of 1.14: the limit is wrong"))


class Beside(Folder):
    def options(self, ours, theirs):
        return types.SimpleNamespace(
            binary=self.write("this", f"TIME={ours}" + ANSWER), beside=self.write("other", f"TIME={theirs}" + ANSWER),
            rounds=3, bound=1.05, ranks=[2], transports=["shm", "tcp"], sizes=["8"], collective="all_reduce",
            calls="blocking", buffers="plain", seconds=0.1)

    def test_a_slower_build_is_a_failure_and_a_wrong_one_too(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(beside.run(self.options("$((20 + 2))", "20")), 1)
            self.assertEqual(beside.run(self.options("20", "20")), 0)
            with self.assertRaisesRegex(SystemExit, "3 wrong values"):
                beside.run(self.options("20; WRONG=3", "20"))
        self.assertIn("1.100  above 1.05", out.getvalue())
        self.assertLessEqual(max(map(len, out.getvalue().splitlines())), 100 + len(str(self.root)))

    def test_calls_are_those_asked_for(self):
        options = self.options("1", "1")
        self.assertNotIn("--blocking", beside.program_of("x", "shm", options).command)
        options.calls = "async"
        self.assertIn("--blocking 0", " ".join(beside.program_of("x", "shm", options).command))


class Campaigns(Folder):
    maxDiff = None
    def options(self, **more):
        return types.SimpleNamespace(**{
            "binary": self.bench, "ranks": [2], "transports": ["shm"], "sizes": ["8", "64"], "buffers": "plain",
            "collective": "all_reduce", "calls": "blocking", "compare": ["mpich"], "seconds": 0.1, "runs": 2, "turns": 1,
            "json": str(self.root / "out.json"), **more})

    def setUp(self):
        super().setUp()
        self.bench = self.write("bin/bench/rondo-bench", f"""case $1 in
machine) echo '{json.dumps({**MACHINE, "cpu": "x", "memory_bytes": 1, "kernel": "k", "load_average": 0})}'; exit;;
limit) echo '{{"gbps": 2}}'; exit;; exchange) echo '{{"us": 3}}'; exit;;
esac
TIME=6""" + ANSWER)
        self.write("bin/tests/lab/limits", """case $1 in walk) echo '{"gbps": 2}';; fused-pass) echo '{"us": 3}';; esac""")
        self.write("bin/tools/rondo-run", "")
        self.add_mpi("mpich", "TIME=8" + ANSWER)
        self.enterContext(mock.patch.object(campaign, "Places", lambda roots, programs: Places((self.root,), programs)))
        self.enterContext(mock.patch.object(campaign, "MUCH_STEAL", 1))
        self.enterContext(mock.patch.object(campaign, "in_namespace", lambda congestion, command: ["false"]))

    def test_a_comparison_is_printed_and_kept(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(campaign.compare(self.options()), 0)
        self.assertIn("0.75", out.getvalue())
        content = json.loads((self.root / "out.json").read_text())
        self.assertEqual([(row["library"], row["bytes"]) for row in content["rows"]],
                         [("rondo", 8), ("mpich", 8), ("rondo", 64), ("mpich", 64)])
        self.assertEqual([contest["question"]["calls"] for contest in content["contests"]], ["blocking"])
        self.assertIsNone(violation(SCHEMA, {**content, "rows": [], "bars": [
            bars.Judged(bar("CPU"), []).json(), bars.Judged(bar("CPU"), [0.5]).json()]}))

    def judge_bars(self, **more):
        """Its exit code and what it printed."""
        options = self.options(**{"sizes": None, "calls": None, "keep": "", **more})
        with contextlib.redirect_stdout(io.StringIO()) as out:
            return promises.judge_bars(options), out.getvalue()

    def test_bars_name_what_is_missing_and_the_machine_is_measured(self):
        code, text = self.judge_bars(transports=["shm", "tcp"], keep=str(self.root / "kept"))
        self.assertEqual(code, 1)  # the answers are no match for the bars
        self.assertIn("NOT JUDGED all_reduce, shm plain, 2 ranks, 8 B, time / best peer: openmpi: not built", text)
        self.assertIn("no network namespace", text)
        figures = lambda name: json.loads((self.root / "kept" / name).read_text())["figures"]
        self.assertEqual(figures("2-shm-all_reduce.json"), [{"fused pass, 2": 3}] * 2)
        self.assertEqual(figures("2-tcp-all_reduce.json")[1], {"exchange, 2": 3, "raw walk, 2": 2, "raw TCP, 2": 2})

    def test_bars_of_one_collective_and_kind_of_calls_are_measured_alone(self):
        kept = self.root / "kept"
        pieces = lambda: {path.name for path in kept.iterdir()}
        self.judge_bars(collective="sendrecv", calls="async", keep=str(kept))
        self.assertEqual(pieces(), {"2-shm-sendrecv-async.json"})
        self.judge_bars(collective="sendrecv", keep=str(kept))
        self.assertEqual(pieces(), {"2-shm-sendrecv-async.json", "2-shm-sendrecv.json"})
        self.judge_bars(collective="pingpong", transports=["shm", "tcp"], keep=str(kept))
        self.assertEqual(pieces(), {"2-shm-sendrecv-async.json", "2-shm-sendrecv.json", "2-shm-pingpong.json",
                                    "2-tcp-pingpong.json"})
        content = json.loads((kept / "2-shm-pingpong.json").read_text())
        self.assertEqual([(one["collective"], one["bytes"], one["bound"]) for one in content["bars"]],
                         [("pingpong", size, 1.1) for size in (8, 4 << 10, 64 << 10, 1 << 20, 16 << 20)])
        self.assertIn("--collective pingpong --placement out", content["contests"][0]["tried"][0]["command"])

    def test_bars_that_are_not_in_the_table_are_refused(self):
        with self.assertRaisesRegex(Failed, "no bar of these"):
            self.judge_bars(sizes=["9"])


class Reports(Folder):
    def test_tables_have_the_fastest_right_rows_and_the_ratio_to_the_best_other(self):
        row = {"collective": "all_reduce", "transport": "shm", "world": 2, "list": "none", "buffers": "plain",
               "bytes": 8}
        rows = [{**row, "library": library, "time_us": time, "wrong": wrong} for library, time, wrong in
                [("mpich", 4, 0), ("rondo", 3, 0), ("rondo", 2, 0), ("openmpi", 8, 0), ("openmpi", 1, 5)]]
        rows += [{**row, "collective": "sendrecv", "library": "rondo", "time_us": time, "wrong": 0, **calls}
                 for time, calls in [(7, {}), (6, {"calls": "blocking"}), (5, {"calls": "async"})]]
        path = self.root / "rows.json"
        path.write_text(json.dumps({"rows": rows, "bars": [bars.Judged(bar("CPU"), [0.5]).json()]}))
        groups, judged = report.read_files([path])
        lines = [line for key in groups for line in report.table_of(key, groups[key])]
        self.assertEqual(lines[4:8], ["| rondo | 2 µs |", "| openmpi | 8 µs |", "| mpich | 4 µs |",
                                      "| rondo / the best other | 0.50 |"])
        other = {report.title_of(key): group["rondo"][8]["time_us"] for key, group in groups.items()}
        self.assertEqual(other, {"all_reduce, shm, 2 ranks": 2, "sendrecv, shm, 2 ranks": 6,
                                 "sendrecv, async calls, shm, 2 ranks": 5})
        self.assertEqual(report.table_of_bars(judged)[2],
                         "| all_reduce, shm, 2 ranks, 64 MiB: CPU s/GB / fastest peer | 0.500 | 0.500 | at most 1.00 | HOLDS |")
        asynchronous = bars.Judged(replace(bar("CPU"), collective="sendrecv", calls="async"), []).json()
        self.assertIn("| sendrecv, async calls, shm, 2 ranks", report.table_of_bars([asynchronous])[2])


class Programs(Folder):
    def test_sizes(self):
        self.assertEqual([parse_size(text) for text in ("8", "64K", "1.5M", "2g")], [8, 65536, 1572864, 2 << 30])
        self.assertEqual([size_text(size) for size in (8, 1536, 64 << 20)], ["8 B", "1.5 KiB", "64 MiB"])

    def test_a_program_that_is_not_there_or_answers_too_little_is_an_error_that_says_so(self):
        with self.assertRaisesRegex(Failed, "/nowhere: No such file"):
            ask(Program(["/nowhere"]), ["8"], 1)
        few = self.write("few", 'echo \'{"rows": []}\' >"$4"')
        with self.assertRaisesRegex(Failed, "gave 0 answers for 8"):
            ask(Program([few]), ["8"], 5)


if __name__ == "__main__":
    os.environ.pop("PEER_SETTING", None)
    unittest.main()
