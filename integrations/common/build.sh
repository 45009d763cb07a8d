#!/usr/bin/env bash
# Builds targets of a program that apply.py has given its lines, and libcuda_calls.so.
#
# usage: build.sh SOURCE OUT ARCH PROJECT TARGET FOLDER "PROGRAM..." [CMAKE_OPTION...]
#
# PROJECT is the program's name for its project, TARGET the one with the CUDA backend, FOLDER where in
# SOURCE ggml lies. CGTREE_LEFT_OUT in the environment is a list of patterns (join.cmake).
set -euo pipefail
usage() { sed -n 's/^# \{0,1\}//; 4,7p' "${BASH_SOURCE[0]}"; }
if [[ ${1:-} == --help ]]; then usage; exit; fi
if (($# < 7)); then usage >&2; exit 2; fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$1 out=$2 arch=$3 project=$4 target=$5 folder=$6 programs=$7
shift 7

export CUDACXX=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
cmake -G Ninja -S "$source" -B "$out/build" -DCMAKE_BUILD_TYPE=Release -DGGML_CUDA=ON \
  -DCMAKE_CUDA_ARCHITECTURES="$arch-real" "-DCMAKE_PROJECT_${project}_INCLUDE=$here/join.cmake" \
  -DCGTREE_GGML_TARGET="$target" -DCGTREE_GGML_FOLDER="$source/$folder" \
  "-DCGTREE_LEFT_OUT=${CGTREE_LEFT_OUT:-}" "$@" >"$out/cmake.log" 2>&1 ||
  { tail -40 "$out/cmake.log" >&2 && exit 1; }
# shellcheck disable=SC2086  # a list of words
cmake --build "$out/build" --target $programs cuda_calls --parallel "${JOBS:-$(nproc)}" >"$out/build.log" ||
  { tail -40 "$out/build.log" >&2 && exit 1; }
