#!/usr/bin/env bash
# MPICH's own tests, from Debian's source package, over Rondo beside MPICH: what passes there passes here. Wants PyPI, Debian.
#   tools/suites/mpich.sh [--only FOLDER[/TEST]] [--quick]     as tests/mpi/run_mpich.py has them
set -euo pipefail
source tools/lib/suite.sh

need_packages "${BUILD_PACKAGES[@]}" python3 python3-venv make
run_bazel build //mpi:libraries //tools:rondo-run
place=$PWD/.venv-mpich
mpich=$place/mpich
folders="attr coll comm datatype errhan errors group info init io part pt2pt rma session threads topo"

# The newest of Debian's releases whose sources of MPICH can be had; apt's lists of sources are kept apart from the system's.
fetch_sources() {
  local site release
  site=$(apt-get indextargets --format "\$(SITE)" "Codename: bookworm" "Component: main" | head -n 1)
  mkdir -p "$place/apt/lists/partial" "$place/apt/cache/archives/partial"
  local settings=(-o "Dir::Etc::SourceList=$place/apt/list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$place/apt/lists"
    -o "Dir::Cache=$place/apt/cache" -o APT::Sandbox::User=root)
  for release in sid trixie bookworm; do
    rm -f "$place"/apt/mpich_*
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $release main" >"$place/apt/list"
    (cd "$place/apt" && apt-get "${settings[@]}" update && apt-get "${settings[@]}" source --download-only mpich) || continue
    tar xf "$(echo "$place"/apt/mpich_*.orig.tar.*)" -C "$place" --wildcards '*/test/mpi/*' && return
  done
  return 1
}
if [[ ! -d $mpich ]]; then
  mkdir -p "$place"
  python3 -m venv "$mpich"
  "$mpich/bin/pip" install --quiet --disable-pip-version-check mpich==5.0.2
fi
compgen -G "$place/mpich-*/test/mpi" >/dev/null || fetch_sources >"$place/apt.log" 2>&1 || { tail -n 20 "$place/apt.log" && exit 1; }
tests=$(echo "$place"/mpich-*/test/mpi)
build=$place/build
build_tests() (
  mkdir -p "$build" && cd "$build"
  "$tests/configure" --quiet --with-mpi="$mpich" --disable-fortran --disable-cxx --disable-spawn \
    --enable-threads=multiple --disable-dependency-tracking CFLAGS="-O1 -w" >configure.log 2>&1 || return 1
  for folder in util dtpools $folders; do
    # A program of another version's calls does not build, and the runner says so.
    [[ ! -d $folder ]] || make -k -C "$folder" >"make-$folder.log" 2>&1 || true
  done
)
[[ -x $build/coll/allred ]] || check "MPICH's tests build" build_tests
check "what passes with MPICH passes" python3 tests/mpi/run_mpich.py "$tests" "$build" "$(bazel_bin)/tools/rondo-run" "$mpich/bin/mpiexec" "$@"
finish_checks
