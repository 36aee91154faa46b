#!/usr/bin/env bash
# Debian's packages (tools/deb.sh): lintian, and programs in a root of Debian 12 where they are installed, and taken away.
set -euo pipefail
source tools/lib/suite.sh
source tools/lib/debian_root.sh

need_packages lintian
made=build/deb
lintian_is_silent() {
  local said
  # Nobody asked Debian for them: there is no bug to close.
  said=$(lintian --allow-root --suppress-tags initial-upload-closes-no-bugs $made/*.changes) && [[ -z $said ]] && return
  echo "$said"
  return 1
}
installs() {
  mkdir "$root/packages" && cp $made/*.deb "$root/packages" &&
    in_root "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends /packages/*.deb"
}
c_program() {
  in_root "cd /tmp && gcc /rondo/tests/install/sum.c -o sum_c \$(pkg-config --cflags --libs rondo-c)" && two_ranks "rondo-run -n 2 /tmp/sum_c"
}
mpi_program() {
  cat >"$root/mpi_sum.py" <<'SCRIPT'
from mpi4py import MPI

world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size}: sum {world.allreduce(world.rank + 1)}", flush=True)
SCRIPT
  two_ranks "rondo-run --mpi -n 2 python3 /mpi_sum.py"
}
programs() {
  in_root "cd /tmp && mkdir trace && RONDO_TRACE=/tmp/trace rondo-run -n 2 python3 /rondo/tests/launchers/sum.py &&
    rondo-trace report /tmp/trace >report.txt && rondo-top --help && rondo-view -o view.html && rondo-doctor &&
    rondo-bench --ranks 2 -e 1K --seconds 0.01 && test -s report.txt -a -s view.html && test -s /usr/share/man/man1/rondo-run.1.gz"
}
leaves_nothing() {
  in_root "apt-get purge -y librondo0.2 librondo-dev rondo python3-rondo && ! find /usr /etc -name \"*rondo*\" | grep ."
}

check "tools/deb.sh" tools/deb.sh
check "lintian has nothing to say" lintian_is_silent
check "a root of Debian 12" make_root bookworm g++ pkg-config python3-mpi4py
finish_checks # without a root nothing else can pass
check "apt-get installs them" installs
check "a C++ program" cpp_program
check "a C program" c_program
check "a Python program" two_ranks "rondo-run -n 2 python3 /rondo/tests/launchers/sum.py"
check "Debian's mpi4py" mpi_program
check "the other programs" programs
check "apt-get purge leaves nothing" leaves_nothing
finish_checks
