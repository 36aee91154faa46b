# shellcheck shell=bash
# What every script that builds needs: the packages, and Bazel called the same way everywhere.

# shellcheck source=tools/lib/packages.sh
source "$(dirname "${BASH_SOURCE[0]}")/packages.sh"

# What the tree includes, without tests; and what builds all of it.
NATIVE_PACKAGES=(g++ libasio-dev libfmt-dev libssl-dev libcli11-dev nlohmann-json3-dev pkg-config zlib1g-dev libzstd-dev)
# shellcheck disable=SC2034  # used by those that source this file
BUILD_PACKAGES=(bazel-bootstrap "${NATIVE_PACKAGES[@]}" doctest-dev python3-dev)

# check_bazel: sets bazel_flags, of the caller: what this Bazel wants for a tree with a WORKSPACE. 9 has none any more.
check_bazel() {
  local said
  bazel_flags=()
  said="$(bazel --version) $(dpkg-query -W -f '${Version}' bazel-bootstrap 2>/dev/null || true)" # Debian 12's says "no_version"
  [[ $said =~ ([0-9]+)\.[0-9] && ${BASH_REMATCH[1]} -ge 7 ]] || return 0
  if ((BASH_REMATCH[1] > 7)); then
    echo "This is $said; this tree builds with Bazel 4 to 7 (Debian: bazel-bootstrap), and by CMake and pip without it." >&2
    return 1
  fi
  # Its own repositories want two more, which Debian's package has on disk; another 7 fetches them.
  local rules=/usr/share/bazel
  bazel_flags=(--noenable_bzlmod --enable_workspace)
  [[ ! -d $rules/tools/skylib ]] || bazel_flags+=("--override_repository=bazel_skylib=$rules/tools/skylib")
  [[ ! -d $rules/rules/python ]] || bazel_flags+=("--override_repository=rules_python=$rules/rules/python")
}

# run_bazel COMMAND [ARGUMENT...]
# RONDO_BAZEL_FLAGS: more flags, for example --disk_cache=DIR or --jobs=2.
run_bazel() {
  local command=$1 bazel_flags flags=()
  shift
  check_bazel || return 1
  read -ra flags <<<"${RONDO_BAZEL_FLAGS:-}"
  flags+=("${bazel_flags[@]}")
  # Bazel keeps its outputs under HOME, which a bare container may not set, or not let us write.
  if [[ ! -d ${HOME:-} || ! -w ${HOME:-} ]]; then
    HOME=${TMPDIR:-/tmp}/rondo-home-$(id -u)
    mkdir -p "$HOME"
    export HOME
  fi
  case $command in
    build | test) bazel "$command" "${PROGRESS[@]}" "${flags[@]}" "$@" ;;
    *) bazel "$command" --color=no --curses=no "${flags[@]}" "$@" ;;
  esac
}

# How far a build is: Bazel's own display on a terminal, else a line every 10 s ("[123 / 456] Compiling ...").
if [[ -t 1 && -t 2 ]]; then
  PROGRESS=(--show_progress --color=yes --curses=yes)
else
  PROGRESS=(--show_progress --color=no --curses=no --show_progress_rate_limit=10)
fi
# shellcheck disable=SC2054  # a list within one argument
PROGRESS+=(--noshow_loading_progress --ui_event_filters=-info,-debug --show_result=0)

# build_here TARGET...: builds, and says on standard error how far it is.
build_here() {
  run_bazel build "$@" >&2
}

# The folder of built files; bazel-bin is a convenience link that some file systems do not allow.
bazel_bin() {
  run_bazel info bazel-bin 2>/dev/null
}
