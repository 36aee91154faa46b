"""Makes a folder that programs are linked with to run on systems of glibc 2.28 and of GCC 8's libstdc++, the oldest that
the wheel is for (manylinux_2_28), although this system's are newer.

  old_libc.py FOLDER     prints the flags, a line each, for the compiler that links: CXX, or else g++

The folder has libraries without code, which show the linker the names and versions that were there already. What came
later is in old_libc.c (the C library) or is linked in (the rest of libstdc++, OpenSSL).
"""

import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Iterator, NamedTuple

# By the first part of a version's name.
OLDEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (8,)}
# Before 2.34 these were no part of libc.so.6. The dynamic linker compares names and versions, not where they are said
# to be: it suffices that the library is loaded.
APART = {"libpthread.so.0": r"_*pthread_\w+|sem_\w+", "libdl.so.2": r"dl\w+", "librt.so.1": r"(shm_(open|unlink)|timer|mq|aio)_?\w*"}


class Symbol(NamedTuple):
    name: str
    version: str  # "GLIBC_2.14"
    size: int
    data: bool


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    stub(folder, "libm.so", "libm.so.6")
    stub(folder, "libstdc++.so.6", "libstdc++.so.6")
    stub(folder, "libgcc_s.so.1", "libgcc_s.so.1")
    parts = defaultdict(list)
    for symbol in there_already(found("libc.so.6")):
        parts[next((name for name, names in APART.items() if re.fullmatch(names, symbol.name)), "libc.so.6")].append(symbol)
    for soname, symbols in parts.items():
        write_stub(folder, soname, soname, symbols)
    later = []
    for name in ("old_libc.c", "old_libc_start.c"):
        later.append(str(folder / f"{name}.o"))
        run(*compiler(), "-x", "c", "-O2", "-fPIC", "-fvisibility=hidden", "-c", str(Path(__file__).with_name(name)), "-o", later[-1])
    (folder / "liblater.a").unlink(missing_ok=True)
    run(run(*compiler(), "-print-prog-name=ar").strip(), "rcs", str(folder / "liblater.a"), *later)
    stubs = " ".join(str(folder / name) for name in parts)
    machine = run(*compiler(), "-dumpmachine").split("-")[0]
    loader = found({"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}[machine])
    script(folder, "libc.so", f"{stubs} {folder}/liblater.a {found('libc_nonshared.a')} AS_NEEDED({loader})")
    script(folder, "libstdc++.so", f"{folder}/libstdc++.so.6 {found('libstdc++.a')}")
    script(folder, "libgcc_s.so", f"{folder}/libgcc_s.so.1 -lgcc")
    for name in ("libssl", "libcrypto"):
        script(folder, f"{name}.so", found(f"{name}.a"))
    # Start files of 2.34 and newer leave the constructors to the C library (old_libc.c).
    print(f"-L{folder}\n-Wl,--wrap=__libc_start_main")


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "")) or ["g++"]


def found(name: str) -> str:
    path = run(*compiler(), f"-print-file-name={name}").strip()
    if path == name:
        raise SystemExit(f"old_libc.py: {compiler()[0]} finds no {name}")
    return path


def there_already(library: str) -> Iterator[Symbol]:
    """The newest version of each name that is not newer than OLDEST."""
    newest: dict[str, Symbol] = {}
    for line in run("readelf", "--wide", "--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) < 8 or "@" not in fields[7] or fields[6] == "UND" or fields[3] not in ("FUNC", "OBJECT", "IFUNC"):
            continue
        name, version = fields[7].replace("@@", "@").split("@")
        symbol = Symbol(name, version, int(fields[2], 0), fields[3] == "OBJECT")
        if name != version and number(symbol) <= OLDEST.get(version.split("_")[0], ()) and (
            name not in newest or number(newest[name]) < number(symbol)
        ):
            newest[name] = symbol
    yield from newest.values()


def number(symbol: Symbol) -> tuple[int, ...]:
    digits = re.fullmatch(r"[A-Z]+_((?:\d+\.)*\d+)", symbol.version)
    return tuple(map(int, digits[1].split("."))) if digits else (999,)


def stub(folder: Path, file: str, soname: str) -> None:
    write_stub(folder, file, soname, list(there_already(found(soname))))


def write_stub(folder: Path, file: str, soname: str, symbols: list[Symbol]) -> None:
    versions = defaultdict(list)
    for symbol in symbols:
        versions[symbol.version].append(f'"{symbol.name}"')
    nodes = [f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in sorted(versions.items())]
    nodes[0] = nodes[0].replace("; };", "; local: *; };")
    (folder / f"{soname}.map").write_text("".join(nodes))
    lines = [line for symbol in symbols for line in declared(symbol)]
    (folder / f"{soname}.s").write_text("\n".join([*lines, '.section .note.GNU-stack,"",%progbits', ""]))
    run(*compiler(), "-nostdlib", "-shared", f"-Wl,-soname,{soname}", f"-Wl,--version-script={folder / soname}.map",
        "-Wl,--no-warn-mismatch", str(folder / f"{soname}.s"), "-o", str(folder / file))  # fmt: skip


def declared(symbol: Symbol) -> list[str]:
    section, kind = (".bss", "object") if symbol.data else (".text", "function")
    name = f'"{symbol.name}"'
    return [section, f".globl {name}", f".type {name}, %{kind}", f".size {name}, {symbol.size}", f"{name}: .skip {max(symbol.size, 1) if symbol.data else 1}"]


def script(folder: Path, name: str, group: str) -> None:
    (folder / name).write_text(f"GROUP ( {group} )\n")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
