#!/usr/bin/env bash
# Every block of code in README and guide is compiled and run as a reader would, and every link leads somewhere.
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" pkg-config cmake make python3
prefix=$(mktemp -d)
log=$(mktemp)
trap 'rm -rf "$prefix" "$log"' EXIT

check "links in *.md" python3 tests/docs/check_links.py .
check "README has at most 150 lines" test "$(wc -l <README.md)" -le 150

# Names of the settings that the library reads, and those of the page.
# shellcheck disable=SC2016  # backticks of Markdown
settings_are_listed() {
  diff <(grep -ohE '"RONDO_[A-Z_]+"' ring/base/config.cc | tr -d '"' | sort -u) \
    <(sed '/^## Rank and rendezvous/,$d' docs/environment.md | grep -oE '^\| `RONDO_[A-Z_]+`' | tr -d '|` ' | sort)
}
check "docs/environment.md lists the settings of ring/base/config.cc" settings_are_listed

# Those of the page's second table and of the Python package are the ones that no warning takes for misspelt settings.
# shellcheck disable=SC2016  # backticks of Markdown
others_are_known() {
  diff <(grep -ohE '"RONDO_[A-Z_]+"' ring/base/misspelt.cc | tr -d '"' | grep -v '^RONDO_$' | sort -u) \
    <({
      sed '1,/^## Rank and rendezvous/d' docs/environment.md | grep -E '^\| `RONDO_' | cut -d '|' -f 2 | grep -oE 'RONDO_[A-Z_]+'
      grep -rhoE 'environ\.get\("RONDO_[A-Z_]+"' python/rondo | grep -oE 'RONDO_[A-Z_]+'
    } | sort -u)
}
check "ring/base/misspelt.cc knows the variables that are no settings" others_are_known

tools/install.sh "$prefix" >"$log" 2>&1 || { cat "$log"; exit 1; }
python3 tests/docs/run_blocks.py "$prefix" README.md docs/guide.md docs/coming-from.md | tee "$log" || true
while read -r result place; do record "$result" "docs: $place"; done < <(grep -E '^(pass|fail) ' "$log")
grep -q '^pass ' "$log"
finish_checks
