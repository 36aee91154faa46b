"""librondo.so and librondo.a, each made of all objects of a cc_library and of what it depends on."""

load("//tools/bazel:archive.bzl", "whole_archive")
load("//tools/bazel:version.bzl", "RONDO_SONAME")

def rondo_shared_library(name, library, linkopts = [], **kwargs):
    """NAME.so with the soname of version.bzl, which shows what tools/bazel/librondo.map lists, and whole/NAME.a.

    Args:
      name: "librondo"
      library: the cc_library that holds the API
      linkopts: system libraries that the objects need
      **kwargs: visibility, tags
    """
    archive = "whole/{}.a".format(name)  # NAME.a is the cc_library's own, of its direct sources only
    symbols = "//tools/bazel:librondo.map"
    whole_archive(
        name = name + "_archive",
        library = library,
        out = archive,
        hides = True,
        **kwargs
    )
    native.cc_binary(
        name = name + ".so",
        linkshared = True,
        linkopts = [
            # Nothing refers to the API from inside: without this the linker would take no object at all.
            "-Wl,--whole-archive",
            "$(location {})".format(archive),
            "-Wl,--no-whole-archive",
            "-Wl,-soname,{}".format(RONDO_SONAME),
            "-Wl,--version-script=$(location {})".format(symbols),
            "-pthread",
        ] + linkopts,
        additional_linker_inputs = [
            archive,
            symbols,
        ],
        **kwargs
    )
