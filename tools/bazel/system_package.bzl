"""Headers of an installed system package as a Bazel target @NAME//:NAME, and how to link its archive."""

_BUILD = """
cc_library(
    name = "{name}",
    hdrs = glob({globs}),
    defines = {defines},
    includes = ["include"],
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

def _static_needs(ctx, name):
    """-l flags of what a library's archive needs beside it, but for the C library's."""
    if not ctx.which("pkg-config"):
        return []
    said = ctx.execute(["pkg-config", "--static", "--libs-only-l", name]).stdout.strip().split(" ")
    return [flag for flag in said if flag not in ["", "-l" + name[len("lib"):], "-ldl", "-lpthread"]]

def _system_package_impl(ctx):
    folder = ctx.attr.include_dir
    if ctx.attr.ask:
        folder = ctx.execute(["python3", "-c", ctx.attr.ask]).stdout.strip() or folder
    root = ctx.path(folder)
    if not ctx.path(folder + "/" + ctx.attr.header).exists:
        fail(("\n\nRondo needs {header}, which is not under {root}.\n" +
              "It comes with Debian's package {package}: apt-get install {package}\n" +
              "(tools/test.sh and tools/bench.sh install it by themselves.)\n").format(
            header = ctx.attr.header,
            root = ctx.attr.include_dir,
            package = ctx.attr.package,
        ))
    for header in ctx.attr.headers:
        ctx.symlink(folder + "/" + header, "include/" + header if header != "." else "include")
    if ctx.attr.static:
        ctx.file("static.bzl", "STATIC_NEEDS = " + repr(_static_needs(ctx, ctx.attr.static)))
    ctx.file("BUILD.bazel", _BUILD.format(
        name = ctx.name,
        globs = repr(["include/" + h for h in ctx.attr.headers if h != "."] +
                     ["include/" + ("" if h == "." else h + "/") + "**" for h in ctx.attr.headers]),
        defines = repr(ctx.attr.defines),
        linkopts = repr(ctx.attr.linkopts),
    ))

system_package = repository_rule(
    implementation = _system_package_impl,
    local = True,
    attrs = {
        "package": attr.string(mandatory = True, doc = "Debian's package, named when a header is missing"),
        "header": attr.string(mandatory = True, doc = "the header whose presence is checked"),
        "headers": attr.string_list(mandatory = True, doc = "files and folders under include_dir to expose; \".\": all of it"),
        "ask": attr.string(doc = "what Python prints to say the include_dir"),
        "include_dir": attr.string(default = "/usr/include"),
        "defines": attr.string_list(),
        "linkopts": attr.string_list(),
        "static": attr.string(doc = "pkg-config's name of a library that is linked statically: static.bzl says what its archive needs"),
    },
)
