#!/usr/bin/env bash
# Builds the tests that a ctest filter selects with sanitizers and runs them.
# Usage: scripts/check_sanitizers.sh address,undefined -L 'unit|golden'
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizers=${1:?usage: scripts/check_sanitizers.sh SANITIZERS CTEST-FILTER...}
shift
build=build-${sanitizers//,/-}
launcher=()
command -v ccache > /dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON)

cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O1 \
  -DWEFT_SANITIZE="$sanitizers" -DWEFT_CUDA=off "${launcher[@]}" > /dev/null

# A test program and its ctest have one name.
mapfile -t tests < <(ctest --test-dir "$build" -N "$@" | sed -n 's/^ *Test *#[0-9]*: *//p')
if [[ ${#tests[@]} -eq 0 ]]; then
  echo "sanitizers $sanitizers: no test matches $*; tests may have been renamed" >&2
  exit 1
fi
ninja -C "$build" "${tests[@]}" | tail -n 1

# Not detect_stack_use_after_return: its frames are too little aligned for wide vectors (GCC bug 110027).
export ASAN_OPTIONS=strict_string_checks=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1
# The thread sanitizer cannot place its shadow memory where addresses are laid out at random.
fixed_layout=()
setarch -R true 2> /dev/null && fixed_layout=(setarch -R)
"${fixed_layout[@]}" ctest --test-dir "$build" --output-on-failure --no-tests=error --timeout 900 -j "$(nproc)" "$@"
