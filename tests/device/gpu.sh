#!/usr/bin/env bash
# tests/device/gpu.sh OUT.tar.gz: the tests and the bench of GPU buffers as a bundle that runs on a machine with a GPU,
# with nothing installed but the driver and a C library of 2.34 or newer: unpack it, and run ./run.sh there. Needs nvcc
# here, and no GPU.
set -euo pipefail
source tools/lib/build.sh

out=${1:?usage: tests/device/gpu.sh OUT.tar.gz}
tests=(device_probe_test device_folds_test device_collectives_test device_calls_test device_messages_test device_threads_test
  device_errors_test device_islands_test)
programs=(device_bench device_graphs device_lanes)
targets=(//bench:rondo-bench)
for program in "${programs[@]}" "${tests[@]}"; do targets+=("//tests/device:$program"); done
run_bazel build "${targets[@]}"
bin=$(bazel_bin)

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bundle=$folder/rondo-gpu
mkdir "$bundle"
cp "$bin/bench/rondo-bench" tests/device/gpu/{run,bar}.sh tests/device/gpu/nccl.py "$bundle/"
for program in "${programs[@]}" "${tests[@]}"; do cp "$bin/tests/device/$program" "$bundle/"; done
# The C++ runtime and OpenSSL of the machine that built it, which run.sh takes where the other machine has none.
mkdir "$bundle/cxx" "$bundle/crypto"
library_file() { "${CXX:-g++}" -print-file-name="$1"; }
for library in libstdc++.so.6 libgcc_s.so.1; do cp -L "$(library_file "$library")" "$bundle/cxx/"; done
for library in libssl.so.3 libcrypto.so.3; do cp -L "$(library_file "$library")" "$bundle/crypto/"; done
chmod -R u+w "$bundle"
strip --strip-debug "$bundle"/device_* "$bundle/rondo-bench"
# What glibc 2.34 brought anew (pthread_create, dlopen, stat, __libc_start_main: all in libc.so.6) is what a build on a newer one asks for; and nothing later.
newest=$(objdump -T "$bundle"/device_* "$bundle/rondo-bench" | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -1)
[[ $(printf '%s\n' "$newest" GLIBC_2.34 | sort -V | tail -1) == GLIBC_2.34 ]] || { echo "tests/device/gpu.sh: the bundle wants $newest" >&2; exit 1; }
git rev-parse HEAD >"$bundle/version"
tar -C "$folder" -czf "$out" rondo-gpu
mebibytes=$(du -m "$out" | cut -f1)
echo "$out: $mebibytes MiB"
[ "$mebibytes" -le 45 ] || { echo "tests/device/gpu.sh: the bundle is larger than 45 MiB" >&2; exit 1; }
