"""What a rank tells the player: README.md, "A rank"."""

from __future__ import annotations

import functools
import mmap
import threading


class Report:
    def __init__(self, folder: str, rank: int):
        self._path, self._rank = f"{folder}/report-{rank}", rank
        with open(f"{folder}/at-{rank}", "r+b") as file:
            self._at = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")
        self._faults: list[str] = []
        self.fault_of_another = False
        self._bits: dict[tuple[int, int], bytes] = {}
        self._first = dict(self._bits)  # since begin_again()
        self._lock = threading.Lock()

    def at(self, thread: int, line: int) -> None:
        self._at[2 * thread] = line
        self._at[2 * thread + 1] += 1

    def fault(self, text: str) -> None:
        self._faults.append(f"rank {self._rank}: " + text.replace("\n", " "))

    def begin_again(self) -> None:
        """What is equal from here on need not have the bits of before."""
        with self._lock:
            self._first.clear()

    def same_bits(self, line: int, leader: int, bits: bytes) -> bool:
        with self._lock:
            self._bits.setdefault((line, leader), bits)
            return self._first.setdefault((line, leader), bits) == bits

    @property
    def clean(self) -> bool:
        return not self._faults

    def write(self) -> None:
        with open(self._path, "w") as file:
            file.writelines(f"fault {fault}\n" for fault in self._faults)
            for (line, leader), bits in sorted(self._bits.items()):
                print(f"bits {line}/{leader} {_fnv1a(bits):x}", file=file)


def _fnv1a(data: bytes) -> int:
    return functools.reduce(lambda h, b: (h ^ b) * 0x100000001B3 & (1 << 64) - 1, data, 0xCBF29CE484222325)
