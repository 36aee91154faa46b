"""Asks libraries and the machine in turn, for a comparison or for bars; prints, keeps and judges what they answered."""

import json
import os
import pathlib
import subprocess
import sys
from dataclasses import asdict

import bars
from contest import SLOWER, Contest
from peers import Places, Question, read_peers
from programs import ask_bench, in_namespace, size_text

PROGRAM_SECONDS = 40
UNPACED = "reno"  # BBR, a system's default here and there, paces loopback
MUCH_STEAL = 0.02  # runs of 4 to 33 minutes had 0.003 to 0.020
# Programs, and what they are asked.
SUBCOMMANDS = {"raw TCP": ("rondo-bench", "limit"), "raw walk": ("limits", "walk"), "exchange": ("rondo-bench", "exchange"),
               "fused pass": ("limits", "fused-pass")}


def steal_ticks():
    """Of all processors: what a hypervisor gave to other machines, and all time (proc_stat(5))."""
    ticks = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return ticks[7], sum(ticks)


class Campaign:
    def __init__(self, options):
        self.options, self.bench = options, options.binary
        self.machine = ask_bench(self.bench, "machine")
        self.ticks = steal_ticks()
        self.peers = read_peers()
        build = pathlib.Path(self.bench).resolve().parent
        self.places = Places(("build",), {"rondo-bench": self.bench,
                                          "rondo-run": str(build.parent / "tools" / "rondo-run"),
                                          "limits": str(build.parent / "tests" / "lab" / "limits")})
        self.contests, self.figures = [], []
        self.turns_done = 0  # of all runs
        self.taken = {}  # measurements of the machine in this run, by their key in figures

    def add(self, question, libraries, outside=1):
        self.contests.append(Contest(question, libraries, self.peers, self.places, self.machine, PROGRAM_SECONDS,
                                     outside))

    def namespaces_work(self):
        return subprocess.run(in_namespace(UNPACED, ["true"]), capture_output=True, check=False).returncode == 0

    def finished(self):
        return self.turns_done == self.options.runs * self.options.turns

    def take_turn(self, judged=()):
        """The next turn of all contests. judged: bars whose figures of the machine are measured as often as Rondo
        answers."""
        run, turn = divmod(self.turns_done, self.options.turns)
        if turn == 0:
            self.figures.append({})
            self.taken = {}
            for contest in self.contests:
                contest.begin_run()
        for contest in self.contests:
            contest.take_turn(lambda text: self.say(run, text))
        for bar in judged:
            self.measure_machine(bar, lambda text: self.say(run, text))
        self.turns_done += 1
        self.say(None, "")
        stolen, total = (now - then for now, then in zip(steal_ticks(), self.ticks))
        self.machine["steal_share"] = stolen / total if total else 0

    def say(self, run, text):
        if sys.stderr.isatty():
            place = "" if run is None else f"run {run + 1} of {self.options.runs}: "
            print(f"\r\033[K{place}{text}", end="", file=sys.stderr, flush=True)

    def measure_machine(self, bar, say):
        """Once a turn at least, and as often as Rondo has answered in this run: of each side the fastest counts."""
        if bar.against not in bars.MACHINE:
            return
        contest = next((one for one in self.contests if bar.about(one.answers.question)), None)
        key = f"{bar.against}, {bar.world}"
        before = self.taken.get(key, 0)
        self.taken[key] = max(contest.answers.count("rondo", bar.size) if contest else 0, before + 1)
        for _ in range(before, self.taken[key]):
            say(f"{bars.NAMES[bar.against]}, {bar.world} ranks")
            program, word = SUBCOMMANDS[bar.against]
            answer = ask_bench(self.places.find(program), word, "--ranks", str(bar.world), "--sizes", str(bar.size))
            figure, better = (answer["gbps"], max) if "gbps" in answer else (answer["us"], min)
            self.figures[-1][key] = better(figure, self.figures[-1].get(key, figure))

    def seconds(self):
        return self.options.seconds / self.options.turns

    def answers(self):
        return [contest.answers for contest in self.contests]


def questions_of(options, campaign):
    """Each transport, and TCP both as the machine is and, where it paces, under reno."""
    paced = campaign.machine["congestion_control"] != UNPACED and campaign.namespaces_work()
    for world in options.ranks:
        for collective in options.collective.split(","):
            for transport in options.transports:
                for congestion in ["", UNPACED] if transport == "tcp" and paced else [""]:
                    yield Question(world, transport, congestion, options.buffers, collective, options.calls,
                                   tuple(options.sizes), campaign.seconds())


def print_contest(contest):
    answers = contest.answers
    print(f"#\n# {answers.question.text()}\n# {'size':>8} {'library':<10} {'time (us)':>11} {'busbw':>8} "
          f"{'CPU s/GB':>9} {'ours/':>6}  best setting")
    for size in answers.sizes():
        ours = answers.median(answers.libraries[0], size)
        for library in answers.libraries:
            if not (row := answers.median(library, size)):
                continue
            ratio = f"{ours['time_us'] / row['time_us']:.2f}" if ours and library != answers.libraries[0] else "-"
            cpu = "-" if row["cpu_s_per_gb"] is None else f"{row['cpu_s_per_gb']:.3f}"
            print(f"{size_text(size):>10} {library:<10} {row['time_us']:>11,.4g} {row['busbw_gbps']:>8.3f} {cpu:>9} "
                  f"{ratio:>6}  {row['algorithm']}")
    for library in answers.libraries:
        if why := answers.why_missing(library):
            print(f"# {library} is missing: {why}")
    for tried in contest.tried:
        if tried.status and tried.status != SLOWER:
            print(f"# {tried.setting.library}, {tried.setting.name}: {tried.status}")


def rows_of(contests):
    for answers in contests:
        for size in answers.sizes():
            for library in answers.libraries:
                if row := answers.median(library, size):
                    yield {**row, "transport": answers.question.row_transport()}


def write_json(path, campaign, judged=()):
    contests = [{"question": asdict(contest.answers.question), "libraries": contest.answers.libraries,
                 **contest.state()} for contest in campaign.contests]
    content = {"machine": campaign.machine, "limits": {"tcp": [], "exchange_us": None},
               "rows": list(rows_of(campaign.answers())), "bars": [one.json() for one in judged],
               "contests": contests, "figures": campaign.figures}
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1)
        file.write("\n")
    os.replace(f"{path}.new", path)


def print_answers(campaign):
    for contest in campaign.contests:
        print_contest(contest)
    if campaign.machine["steal_share"] > MUCH_STEAL:
        print(f"# warning: the hypervisor ran other machines for {100 * campaign.machine['steal_share']:.0f} % of the "
              "processors' time: times are in part theirs")


def compare(options):
    """Returns the exit code: 1 if nothing of ours could be measured."""
    campaign = Campaign(options)
    for question in questions_of(options, campaign):
        campaign.add(question, ["rondo", *options.compare])
    while not campaign.finished():
        campaign.take_turn()
    print_answers(campaign)
    if options.json:
        write_json(options.json, campaign)
    measured = any(not answers.why_missing("rondo") for answers in campaign.answers())
    return int(not measured)
