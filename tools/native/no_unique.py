"""Makes GCC's unique symbols of an object file global ones, which objcopy can make local: it leaves unique ones alone.
-fno-gnu-unique does not do, since a pragma for the optimization, as fmt has, takes it back.
  no_unique.py IN OUT    ELF of 64 bits, little-endian
"""

import struct
import sys
from pathlib import Path

_SYMTAB, _UNIQUE, _GLOBAL = 2, 10, 1  # as elf.h
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL_BYTES, _INFO = 24, 4  # of a symbol, and where its binding and type are


def without_unique(image: bytearray) -> bytearray:
    if image[:6] != b"\x7fELF\x02\x01":
        raise SystemExit("no_unique.py: not an ELF file of 64 bits, little-endian")
    (sections,) = struct.unpack_from("<Q", image, 40)
    size, number = struct.unpack_from("<HH", image, 58)
    number = number or _SECTION.unpack_from(image, sections)[5]  # more than 65,279: it stands in the first
    for i in range(number):
        _, kind, _, _, offset, length, *_ = _SECTION.unpack_from(image, sections + i * size)
        for at in range(offset + _INFO, offset + length, _SYMBOL_BYTES) if kind == _SYMTAB else ():
            if image[at] >> 4 == _UNIQUE:
                image[at] = _GLOBAL << 4 | image[at] & 15
    return image


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(without_unique(bytearray(Path(sys.argv[1]).read_bytes())))
