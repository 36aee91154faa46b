"""Promises about speed (bars.toml): who is asked what for them, and what follows of the answers."""

import pathlib
import statistics
import tomllib
from dataclasses import dataclass, replace

from peers import Question
from programs import parse_size, size_text, size_word

FILE = pathlib.Path(__file__).with_name("bars.toml")
MPIS = ["openmpi", "mpich", "intelmpi"]
ONECCL = ["oneccl"]
GLOOS = ["gloo", "gloo-sync", "gloo-busy"]
HIGHEST_SHARE = 1.05  # nothing is faster than the best raw transfer
RAW_SETTINGS = 3  # of raw TCP; who is compared with it is asked as often
NAMES = {"best MPI": "time / best MPI", "best peer": "time / best peer", "Gloo's best": "time / Gloo's best",
         "CPU": "CPU s/GB / fastest peer", "raw TCP": "share of raw TCP",
         "raw walk": "share of raw TCP through the whole buffer", "exchange": "time / bare exchange",
         "fused pass": "share of one fused pass"}
MACHINE = ("raw TCP", "raw walk", "exchange", "fused pass")  # compared with what the machine does without any library


@dataclass(frozen=True)
class Bar:
    transport: str
    congestion: str
    buffers: str
    world: int
    size: int  # bytes
    against: str
    kind: str  # "at most", "at least"
    bound: float
    collective: str = "all_reduce"
    calls: str = "blocking"

    def name(self):
        congestion = f"@{self.congestion}" if self.congestion else ""
        return (f"{self.question().what()}, {self.transport}{congestion} {self.buffers}, {self.world} ranks, "
                f"{size_text(self.size)}, {NAMES[self.against]}")

    def question(self, sizes=(), seconds=0):
        return Question(self.world, self.transport, self.congestion, self.buffers, self.collective, self.calls, sizes,
                        seconds)

    def about(self, question):
        """Whether answers to the question, at whatever sizes, are about this bar."""
        return replace(question, sizes=(), seconds=0) == self.question()

    def of_peers(self):
        """The same for plain buffers: other libraries have no registered ones."""
        return replace(self, buffers="plain")

    def peers(self):
        """The libraries that Rondo is compared with; none: the machine."""
        if self.against in MACHINE:
            return []
        if self.against == "Gloo's best":
            return GLOOS
        if self.against == "best MPI":
            return MPIS
        return MPIS + ONECCL + (GLOOS if self.transport == "tcp" else [])

    def needed_peers(self):
        """The best of some MPIs would be no bar; oneCCL is not had everywhere, nor do Gloo's modes all work."""
        if self.against in MACHINE:
            return []
        return ["gloo"] if self.against == "Gloo's best" else MPIS


@dataclass
class Judged:
    """ratios: one a run. missing: why there are none."""

    bar: Bar
    ratios: list
    missing: str = ""

    def median(self):
        return statistics.median(self.ratios) if self.ratios else None

    def verdict(self):
        if not self.ratios:
            return "NOT JUDGED"
        below, above = self.bar.kind == "at least", self.bar.kind == "at most"
        missed = (below and self.median() < self.bar.bound) or (above and self.median() > self.bar.bound)
        return "MISSED" if missed else "HOLDS"

    def text(self):
        start = f"{self.verdict():<10} {self.bar.name()}: "
        if not self.ratios:
            return start + self.missing
        runs = " ".join(f"{ratio:.3f}" for ratio in self.ratios)
        return f"{start}{runs} median {self.median():.3f}, {self.bar.kind} {self.bar.bound:.2f}"

    def json(self):
        bar = self.bar
        return {"collective": bar.collective, "calls": bar.calls, "transport": bar.question().row_transport(),
                "buffers": bar.buffers, "world": bar.world, "bytes": bar.size, "ratio": NAMES[bar.against],
                "kind": bar.kind, "bound": bar.bound, "runs": self.ratios, "median": self.median(),
                "verdict": self.verdict(), "why_not": self.missing}


def read_bars(path=FILE):
    with open(path, "rb") as file:
        tables = tomllib.load(file)["bar"]
    bars = []
    for table in tables:
        kind = "at_most" if "at_most" in table else "at_least"
        bars += [Bar(table["transport"], table.get("congestion", ""), table.get("buffers", "plain"), world,
                     parse_size(size), table["against"], kind.replace("_", " "), bound,
                     table.get("collective", "all_reduce"), table.get("calls", "blocking"))
                 for world in table["worlds"] for size, bound in table[kind].items()]
    return bars


def pieces_of(bars, cores):
    """{name: bars} that are measured one after another: of each world, transport, collective and kind of calls. With
    more ranks than cores every program is asked one size only, and each size is a piece."""
    pieces = {}
    for bar in sorted(bars, key=lambda bar: (bar.world, bar.transport, bar.collective, bar.calls, bar.size)):
        calls = "-async" if bar.calls == "async" else ""
        size = f"-{size_word(bar.size)}" if bar.world > cores else ""
        pieces.setdefault(f"{bar.world}-{bar.transport}-{bar.collective}{calls}{size}", []).append(bar)
    return pieces


def questions_of(bars, seconds):
    """{question: [libraries, settings of the machine]}: each question once, at the sizes of its bars."""
    asked = {}  # by question without sizes: [libraries, settings, sizes]
    for bar in bars:
        for one, peers in [(bar, [])] + ([(bar.of_peers(), bar.peers())] if bar.peers() else []):
            entry = asked.setdefault(one.question(), [["rondo"], 1, set()])
            entry[0] += [peer for peer in peers if peer not in entry[0]]
            entry[2].add(bar.size)
        entry = asked[bar.question()]
        entry[1] = max(entry[1], RAW_SETTINGS if bar.against.startswith("raw") else 1)
    return {replace(question, sizes=tuple(map(size_word, sorted(sizes))), seconds=seconds): [libraries, settings]
            for question, (libraries, settings, sizes) in asked.items()}


def answers_to(bar, answers):
    return next((one for one in answers if bar.about(one.question)), None)


def why_not(bar, ours, theirs):
    """"" if all libraries that the bar needs have an answer. Slow is one."""
    if ours is None:
        return "no network namespace to set the congestion control in (needs root)" if bar.congestion else "not asked"
    if why := ours.why_missing("rondo"):
        return f"rondo: {why}"
    for library in bar.needed_peers():
        why = theirs.why_missing(library) if theirs else "not asked"
        if why and "did not finish" not in why:
            return f"{library}: {why}"
    return ""


def ratio_to_peers(bar, ours, theirs, run):
    rows = [row for peer in bar.peers() if (row := theirs.best(run, peer, bar.size))]
    if not rows:
        return None
    fastest = min(rows, key=lambda row: row["time_us"])
    if bar.against != "CPU":
        return ours["time_us"] / fastest["time_us"]
    if ours["cpu_s_per_gb"] is None or not fastest["cpu_s_per_gb"]:
        return None
    return ours["cpu_s_per_gb"] / fastest["cpu_s_per_gb"]


def ratio_to_machine(bar, ours, figures):
    """figures: of one run, by what a bar is against and the world: GB/s or microseconds."""
    figure = figures[f"{bar.against}, {bar.world}"]
    if bar.against.startswith("raw"):
        return ours["busbw_gbps"] / figure
    return ours["time_us"] / figure if bar.against == "exchange" else figure / ours["time_us"]


def judge(bar, answers, figures):
    """answers: of all contests. figures: of each run."""
    ours, theirs = answers_to(bar, answers), answers_to(bar.of_peers(), answers)
    if why := why_not(bar, ours, theirs):
        return Judged(bar, [], why)
    ratios = []
    for run in range(len(ours.runs)):
        row = ours.best(run, "rondo", bar.size)
        ratio = row and (ratio_to_machine(bar, row, figures[run]) if bar.against in MACHINE
                         else ratio_to_peers(bar, row, theirs, run))
        if ratio is not None:
            ratios.append(ratio)
    if not ratios:
        return Judged(bar, [], "no run has both figures")
    if bar.against.startswith("raw") and statistics.median(ratios) > HIGHEST_SHARE:
        return Judged(bar, [], f"a share of {statistics.median(ratios):.2f}: the limit is wrong")
    return Judged(bar, ratios)
