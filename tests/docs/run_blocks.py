"""Compiles and runs every block of code in pages, against an installed Rondo.

    run_blocks.py PREFIX PAGE ...

Blocks of a page run in order, in one folder, as a reader would type them:
- a block with a name (file=...) is written to that file;
- C++ fragments of a page become one program, a function each with a communicator `comm`, and run on 2 ranks;
- shell blocks run by bash, which stops at the first command that fails; PREFIX/bin is in PATH;
- Python blocks run on 2 ranks, where RONDO_PYTHON names an interpreter that has rondo;
- other languages (and blocks without one) must say what they are: a file, output, or why they are not run.
Prints a line "pass PLACE" or "fail PLACE" for each; the exit code is 1 if one failed.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from blocks import blocks_of, loose_code

LIMIT_S = 120  # of one block; the longest, a build by CMake, takes some seconds

PRELUDE = """\
#include <rondo/communicator.h>
#include <rondo/unique_id.h>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>
"""
MAIN = """\
int main() {
  try {
    rondo::Communicator comm = rondo::Communicator::join();
    %s
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%%s\\n", error.what());
    return 1;
  }
}
"""


class Runner:
    """Runs the blocks of one page in one folder."""

    def __init__(self, prefix, folder):
        self.folder = pathlib.Path(folder)
        self.failed = self.skipped = 0
        self.output = ""  # of the last block that ran
        self.environment = dict(os.environ)
        self.environment["PREFIX"] = str(prefix)
        self.environment["PATH"] = f"{prefix}/bin:{os.environ['PATH']}"
        self.environment["PKG_CONFIG_PATH"] = f"{prefix}/lib/pkgconfig"
        self.environment["LD_LIBRARY_PATH"] = f"{prefix}/lib"

    def report(self, passed, place, why=""):
        print("pass" if passed else "fail", place, flush=True)
        if not passed:
            self.failed += 1
            print(why, flush=True)

    def run_bash(self, place, script):
        try:
            done = subprocess.run(["bash", "-euxo", "pipefail", "-c", script], cwd=self.folder, env=self.environment,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=LIMIT_S, check=False)
            self.output, code = done.stdout, done.returncode
        except subprocess.TimeoutExpired as error:
            self.output, code = f"{error.output}\nnot done after {LIMIT_S} s", 1
        self.report(code == 0, place, self.output)

    def run_fragments(self, page, fragments):
        """One program of all fragments of a page: each is compiled under the page's own line numbers."""
        source, calls = PRELUDE, []
        for block in fragments:
            name = f"line_{block.line}"
            source += (f"void {name}([[maybe_unused]] rondo::Communicator& comm) {{\n{block.before}"
                       f"#line {block.line} \"{block.page}\"\n{block.text}}}\n")
            calls.append(f'std::fprintf(stderr, "{block.place}\\n"); {name}(comm);')
        source += MAIN % "\n    ".join(calls)
        (self.folder / "fragments.cc").write_text(source, encoding="utf-8")
        self.run_bash(f"{page}: {len(fragments)} fragments of C++",
                      "g++ -std=c++20 -Wall -Wextra -Werror fragments.cc $(pkg-config --cflags --libs rondo) -o fragments\n"
                      "rondo-run -n 2 ./fragments")

    def check_printed(self, block):
        missing = [line for line in block.text.splitlines() if line.strip() and line.strip() not in self.output]
        self.report(not missing, block.place, f"not printed: {missing}\nprinted: {self.output}")

    def run(self, block):
        if block.skip:
            self.skipped += 1
            print(f"not run: {block.place}: {block.skip}", flush=True)
        elif block.prints:
            self.check_printed(block)
        elif block.file:
            (self.folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "sh":
            self.run_bash(block.place, block.text)
        elif block.language == "python" and "RONDO_PYTHON" in os.environ:
            (self.folder / "block.py").write_text(block.before + block.text, encoding="utf-8")
            self.run_bash(block.place, 'rondo-run -n 2 "$RONDO_PYTHON" block.py')
        else:
            self.report(False, block.place, "a block that is no fragment, no file, no output, and not skipped")


def main(prefix, pages):
    failed = skipped = blocks = 0
    for page in pages:
        with tempfile.TemporaryDirectory(prefix="rondo-docs-") as folder:
            runner = Runner(pathlib.Path(prefix).resolve(), folder)
            fragments = []
            for code in loose_code(page):
                runner.report(False, code, "a command outside a fence: no suite runs it")
            for block in blocks_of(page, page):
                blocks += 1
                if block.language == "cpp" and not block.file and not block.skip:
                    fragments.append(block)
                else:
                    runner.run(block)
            if fragments:
                runner.run_fragments(page, fragments)
            failed += runner.failed
            skipped += runner.skipped
    print(f"{blocks} blocks, of which {skipped} are not run")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
