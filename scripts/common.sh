# What every script here shares: the repository's folder, what is said on screen, and how long each step took.
# Sourced, not run.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
jobs=$(nproc)
step_name=
step_start=
script_start=$SECONDS
step_times=()

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

# build PRESET [TARGET...]: configures with $configure_options and builds those targets, or everything.
configure_options=()
build() {
  local preset=$1
  shift
  (cd "$root" && cmake --preset "$preset" "${configure_options[@]}" &&
    cmake --build --preset "$preset" -j "$jobs" ${1+--target "$@"})
}
