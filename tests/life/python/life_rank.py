"""Plays a life as one rank (README.md, "A rank") through Python: NumPy arrays, or torch.distributed. ranks.so plays it,
and asks for each call (door_asked.h).

python3 life_rank.py --library=ranks.so --life=FILE --rank=R --meeting=URL --folder=DIR
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import itertools
import re
import sys

from life_question import Question

_TORCHS_ABORT = "aborted its process group"  # which takes no words of the player's
_ASK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)


def join(asks: Question):
    """The rank's job. Each door imports what it needs."""
    if asks.word("door") == "torch":
        from door_torch import join
    else:
        from door_numpy import join
    return join(asks)


def failure_of(error: BaseException) -> tuple[str, str, str]:
    """Its code, as error_code_name() has it, the ranks to blame, and its words."""
    words = f"{type(error).__name__}: {error}"
    said = re.search(r"rondo ([A-Z_]+)(?: \(ranks? ([\d, ]+)\))?", str(error))  # by torch
    if said is not None:
        words = words.replace(_TORCHS_ABORT, f"{_TORCHS_ABORT} (life: a rank found a fault)")
        return said[1], (said[2] or "").replace(" ", ""), words
    name = "INVALID" if isinstance(error, (ValueError, TypeError)) else type(error).__name__
    code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
    return code, ",".join(map(str, getattr(error, "ranks", ()))), words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("library", "life", "meeting", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rank", type=int, required=True)
    arguments = parser.parse_args()
    library = ctypes.CDLL(arguments.library)
    library.life_answer.argtypes = [ctypes.c_void_p, *[ctypes.c_char_p] * 4]
    Question.ended = library.life_ended
    Question.ended.argtypes = [ctypes.c_void_p]
    numbers, made = itertools.count(1), {}

    def answer(asks: Question) -> dict:
        if asks.verb == "forget":
            forgotten = made.pop(asks.number("of"))
            with contextlib.suppress(Exception):
                forgotten.forget()
            return {}
        found = join(asks) if asks.verb == "join" else getattr(made[asks.number("of")], asks.verb)(asks)
        if found is None or isinstance(found, dict):
            return found or {}
        number = next(numbers)
        made[number] = found  # a group, or a work
        return {"made": number}

    def ask(text: bytes, to: int) -> None:
        values, failure = {}, ("", "", "")
        try:
            values = answer(Question(text.decode()))
        except BaseException as error:
            failure = failure_of(error)
        words = " ".join(["answer", *(f"{key}={value}" for key, value in values.items())])
        library.life_answer(to, words.encode(), *(part.encode() for part in failure))

    texts = (text.encode() for text in (arguments.meeting, arguments.folder))
    return library.life_play(_ASK(ask), arguments.life.encode(), arguments.rank, *texts)


if __name__ == "__main__":
    sys.exit(main())
