"""What type checkers say of a program: its calls have types, and its typing errors are found. The types are made from the
calls' functions."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import numpy as np
import rondo

group = rondo.init()
reveal_type(group)
work = group.all_reduce(np.ones(3), async_op=True)
reveal_type(work)
reveal_type(group.all_gather_v(np.ones(3), async_op=True, timeout=3.0).wait())
reveal_type(group.all_reduce(np.ones(3), "avg", scalar=2.0, algorithm="ring"))
reveal_type(group.split(0))
reveal_type(rondo.Timeout("late").ranks)


def fn(x: int) -> int:
    return x


rondo.spawn(fn, 2, (1,))
rondo.Store
group.allreduce(np.ones(3))  # line 21: a typing error
group.barrier(timeoutt=3.0)  # line 22
"""
TREE = Path(os.environ.get("RONDO_TREE", Path(__file__).parents[2]))
COMMANDS = {"mypy": ["mypy", "--no-incremental"], "pyright": ["basedpyright", "--pythonpath", sys.executable]}


@pytest.mark.parametrize("checker", COMMANDS)
def test_a_program_has_types_and_its_errors_are_found(checker, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", *COMMANDS[checker], str(program)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300).stdout
    lines = [line for line in said.splitlines() if "program.py:" in line]
    assert {int(line.split(":")[1]) for line in lines if re.search(r"[:-] error\b", line)} == {21, 22}, said
    revealed = [re.sub(r"builtins\.|rondo\.\w+\.", "", line) for line in lines if re.search(r"[:-] (note|information)\b", line)]
    for number, what in {6: "Communicator", 8: "Work", 9: "Any", 10: "Any", 11: "Communicator | None", 12: "tuple[int, ...]"}.items():
        (line,) = [line for line in revealed if f"program.py:{number}:" in line]
        assert f'"{what}"' in line, said


def test_the_types_are_what_the_functions_say():
    done = subprocess.run([sys.executable, TREE / "tools/stubs.py", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
