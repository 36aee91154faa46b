# shellcheck shell=bash
# For the files of tools/suites: counting what passed. Each suite is a program that tools/test.sh starts in the root of
# the tree, with RONDO_RESULTS naming a file to which every check adds a line, "pass NAME" or "fail NAME".

# shellcheck source=tools/lib/build.sh
source "$(dirname "${BASH_SOURCE[0]}")/build.sh"

# Run by hand, the counts go nowhere; what failed is printed.
: "${RONDO_RESULTS:=/dev/null}"

# A program that ended its checks, some of which failed and were counted, ends with this; as Bazel does.
CHECKS_FAILED=3
FAILURES=0

record() {
  echo "$1 $2" >>"$RONDO_RESULTS"
  [[ $1 == pass ]] && return
  echo "FAILED: $2"
  FAILURES=$((FAILURES + 1))
}

# The last line of a program that counts its own checks.
finish_checks() {
  ((FAILURES == 0)) || exit "$CHECKS_FAILED"
}

# check NAME COMMAND [ARGUMENT...]: one check, passed if the command succeeds.
check() {
  local name=$1
  shift
  if "$@"; then record pass "$name"; else record fail "$name"; fi
}

# run_script FILE ARGUMENTS...: a program with checks of its own, which it counts.
run_script() {
  local status=0
  bash "$@" || status=$?
  ((status == 0 || status == CHECKS_FAILED)) || record fail "$1 stopped with exit code $status"
}

# within SECONDS NAME COMMAND...: prints how long the command took, which fails if it was longer.
within() {
  local begin took
  begin=$(date +%s%N)
  "${@:3}" || return 1
  took=$((($(date +%s%N) - begin) / 1000000))
  echo "$2: $((took / 1000)).$((took / 100 % 10)) s"
  ((took <= 1000 * $1))
}

# bazel_test [FLAG...]: runs the tests that the flags choose, and counts every target as one check.
bazel_test() {
  local log status=0
  log=$(mktemp)
  run_bazel test --keep_going --build_tests_only "$@" 2>&1 | tee "$log" || status=${PIPESTATUS[0]}
  # Bazel's summary: "//tests/plan:ring_test   (cached) PASSED in 0.1s"
  local target result tests=0
  while read -r target result; do
    case $result in
      PASSED* | "(cached) PASSED"* | FLAKY*) record pass "$target" ;;
      SKIPPED*) echo "Not for this machine: $target" ;;
      *) record fail "$target: $result" ;;
    esac
    tests=$((tests + 1))
  done < <(sed -nE 's#^(//[^ ]+) +((\(cached\) )?(PASSED|FLAKY|SKIPPED|FAILED|TIMEOUT|INCOMPLETE|NO STATUS|REMOTE FAILURE).*)#\1 \2#p' "$log")
  rm -f "$log"
  # 0: all passed, 3: some failed, and then they were counted above.
  if ((status != 0 && status != 3)); then record fail "bazel test (exit code $status)"; fi
  if ((status == 0 && tests == 0)); then record fail "bazel test: no test was chosen by $*"; fi
}
