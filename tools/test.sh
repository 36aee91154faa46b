#!/usr/bin/env bash
# Tests Rondo. Installs what is missing of Debian's packages (as root), builds, and runs suites.
#   tools/test.sh [suite ...]     no suite: the default ones, but for those that passed in this very tree (build/ran)
#   tools/test.sh release         every suite, but for those: hours; goes on where it was stopped. build/release.md says what passed
#   tools/test.sh --list          the suites
# The last line is "N passed, N failed"; the exit code is 1 if anything failed.
set -euo pipefail
cd "$(dirname "$0")/.."

DEFAULT_SUITES=(style build unit faults install docs python speed compression)

describe_suites() {
  local file
  {
    for file in tools/suites/*.sh; do
      printf '%-15s%s\n' "$(basename "$file" .sh)" "$(sed -n '2s/^# //p' "$file")"
    done
    awk -F ' *[|] *' '/^[^#]/ { printf "%-15s%s\n", $1, $3 }' tools/suites/table
  } | LC_ALL=C sort
}
list_suites() {
  describe_suites
  echo "default: ${DEFAULT_SUITES[*]}"
}

# The default ones first; those that measure last, when nothing is built any more.
list_release() {
  local last=(first-byte rates peers bars)
  printf '%s\n' "${DEFAULT_SUITES[@]}"
  describe_suites | cut -d' ' -f1 | grep -vxF "$(printf '%s\n' "${DEFAULT_SUITES[@]}" "${last[@]}")"
  printf '%s\n' "${last[@]}"
}

case ${1:-} in
  --list)
    list_suites
    exit 0
    ;;
  -h | --help)
    sed -n '2,6s/^# \{0,1\}//p' "$0"
    list_suites
    exit 0
    ;;
esac

# The command that runs a suite.
command_of() {
  if [[ -f tools/suites/$1.sh ]]; then
    command=(bash "tools/suites/$1.sh")
  elif grep -q "^$1 *|" tools/suites/table; then
    command=(bash tools/lib/table_suite.sh "$1")
  else
    return 1
  fi
}

suites=("$@")
named=$#
release=0
((named)) || suites=("${DEFAULT_SUITES[@]}")
if [[ $* == release ]]; then
  mapfile -t suites < <(list_release)
  named=0
  release=1
fi
for suite in "${suites[@]}"; do
  if ! command_of "$suite"; then
    echo "tools/test.sh: there is no suite '$suite'" >&2
    list_suites >&2
    exit 2
  fi
done

RONDO_RESULTS=$(mktemp)
export RONDO_RESULTS
trap 'rm -f "$RONDO_RESULTS"' EXIT

count() { grep -c "^$1 " "$RONDO_RESULTS" || true; }

# What a suite's result depends on: the files of the tree, the kernel and the compiler.
fingerprint() {
  {
    find . \( -name .git -o -name build -o -name '.venv*' -o -name __pycache__ \) -prune -o -type f -print0 |
      LC_ALL=C sort -z | xargs -0 sha256sum
    uname -srm
    "${CXX:-g++}" --version 2>/dev/null || true
  } | sha256sum
}

# A suite that stops before its end counts as a failed check itself. 3: its checks failed, and are counted (CHECKS_FAILED
# of tools/lib/suite.sh, and Bazel's).
run_suite() {
  local suite=$1 start=$SECONDS failed passed status=0 before passed_in=none
  failed=$(count fail)
  passed=$(count pass)
  before=$(wc -l <"$RONDO_RESULTS")
  echo "=== $suite"
  command_of "$suite"
  "${command[@]}" </dev/null || status=$?
  if ((status != 0 && (status != 3 || $(count fail) == failed))); then echo "fail $suite stopped with exit code $status" >>"$RONDO_RESULTS"; fi
  failed=$(($(count fail) - failed))
  passed=$(($(count pass) - passed))
  echo "=== $suite: $((SECONDS - start)) s, $failed failed"
  ((failed)) || passed_in=$tree
  mkdir -p build/ran
  {
    echo "$passed_in"
    echo "| $suite | $commit | $(date -u +%F\ %R) | $((SECONDS - start)) | $passed | $failed |"
    tail -n "+$((before + 1))" "$RONDO_RESULTS"
  } >"build/ran/$suite"
}

# The table of a release has the last run of each suite, whose line names the commit.
write_release() {
  local suite
  {
    printf '%s\n' '| suite | commit | ended (UTC) | seconds | passed | failed |' '|---|---|---|---|---|---|'
    for suite in "${suites[@]}"; do
      sed -n 2p "build/ran/$suite" 2>/dev/null || echo "| $suite | not run | | | | |"
    done
  } >build/release.md
}

# Whether this suite, which was not named, passed in this very tree; then its checks count.
passed_before() {
  ((named == 0)) && [[ -f build/ran/$1 && $(head -n 1 "build/ran/$1") == "$tree" ]] || return 1
  tail -n +3 "build/ran/$1" >>"$RONDO_RESULTS"
  echo "=== $1: passed before in this very tree (tools/test.sh $1 runs it again)"
}

tree=$(fingerprint)
commit=$(git rev-parse --short HEAD 2>/dev/null || echo none)
[[ -z $(git status --porcelain 2>/dev/null) ]] || commit+=" and changes"
for suite in "${suites[@]}"; do
  passed_before "$suite" || run_suite "$suite"
  if ((release)); then write_release; fi
done
if ((release)); then cat build/release.md; fi

# What failed, once more at the end, with the last words of Bazel's tests.
while read -r verdict target _; do
  [[ $verdict == fail ]] || continue
  log=${target#//}
  log=bazel-testlogs/${log/://}
  log=${log%:}/test.log
  [[ $target != //* || ! -f $log ]] || { echo "--- the end of $log" && tail -n 40 "$log"; }
done <"$RONDO_RESULTS"
sed -n 's/^fail /FAILED: /p' "$RONDO_RESULTS"
passed=$(count pass)
failed=$(count fail)
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
