"""Measures and judges bars, piece by piece: a call that was stopped goes on in the next one (--keep, --minutes)."""

import pathlib
import time

import bars
from campaign import Campaign, print_answers, write_json
from programs import Failed, ask_bench, size_word

UNFINISHED = 3  # exit code where the minutes are over


def wanted_bars(options):
    wanted = [bar for bar in bars.read_bars() if bar.world in options.ranks and bar.transport in options.transports
              and (not options.collective or bar.collective in options.collective.split(","))
              and (not options.calls or bar.calls == options.calls)
              and (not options.sizes or size_word(bar.size) in options.sizes)]
    if not wanted:
        raise Failed("bars.toml has no bar of these --ranks, --transport, --collective, --calls and --sizes")
    return wanted


def begin_piece(options, wanted, path):
    """A campaign for some bars; path: where an earlier call may have kept turns of it, or None."""
    campaign = Campaign(options)
    namespaces = campaign.namespaces_work()
    for question, (libraries, settings) in bars.questions_of(wanted, campaign.seconds()).items():
        if namespaces or not question.congestion:
            campaign.add(question, libraries, settings)
    if path and path.exists():
        campaign.resume(path)
    return campaign


def take_turns(campaign, wanted, path, end):
    """Turns until the piece is finished, or `end` has come. Each turn is kept."""
    while not campaign.finished() and time.monotonic() < end:
        campaign.take_turn(wanted)
        if path:
            judged = [bars.judge(bar, campaign.answers(), campaign.figures) for bar in wanted]
            write_json(path, campaign, judged if campaign.finished() else ())


def judge_bars(options):
    """Returns the exit code: 1 if a bar is missed, UNFINISHED if the minutes are over before all is measured."""
    end = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    folder = pathlib.Path(options.keep) if options.keep else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    pieces = bars.pieces_of(wanted_bars(options), ask_bench(options.binary, "machine")["cores"])
    judged = []
    for number, (name, wanted) in enumerate(pieces.items()):
        path = folder / f"{name}.json" if folder else None
        campaign = begin_piece(options, wanted, path)
        take_turns(campaign, wanted, path, end)
        if not campaign.finished():
            print(f"# {number} of {len(pieces)} pieces are measured, of {name} {campaign.turns_done} of "
                  f"{options.runs * options.turns} turns; the same command goes on from there")
            return UNFINISHED
        print_answers(campaign)
        judged += [bars.judge(bar, campaign.answers(), campaign.figures) for bar in wanted]
    for one in judged:
        print(one.text())
    return int(any(one.verdict() == "MISSED" for one in judged))
