#!/usr/bin/env python3
"""Finds includes that go against the layers: each folder depends downwards only (docs/design.md).

    tools/checks/layers.py [ROOT]

Exit code 1 if there are any. A new folder or package gets its line below.
"""

import re
import sys

from sources import sources

# What the engine sees of the transport.
SEAMS = ("transport/byte_stream.h", "transport/doorbell.h", "transport/fabric.h", "transport/link.h",
         "transport/armed_sleep.h", "transport/bell.h", "transport/shared_memory.h", "transport/sleeper.h")

# What the files of a folder may include, by the beginning of the path; the longest folder that matches a file counts.
# "rondo/": the public headers.
LAYERS = {
    "ring/include/rondo/": ("rondo/",),
    "ring/base/": ("rondo/", "ring/base/"),
    "ring/plan/": ("rondo/", "ring/base/", "ring/plan/"),
    "kernels/": ("rondo/", "ring/base/", "kernels/"),
    # Its seams, and its rooms from the lowest to the highest.
    "transport/": ("rondo/", "ring/base/", "kernels/", *SEAMS),
    "transport/auth/": ("rondo/", "ring/base/", "transport/auth/"),
    "transport/tcp/": ("rondo/", "ring/base/", "kernels/crc32c.h", *SEAMS, "transport/auth/", "transport/tcp/"),
    "transport/hello/": ("rondo/", "ring/base/", *SEAMS, "transport/auth/", "transport/tcp/", "transport/hello/"),
    "transport/store/": ("rondo/", "ring/base/", "transport/auth/", "transport/tcp/", "transport/hello/",
                         "transport/store/"),
    "transport/rendezvous/": ("rondo/", "ring/base/", "transport/auth/", "transport/tcp/", "transport/hello/wire.h",
                              "transport/store/", "transport/rendezvous/"),
    "transport/control/": ("rondo/", "ring/base/", *SEAMS, "transport/auth/", "transport/tcp/", "transport/hello/",
                           "transport/rendezvous/peer_card.h", "transport/control/"),
    "transport/island/": ("rondo/", "ring/base/", "kernels/cross_copy.h", *SEAMS, "transport/tcp/", "transport/island/"),
    "transport/fabrics/": ("rondo/", "ring/base/", "transport/"),
    # The interfaces of the transport only.
    "ring/engine/": ("rondo/", "ring/base/", "kernels/", "ring/plan/", "ring/engine/", *SEAMS,
                     "transport/island/cell_ring.h"),
    "ring/engine/p2p/": ("rondo/", "ring/base/", "kernels/crc32c.h", "kernels/cross_copy.h", "ring/engine/route/trials.h",
                         "ring/engine/p2p/", "transport/byte_stream.h"),
    "ring/api/": ("rondo/", "ring/base/", "ring/engine/", "ring/api/", "transport/fabrics/", "transport/rendezvous/"),
    "ring/api/c/": ("rondo/", "ring/base/", "ring/api/"),
    "ring/compress/": ("rondo/", "ring/base/", "kernels/", "ring/api/communicator_access.h", "ring/compress/"),
    # The calls of MPI, on the public headers alone.
    "mpi/": ("rondo/", "mpi/"),
    # NCCL's calls, on the C API.
    "nccl/": ("rondo/rondo.h", "kernels/device/driver_api.h", "nccl/"),
    "bench/": ("rondo/", "ring/", "kernels/", "transport/", "bench/", "tools/launcher/"),
    "tools/": ("rondo/", "ring/base/", "ring/plan/", "transport/rendezvous/", "tools/"),
    # What a job would do first, asked without a job.
    "tools/doctor/": ("rondo/", "ring/base/", "kernels/device/device_driver.h", "kernels/device/gpu_code.h",
                      "transport/rendezvous/", "transport/fabrics/descriptor_budget.h",
                      "transport/tcp/", "ring/engine/observe/metrics_output.h",
                      "transport/island/memory_file.h",
                      "tools/"),
    "examples/": ("rondo/",),
    "examples/trainers/": ("rondo/", "idx.h", "mlp.h"),  # beside the programs
    "python/module/": ("rondo/rondo.h", "python/module/"),
    "python/rondo/torch/csrc/": ("rondo/", "csrc/"),
    "docs/": ("rondo/",),
    "tests/": ("",),
}

# Which files may include a package, or a part of the standard library: what the include's path begins with, and a pattern
# of the files.
PACKAGES = {
    "asio": r"transport/(tcp|hello|store|control|island)/.*\.cc|transport/tcp/asio_socket\.h|"
            r"tools/bazel/packages/asio\.cc|tests/.*",
    "openssl/": r"transport/auth/.*\.cc",
    "cuda": r"kernels/.*|examples/.*\.cu|tests/.*",
    "fmt/": r"(ring|kernels|transport|bench|tools)/.*(\.cc|_body\.h)|tests/.*",
    "doctest/": r"tests/.*",
    "CLI/": r"(bench|tools)/.*\.cc",
    "nlohmann/": r"(bench|tools|tests)/.*",
    "torch/": r"python/rondo/torch/csrc/.*|tests/torch/.*",
    "ATen/": r"python/rondo/torch/csrc/.*|tests/torch/.*",
    "c10/": r"python/rondo/torch/csrc/.*|tests/torch/.*",
    "pybind11/": r"python/rondo/torch/csrc/.*",
    # A plan is data: no clock, no thread, no system call in what makes, proves and simulates it.
    "chrono": r"(?!ring/plan/).*",
    "thread": r"(?!ring/plan/).*",
    "mutex": r"(?!ring/plan/).*",
    "atomic": r"(?!ring/plan/).*",
    "sys/": r"(?!ring/plan/).*",
    "unistd.h": r"(?!ring/plan/).*",
}

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def offence(path, quote, included):
    """What is wrong with this include, or None."""
    if quote == '"' or included.startswith("rondo/"):
        folder = max((f for f in LAYERS if path.startswith(f)), key=len, default=None)
        if folder is None:
            return "no layer is known for this folder: tools/checks/layers.py lists them"
        if not included.startswith(LAYERS[folder]):
            return f"{folder} may include {', '.join(LAYERS[folder])}"
        return None
    for package, files in PACKAGES.items():
        if included.startswith(package) and not re.fullmatch(files, path):
            return f"files that may include <{package}...>: {files}"
    return None


def main(root):
    offences = files = 0
    for path in sources(root):
        files += 1
        with open(f"{root}/{path}", encoding="utf-8") as file:
            text = file.read()
        for match in _INCLUDE.finditer(text):
            if wrong := offence(path, *match.groups()):
                offences += 1
                line = text.count("\n", 0, match.start()) + 1
                print(f"{path}:{line}: includes {match.group(2)}: {wrong}")
    print(f"{files} files, {offences} includes against the layers")
    return 1 if offences or not files else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "."))
