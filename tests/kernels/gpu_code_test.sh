#!/usr/bin/env bash
# gpu_code_test.sh PTXAS FILE.ptx FILE.cubin FILE.fatbin: what nvcc made of the passes. In the PTX: loads and stores of 16 bytes of
# global memory; float additions and multiplications rounded one by one (.rn), none fused; conversions of the GPU. By
# ptxas, for every kernel: at most 64 registers, and nothing in local memory (spills, and arrays that are no registers).
# In the machine code of sm_90, where there is a cuobjdump (PATH, the toolkit, or CUOBJDUMP; pip install
# nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm has one): few loads of 16 bytes that wait for another one; and which GPUs the
# fat binary is for.
set -eu
ptxas=$1 ptx=$2 cubin=$3 fatbin=$4
failed=0
fail() { echo "FAIL: $1"; failed=1; }

count() { grep -cE "$1" "$ptx" || true; }
[ "$(count '^\.visible \.entry rondo_')" -eq 11 ] || fail "$(count "^\.visible \.entry rondo_") kernels; 11 are expected"
for ordering in ld.acquire.sys.global.u32 st.release.sys.global.u32 fence.sc.sys atom.acq_rel.gpu.global.add.u32 \
  ld.relaxed.sys.global.u64 st.relaxed.sys.global.u64; do
  [ "$(count "${ordering//./\\.}")" -ge 11 ] || fail "few $ordering"
done
[ "$(count 'ld\.global(\.nc)?\.v2\.[ub]64')" -ge 500 ] || fail "few loads of 16 bytes"
[ "$(count 'st\.global\.v2\.[ubf]64')" -ge 200 ] || fail "few stores of 16 bytes"
[ "$(count '\b(ld|st)\.(u|b|s|f|v)[0-9]')" -eq 0 ] || fail "accesses that do not say which memory"
[ "$(count 'add\.rn\.f32')" -ge 100 ] || fail "few add.rn.f32"
[ "$(count 'mul\.rn\.f32')" -ge 50 ] || fail "few mul.rn.f32"
[ "$(count '\b(add|sub|mul)\.f(32|64)')" -eq 0 ] || fail "float arithmetic without .rn"
[ "$(count '\b(fma|mad)\.[a-z.]*f(32|64)')" -eq 0 ] || fail "fused float arithmetic"
for conversion in cvt.f32.f16 cvt.rn.f16.f32 cvt.rn.bf16.f32 cvt.rn.f16x2.e4m3x2 cvt.rn.satfinite.e4m3x2.f32 cvt.rn.satfinite.e5m2x2.f32; do
  [ "$(count "${conversion//./\\.}")" -ge 50 ] || fail "few $conversion"
done

"$ptxas" -v -arch=sm_90 "$ptx" -o "$TEST_TMPDIR/cubin" 2>"$TEST_TMPDIR/usage"
most=$(grep -o 'Used [0-9]* registers' "$TEST_TMPDIR/usage" | grep -o '[0-9]*' | sort -n | tail -1)
[ "$(grep -c 'Used [0-9]* registers' "$TEST_TMPDIR/usage")" -eq 11 ] || fail "ptxas did not report every kernel"
[ "$most" -le 64 ] || fail "a kernel takes $most registers"
if grep -E '[1-9][0-9]* bytes (stack frame|spill)' "$TEST_TMPDIR/usage"; then fail "local memory"; fi
echo "at most $most registers"

cuobjdump=${CUOBJDUMP:-$(PATH=$PATH:$(dirname "$ptxas") command -v cuobjdump || true)}
if [ -z "$cuobjdump" ]; then
  echo "not looked at: machine code, there is no cuobjdump here"
  exit "$failed"
fi
# nvdisasm lies beside it.
PATH=$PATH:$(dirname "$cuobjdump") "$cuobjdump" -sass "$cubin" >"$TEST_TMPDIR/sass"
images=$("$cuobjdump" -lelf -lptx "$fatbin" | grep -oE 'sm_[0-9]+[.](cubin|ptx)' | sort | tr '\n' ' ')
[ "$images" = "sm_100.cubin sm_120.cubin sm_80.cubin sm_90.cubin sm_90.ptx " ] || fail "the fat binary has $images"
loads=$(grep -cE 'LDG\.E\.128' "$TEST_TMPDIR/sass")
# A load with a condition stands behind the copy of what the one before it has brought, and waits for it. Each form of a
# fold has one, of the next round's second source where the last one has been used.
conditional=$(grep -cE '@!?U?P[0-9] +LDG\.E\.128' "$TEST_TMPDIR/sass" || true)
[ "$loads" -ge 500 ] || fail "$loads loads of 16 bytes in the machine code"
[ "$((6 * conditional))" -le "$loads" ] || fail "$conditional of $loads loads of 16 bytes have a condition"
# Those of one division a kernel of floats: 1 / world.
fused=$(awk '/Function :/ {float = /_(8|9|10|11|13|14)$/; seen = 0} float && /[FD]FMA/ && ++seen > most {most = seen} END {print most + 0}' \
  "$TEST_TMPDIR/sass")
[ "$fused" -le 20 ] || fail "$fused fused operations in a kernel of floats"
# Posts: words of 8 bytes are stored without a fence before them, and 4 are loaded before one is looked at.
posts=$(awk '/Function :/ {fence = -99; n = 0} /MEMBAR/ {fence = NR}
  /ST[G]?\.E\.64\.STRONG\.SYS/ {++stores; if (NR - fence < 20) ++fenced}
  /@!?U?P[0-9] +LD[G]?\.E\.64\.STRONG\.SYS/ {if (NR - last > 20) n = 0; last = NR; if (++n == 4) ++four}
  END {print stores + 0, fenced + 0, four + 0}' "$TEST_TMPDIR/sass")
read -r stores fenced four <<<"$posts"
[ "$stores" -ge 110 ] || fail "few stores of 8 bytes: $stores"
[ "$fenced" -eq 0 ] || fail "$fenced of $stores stores of 8 bytes stand behind a fence"
[ "$four" -ge 11 ] || fail "words are loaded one by one"
grep -qE 'HADD2\.F32' "$TEST_TMPDIR/sass" || fail "float16 is not widened by the GPU"
grep -qE 'F2FP\.SATFINITE\.E4M3' "$TEST_TMPDIR/sass" || fail "float8 is not rounded by the GPU"
echo "$loads loads of 16 bytes, $conditional with a condition; at most $fused fused operations in a kernel of floats"
exit "$failed"
