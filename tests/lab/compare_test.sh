#!/usr/bin/env bash
# What compares and judges is Python, tested by its own unittest.
RONDO_BENCH=$PWD/bench/rondo-bench exec python3 -B tests/lab/compare_test.py
