"""Libraries as programs and settings (peers.toml), for one question."""

import itertools
import pathlib
import tomllib
from dataclasses import dataclass

from programs import Program, in_namespace, parse_size

FILE = pathlib.Path(__file__).with_name("peers.toml")
IN_PLACE = ("all_reduce", "broadcast", "reduce")  # the others mean something else in place to MPI


@dataclass(frozen=True)
class Question:
    """What all libraries are asked alike. congestion: of TCP, for everybody, in a network namespace; "": their own."""

    world: int = 2
    transport: str = "shm"
    congestion: str = ""
    buffers: str = "plain"
    collective: str = "all_reduce"
    calls: str = "blocking"  # or async: started, then waited for
    sizes: tuple = ("8", "64K", "1M", "64M")
    seconds: float = 0.25  # of timed operations a size and turn

    def row_transport(self):
        return self.transport + (f"@{self.congestion}" if self.congestion else "")

    def text(self):
        congestion = f" @{self.congestion}" if self.congestion else ""
        return f"{self.what()}, {self.transport}{congestion}, {self.buffers} buffers, {self.world} ranks"

    def what(self):
        return self.collective + (", async calls" if self.calls == "async" else "")

    def words(self):
        """Options of rondo-bench, which the peers' drivers take as well."""
        placement = "in" if self.collective in IN_PLACE else "out"
        calls = ["--blocking", "0"] if self.calls == "async" else []
        return ["--collective", self.collective, "--placement", placement, *calls, "--seconds", str(self.seconds)]


@dataclass
class Setting:
    """A library in one setting."""

    library: str
    name: str  # "ring, heap kept"
    program: Program
    sizes: list  # that it can be asked
    alone: bool  # one size a program: it is likely never to end with some


@dataclass(frozen=True)
class Places:
    """roots: folders with the peers' programs; programs: those of this tree, by name."""

    roots: tuple
    programs: dict

    def find(self, name):
        if name in self.programs:
            return self.programs[name]
        for root in self.roots:
            if (path := pathlib.Path(root, name)).is_file():
                return str(path.absolute())
        return None


class Unable(Exception):
    """A library cannot answer a question; the text says why."""


def read_peers(path=FILE):
    with open(path, "rb") as file:
        peers = tomllib.load(file)
    return {name: resolve(peers, name) for name in peers}


def resolve(peers, name):
    peer = peers[name]
    return {**resolve(peers, peer["like"]), **peer} if "like" in peer else peer


def fits(condition, question, crowded):
    """Whether a [[when]], or the `when` of an axis or a choice, is about this question."""
    facts = {"transport": question.transport, "collective": question.collective, "crowded": crowded}
    return all(facts[name] == condition[name] for name in facts if name in condition)


def choices_of(axis, peer, question, machine, crowded):
    if axis["choices"] == "allowed":
        names = [question.congestion] if question.congestion else machine["congestion_controls"]
        choices = [{"name": name, "forces": name} for name in names]
    else:
        choices = [choice for choice in axis["choices"] if choice["name"] not in peer.get("leave_out", [])]
        choices = [choice for choice in choices if fits(choice.get("when", {}), question, crowded)]
        if not fits(axis.get("when", {}), question, crowded):
            choices = [choice for choice in choices if "forces" not in choice]
    return [{**choice, "axis": axis} for choice in choices]


def combinations(peer, question, machine, crowded):
    axes = [choices_of(axis, peer, question, machine, crowded) for axis in peer.get("axis", [])]
    for chosen in itertools.product(*(choices for choices in axes if choices)):
        names = [choice["name"] for choice in chosen]
        if all("only" not in choice or choice["only"] in names for choice in chosen):
            yield chosen


def setting_of(library, peer, question, places, chosen, crowded):
    name = ", ".join(choice["name"] for choice in chosen if choice["name"]) or "as it is"
    program = places.find(peer["program"])
    words = {"program": program, "folder": str(pathlib.Path(program).parent), "world": question.world,
             "tree": str(FILE.parents[3]),
             "transport": question.transport, "buffers": question.buffers, "scratch": "{scratch}",
             "rondo_run": places.find("rondo-run")}
    options, environment = [], dict(peer.get("environment", {}))
    for part in [part for part in peer.get("when", []) if fits(part, question, crowded)] + list(chosen):
        options += part.get("options", [])
        environment |= part.get("environment", {})
        if "forces" in part:
            words["forces"] = part["forces"]
            options += [word.format(**words) for word in part["axis"].get("forced_options", [])]
            environment |= {key: value.format(**words)
                            for key, value in part["axis"].get("forced_environment", {}).items()}
    lists = {"{options}": options, "{question}": question.words()}
    command = [word for part in peer["launch"]
               for word in (lists[part] if part in lists else [part.format(**words)])]
    if library != "rondo":
        environment |= {"PEER_LIBRARY": library, "PEER_TRANSPORT": question.row_transport(), "PEER_SETTING": name}
    if question.congestion:
        command = in_namespace(question.congestion, command)
    environment = {key: value.format(**words) for key, value in environment.items()}
    largest = parse_size(peer["largest"]) if "largest" in peer else float("inf")
    sizes = [size for size in question.sizes if parse_size(size) <= largest]
    return Setting(library, name, Program(command, environment), sizes, crowded)


def settings_of(library, peer, question, places, machine):
    """All settings in which the library can answer. Raises Unable."""
    if places.find(peer["program"]) is None:
        raise Unable(f"not built: {peer['build']}")
    for name, values in peer.get("only", {}).items():
        if getattr(question, name) not in values:
            raise Unable(f"its driver knows only {name} {', '.join(values)}")
    crowded = question.world > machine["cores"]
    settings = [setting_of(library, peer, question, places, chosen, crowded)
                for chosen in combinations(peer, question, machine, crowded)]
    if not settings[0].sizes:
        raise Unable(f"not asked: {peer['because']}")
    return settings
