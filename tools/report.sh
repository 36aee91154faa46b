#!/usr/bin/env bash
# Makes a page of rondo-bench's JSON files: tools/report.sh REPORT.html [--picture FILE.svg] FILE.json ...
# matplotlib comes from Debian (python3-matplotlib) where it is installed, else from PyPI into build/report-venv.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
if (($# < 2)) || [[ $1 == -* ]]; then
  sed -n '2,3s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
python=python3
if ! python3 -c 'import matplotlib' 2>/dev/null; then
  python=$here/build/report-venv/bin/python3
  if ! "$python" -c 'import matplotlib' 2>/dev/null; then
    echo "Installing matplotlib into build/report-venv" >&2
    python3 -m venv "$here/build/report-venv"
    "$python" -m pip install -q matplotlib
  fi
fi
out=$1
shift
"$python" "$here/bench/compare/report.py" --out "$out" "$@"
