#!/usr/bin/env bash
# Tables in Markdown, and a picture, of rondo-bench's JSON files: tests/lab/report.sh [--picture FILE.svg] FILE.json ... > tables.md
# matplotlib comes from Debian (python3-matplotlib) where it is installed, else from PyPI into build/report-venv.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
python=python3
if [[ " $* " == *" --picture"* ]] && ! python3 -c 'import matplotlib' 2>/dev/null; then
  python=$here/build/report-venv/bin/python3
  if ! "$python" -c 'import matplotlib' 2>/dev/null; then
    echo "Installing matplotlib into build/report-venv" >&2
    python3 -m venv "$here/build/report-venv"
    "$python" -m pip install -q matplotlib
  fi
fi
exec "$python" -B "$here/tests/lab/compare/report.py" "$@"
