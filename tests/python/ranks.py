"""Jobs for tests: functions of this folder's modules, run by every rank."""

import multiprocessing
import subprocess
import sys

import numpy as np
import pytest

import rondo


def run(world, fn, *args):
    """What fn(group, *args) returns on each rank. Forked: a tenth of the time of new interpreters."""
    return rondo.spawn(_main, world, (fn, args), start_method="fork")


def _main(fn, args):
    with rondo.init() as group:
        return fn(group, *args)


def said_by(method, target, arguments, dead=0):
    """What processes of multiprocessing say, in order: each runs target(*its arguments, queue), and puts one thing in the
    queue. dead: as many are killed before. The others end well."""
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    children = [context.Process(target=target, args=(*each, queue)) for each in arguments]
    for child in children:
        child.start()
    said = [queue.get(timeout=60) for _ in range(len(children) - dead)]
    for child in children:
        child.join(timeout=60)
    assert dead or [child.exitcode for child in children] == [0] * len(children)
    return sorted(said)


def run_program(world, folder, text, *arguments, python=()):
    """The program of this text as users start it, by the launcher. python: the words before it."""
    script = folder / "job.py"
    script.write_text(text)
    command = [sys.executable, "-m", "rondo.run", "-n", str(world), *python, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def same_on_all(group, array):
    """As bits: of float32."""
    everyone = group.all_gather(array)
    assert (everyone.view(np.uint32) == everyone[0].view(np.uint32)).all()


def on(*worlds):
    """Decorates a test that is a job's: each rank calls it with the group, in each of these worlds."""

    def decorate(fn):
        def test(world):
            run(world, fn)

        test.__name__, test.__doc__ = fn.__name__, fn.__doc__
        return pytest.mark.parametrize("world", worlds)(test)

    return decorate
