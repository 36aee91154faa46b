"""Finds NVIDIA's nvcc on this machine: @cuda//:found for select(), @cuda//:toolkit.bzl for cuda.bzl."""

_BUILD = """
load("@rondo//tools/bazel:cuda_flag.bzl", "cuda_flag")

# True where nvcc was found; --@cuda//:enabled=false builds as on a machine without it.
cuda_flag(
    name = "enabled",
    build_setting_default = {found},
    visibility = ["//visibility:public"],
)

config_setting(
    name = "found",
    flag_values = {{":enabled": "true"}},
    visibility = ["//visibility:public"],
)
"""

def _candidates(ctx):
    """Roots of CUDA toolkits, the user's own choice first."""
    roots = []
    if "CUDA_HOME" in ctx.os.environ:
        roots.append(ctx.os.environ["CUDA_HOME"])
    roots.append("/usr/local/cuda")
    on_path = ctx.which("nvcc")
    if on_path:
        roots.append(str(on_path.realpath.dirname.dirname))
    return roots

# The first release that makes code for all GPUs that the kernels are for (cuda.bzl).
_OLDEST = (12, 8)

# Whether this nvcc is new enough. An older one counts as none, with a line that says so.
def _major_if_new_enough(ctx, root):
    output = ctx.execute([root + "/bin/nvcc", "--version"]).stdout
    marker = "release "
    at = output.find(marker)
    release = output[at + len(marker):].partition(",")[0] if at >= 0 else ""
    major, _, minor = release.partition(".")
    if major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= _OLDEST:
        return int(major)
    # buildifier: disable=print
    print("%s/bin/nvcc is release %s; %d.%d or newer is needed: building without GPUs" % (root, release, _OLDEST[0], _OLDEST[1]))
    return 0

def _find(ctx):
    """The root of the toolkit, and the major number of its release; "" and 0: there is none."""
    for root in _candidates(ctx):
        # The runtime's header too: Debian's /usr/bin/nvcc is found under /usr, a lone wrapper script is not a toolkit.
        if ctx.path(root + "/bin/nvcc").exists and ctx.path(root + "/include/cuda_runtime.h").exists:
            major = _major_if_new_enough(ctx, root)
            return (str(ctx.path(root).realpath), major) if major else ("", 0)
    return ("", 0)

def _library_dir(ctx, root):
    for folder in ["lib64", "lib", "targets/x86_64-linux/lib", "lib/x86_64-linux-gnu"]:
        if ctx.path(root + "/" + folder + "/libcudart_static.a").exists:
            return root + "/" + folder
    return ""

def _cuda_toolkit_impl(ctx):
    root, major = _find(ctx)
    ctx.file("BUILD.bazel", _BUILD.format(found = bool(root)))
    ctx.file("toolkit.bzl", "CUDA_ROOT = {}\nCUDA_MAJOR = {}\nCUDA_LIBRARY_DIR = {}\n".format(
        repr(root),
        major,
        repr(_library_dir(ctx, root) if root else ""),
    ))

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit_impl,
    local = True,
    environ = [
        "CUDA_HOME",
        "PATH",
    ],
)
