"""A fuzz target: NAME.cc defines seeds() and try_input() of target.h."""

load("//tools/bazel:rondo.bzl", "rondo_binary", "rondo_library", "rondo_test")

# NAME_test replays seeds and found inputs; NAME_fuzz needs clang: bazel build --config=fuzz.
def fuzz_target(name, deps):
    found = native.glob(["found/%s/*" % name])
    rondo_library(
        name = name,
        testonly = True,
        srcs = [name + ".cc"],
        deps = deps + [":target"],
        alwayslink = True,
    )
    rondo_test(
        name = name + "_test",
        size = "small",
        srcs = ["replay_main.cc"],
        args = ["$(location %s)" % file for file in found],
        data = found,
        doctest_main = False,
        deps = [
            ":" + name,
            ":target",
        ],
    )
    rondo_binary(
        name = name + "_fuzz",
        testonly = True,
        srcs = ["libfuzzer_main.cc"],
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [
            ":" + name,
            ":target",
        ],
    )
