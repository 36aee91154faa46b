"""Compile flags of the kernels (rows/*.cc, each compiled once an instruction set), as plain values for other builds."""

# The loops are vectorised by the compiler. Comparisons are never signalling and traps are off (machine.h), so that
# selections need no branches. Clang says where it cannot vectorise: 64-bit division is one such place.
KERNEL_COPTS = [
    "-fno-trapping-math",
    "-Wno-pass-failed",
]

# Clang has no such flag, and refuses it.
GCC_COPTS = ["-fvect-cost-model=dynamic"]

# By the namespace of the rows (RONDO_KERNEL_SET).
INSTRUCTION_SETS = {
    "baseline": [],
    "avx2": [
        "-mavx2",
        "-mf16c",
    ],
    "avx512": [
        "-mavx2",
        "-mf16c",
        "-mavx512f",
        "-mavx512bw",
        "-mavx512vl",
        "-mavx512dq",
        "-mprefer-vector-width=512",
    ],
}
