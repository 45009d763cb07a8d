#!/usr/bin/env bash
# Runs a test of random programs on many seeds, in several processes, for as long as one likes:
#   tests/system/run_many.sh bazel-bin/tests/system/world_test 'Parts/*' PROCESSES SECONDS SEED [PROGRAMS]
# Each process runs PROGRAMS programs (by default 2000) from its seed, and then from further seeds. A failure is printed
# with the command that repeats it; the logs of failures stay in the folder named in the first line. The exit status is
# 0 if there was no failure.
set -uo pipefail
usage() { sed -n '2,6s/^# \{0,1\}//p' "$0"; }
if [[ ${1:-} == --help ]]; then usage; exit; fi
if (($# < 5)); then usage >&2; exit 2; fi
program=$(realpath "$1") filter=$2 processes=$3 seconds=$4 seed=$5 programs=${6:-2000}
logs=$(mktemp -d)
echo "logs of failures: $logs"
end=$((SECONDS + seconds))

work() {  # number
  local first=$((seed + $1 * programs)) runs=0 failed=0
  while ((SECONDS < end)); do
    local log=$logs/$first
    local status=0
    CGTREE_SEED=$first CGTREE_PROGRAMS=$programs timeout 3600 "$program" --gtest_filter="$filter" >"$log" 2>&1 || status=$?
    if ((status == 0)); then
      rm -f "$log"
    else
      failed=$((failed + 1))
      echo "== failed: seed $first, programs $programs, status $status; $log"
      grep -aE -m 8 'Failure|shrunk|CGTREE_PROGRAM=|^seed|SUMMARY|deadlock' "$log"
    fi
    runs=$((runs + 1))
    first=$((first + processes * programs))
  done
  echo "process $1: $runs runs of $programs programs, $failed failed"
  return $((failed > 0))
}

status=0 pids=()
for ((i = 0; i < processes; ++i)); do
  work "$i" &
  pids+=($!)
done
for pid in "${pids[@]}"; do
  wait "$pid" || status=1
done
exit "$status"
