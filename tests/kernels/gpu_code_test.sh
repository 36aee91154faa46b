#!/usr/bin/env bash
# gpu_code_test.sh PTXAS FILE.ptx...: what nvcc made of the passes. In the PTX: loads and stores of 16 bytes of global
# memory; float additions and multiplications rounded one by one (.rn), none fused. By ptxas, for every kernel: at most
# 64 registers, and nothing in local memory (spills, and arrays that are no registers).
set -eu
ptxas=$1
shift
failed=0
fail() { echo "FAIL: $1"; failed=1; }

cat "$@" >"$TEST_TMPDIR/ptx"
count() { grep -cE "$1" "$TEST_TMPDIR/ptx" || true; }
kernels=$(count '^\.visible \.entry|^\.entry')
[ "$(count 'entry.*fold_kernel')" -ge 110 ] || fail "$(count "entry.*fold_kernel") kernels of folds; 110 are expected"
[ "$(count 'ld\.global(\.nc)?\.v2\.[ub]64')" -ge 110 ] || fail "few loads of 16 bytes"
[ "$(count 'st\.global\.v2\.[ubf]64')" -ge 110 ] || fail "few stores of 16 bytes"
[ "$(count '\b(ld|st)\.(u|b|s|f|v)[0-9]')" -eq 0 ] || fail "accesses that do not say which memory"
[ "$(count 'add\.rn\.f32')" -ge 100 ] || fail "few add.rn.f32"
[ "$(count 'mul\.rn\.f32')" -ge 50 ] || fail "few mul.rn.f32"
[ "$(count '\b(add|sub|mul)\.f(32|64)')" -eq 0 ] || fail "float arithmetic without .rn"
[ "$(count '\b(fma|mad)\.[a-z.]*f(32|64)')" -eq 0 ] || fail "fused float arithmetic"

for file in "$@"; do
  "$ptxas" -v -arch=sm_90 "$file" -o "$TEST_TMPDIR/cubin" 2>>"$TEST_TMPDIR/usage"
done
most=$(grep -o 'Used [0-9]* registers' "$TEST_TMPDIR/usage" | grep -o '[0-9]*' | sort -n | tail -1)
[ "$(grep -c 'Used [0-9]* registers' "$TEST_TMPDIR/usage")" -ge "$kernels" ] || fail "ptxas did not report every kernel"
[ "$most" -le 64 ] || fail "a kernel takes $most registers"
if grep -E '[1-9][0-9]* bytes (stack frame|spill)' "$TEST_TMPDIR/usage"; then fail "local memory"; fi
echo "$kernels kernels, at most $most registers"
exit "$failed"
