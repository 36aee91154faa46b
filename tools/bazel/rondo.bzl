"""cc_library, cc_binary and cc_test with Rondo's warnings and numerics."""

load("//tools/bazel:librondo.bzl", _rondo_shared_library = "rondo_shared_library")

rondo_shared_library = _rondo_shared_library

# Warnings are errors in our own code, not in the packages we include. -ffp-contract=off: a fused multiply-add would
# make results depend on the instruction set (docs/numerics.md). Hidden visibility: librondo.so exports its API only.
RONDO_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wshadow",
    "-Wnon-virtual-dtor",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
]

def rondo_library(name, copts = [], **kwargs):
    native.cc_library(name = name, copts = RONDO_COPTS + copts, **kwargs)

def rondo_binary(name, copts = [], linkopts = [], **kwargs):
    native.cc_binary(name = name, copts = RONDO_COPTS + copts, linkopts = linkopts + ["-pthread"], **kwargs)

def rondo_test(name, copts = [], deps = [], linkopts = [], doctest_main = True, **kwargs):
    native.cc_test(
        name = name,
        copts = RONDO_COPTS + copts,
        deps = deps + ["@doctest"] + (["//tests:doctest_main"] if doctest_main else []),
        linkopts = linkopts + ["-pthread"],
        **kwargs
    )
