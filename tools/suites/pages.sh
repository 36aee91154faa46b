#!/usr/bin/env bash
# Pages of rondo-view in headless Chromium: every plan stepped through, cells and colors compared with plan_dump's data.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv chromium chromium-driver
run_bazel build //tools/view:rondo-view //tools/plan:plan_dump
bin=$(bazel_bin)
view=$bin/tools/view/rondo-view

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
venv=$PWD/.venv-pages
if ! "$venv/bin/python" -c "import selenium" 2>/dev/null; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check selenium
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
check "a world of 0" refused "Value 0 not in range" --world 0
check "hosts that do not sum up" refused "--hosts 2,3 has 5 ranks, and --world says 4" --world 4 --hosts 2,3
check "too many ranks" refused "at most 64" --world 65
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

log=$folder/log
PYTHONDONTWRITEBYTECODE=1 timeout 900 "$venv/bin/python" tests/pages/view_pages.py "$view" "$bin/tools/plan/plan_dump" "$folder" |
  tee "$log" || true
while read -r result name; do record "$result" "$name"; done < <(grep -E '^(pass|fail) ' "$log")
check "the browser came to the end" grep -q '^all pages looked at' "$log"
finish_checks
