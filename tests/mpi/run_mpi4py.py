#!/usr/bin/env python3
"""Runs mpi4py's own tests and counts the methods that pass.

    run_mpi4py.py TESTS N LAUNCHER...      N: how many ranks; LAUNCHER: starts them, as mpiexec -n N does

TESTS: the folder test/ of mpi4py's source distribution. A method passes if it does on every rank, with all of its
subtests. Prints one line "pass NAME", "skip NAME" or "fail NAME: why" for each method, then the counts. Those that
mpi4py_aside.txt names are left out: they test what Rondo does not have.
"""

import collections
import fnmatch
import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SECONDS = 600  # of a run: MPICH's ranks poll, and take minutes where there are more of them than cores


class Recorder(unittest.TextTestResult):
    """Writes what became of each test into the file that RECORD names, at the end."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.seen = {}

    def note(self, test, verdict, why=""):
        name = getattr(test, "test_case", test).id()  # of a subtest: its method's
        if self.seen.get(name, [""])[0] != "fail":
            self.seen[name] = [verdict, why.strip().splitlines()[-1] if why else ""]

    def addSuccess(self, test):
        super().addSuccess(test)
        if test.id() not in self.seen:
            self.note(test, "pass")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skip", reason)

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "fail", self.errors[-1][1])

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "fail", self.failures[-1][1])

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.note(subtest, "fail", self._exc_info_to_string(error, test))

    def stopTestRun(self):
        super().stopTestRun()
        with open(f"{os.environ['RECORD']}.{os.getpid()}", "w", encoding="utf-8") as file:
            json.dump(self.seen, file)


def aside():
    lines = (HERE / "mpi4py_aside.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def main(tests, ranks, *launcher):
    # The modules of these are not even loaded; of the others single methods are left out.
    modules = [pattern[:-2] for pattern in aside() if pattern.endswith(".*") and pattern.count(".") == 1]
    arguments = [option for module in modules for option in ("-e", f"^{module}.py")]
    arguments += [option for pattern in aside() for option in ("-x", f"*{pattern}")]
    with tempfile.TemporaryDirectory() as folder:
        command = [*launcher, sys.executable, __file__, "--rank", f"{tests}/main.py", "-q", "--no-builddir", *arguments]
        with open(f"{folder}/log", "w", encoding="utf-8") as log:
            environment = {**os.environ, "RECORD": f"{folder}/rank", "OMP_NUM_THREADS": "1"}
            try:
                subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=SECONDS, check=False)
            except subprocess.TimeoutExpired:
                print(f"fail the run took more than {SECONDS} s")
        records = [json.loads(path.read_text()) for path in pathlib.Path(folder).glob("rank.*")]
        if len(records) != int(ranks):
            print(f"fail {len(records)} of {ranks} ranks came to the end; the last lines:")
            print("".join(pathlib.Path(folder, "log").read_text(errors="replace").splitlines(True)[-20:]))
            return 1
    verdicts = collections.Counter()
    for name in sorted(set().union(*records)):
        own = [record.get(name, ["fail", "not run on every rank"]) for record in records]
        verdict, why = next((v for v in own if v[0] == "fail"), own[0])
        if any(fnmatch.fnmatchcase(name, f"*{pattern}") for pattern in aside()):
            continue
        verdicts[verdict] += 1
        print(f"{verdict} {name}" + (f": {why}" if verdict == "fail" else ""))
    print(f"{ranks} ranks: {verdicts['pass']} passed, {verdicts['skip']} skipped, {verdicts['fail']} failed")
    return 1 if verdicts["fail"] or not verdicts["pass"] else 0


if __name__ == "__main__":
    if sys.argv[1] == "--rank":
        unittest.TextTestRunner.resultclass = Recorder
        sys.argv = sys.argv[2:]
        sys.path.insert(0, str(pathlib.Path(sys.argv[0]).parent))
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        sys.exit(main(*sys.argv[1:]))
