"""Measures and judges bars, piece by piece."""

import pathlib

import bars
from campaign import Campaign, print_answers, write_json
from programs import Failed, ask_bench, size_word


def wanted_bars(options):
    wanted = [bar for bar in bars.read_bars() if bar.world in options.ranks and bar.transport in options.transports
              and (not options.collective or bar.collective in options.collective.split(","))
              and (not options.calls or bar.calls == options.calls)
              and (not options.sizes or size_word(bar.size) in options.sizes)]
    if not wanted:
        raise Failed("bars.toml has no bar of these --ranks, --transport, --collective, --calls and --sizes")
    return wanted


def measured(options, wanted):
    """The campaign that has measured some bars."""
    campaign = Campaign(options)
    namespaces = campaign.namespaces_work()
    for question, (libraries, settings) in bars.questions_of(wanted, campaign.seconds()).items():
        if namespaces or not question.congestion:
            campaign.add(question, libraries, settings)
    while not campaign.finished():
        campaign.take_turn(wanted)
    return campaign


def judge_bars(options):
    """Returns the exit code: 1 if a bar is missed."""
    folder = pathlib.Path(options.keep) if options.keep else None
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    judged = []
    for name, wanted in bars.pieces_of(wanted_bars(options), ask_bench(options.binary, "machine")["cores"]).items():
        campaign = measured(options, wanted)
        print_answers(campaign)
        piece = [bars.judge(bar, campaign.answers(), campaign.figures) for bar in wanted]
        if folder:
            write_json(folder / f"{name}.json", campaign, piece)
        judged += piece
    for one in judged:
        print(one.text())
    return int(any(one.verdict() == "MISSED" for one in judged))
