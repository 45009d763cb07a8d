#!/bin/bash
# The executable of a python_test: python3 on the runner and the test file. If the extension was
# built with a sanitizer, the sanitizer's runtime is loaded into python3 first.
extension=python/cgtree/_cgtree.abi3.so

# The runtime that the extension needs: GCC names it in the file; Clang leaves symbols undefined.
runtime_of() {
  local name
  name=$(grep -aoE 'lib(a|t)san\.so\.[0-9]+' "$1" | head -n 1)
  if [[ -n $name ]]; then
    gcc -print-file-name="$name" 2>/dev/null || echo "$name"
  elif grep -aqF libubsan.so "$1"; then
    return
  elif name=$(grep -aoE '__(asan_init|tsan_init|ubsan_handle)' "$1" | head -n 1) && [[ -n $name ]]; then
    case $name in
      __asan_init) name=asan ;;
      __tsan_init) name=tsan ;;
      *) name=ubsan_standalone ;;
    esac
    clang-16 -print-file-name="libclang_rt.$name-$(uname -m).so"
  fi
}

if [[ -e $extension ]]; then
  runtime=$(runtime_of "$extension")
  if [[ -n $runtime ]]; then
    # The runtime looks for __cxa_throw when it starts, and python3 is not linked with C++'s library.
    export LD_PRELOAD="$runtime libstdc++.so.6"
    # A sanitizer does not see objects of Python's own allocator.
    export PYTHONMALLOC=malloc
    # Two frames: the allocator, and its caller. See the file of suppressions.
    export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}malloc_context_size=${CGTREE_LEAK_FRAMES:-2}"
    export LSAN_OPTIONS="suppressions=$PWD/bazel/python/leaks_of_others.txt:print_suppressions=0"
    echo "python3 runs with $runtime" >&2
  fi
fi
python=python3
if [[ $2 == */torch_* && -x ${CGTREE_TORCH:-}/bin/python3 ]]; then
  python=$CGTREE_TORCH/bin/python3
fi
exec "$python" -B "$@"
