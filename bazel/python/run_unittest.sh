#!/bin/bash
# The executable of a python_test: python3 on the runner and the test file.
exec python3 -B "$@"
