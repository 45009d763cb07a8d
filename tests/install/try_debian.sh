#!/usr/bin/env bash
# usage: tests/install/try_debian.sh FOLDER Unpacks the Debian packages in FOLDER, builds the consumers against them,
# and runs the consumers and the Python package.
set -euo pipefail
usage() { sed -n '2,3s/^# //p' "$0"; }
if [[ ${1:-} == --help ]]; then usage; exit; fi
if (($# != 1)); then usage >&2; exit 2; fi
packages=$(realpath "$1")
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
consumer=$here/consumer
page=$here/../../docs/first_hour/debian.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for package in libcgtree2 libcgtree-dev python3-cgtree; do
  dpkg -x "$packages/${package}"_*.deb "$work/root"
done
export LD_LIBRARY_PATH
LD_LIBRARY_PATH=$(dirname "$work"/root/usr/lib/*/libcgtree.so)
cmake -S "$consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/root/usr" >"$work/log"
cmake --build "$work/build" >>"$work/log"
for program in c99 cxx17 cxx20; do "$work/build/$program" 2>/dev/null; done
# The program of the page and its output, without pkg-config, which knows only installed packages.
block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/{/^\`\`\`/!p}" "$page"; }
block c >"$work/engine.c"
cc -std=c99 "$work/engine.c" -I"$work/root/usr/include/cgtree" -L"$LD_LIBRARY_PATH" -lcgtree -o "$work/engine"
diff <(block text) <("$work/engine" 2>/dev/null)
PYTHONPATH=$work/root/usr/lib/python3/dist-packages /usr/bin/python3 -m cgtree
