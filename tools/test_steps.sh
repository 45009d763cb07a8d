# shellcheck shell=bash disable=SC2034,SC2154  # usage is set, and seconds, host and out are read, by scripts that source this
# The steps of a tier of tests, or of a release: a script sources this, calls `step` for each, and then run_steps.
# It sets `usage` before, and where it needs them `seconds`, how long a random step goes on, and `stops`: at the first
# step that fails.

step_names=()
step_commands=()
step_times=()

# step NAME TIME COMMAND: TIME is the duration that --list shows; bash runs COMMAND in the root.
step() {
  step_names+=("$1")
  step_times+=("$2")
  step_commands+=("$3")
}

list_steps() {
  local i
  for i in "${!step_names[@]}"; do
    printf '%s (%s)\n    %s\n' "${step_names[i]}" "${step_times[i]}" "${step_commands[i]}"
  done
}

# Succeeds if --only names the step, or is not given.
is_wanted() { [[ -z $only || ,$only, == *,"$1",* ]]; }

check_names() {
  local name
  for name in ${only//,/ }; do
    if [[ " ${step_names[*]} " != *" $name "* ]]; then
      echo "$(basename "$0"): there is no step '$name': ${step_names[*]}" >&2
      exit 2
    fi
  done
}

# Runs each wanted step, also after a failed one unless `stops` is set. The exit status is 1 if any failed.
run_steps() {
  check_names
  if [[ -n $list ]]; then
    list_steps
    return 0
  fi
  local i begin failed=()
  for i in "${!step_names[@]}"; do
    is_wanted "${step_names[i]}" || continue
    echo "== ${step_names[i]}: ${step_commands[i]}"
    begin=$SECONDS
    if bash -c "${step_commands[i]}" </dev/null; then
      echo "== ${step_names[i]}: passed in $(((SECONDS - begin + 59) / 60)) min"
    else
      echo "== ${step_names[i]}: FAILED after $(((SECONDS - begin + 59) / 60)) min"
      failed+=("${step_names[i]}")
      if [[ -n ${stops:-} ]]; then break; fi
    fi
  done
  if ((${#failed[@]} > 0)); then
    echo "failed: ${failed[*]}"
    return 1
  fi
  echo "all passed"
}

only='' list='' host='' out=''
# read_options ALLOWED ARGUMENT...: sets only, list, and the variable of ALLOWED: --seconds, --host or --out.
read_options() {
  local allowed=$1 argument
  shift
  for argument in "$@"; do
    case $argument in
      --help | -h) echo "$usage"; exit 0 ;;
      --list) list=1 ;;
      --only=?*) only=${argument#--only=} ;;
      "$allowed"=?*)
        printf -v "${allowed#--}" %s "${argument#*=}"
        if [[ ${seconds:-} == *[!0-9]* ]]; then
          echo "$(basename "$0"): --seconds is a number" >&2
          exit 2
        fi ;;
      *) echo "$(basename "$0"): unknown argument '$argument'; see --help" >&2; exit 2 ;;
    esac
  done
}
