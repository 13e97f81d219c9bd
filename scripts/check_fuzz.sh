#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for some seconds. Usage: scripts/check_fuzz.sh 8
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-8}
build="build-fuzz"
launcher=()
command -v ccache > /dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON)

cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=clang++ \
  -DWEFT_TESTS=OFF -DWEFT_FUZZ=ON -DWEFT_FUZZ_SECONDS="$seconds" -DWEFT_CUDA=off \
  "${launcher[@]}" > /dev/null
ninja -C "$build" fuzz | tail -n 1
ctest --test-dir "$build" -L fuzz --output-on-failure --no-tests=error -j "$(nproc)"
