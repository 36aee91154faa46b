#!/usr/bin/env bash
# Builds the documentation as a site in build/site: tools/site.sh
# mkdocs-material comes from PyPI, into .venv-site. Open build/site/index.html, or serve the folder; search needs a server.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/lib/build.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv
python=.venv-site/bin/python
if ! "$python" -c "import material" 2>/dev/null; then
  python3 -m venv .venv-site
  "$python" -m pip install --quiet --disable-pip-version-check mkdocs-material
fi
run_bazel build //tools:rondo-run //bench:rondo-bench //tools/view:rondo-view //tools/doctor:rondo-doctor
bin=$(bazel_bin)

programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
ln -s "$bin/tools/rondo-run" "$bin/bench/rondo-bench" "$bin/tools/view/rondo-view" "$bin/tools/doctor/rondo-doctor" "$programs"
ln -s "$PWD/tools/trace/rondo_trace.py" "$programs/rondo-trace"
ln -s "$PWD/tools/top/rondo_top.py" "$programs/rondo-top"
PYTHONDONTWRITEBYTECODE=1 "$python" tools/site/generate.py build/site-source "$programs"
NO_MKDOCS_2_WARNING=1 "$python" -m mkdocs build --strict --quiet --clean -f tools/site/mkdocs.yml
echo "The site is build/site: $(find build/site -name '*.html' | wc -l) pages"
