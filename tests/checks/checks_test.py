#!/usr/bin/env python3
"""tools/checks finds what it should: each violation is planted in a small tree of its own, and must be reported. A package
that need_packages does not know ends its script."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "checks"


def run(check, files):
    """The exit code and output of a check on a tree of these files."""
    with tempfile.TemporaryDirectory() as root:
        subprocess.run(["git", "init", "-q", root], check=True)
        for path, text in files.items():
            place = pathlib.Path(root) / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, CHECKS / f"{check}.py", root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


class Floats(unittest.TestCase):
    def code(self, files):
        return run("floats", files)[0]

    def test_without_a_mode(self):
        for text in ["double cost = 1;", "auto us = estimate_us(request);", "float x = sizeof(float);"]:
            self.assertEqual(self.code({"ring/engine/route/a.cc": text}), 1, text)
            self.assertEqual(self.code({"ring/engine/route/a.h": text, "ring/engine/route/b.cc": "DefaultFloatMode m;"}), 1)

    def test_with_one_and_elsewhere(self):
        self.assertEqual(self.code({"ring/engine/a.cc": "const DefaultFloatMode mode;\ndouble cost = 1;"}), 0)
        self.assertEqual(self.code({"ring/engine/a.h": "double cost();", "ring/engine/a.cc": "DefaultFloatMode m;"}), 0)
        self.assertEqual(self.code({"ring/engine/a.cc": "int n = sizeof(float);  // no float", "ring/plan/a.cc": "double x;"}), 0)


class OneDefinition(unittest.TestCase):
    def planted(self, first, second, name):
        code, output = run("one_definition", {"a/a.h": first, "b/b.cc": second})
        self.assertEqual(code, 1, output)
        self.assertIn(f"{name} is defined in 2 places", output)
        self.assertIn("a/a.h:", output)
        self.assertIn("b/b.cc:", output)

    def fine(self, first, second):
        code, output = run("one_definition", {"a/a.h": first, "b/b.cc": second})
        self.assertEqual(code, 0, output)

    def test_types(self):
        self.planted("namespace rondo {\nenum class Verdict : int { kGood };\n}", "namespace rondo { struct Verdict {}; }",
                     "rondo::Verdict")
        self.planted("namespace rondo { class __attribute__((x)) RONDO_EXPORT Work final : public A<int> { int b; }; }"
                     .replace("__attribute__((x)) ", ""), "namespace rondo {\nclass Work {};\n}", "rondo::Work")
        self.planted("namespace rondo::inner { template <typename T> struct Box { T t; }; }",
                     "namespace rondo { namespace inner { struct Box {}; } }", "rondo::inner::Box")

    def test_constants_and_aliases(self):
        self.planted("namespace rondo { inline constexpr size_t kMax = 63; }",
                     "namespace rondo { inline constexpr size_t kMax = 256; }", "rondo::kMax")
        self.planted("namespace rondo { constexpr int kTable[2] = {1, 2}; }",
                     "namespace rondo { constexpr int kTable[] = {3}; }", "rondo::kTable")
        self.planted("namespace rondo { using Clock = int; }", "namespace rondo { using Clock = long; }", "rondo::Clock")

        self.fine("namespace rondo { using Clock = std::chrono::steady_clock; }",
                  "namespace rondo { using Clock = std::chrono::steady_clock; }")

    def test_inline_functions(self):
        self.planted("namespace rondo { inline int half(int value) { return value / 2; } }",
                     "namespace rondo { constexpr int half(int v) { return v >> 1; } }", "rondo::half(int)")
        self.fine("namespace rondo { inline int half(int value) { return value / 2; } }",
                  "namespace rondo { inline double half(double value) { return value / 2; } }")

    def test_what_is_allowed(self):
        self.fine("namespace rondo { struct Only {}; struct Later; }", "namespace rondo { struct Later {}; }")
        self.fine("namespace rondo { struct A { struct Inner {}; }; }", "namespace rondo { struct B { struct Inner {}; }; }")
        self.fine("namespace rondo { struct A {}; }", "namespace rondo { namespace { struct A {}; } }")
        self.fine("namespace rondo { struct A {}; }", "namespace rondo::test { struct A {}; }")
        self.fine("namespace rondo { struct A {}; }", '// namespace rondo { struct A {}; }\nconst char* a = "struct A {";')


class Bindings(unittest.TestCase):
    def found(self, body, *names):
        code, output = run("bindings", {"a/a.cc": f"void f() {{\n{body}\n}}\n"})
        self.assertEqual(code, 1 if names else 0, output)
        self.assertEqual([line.split(" is ")[0] for line in output.splitlines()], [f"a/a.cc:{name}" for name in names])

    def test_uses(self):
        self.found("const auto [one, other] = pair();\nauto get = [&] { return one.get(); };", "3: one")
        self.found("auto& [one, other] = pair();\ncall(1, [this, other](int) -> int { return 1; });", "3: other")
        self.found("for (auto& [to, text] : all()) {\n  later([=]() mutable { send({to, text}); });\n}", "3: to", "3: text")
        self.found("for (const auto& [name, value] : all())\n  CAPTURE(std::string(name));", "3: name")

    def test_what_is_allowed(self):
        self.found("const auto [one, other] = pair();\nauto get = [one = one, by = other.get()] { return one + by; };")
        self.found("for (auto& [to, text] : all()) use(to, text);\ncall([](int to) { return to; });")
        self.found("for (auto& [to, text] : all()) {}\nconst int text = 1;\ncall([&] { return text; });")
        self.found("auto [rank, at] = pair();\ncall([&] { return of->rank + it.at + here::at; });\nlist[at] = {rank};")


class Comments(unittest.TestCase):
    def found(self, text, *lines):
        code, output = run("comments", {"a/a.cc": text, "b/b.h": "// Kept by its owner.\n"})
        self.assertEqual(code, 1 if lines else 0, output)
        self.assertEqual([line.split(": ")[0] for line in output.splitlines()], [f"a/a.cc:{line}" for line in lines])

    def test_beginnings(self):
        self.found("int a;\n// Of a rank.\nint b;  // As CUDA has it\n", 2, 3)
        self.found("/* As rondo_init,\n * but later. */\n#include <a.h>  // Of the package.\n", 1, 3)
        self.found("int a;  // Bytes.\n// Of its owner.\n", 2)

    def test_what_is_allowed(self):
        self.found("// Often used. As many of them as there are.\nint asked;  // of a rank\n")
        self.found("// A pass of all ranks.\n// As many come as there are.\n")
        self.found('const char* a = "// Of a rank.";\nTEST_CASE("As they come") {}\n')


class Layers(unittest.TestCase):
    def planted(self, path, include, why):
        code, output = run("layers", {path: f"#pragma once\n\n#include {include}\n"})
        self.assertEqual(code, 1, output)
        self.assertIn(f"{path}:3: includes", output)
        self.assertIn(why, output)

    def fine(self, path, include):
        code, output = run("layers", {path: f"#include {include}\n"})
        self.assertEqual(code, 0, output)

    def test_upwards(self):
        self.planted("ring/plan/ring.cc", '"transport/link.h"', "ring/plan/ may include")
        self.planted("ring/base/log.h", '"ring/plan/plan.h"', "ring/base/ may include")
        self.planted("transport/hello/wire.h", '"ring/engine/call/call.h"', "transport/hello/ may include")
        self.planted("kernels/combine.h", '"transport/link.h"', "kernels/ may include")
        self.planted("ring/engine/communicator_state.h", '"transport/control/plane/control_plane.h"', "ring/engine/ may include")
        self.planted("ring/include/rondo/work.h", '"ring/base/log.h"', "ring/include/rondo/ may include")
        self.planted("examples/ring.cc", '"ring/base/log.h"', "examples/ may include")
        self.planted("somewhere/new.cc", '"ring/base/log.h"', "no layer is known")

    def test_packages(self):
        self.planted("ring/engine/progress/progress_engine.cc", "<asio/io_context.hpp>", "<asio...>")
        self.planted("transport/link.h", "<asio.hpp>", "<asio...>")
        self.planted("ring/engine/call/call.h", "<fmt/format.h>", "<fmt/...>")
        self.planted("transport/link.h", "<cuda_runtime.h>", "<cuda...>")
        self.planted("ring/plan/walk.h", "<atomic>", "<atomic...>")

    def test_downwards(self):
        self.fine("ring/engine/call/call.cc", '"ring/plan/plan.h"')
        self.fine("ring/engine/call/call.cc", "<fmt/format.h>")
        self.fine("transport/hello/dial.cc", "<asio/connect.hpp>")
        self.fine("tests/engine/call_test.cc", '"ring/engine/call/call.h"')
        self.fine("ring/include/rondo/work.h", "<rondo/error.h>")


class Faults(unittest.TestCase):
    TABLE = "| 1 | killed | an error | tests | 1 s |\n| 2 | cut | an error | tests | 1 s |\n"

    def run_on(self, tests):
        return run("faults", {"docs/faults.md": self.TABLE, "tests/a_test.cc": tests})

    def test_every_row_has_a_test_and_every_test_a_row(self):
        code, output = self.run_on('TEST_CASE("fault 1, 2: both") {}')
        self.assertEqual(code, 0, output)
        code, output = self.run_on('TEST_CASE("fault 2: one") {}\n// TEST_CASE of fault 1')
        self.assertEqual(code, 1, output)
        self.assertIn("row 1 has no test", output)
        code, output = self.run_on('TEST_CASE("fault 1, 2, 9: a row too many") {}')
        self.assertEqual(code, 1, output)
        self.assertIn("no row 9", output)

    def test_a_fuzz_target_proves_the_row_of_parsers(self):
        table = "| 75 | every parser fuzzed | no finding | fuzz | |\n"
        for text, expected in [("void try_input(std::string_view input) {}\n", 0), ("// try_input(\n", 1)]:
            code, output = run("faults", {"docs/faults.md": table, "tests/fuzz/hello.cc": text})
            self.assertEqual(code, expected, output)


class Packages(unittest.TestCase):
    def test_one_that_has_no_probe_ends_the_script(self):
        script = f"source {CHECKS.parent}/lib/packages.sh; check_packages git no-such-package; echo it went on"
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no probe for 'no-such-package'", done.stderr)

    def test_a_wrapper_of_the_compiler_without_its_header_is_no_mpi(self):
        script = f"source {CHECKS.parent}/lib/packages.sh; check_packages libmpich-dev libopenmpi-dev"
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            for name in ["mpicxx.mpich", "mpicxx.openmpi"]:
                (path / name).write_text(f'#!/bin/sh\nexec g++ -nostdinc -I{folder}/include "$@"\n')
                (path / name).chmod(0o755)
            environment = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}
            done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
            self.assertIn("libmpich-dev libopenmpi-dev", done.stderr)
            (path / "include").mkdir()
            (path / "include/mpi.h").touch()
            subprocess.run(["bash", "-c", script], env=environment, check=True)


if __name__ == "__main__":
    unittest.main()
