"""How the pages' tests compare, and what they print of each check."""

import traceback


def equal(got, wanted, what):
    if got != wanted:
        raise AssertionError(f"{what}: {got!r}, not {wanted!r}")


def look(checks):
    """A line "pass NAME" or "fail NAME: why" of each (name, function); every check counts by itself."""
    for name, check in checks:
        try:
            check()
            print(f"pass {name}", flush=True)
        except Exception as error:
            print(f"fail {name}: {' '.join(str(error).split())[:500]}", flush=True)
            if not isinstance(error, AssertionError):
                traceback.print_exc()
