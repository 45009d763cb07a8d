#!/usr/bin/env bash
# Builds ggml with cgtree, decodes the same tokens in three modes, and writes the costs.
#
# usage: integrations/ggml/run.sh CHECKOUT [--steps N] [--out DIR] [--arch N] [-- ARGUMENT...]
#
# CHECKOUT is ggml's source, which is not changed. DIR (build/ggml) gets a copy of it, the build,
# decode.json, and events, with the calls that cgtree did not replay, and the reasons. ARGUMENTs are
# for decode, such as --batch=1 --max_draft=0, or --draft_layers=4 --draft_hold=1. Exits with 1 if the
# modes do not agree on all tokens.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

usage() { sed -n 's/^# \{0,1\}//; 4,9p' "${BASH_SOURCE[0]}"; }

checkout= out=$here/../../build/ggml arch=90 arguments=()
while (($#)); do
  case $1 in
    --steps) arguments+=("--steps=$2") && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    --arch) arch=$2 && shift 2 ;;
    --) shift && arguments+=("$@") && break ;;
    --help) usage && exit ;;
    -*) usage >&2 && exit 2 ;;
    *) checkout=$1 && shift ;;
  esac
done
[[ -d $checkout ]] || { usage >&2 && exit 2; }
mkdir -p "$out" && out=$(cd "$out" && pwd)

# An existing copy is kept, so that a second run does not compile it again.
[[ -d $out/ggml ]] || cp -r "$checkout" "$out/ggml"
"$here/apply.py" "$out/ggml"

export CUDACXX=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
cmake -G Ninja -S "$here" -B "$out/build" -DCMAKE_BUILD_TYPE=Release -DGGML_CHECKOUT="$out/ggml" \
  -DCMAKE_CUDA_ARCHITECTURES="$arch-real" >"$out/cmake.log"
cmake --build "$out/build" --target decode --parallel "$(nproc)" >"$out/build.log" ||
  { tail -40 "$out/build.log" >&2 && exit 1; }

decode() {
  local mode=$1
  shift
  echo "$mode" >&2
  env "$@" "$out/build/decode" "${arguments[@]}" >"$out/$mode.json" 2>"$out/$mode.log" ||
    { tail -20 "$out/$mode.log" >&2 && exit 1; }
}
rm -f "$out/events"
decode eager GGML_CUDA_CGTREE=0 GGML_CUDA_DISABLE_GRAPHS=1
decode ggml GGML_CUDA_CGTREE=0
decode cgtree GGML_CUDA_CGTREE_EVENTS="$out/events"

python3 - "$here" "$checkout" "$out" "${arguments[@]}" <<'PYTHON'
import collections, json, pathlib, re, subprocess, sys

here, checkout, out, *arguments = sys.argv[1:]
out = pathlib.Path(out)


def commit(folder):
    said = subprocess.run(["git", "-C", folder, "rev-parse", "HEAD"], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return said.stdout.strip() or None


modes = {mode: json.loads((out / f"{mode}.json").read_text()) for mode in ["eager", "ggml", "cgtree"]}
events = (out / "events").read_text().splitlines()
modes["cgtree"]["events"] = collections.Counter(re.match(r"\w*", line)[0] for line in events)
result = {"arguments": arguments, "commit": commit(here), "ggml_commit": commit(checkout),
          "same_tokens": len({mode["tokens_hash"] for mode in modes.values()}) == 1, "modes": modes}
(out / "decode.json").write_text(json.dumps(result, indent=1) + "\n")
for name, mode in modes.items():
    last = mode["windows"][-1]
    print(f"{name:>7}: submit {mode['submit_us']['median']} us, {mode['tokens_per_second']} tokens/s, "
          f"{last['captures']} captures, {last['instantiations']} instantiations, {last['resets']} resets, "
          f"{last['used_bytes'] >> 20} MiB used, tokens {mode['tokens_hash']}")
sys.exit(0 if result["same_tokens"] else "the modes do not agree on all tokens")
PYTHON
