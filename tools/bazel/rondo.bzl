"""cc_library, cc_binary and cc_test with Rondo's warnings and numerics."""

load("@compiler//:warnings.bzl", "WARNINGS_ARE_ERRORS")
load("//tools/bazel:archive.bzl", _whole_archive = "whole_archive")
load("//tools/bazel:librondo.bzl", _rondo_shared_library = "rondo_shared_library")

rondo_shared_library = _rondo_shared_library
whole_archive = _whole_archive

# Warnings are errors in our own code, not in the packages we include, with the compilers of the suites.
# -ffp-contract=off: a fused multiply-add would make results depend on the instruction set (docs/numerics.md). Hidden
# visibility: librondo.so exports its API only.
RONDO_COPTS = [
    "-Wall",
    "-Wextra",
] + WARNINGS_ARE_ERRORS + [
    "-Wshadow",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-Iring/include",  # the public headers, as "rondo/NAME.h"
] + select({
    "//tools/bazel:aarch64": ["-fsigned-char"],  # as char is on x86-64
    "//conditions:default": [],
})

# Packages that are compiled here (tools/bazel/packages): hidden as our own code, without its warnings.
PACKAGE_COPTS = ["-fvisibility=hidden"]

# For a file whose time is its compilation's. -U: the macro wants optimization.
UNOPTIMIZED = [
    "-O0",
    "-U_FORTIFY_SOURCE",
]

# linkstatic: hidden symbols are no part of a shared library's interface, so a library is never one by itself.
def rondo_library(name, copts = [], **kwargs):
    native.cc_library(name = name, copts = RONDO_COPTS + copts, linkstatic = True, **kwargs)

def rondo_binary(name, copts = [], linkopts = [], **kwargs):
    native.cc_binary(name = name, copts = RONDO_COPTS + copts, linkopts = linkopts + ["-pthread"], **kwargs)

# A program that wants the engine; and "program", its code for a library that has the engine (python/wheel), where its
# main() is rondo_NAME_main().
def rondo_program(name, srcs, copts = [], deps = [], **kwargs):
    rondo_binary(name = name, srcs = srcs, copts = copts, deps = deps, **kwargs)
    main = name.replace("-", "_") + "_main"
    rondo_library(
        name = "program",
        srcs = srcs,
        copts = copts + ["-include", "tools/bazel/program.h"],
        local_defines = ["main=" + main, "RONDO_PROGRAM=" + main],
        tags = ["manual"],
        alwayslink = True,
        deps = deps + ["//tools/bazel:program"],
        **kwargs
    )

# linkstatic: Bazel links tests against shared libraries otherwise, and hidden symbols are not found there. srcs: NAME.cc
# where none are named.
def rondo_test(name, srcs = [], copts = [], deps = [], linkopts = [], doctest_main = True, **kwargs):
    native.cc_test(
        name = name,
        srcs = srcs or [name + ".cc"],
        copts = RONDO_COPTS + copts,
        linkstatic = True,
        deps = deps + ["@doctest"] + (["//tests:doctest_main"] if doctest_main else []),
        linkopts = linkopts + ["-pthread"],
        **kwargs
    )

# A test whose ranks are threads or processes of its own (tests/support/rank_group.h), with what most of them use.
def rank_test(name, deps = [], **kwargs):
    rondo_test(
        name = name,
        deps = deps + [
            "//ring:rondo",
            "//ring/base",
            "//tests/support:process",
            "//tests/support:random",
            "//tests/support:rank_group",
            "//tools/bazel/packages:fmt",
        ],
        **kwargs
    )
