#!/usr/bin/env bash
# The sources' format, layers, names that are defined twice, comments without a subject, floats that decide, faults
# without a test, what clang refuses.
set -euo pipefail
source tools/lib/suite.sh

need_packages git clang-format python3 shellcheck
check "format" tools/format.sh --check
check "layers" python3 tools/checks/layers.py
check "one definition of each name" python3 tools/checks/one_definition.py
check "no lambda uses a structured binding" python3 tools/checks/bindings.py
check "comments begin with their subject" python3 tools/checks/comments.py
check "no floats decide on the caller's thread" python3 tools/checks/floats.py
check "every fault has a test" python3 tools/checks/faults.py
check "the checks find planted violations" python3 tests/checks/checks_test.py
# Iterators over a stream's buffer throw where reading fails, as for a process under /proc that is gone meanwhile.
check "whole files are read by file_text()" bash -c '! git grep -n istreambuf_iterator -- "*.cc" "*.h"'
# What another header happens to bring is missing with newer packages.
check "fmt::join() and getpid() come from their own headers" bash -c '! { git grep -lF "fmt::join(" -- "*.cc" "*.h" | xargs grep -L "<fmt/ranges.h>"
  git grep -lE "\bgetpid\(" -- "*.cc" | xargs grep -L "<unistd.h>"; } | grep .'
# A suite that is seldom run would stop at its first line.
without_probe() {
  local package
  git grep -hoP 'need_packages \K[^#&|;]*' -- 'tools/*.sh' ':!tools/lib/packages.sh' | tr ' ' '\n' | grep -xE '[a-z][a-z0-9+.-]*' | sort -u |
    while read -r package; do
      grep -q "^    $package)" tools/lib/packages.sh || echo "no probe for $package in tools/lib/packages.sh"
    done
}
probed() { ! without_probe | grep .; }
check "every package that a tool asks for has a probe" probed
shellcheck_all() { git ls-files -z '*.sh' | xargs -0 -n 10 -P "$(nproc)" shellcheck -x; }
check "shellcheck" shellcheck_all
finish_checks
