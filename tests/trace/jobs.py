"""Jobs of 4 traced ranks, one of which something happens to."""

import os
import pathlib
import signal
import subprocess
import sys
import time

_JOB = pathlib.Path(__file__).with_name("job.py")
WORLD = 4
DEADLINE_S = 60


class Job:
    """Runs while it is entered. run: rondo-run."""

    def __init__(self, run, folder, transport):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        environment = dict(os.environ, RONDO_TRACE=str(self.folder), RONDO_TRANSPORT=transport)
        self._process = subprocess.Popen([run, "-n", str(WORLD), sys.executable, _JOB, self.folder], env=environment,
                                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def __enter__(self):
        self.pids = {}
        until = time.monotonic() + DEADLINE_S
        while len(self.pids) < WORLD:
            if time.monotonic() > until or self._process.poll() is not None:
                self._process.kill()
                raise AssertionError(f"the job did not start: {self._process.communicate()[0]}")
            self.pids = {int(p.name[4:]): int(p.read_text()) for p in self.folder.glob("pid-?")}
            time.sleep(0.02)
        time.sleep(0.3)  # some calls
        return self

    def __exit__(self, *_):
        (self.folder / "end").touch()
        try:
            self.output = self._process.communicate(timeout=DEADLINE_S)[0]
        finally:
            self._process.kill()

    def stop(self, rank, seconds):
        os.kill(self.pids[rank], signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.pids[rank], signal.SIGCONT)
        time.sleep(0.2)

    def kill(self, rank):
        os.kill(self.pids[rank], signal.SIGKILL)
        self._process.wait(DEADLINE_S)
