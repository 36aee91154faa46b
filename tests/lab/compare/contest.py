"""Libraries answer one question in runs of several turns.

In a turn every setting of every library is asked once, and of a run's turns the fastest right answer counts: a virtual
machine's cores may be near each other now and far apart a second later, a factor of two and more. The first run asks
all settings; later turns those that have a chance left at that size, and then libraries with fewer settings as often as
those with more: the fastest of four answers would beat the fastest of one by chance alone.
"""

from dataclasses import dataclass, field

from peers import Unable, settings_of
from programs import Failed, ask

# A setting that was so much slower than its library's best at a size is not asked it again: after one turn, in which
# chance may cost a factor of two, and after a run.
HOPELESS, FAR = 3, 1.25
MOST_CHANCES = 4  # so often a library with fewer settings is asked in a turn
NEVER = float("inf")
SLOWER = "slower than another setting at every size"


@dataclass
class Answers:
    """What libraries answered to one question: of each run, [library, setting, size as asked, row]."""

    question: object
    libraries: list
    runs: list = field(default_factory=list)
    missing: dict = field(default_factory=dict)  # why a library has no answer

    def best(self, run, library, size):
        """The fastest right row of a library in a run, or None. size: bytes."""
        rows = [row for name, _, _, row in self.runs[run]
                if name == library and row["bytes"] == size and not row["wrong"]]
        return min(rows, key=lambda row: row["time_us"], default=None)

    def count(self, library, size):
        """Right answers of a library in the last run."""
        return sum(name == library and row["bytes"] == size and not row["wrong"]
                   for name, _, _, row in (self.runs[-1] if self.runs else []))

    def median(self, library, size):
        """best() of the run in the middle, or None."""
        rows = [row for run in range(len(self.runs)) if (row := self.best(run, library, size))]
        return sorted(rows, key=lambda row: row["time_us"])[(len(rows) - 1) // 2] if rows else None

    def sizes(self):
        return sorted({row["bytes"] for run in self.runs for *_, row in run})

    def why_missing(self, library):
        """"" if the library has an answer."""
        if any(name == library and not row["wrong"] for run in self.runs for name, *_, row in run):
            return ""
        return self.missing.get(library, "no right answer")


@dataclass
class Tried:
    """A setting, and what became of it. sizes: those that it is still asked."""

    setting: object
    sizes: list
    alone: bool
    status: str = ""


class Contest:
    """peers: of peers.toml. outside: settings of the machine with which the libraries are compared, too."""

    def __init__(self, question, libraries, peers, places, machine, program_seconds, outside=1):
        self.answers = Answers(question, libraries)
        self.program_seconds = program_seconds
        self.outside = min(outside, MOST_CHANCES)
        self.tried = []
        for library in libraries:
            try:
                for setting in settings_of(library, peers[library], question, places, machine):
                    self.tried.append(Tried(setting, list(setting.sizes), setting.alone))
            except Unable as why:
                self.answers.missing[library] = str(why)

    def state(self):
        """What a file keeps of it."""
        return {"runs": self.answers.runs, "missing": self.answers.missing, "tried": [
            {"library": tried.setting.library, "setting": tried.setting.name, "status": tried.status,
             "sizes": tried.sizes, "alone": tried.alone, "command": tried.setting.program.text(tried.setting.sizes)}
            for tried in self.tried]}

    def begin_run(self):
        if len(self.answers.runs) == 1:
            self.drop_slower_than(FAR)
        self.answers.runs.append([])

    def take_turn(self, say):
        """A turn of the run that was begun last."""
        if len(self.answers.runs) == 1 and not self.answers.runs[0]:
            for tried in self.tried:
                self.ask_all(tried, list(tried.sizes), say)
            self.drop_slower_than(HOPELESS)
            return
        for round_sizes in self.rounds():
            for tried, sizes in round_sizes:
                self.ask_all(tried, sizes, say)

    def rounds(self):
        """Of each round: who is asked which sizes. In a round every library has one setting at each size."""
        chances = {}  # by library and size: settings that are left
        for tried in self.tried:
            for size in tried.sizes:
                chances.setdefault((tried.setting.library, size), []).append(tried)
        most = {}  # by size
        for (_, size), left in chances.items():
            most[size] = max(most.get(size, self.outside), min(len(left), MOST_CHANCES))
        for turn in range(max([self.outside, *map(len, chances.values())])):
            asked = []
            for library in self.answers.libraries:
                now = {}
                for (name, size), left in chances.items():
                    if name == library and turn < max(len(left), most[size]):
                        now.setdefault(id(left[turn % len(left)]), (left[turn % len(left)], []))[1].append(size)
                asked += now.values()
            yield asked

    def ask_all(self, tried, sizes, say):
        if not sizes:
            return
        say(f"{self.answers.question.text()}: {tried.setting.library}, {tried.setting.name}")
        if not tried.alone:
            return self.ask(tried, sizes)
        for size in sizes:
            self.ask(tried, [size])

    def ask(self, tried, sizes):
        setting = tried.setting
        try:
            rows = ask(setting.program, sizes, self.program_seconds)
        except Failed as why:
            tried.status = str(why)
            if len(sizes) == 1:
                tried.sizes = [size for size in tried.sizes if size != sizes[0]]  # asked twice in a round, too
                self.answers.missing.setdefault(setting.library, tried.status)
            tried.alone = True
            return
        for size, row in zip(sizes, rows):
            row["library"] = setting.library
            if setting.library != "rondo":
                row["algorithm"] = setting.name
            self.answers.runs[-1].append([setting.library, setting.name, size, row])

    def drop_slower_than(self, factor):
        fastest, best = {}, {}  # a setting's times; a library's
        for library, name, size, row in self.answers.runs[0]:
            time = NEVER if row["wrong"] else row["time_us"]
            for times, key in ((fastest, (library, name, size)), (best, (library, size))):
                times[key] = min(times.get(key, NEVER), time)
        for tried in self.tried:
            library, name = tried.setting.library, tried.setting.name
            times = {size: fastest.get((library, name, size)) for size in tried.sizes}
            # Who has no answer yet is to be asked alone.
            tried.sizes = [size for size, time in times.items()
                           if time is None or (time < NEVER and time <= best[library, size] * factor)]
            if not tried.sizes and not tried.status:
                answered = any(time is not None and time < NEVER for time in times.values())
                tried.status = SLOWER if answered else "no right answer"
