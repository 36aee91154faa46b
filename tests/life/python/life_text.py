"""The text of a life: README.md, "The text". life.cc in Python."""

from __future__ import annotations


class Step:
    """One line, and the lines between it and its `end`."""

    def __init__(self, words: list[str], line: int):
        self.verb, self.line, self.text = words[0], line, " ".join(words)
        self.inner: list[Step] = []
        pairs = [f"times={words[1]}"] if self.verb == "repeat" else words[1:]
        self.values = dict(pair.split("=", 1) for pair in pairs)

    def word(self, key: str, absent: str = "") -> str:
        return self.values.get(key, absent)

    def number(self, key: str, absent: int = 0) -> int:
        return int(self.values.get(key, absent))

    def numbers(self, key: str) -> list[int]:
        return [int(word) for word in self.word(key).split(",") if word]

    def of_member(self, key: str, member: int, absent: str) -> str:
        words = self.word(key, absent).split(",")
        return words[member % len(words)]


class Life:
    def __init__(self, path: str):
        self.head: dict[str, str] = {}
        self.threads: list[list[Step]] = []
        open_lists: list[list[Step]] = []
        with open(path) as lines:
            for number, text in enumerate(lines, 1):
                words = text.split("#")[0].split()
                if not words:
                    continue
                if words[0] == "thread":
                    self.threads.append([])
                    open_lists = [self.threads[-1]]
                elif not open_lists:
                    self.head[words[0]] = words[1]
                elif words[0] == "end":
                    open_lists.pop()
                else:
                    open_lists[-1].append(Step(words, number))
                    if words[0] in ("repeat", "batch", "disagree"):
                        open_lists.append(open_lists[-1][-1].inner)
        self.world, self.seed, self.rounds = (int(self.head[key]) for key in ("world", "seed", "rounds"))

    def first_step(self, process: int) -> int:
        """Where it begins to play; processes from `world` on are newcomers, whom the first thread's lines `grow` take in."""
        step, known = 0, self.world
        while known <= process:
            if self.threads[0][step].verb == "grow":
                known += self.threads[0][step].number("newcomers")
            step += 1
        return step

    def door(self, rank: int) -> str:
        doors = self.head["doors"].split(",")
        return doors[rank % len(doors)]
