"""Two builds of rondo-bench in turn: is this one slower than the other?"""

import statistics

from peers import Question
from programs import Program, ask, size_text

PROGRAM_SECONDS = 120


def program_of(binary, transport, options):
    question = Question(collective=options.collective, calls=options.calls, seconds=options.seconds)
    return Program([binary, "--ranks", str(options.ranks[0]), "--transport", transport, "--buffers", options.buffers,
                    "--no-limit", *question.words()])


def measure(binaries, transport, options):
    """{bytes: ([time of this one], [time of the other])} in microseconds, one a round. Raises Failed."""
    times = {}
    for turn in range(options.rounds):
        # Who is first alternates: what a build leaves behind (a clock rate, a warm page cache) favors neither.
        for which in ((0, 1), (1, 0))[turn % 2]:
            for row in ask(program_of(binaries[which], transport, options), options.sizes, PROGRAM_SECONDS):
                if row["wrong"]:
                    raise SystemExit(f"{binaries[which]}: {row['wrong']} wrong values at {size_text(row['bytes'])}")
                times.setdefault(row["bytes"], ([], []))[which].append(row["time_us"])
    return times


def span(times):
    return f"{statistics.median(times):>9.4g} {min(times):>8.4g} {max(times):>8.4g}"


def run(options):
    """Prints a line for each transport and size. Returns 1 if a ratio of medians is above the bound."""
    calls = "" if options.calls == "blocking" else f", {options.calls} calls"
    print(f"# {options.collective}{calls}, {options.ranks[0]} ranks, {options.buffers} buffers, {options.rounds} rounds; "
          "median, min and max in us")
    print(f"# this:  {options.binary}\n# other: {options.beside}")
    print(f"# {'':>15} {'this':>9} {'min':>8} {'max':>8}   {'other':>9} {'min':>8} {'max':>8}   {'ratio':>6}")
    above = 0
    for transport in options.transports:
        for size, (ours, theirs) in sorted(measure((options.binary, options.beside), transport, options).items()):
            ratio = statistics.median(ours) / statistics.median(theirs)
            slower = ratio > options.bound
            above += slower
            print(f"  {transport:>4} {size_text(size):>10} {span(ours)}   {span(theirs)}   {ratio:>6.3f}"
                  f"{f'  above {options.bound}' if slower else ''}", flush=True)
    return 1 if above else 0
