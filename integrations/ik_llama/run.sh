#!/usr/bin/env bash
# Builds ik_llama.cpp with cgtree, runs its programs in three modes, and writes the costs.
#
# usage: integrations/ik_llama/run.sh CHECKOUT [--out DIR] [--arch N] [--shape NAME] [--trace CSV]
#            [--requests N] [--build_only]
#
# CHECKOUT is ik_llama.cpp's source, which is not changed. DIR (build/ik_llama) gets a copy of it, the
# build, models of random weights (of the shape NAME, 1b, and a draft), compare.json and, with a trace,
# server.json and server_draft.json. Needs CMake 3.31 for CUDA 13, and Python with NumPy and gguf. Exits
# with 1 if the modes do not agree on the text.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() { sed -n 's/^# \{0,1\}//; 4,10p' "${BASH_SOURCE[0]}"; }

checkout= out=$here/../../build/ik_llama arch=90 shape=1b trace= requests=200 build_only=
while (($#)); do
  case $1 in
    --out) out=$2 && shift 2 ;;
    --arch) arch=$2 && shift 2 ;;
    --shape) shape=$2 && shift 2 ;;
    --trace) trace=$2 && shift 2 ;;
    --requests) requests=$2 && shift 2 ;;
    --build_only) build_only=1 && shift ;;
    --help) usage && exit ;;
    -*) usage >&2 && exit 2 ;;
    *) checkout=$1 && shift ;;
  esac
done
[[ -d $checkout ]] || { usage >&2 && exit 2; }
mkdir -p "$out" && out=$(cd "$out" && pwd)

# An existing copy is kept, so that a second run does not compile it again.
[[ -d $out/ik_llama ]] || cp -r "$checkout" "$out/ik_llama"
"$here/apply.py" "$out/ik_llama"
# Pages of the server that a partial checkout lacks.
for page in public_llamacpp/index_llamacpp.html.gz public/index.html.gz public_llamacpp/loading.html; do
  [[ -e $out/ik_llama/examples/server/$page ]] || : >"$out/ik_llama/examples/server/$page"
done

"$here/../common/build.sh" "$out/ik_llama" "$out" "$arch" \
  "llama-server llama-bench llama-batched-bench llama-speculative" \
  -DGGML_NCCL=OFF -DLLAMA_BUILD_TESTS=OFF
[[ -z $build_only ]] || exit 0

vocabulary=$checkout/models/ggml-vocab-llama-spm.gguf
"$here/make_model.py" "$shape" "$vocabulary" "$out/$shape.gguf"
"$here/make_model.py" draft "$vocabulary" "$out/draft.gguf"
common=(--model "$out/$shape.gguf" --cuda_calls "$out/build/libcuda_calls.so")
"$here/compare.py" --bin "$out/build/bin" --draft "$out/draft.gguf" --out "$out/compare.json" "${common[@]}"
[[ -n $trace ]] || exit 0
server=("$here/bench_server.py" --server "$out/build/bin/llama-server" --trace "$trace"
  --requests "$requests" "${common[@]}")
"${server[@]}" --out "$out/server.json"
"${server[@]}" --out "$out/server_draft.json" --draft "$out/draft.gguf"
