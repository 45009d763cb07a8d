#!/usr/bin/env bash
# Builds programs to which apply.py added its lines with their own CMake, and libcuda_calls.so, which counts a program's
# calls of the CUDA runtime (LD_PRELOAD).
#
# usage: build.sh SOURCE OUT ARCH "PROGRAM..." [CMAKE_OPTION...]
set -euo pipefail
usage() { sed -n 's/^# \{0,1\}//; 5p' "${BASH_SOURCE[0]}"; }
if [[ ${1:-} == --help ]]; then usage; exit; fi
if (($# < 4)); then usage >&2; exit 2; fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
source=$1 out=$2 arch=$3 programs=$4
shift 4

export CUDACXX=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
cmake -G Ninja -S "$source" -B "$out/build" -DCMAKE_BUILD_TYPE=Release -DGGML_CUDA=ON \
  -DCMAKE_CUDA_ARCHITECTURES="$arch-real" -DCMAKE_CUDA_RUNTIME_LIBRARY=Shared "$@" >"$out/cmake.log" 2>&1 ||
  { tail -40 "$out/cmake.log" >&2 && exit 1; }
# shellcheck disable=SC2086  # a list of words
cmake --build "$out/build" --target $programs --parallel "${JOBS:-$(nproc)}" >"$out/build.log" ||
  { tail -40 "$out/build.log" >&2 && exit 1; }
"${CXX:-g++}" -std=c++17 -O2 -shared -fPIC -I"$root" -I"$(dirname "$CUDACXX")/../include" \
  "$root/integrations/common/cuda_calls.cc" -o "$out/build/libcuda_calls.so" -ldl
