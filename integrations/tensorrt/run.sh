#!/usr/bin/env bash
# Builds tensorrt_server, serves the same requests in three modes with one and with four threads, and
# writes the costs.
#
# usage: integrations/tensorrt/run.sh TENSORRT [--out DIR] [--arch N] [--build_only] [-- ARGUMENT...]
#
# TENSORRT is the folder of TensorRT 10.15 or later: its folder include has the headers, and lib the
# libraries. DIR (build/tensorrt) gets the build, and threads_1.json and threads_4.json.
# ARGUMENTs are for tensorrt_server, whose --help lists them. Exits with 1 if the modes do not agree
# on all scores.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() { sed -n 's/^# \{0,1\}//; 5,10p' "${BASH_SOURCE[0]}"; }

tensorrt= out=$here/../../build/tensorrt arch=90 build_only= arguments=()
while (($#)); do
  case $1 in
    --out) out=$2 && shift 2 ;;
    --arch) arch=$2 && shift 2 ;;
    --build_only) build_only=1 && shift ;;
    --) shift && arguments+=("$@") && break ;;
    --help) usage && exit ;;
    -*) usage >&2 && exit 2 ;;
    *) tensorrt=$1 && shift ;;
  esac
done
[[ -d $tensorrt ]] || { usage >&2 && exit 2; }
mkdir -p "$out" && out=$(cd "$out" && pwd)

export CUDACXX=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
cmake -G Ninja -S "$here" -B "$out/build" -DCMAKE_BUILD_TYPE=Release -DCGTREE_TENSORRT="$tensorrt" \
  -DCGTREE_CUDA_ARCHS="$arch-real" >"$out/cmake.log" 2>&1 || { tail -40 "$out/cmake.log" >&2 && exit 1; }
cmake --build "$out/build" --target tensorrt_server --parallel "${JOBS:-$(nproc)}" >"$out/build.log" ||
  { tail -40 "$out/build.log" >&2 && exit 1; }
[[ -z $build_only ]] || exit 0

export LD_LIBRARY_PATH=$tensorrt/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
status=0
for threads in 1 4; do
  "$out/build/tensorrt_server" --threads="$threads" --json="$out/threads_$threads.json" "${arguments[@]}" || status=$?
done
exit "$status"
