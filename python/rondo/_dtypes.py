"""NumPy's types and Rondo's (rondo_dtype_t), operations by name."""

from __future__ import annotations

import sys

import numpy as np

NAMES = (
    "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "bool", "float8_e4m3", "float8_e5m2",
)  # fmt: skip
OPS = {
    "sum": 0, "product": 1, "min": 2, "max": 3, "avg": 4, "band": 5, "bor": 6, "bxor": 7, "land": 8, "lor": 9,
    "lxor": 10, "premulsum": 11,
}  # fmt: skip

# Types that NumPy lacks, by their names in the package ml_dtypes.
_BY_MLDTYPES = {"bfloat16": "bfloat16", "float8_e4m3": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}


class _Codes(dict):
    """By NumPy's dtype; None: Rondo lacks it. Types of ml_dtypes are looked up when one is first met: it is then imported already."""

    def __missing__(self, dtype):
        ml_dtypes = sys.modules.get("ml_dtypes")
        if ml_dtypes is not None:
            for name, theirs in _BY_MLDTYPES.items():
                self.setdefault(np.dtype(getattr(ml_dtypes, theirs)), NAMES.index(name))
        found = dict.get(self, dtype)
        if found is None and dtype.type is np.longlong:
            found = self[np.dtype(np.int64)]
        elif found is None and dtype.type is np.ulonglong:
            found = self[np.dtype(np.uint64)]
        return found


CODES = _Codes({np.dtype(name): code for code, name in enumerate(NAMES) if name not in _BY_MLDTYPES})


def dtype_name(code: int) -> str:
    return NAMES[code]


def code_of(dtype) -> int:
    """rondo_dtype_t of what NumPy takes for a type, "bfloat16", "float8_e4m3" or "float8_e5m2"."""
    if isinstance(dtype, str) and dtype in NAMES:
        return NAMES.index(dtype)
    code = CODES[np.dtype(dtype)]
    if code is None:
        raise TypeError(f"dtype {dtype} is none of {', '.join(NAMES)}")
    return code


def op_code(op: str) -> int:
    try:
        return OPS[op]
    except (KeyError, TypeError):
        raise ValueError(f"op {op!r} is none of {', '.join(OPS)}") from None
