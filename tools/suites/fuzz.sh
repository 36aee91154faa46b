#!/usr/bin/env bash
# libFuzzer on every target of tests/fuzz, with the address and undefined sanitizers: RONDO_FUZZ_SECONDS for all together
# (300), RONDO_FUZZ_TARGETS some of them. What it finds stays in build/fuzz/TARGET.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" clang libclang-rt-14-dev
read -ra targets <<<"${RONDO_FUZZ_TARGETS:-$(cd tests/fuzz && for file in *.cc; do [[ $file == *_main.cc ]] || echo -n "${file%.cc} "; done)}"
seconds=$((${RONDO_FUZZ_SECONDS:-300} / ${#targets[@]}))
((seconds > 0)) || seconds=1

labels=("${targets[@]/#///tests/fuzz:}")
run_bazel build --config=fuzz "${labels[@]/%/_fuzz}" "${labels[@]/%/_test}"
bin=$(run_bazel info --config=fuzz bazel-bin 2>/dev/null)/tests/fuzz

# fuzz TARGET: from its seeds and what was found before; one process, so that the time is the machine's.
fuzz() {
  local target=$1 corpus=build/fuzz/$1/corpus
  mkdir -p "$corpus"
  "$bin/${target}_test" --write "$corpus" || return 1
  [[ ! -d tests/fuzz/found/$target ]] || cp tests/fuzz/found/"$target"/* "$corpus"
  "$bin/${target}_fuzz" -max_total_time="$seconds" -max_len=20000 -timeout=60 -rss_limit_mb=2048 -malloc_limit_mb=512 \
    -print_final_stats=1 -artifact_prefix="build/fuzz/$target/" "$corpus" >"build/fuzz/$target/log" 2>&1 || {
    tail -n 60 "build/fuzz/$target/log"
    return 1
  }
  echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "build/fuzz/$target/log") inputs in $seconds s," \
    "$(sed -nE 's/.*(cov: [0-9]+ ft: [0-9]+).*/\1/p' "build/fuzz/$target/log" | tail -n 1)"
}
for target in "${targets[@]}"; do check "fuzz $target" fuzz "$target"; done
finish_checks
