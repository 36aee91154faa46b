"""Plays a life as one rank (README.md, "A rank") through Python: NumPy arrays, or torch.distributed.

python3 life_rank.py --life=FILE --rank=R --meeting=URL --folder=DIR
"""

from __future__ import annotations

import argparse
import sys
import threading

from life_member import Member
from life_report import Report
from life_text import Life
from life_thread import Thread


def play_round(door, life: Life, rank: int, report: Report, meeting: str) -> None:
    job = door.join(rank, life.world, meeting)
    everyone = Member(job, list(range(door.size(job))), door.rank(job), False)
    threads = [Thread(door, life, rank, t, report, job) for t in range(len(life.threads))]
    own = [job] + [door.split(everyone, [0] * life.world, everyone.ranks)[0] for _ in threads[1:]]
    running = [threading.Thread(target=t.play, args=(g, True)) for t, g in zip(threads[1:], own[1:], strict=True)]
    for thread in running:
        thread.start()
    if threads:
        threads[0].play(job, False)
        job = threads[0].job
    for thread in running:
        thread.join()
    if life.seed % 2 == 0:
        threads.clear()  # registered memory before the job, else after
    try:
        door.close(job)
    except Exception as error:
        if report.clean:
            report.fault(f"close: {error!r}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("life", "meeting", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--rank", type=int, required=True)
    arguments = parser.parse_args()
    life, report = Life(arguments.life), Report(arguments.folder, arguments.rank)
    try:
        if life.door(arguments.rank) == "torch":
            from door_torch import TorchDoor

            door = TorchDoor(life, arguments.rank)
        else:
            from door_numpy import NumpyDoor

            door = NumpyDoor()
        for number in range(life.rounds):
            if report.clean and not report.fault_of_another:
                play_round(door, life, arguments.rank, report, f"{arguments.meeting}-{number}")
    except Exception as error:
        report.fault(f"{type(error).__name__}: {error}")
    report.write()
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
