#!/usr/bin/env bash
# What compares and judges is Python, tested by its own unittest.
exec python3 -B tests/bench/compare_test.py
