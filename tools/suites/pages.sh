#!/usr/bin/env bash
# Pages of rondo-view in headless Chromium: every plan stepped through, cells and colors compared with plan_dump's data.
# Traces of real jobs, a rank stopped and one killed; rondo-top on the like; the documentation's site. Metrics pass promtool.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv chromium chromium-driver
run_bazel build //tools/view:rondo-view //tools/plan:plan_dump //ring:librondo_c.so //python:_rondo.abi3.so //tools:rondo-run
bin=$(bazel_bin)
view=$bin/tools/view/rondo-view

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
venv=$PWD/.venv-pages
if ! "$venv/bin/python" -c "import jsonschema, numpy, selenium" 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check selenium jsonschema numpy ml_dtypes
fi

# refused TEXT OPTION...: exit code 2, a message with this text, and no page.
refused() {
  local text=$1 message status=0
  shift
  message=$("$view" "$@" -o "$folder/refused.html" 2>&1) || status=$?
  [[ $status == 2 && $message == *"$text"* && ! -e $folder/refused.html ]] || {
    echo "exit code $status: $message"
    return 1
  }
}
check "no such algorithm" refused "nope not in {auto,ring" --algorithm nope
check "no such algorithm to compare" refused "no algorithm 'nope'" --compare ring,nope
check "a world of 0" refused "rondo-view: --world: Value 0 not in range" --world 0
check "hosts that do not sum up" refused "--hosts 2,3 has 5 ranks, and --world says 4" --world 4 --hosts 2,3
check "too many ranks" refused "rondo-view: --world: Value 65 not in range" --world 65
check "too many ranks of hosts" refused "rondo-view: 128 ranks: at most 64" --hosts 64,64
check "a plan that does not exist" refused "barrier has no algorithm star" --collective barrier --algorithm star
check "no such root" refused "root 4 of reduce" --collective reduce --root 4
check "no bytes" refused "Value 0 not in range" --bytes 0

# Nothing half written: the part goes too.
unwritable() {
  local status=0
  "$view" -o "$folder/none/page.html" 2>"$folder/message" || status=$?
  [[ $status == 1 ]] && grep -q "cannot write $folder/none/page.html" "$folder/message"
}
check "a folder that does not exist" unwritable

# Two runs write the same bytes, to a file or to the standard output.
repeats() {
  "$view" --values -o "$folder/a.html" && "$view" --values -o - | cmp - "$folder/a.html"
}
check "the same page twice" repeats

# A link keeps pointing at the page.
follows() {
  echo old >"$folder/linked.html" && ln -s linked.html "$folder/link.html" && "$view" --values -o "$folder/link.html" &&
    [[ -L $folder/link.html ]] && cmp "$folder/linked.html" "$folder/a.html"
}
check "a link to the page" follows

log=$folder/log
# counted TEXT COMMAND...: counts the lines "pass NAME" and "fail NAME" that a program prints; its last line has the text.
counted() {
  local text=$1
  shift
  RONDO_LIBRARY=$bin/ring/librondo_c.so PYTHONPATH=python:$bin/python PYTHONDONTWRITEBYTECODE=1 timeout 900 "$venv/bin/python" "$@" |
    tee "$log" || true
  while read -r result name; do record "$result" "$name"; done < <(grep -E '^(pass|fail) ' "$log")
  check "$1 came to the end" grep -q "^$text" "$log"
}
counted "all pages looked at" tests/pages/view_pages.py "$view" "$bin/tools/plan/plan_dump" "$folder"
mkdir "$folder/traces"
counted "all traces looked at" tests/trace/trace_test.py "$bin/tools/rondo-run" docs/trace-schema.json "$folder/traces"
mkdir "$folder/top"
counted "all of rondo-top looked at" tests/trace/top_test.py "$bin/tools/rondo-run" "$folder/top"

check "the site builds" tools/site.sh
counted "all of the site looked at" tests/pages/site_pages.py build/site

# Debian's promtool, unpacked beside: no server is installed or started.
promtool_passes() {
  (cd "$folder" && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; } && dpkg -x prometheus_*.deb prometheus) || return 1
  RONDO_METRICS=$folder/metrics/ RONDO_LIBRARY=$bin/ring/librondo_c.so PYTHONPATH=python:$bin/python \
    "$bin/tools/rondo-run" -n 2 "$venv/bin/python" -c 'import numpy as n, rondo; g = rondo.init(); g.all_reduce(n.ones(9)); g.close()'
  for file in "$folder"/metrics/*.prom; do
    "$folder/prometheus/usr/bin/promtool" check metrics <"$file" || return 1
  done
  # The dashboard asks for metrics that there are.
  local name
  while read -r name; do
    grep -q "^# TYPE $name " "$folder/metrics/rondo-rank-0.prom" || { echo "no metric $name"; return 1; }
  done < <(grep -ohE 'rondo_[a-z_]+' docs/grafana.json | sed 's/_bucket$//' | sort -u)
}
check "promtool check metrics; the dashboard's metrics exist" promtool_passes
finish_checks
