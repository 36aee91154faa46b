#!/usr/bin/env bash
# libnccl.so.2 has the functions that abi.h declares, and no other name; two ranks of another language, as vLLM's workers
# call it, reduce memory of a device that DRIVER has.
#   library_test.sh LIBRARY ABI ENGINE DRIVER
set -euo pipefail
library=$1 abi=$2 engine=$3
export RONDO_DEVICE_LIBRARY=$4

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
import os
import sys

nccl = ctypes.CDLL(sys.argv[1])
nccl.ncclGetErrorString.restype = nccl.ncclGetLastError.restype = ctypes.c_char_p
version = ctypes.c_int()
assert nccl.ncclGetVersion(ctypes.byref(version)) == 0 and version.value == 22707, version
assert nccl.ncclGetErrorString(4) == b"invalid argument"
assert nccl.ncclAllReduce(None, None, ctypes.c_size_t(1), 7, 0, None, None) == 4
assert nccl.ncclGetLastError(None) == b"ncclAllReduce: the communicator is NULL", nccl.ncclGetLastError(None)


class Id(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]


def good(result):
    assert result == 0, (nccl.ncclGetErrorString(result), nccl.ncclGetLastError(None))


nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, Id, ctypes.c_int]
nccl.ncclAllReduce.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int] + [ctypes.c_void_p] * 2
from_first, to_second = os.pipe()
rank = 1 if os.fork() == 0 else 0
unique = Id()
if rank == 0:
    good(nccl.ncclGetUniqueId(ctypes.byref(unique)))
    os.write(to_second, bytes(unique))
else:
    unique = Id.from_buffer_copy(os.read(from_first, 128))
comm, memory, state = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(-1)
good(nccl.ncclCommInitRank(ctypes.byref(comm), 2, unique, rank))
good(nccl.ncclMemAlloc(ctypes.byref(memory), ctypes.c_size_t(4096)))
for _ in range(100):
    good(nccl.ncclAllReduce(memory, memory, 1024, 7, 0, comm, None))
good(nccl.ncclCommGetAsyncError(comm, ctypes.byref(state)))
assert state.value == 0, state
good(nccl.ncclCommDestroy(comm))
good(nccl.ncclMemFree(memory))
if rank == 0:
    assert os.wait()[1] == 0, "the second rank"
END
