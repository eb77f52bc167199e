# What every script here shares: the repository's folder, what is said on screen, and how long each step took.
# Sourced, not run.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc)
step_name=
step_start=
script_start=$SECONDS
step_times=()
# Interrupted is not passed: what runs at the end (trap ... EXIT) sees another status than that of the last command.
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

say() { printf '%s\n' "$*"; }

# step NAME...: begins a named step and ends the one before it.
step() {
  step_end
  step_name=$*
  step_start=$SECONDS
  printf '\n=== %s\n' "$step_name"
}

step_end() {
  if [ -n "$step_name" ]; then
    step_times+=("$(printf '%5d s  %s' $((SECONDS - step_start)) "$step_name")")
    step_name=
  fi
}

# The times of all steps and of the whole, whatever happened.
say_times() {
  step_end
  printf '\n'
  [ ${#step_times[@]} -eq 0 ] || printf '%s\n' "${step_times[@]}"
  printf '%5d s  in all\n' $((SECONDS - script_start))
}

configure_options=()
configure() {
  (cd "$root" && cmake --preset "$1" "${configure_options[@]}")
}

# compile PRESET [TARGET...]: builds those targets of what is configured, or everything.
compile() {
  (cd "$root" && cmake --build --preset "$1" -j "$jobs" ${2+--target "${@:2}"})
}

# build PRESET [TARGET...]: both, with $configure_options.
build() {
  configure "$1" && compile "$@"
}
