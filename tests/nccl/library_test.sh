#!/usr/bin/env bash
# libnccl.so.2 has the functions that abi.h declares, and no other name; a program of another language loads it and calls.
#   library_test.sh LIBRARY ABI ENGINE
set -euo pipefail
library=$1 abi=$2 engine=$3

diff <(grep -oE 'nccl[A-Z][A-Za-z]*\(|X\(nccl[A-Za-z]*' "$abi" | tr -d '(' | sed 's/^X//' | sort -u) <(nm -D --defined-only "$library" | awk '{ print $3 }' | sort) || {
  echo "$library shows other names than $abi declares" >&2
  exit 1
}
[[ $(readelf -d "$library" | grep -c 'SONAME.*\[libnccl.so.2\]') == 1 ]] || {
  echo "the soname of $library is not libnccl.so.2" >&2
  exit 1
}
# The engine by the name that it is installed under.
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
ln -s "$(readlink -f "$engine")" "$folder/$(readelf -d "$engine" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')"
LD_LIBRARY_PATH=$folder python3 - "$library" <<'END'
import ctypes
import sys

nccl = ctypes.CDLL(sys.argv[1])
nccl.ncclGetErrorString.restype = nccl.ncclGetLastError.restype = ctypes.c_char_p
version = ctypes.c_int()
assert nccl.ncclGetVersion(ctypes.byref(version)) == 0 and version.value == 22707, version
assert nccl.ncclGetErrorString(4) == b"invalid argument"
assert nccl.ncclAllReduce(None, None, ctypes.c_size_t(1), 7, 0, None, None) == 4
assert nccl.ncclGetLastError(None) == b"ncclAllReduce: the communicator is NULL", nccl.ncclGetLastError(None)
END
