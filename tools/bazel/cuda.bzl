"""cuda_library: translation units compiled by nvcc, as something that cc_library and cc_binary can depend on; and
cuda_fatbin: kernels alone, for the driver to load.

Name them only behind select({"@cuda//:found": ..., "//conditions:default": ...}), so that a machine without nvcc builds
the same tree.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@cuda//:toolkit.bzl", "CUDA_LIBRARY_DIR", "CUDA_ROOT")

# Machine code for A100, H100/H200, B200, RTX 50; others of the same major number run the same code. And PTX, which the
# driver compiles for what comes after them.
_ARCHITECTURES = ["80", "90", "100", "120"]
_PTX_ARCHITECTURE = "90"

# -fmad=false: as -ffp-contract=off on the host, so that bits do not depend on the device.
_OPTIONS = [
    "-std=c++20",
    "-O3",
    "-fmad=false",
    "-Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra,-ffp-contract=off",
    "-Werror=all-warnings",
]

def _compile(ctx, cc_toolchain, source, headers, ending, flags):
    output = ctx.actions.declare_file("_cuda/{}/{}{}".format(ctx.label.name, source.basename, ending))
    arguments = ctx.actions.args()
    arguments.add_all(flags + _OPTIONS + ctx.attr.copts)
    arguments.add("-ccbin", cc_toolchain.compiler_executable)
    if cc_toolchain.compiler == "clang":  # what nvcc hands on has designated initializers in a form that clang warns of
        arguments.add("-Xcompiler=-Wno-gnu-designator")
    arguments.add_all(headers.defines, before_each = "-D")
    arguments.add_all(headers.includes, before_each = "-I")
    arguments.add_all(headers.quote_includes, before_each = "-I")
    arguments.add_all(headers.system_includes, before_each = "-isystem")
    arguments.add(source)
    arguments.add("-o", output)
    ctx.actions.run(
        # nvcc names its temporary files by its process, which has the same number in each sandbox; all share /tmp. By
        # env(1), since Bazel sets TMPDIR itself, whatever an action asks for.
        executable = "/usr/bin/env",
        arguments = ["TMPDIR=" + output.dirname, CUDA_ROOT + "/bin/nvcc", arguments],
        inputs = depset([source] + ctx.files.hdrs, transitive = [headers.headers, cc_toolchain.all_files]),
        outputs = [output],
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s with nvcc" % source.short_path,
    )
    return output

def _link_context(ctx, cc_toolchain, features, objects):
    outputs = cc_common.create_compilation_outputs(
        objects = depset(objects),
        pic_objects = depset(objects),
    )
    context, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = features,
        cc_toolchain = cc_toolchain,
        compilation_outputs = outputs,
        linking_contexts = [dep[CcInfo].linking_context for dep in ctx.attr.deps],
        # The runtime is linked in: the library asks only the driver of the machine that it runs on.
        user_link_flags = ["-L" + CUDA_LIBRARY_DIR, "-lcudart_static", "-ldl", "-lrt", "-pthread"],
        disallow_dynamic_library = True,
        # nvcc registers kernels by constructors that nothing names.
        alwayslink = True,
    )
    return context

def _compilation(ctx):
    """The toolchain, and what the headers of deps need."""
    if not CUDA_ROOT:
        fail("no nvcc on this machine; depend on {} behind select(\"@cuda//:found\")".format(ctx.label))
    own = cc_common.create_compilation_context(
        headers = depset(ctx.files.hdrs),
        quote_includes = depset([".", ctx.bin_dir.path]),
        system_includes = depset([CUDA_ROOT + "/include"]),
    )
    info = cc_common.merge_cc_infos(
        direct_cc_infos = [CcInfo(compilation_context = own)],
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    )
    return find_cpp_toolchain(ctx), info.compilation_context

def _cuda_library_impl(ctx):
    cc_toolchain, compiled = _compilation(ctx)
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = cc_toolchain)
    codes = ["-gencode=arch=compute_{0},code=sm_{0}".format(number) for number in _ARCHITECTURES]
    codes.append("-gencode=arch=compute_{0},code=compute_{0}".format(_PTX_ARCHITECTURE))
    objects = [_compile(ctx, cc_toolchain, source, compiled, ".o", codes + ["-c"]) for source in ctx.files.srcs]
    return [
        DefaultInfo(files = depset(objects)),
        CcInfo(
            compilation_context = compiled,
            linking_context = _link_context(ctx, cc_toolchain, features, objects),
        ),
    ]

def _cuda_fatbin_impl(ctx):
    cc_toolchain, compiled = _compilation(ctx)
    images = [
        ("elf", number, _compile(ctx, cc_toolchain, ctx.file.src, compiled, ".sm_%s.cubin" % number, ["-cubin", "-arch=sm_" + number]))
        for number in _ARCHITECTURES
    ]
    ptx = _compile(ctx, cc_toolchain, ctx.file.src, compiled, ".ptx", ["-ptx", "-arch=compute_" + _PTX_ARCHITECTURE])
    fatbin = ctx.actions.declare_file(ctx.label.name + ".fatbin")
    arguments = ctx.actions.args()
    arguments.add_all(["-64", "--compress-all", "--create=" + fatbin.path])
    for kind, number, file in images + [("ptx", _PTX_ARCHITECTURE, ptx)]:
        arguments.add("--image3=kind={},sm={},file={}".format(kind, number, file.path))
    ctx.actions.run(
        executable = CUDA_ROOT + "/bin/fatbinary",
        arguments = [arguments],
        inputs = [file for _, _, file in images] + [ptx],
        outputs = [fatbin],
        mnemonic = "CudaFatbin",
    )
    return [
        DefaultInfo(files = depset([fatbin]), runfiles = ctx.runfiles([fatbin])),
        # For tests that look at the code.
        OutputGroupInfo(
            ptx = depset([ptx]),
            cubin = depset([file for _, number, file in images if number == _PTX_ARCHITECTURE]),
        ),
    ]

_ATTRIBUTES = {
    "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
    "deps": attr.label_list(providers = [CcInfo]),
    "copts": attr.string_list(),
    "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
}

_cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = dict(_ATTRIBUTES, srcs = attr.label_list(allow_files = [".cu"], mandatory = True)),
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)

_cuda_fatbin = rule(
    implementation = _cuda_fatbin_impl,
    attrs = dict(_ATTRIBUTES, src = attr.label(allow_single_file = [".cu"], mandatory = True)),
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
    incompatible_use_toolchain_transition = True,
)

# bazel build //... passes over them where there is no nvcc.
_WHERE_NVCC_IS = select({
    "@cuda//:found": [],
    "//conditions:default": ["//tools/bazel:nvcc_missing"],
})

def cuda_library(name, **kwargs):
    _cuda_library(name = name, target_compatible_with = _WHERE_NVCC_IS, **kwargs)

def cuda_fatbin(name, **kwargs):
    _cuda_fatbin(name = name, target_compatible_with = _WHERE_NVCC_IS, **kwargs)
