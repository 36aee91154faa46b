#!/usr/bin/env bash
# Measures Rondo's bus bandwidth. Installs what is missing of Debian's packages (as root), builds, and runs rondo-bench.
#   tools/bench.sh [rondo-bench options]    none: all_reduce, 4 ranks over TCP, 8 B to 64 MiB; --help lists them
#   tools/bench.sh --check                  1 if a ratio to a peer rose above bench/baseline.json by more than its noise
#   tools/bench.sh --write-baseline         measures those ratios and keeps them in bench/baseline.json
#   tools/bench.sh --beside BINARY          1 if this build is slower than another rondo-bench (--beside BINARY --help)
# --check and --write-baseline want a quiet machine, the peers (bench/peers/build_*.sh; one that is not there is not
# compared) and tens of minutes; on a terminal they say how far they are.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/lib/build.sh

need_packages "${BUILD_PACKAGES[@]}"
# The build's own words are of interest only if it fails.
log=$(mktemp)
echo "Building rondo-bench ..." >&2
if ! run_bazel build //bench:rondo-bench >"$log" 2>&1; then
  cat "$log" >&2
  rm -f "$log"
  exit 1
fi
rm -f "$log"

# What the baseline is about.
# shellcheck disable=SC2054  # lists within one argument
BASELINE=(--compare openmpi,mpich,intelmpi,gloo --placement in --sizes 8,64K,1M,64M --turns 2)
case ${1:-} in
  --beside) exec python3 bench/compare --binary "$(bazel_bin)/bench/rondo-bench" "$@" ;;
  --check | --write-baseline)
    option=--baseline
    [[ $1 == --check ]] || option=--write-baseline
    if [[ $1 == --check && ! -e bench/baseline.json ]]; then
      echo "bench.sh: there is no bench/baseline.json to compare with: tools/bench.sh --write-baseline makes it" >&2
      exit 2
    fi
    status=0
    for world in 2 4; do
      if [[ $1 == --check ]] && ! grep -q ", $world ranks, " bench/baseline.json; then
        echo "# bench/baseline.json has no ratios of $world ranks: not compared" >&2
        continue
      fi
      "$(bazel_bin)/bench/rondo-bench" --ranks "$world" "${BASELINE[@]}" "$option" bench/baseline.json || status=$?
    done
    exit "$status"
    ;;
esac

(($#)) || set -- --ranks 4 --transport tcp --sizes 8,64,1K,16K,64K,256K,1M,16M,64M
bin=$(bazel_bin)
exec "$bin/bench/rondo-bench" "$@"
