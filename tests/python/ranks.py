"""Jobs for tests: functions of this folder's modules, run by every rank."""

import pytest

import rondo


def run(world, fn, *args):
    """What fn(group, *args) returns on each rank. Forked: a tenth of the time of new interpreters."""
    return rondo.spawn(_main, world, (fn, args), start_method="fork")


def _main(fn, args):
    with rondo.init() as group:
        return fn(group, *args)


def on(*worlds):
    """Decorates a test that is a job's: each rank calls it with the group, in each of these worlds."""

    def decorate(fn):
        def test(world):
            run(world, fn)

        test.__name__, test.__doc__ = fn.__name__, fn.__doc__
        return pytest.mark.parametrize("world", worlds)(test)

    return decorate
