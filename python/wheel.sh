#!/usr/bin/env bash
# bazel run -c opt //python:wheel -- --out=dist: writes the wheel, and says where.
exec python3 -B python/pack.py wheel "$@" LICENSE python/cgtree/*
