#!/usr/bin/env bash
# Builds whisper.cpp with cgtree, runs its programs in three modes, and writes the costs.
#
# usage: integrations/whisper/run.sh CHECKOUT [--out DIR] [--arch N] [--size NAME] [--build_only]
#
# CHECKOUT is whisper.cpp's source, which is not changed. DIR (build/whisper) gets a copy of it, the
# build, a model of random weights of the size NAME (small), and compare.json. Needs Python with NumPy.
# Exits with 1 if the modes do not agree on the text.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() { sed -n 's/^# \{0,1\}//; 4,8p' "${BASH_SOURCE[0]}"; }

checkout= out=$here/../../build/whisper arch=90 size=small build_only=
while (($#)); do
  case $1 in
    --out) out=$2 && shift 2 ;;
    --arch) arch=$2 && shift 2 ;;
    --size) size=$2 && shift 2 ;;
    --build_only) build_only=1 && shift ;;
    --help) usage && exit ;;
    -*) usage >&2 && exit 2 ;;
    *) checkout=$1 && shift ;;
  esac
done
[[ -d $checkout ]] || { usage >&2 && exit 2; }
mkdir -p "$out" && out=$(cd "$out" && pwd)

# An existing copy is kept, so that a second run does not compile it again.
[[ -d $out/whisper ]] || cp -r "$checkout" "$out/whisper"
"$here/../ggml/apply.py" "$out/whisper/ggml"

"$here/../common/build.sh" "$out/whisper" "$out" "$arch" \
  "whisper-bench whisper-cli" -DGGML_CUDA_GRAPHS=ON -DGGML_CUDA_NCCL=OFF -DWHISPER_BUILD_TESTS=OFF
[[ -z $build_only ]] || exit 0

"$here/make_model.py" "$checkout/models/for-tests-ggml-$size.bin" "$out/$size.bin"
"$here/compare.py" --bin "$out/build/bin" --model "$out/$size.bin" --out "$out/compare.json" \
  --cuda_calls "$out/build/libcuda_calls.so"
