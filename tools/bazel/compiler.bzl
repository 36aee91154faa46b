"""@compiler//:warnings.bzl: whether warnings of the machine's compiler are errors."""

# Those of the suites. Another version warns of what these do not, and would end the build of somebody who only wants to
# use Rondo.
_STRICT = {"gcc": "12", "clang": "14"}

def _compiler_impl(ctx):
    name = ctx.os.environ.get("CC", "gcc")
    kind = "clang" if "clang" in name else "gcc"
    version = ctx.execute([name, "-dumpversion"]).stdout.strip().split(".")[0]
    errors = ["-Werror"] if version == _STRICT[kind] else []
    ctx.file("BUILD.bazel", "")
    ctx.file("warnings.bzl", "WARNINGS_ARE_ERRORS = " + repr(errors))

compiler = repository_rule(
    implementation = _compiler_impl,
    local = True,
    environ = ["CC"],
)
