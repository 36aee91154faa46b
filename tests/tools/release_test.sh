#!/bin/bash
# release_test.sh TEST.SH TABLE_SUITE.SH: `tools/test.sh release` over suites that do nothing: it runs each once, says what
# failed, runs that alone again, and everything once the tree has changed.
set -euo pipefail
tree=$TEST_TMPDIR/tree
mkdir -p "$tree/tools/suites" "$tree/tools/lib"
cp -L "$1" "$tree/tools/test.sh"
cp -L "$2" "$tree/tools/lib/table_suite.sh"
cd "$tree"
# A suite says that it ran, and where there is a file of its name it fails, as suites do whose checks failed.
for suite in style build unit faults install docs python speed compression wheel first-byte rates peers bars; do
  cat >"tools/suites/$suite.sh" <<END
#!/bin/bash
# Suite $suite.
echo $suite >>"$TEST_TMPDIR/ran"
verdict=pass; [[ ! -e $TEST_TMPDIR/$suite ]] || verdict=fail
echo "\$verdict $suite" >>"\$RONDO_RESULTS"
[[ \$verdict == pass ]] || exit 3
END
done
touch tools/suites/table

fail() {
  echo "$1"
  cat "$TEST_TMPDIR/out" build/release.md "$TEST_TMPDIR/ran"
  exit 1
}
# ran SUITE...: those that the last release has run.
release() {
  : >"$TEST_TMPDIR/ran"
  tools/test.sh release >"$TEST_TMPDIR/out" 2>&1
}
ran() { [[ $(tr '\n' ' ' <"$TEST_TMPDIR/ran") == "$1" ]]; }
all="style build unit faults install docs python speed compression wheel first-byte rates peers bars "

touch "$TEST_TMPDIR/wheel"
! release || fail "a suite failed, and the release passed"
ran "$all" || fail "not every suite ran once, in this order"
grep -q '^| wheel | .* | 0 | 1 |$' build/release.md || fail "the table does not say that the suite failed"
[[ $(tail -n 1 "$TEST_TMPDIR/out") == "13 passed, 1 failed" ]] || fail "wrong last line"
rm "$TEST_TMPDIR/wheel"
release || fail "it does not pass"
ran "wheel " || fail "what had passed ran again, or what had failed did not"
[[ $(grep -c ' | 1 | 0 |$' build/release.md) == 14 ]] || fail "the table lacks a suite that has passed"
release || fail "what has passed does not pass"
ran "" || fail "something ran again in the same tree"
touch tools/changed
release || fail "it does not pass in another tree"
ran "$all" || fail "what passed in another tree did not run again"
