#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for some seconds. Usage: scripts/check_fuzz.sh 8
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-8}
build="build-fuzz"
launcher=()
command -v ccache > /dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=clang++ \
  -DWEFT_TESTS=OFF -DWEFT_FUZZ=ON -DWEFT_CUDA=off "${launcher[@]}" > /dev/null
mapfile -t targets < <(ninja -C "$build" -t targets all | sed -n 's/^\([a-z0-9_]*_fuzz\): phony$/\1/p' | sort -u)
if [[ ${#targets[@]} -eq 0 ]]; then
  echo "fuzz: no targets"
  exit 0
fi
ninja -C "$build" "${targets[@]}" | tail -n 1

for target in "${targets[@]}"; do
  corpus=$(mktemp -d)
  seeds=tests/fuzz/corpus/${target%_fuzz}
  inputs=("$corpus")
  [[ -d $seeds ]] && inputs+=("$seeds")
  program=$(find "$build" -type f -name "$target" -perm -u+x)
  "$program" -max_total_time="$seconds" -timeout=5 -rss_limit_mb=2048 -artifact_prefix="$build/" \
    "${inputs[@]}" > "$build/$target.log" 2>&1 || {
    tail -n 60 "$build/$target.log"
    echo "fuzz: $target failed; its input is in $build" >&2
    exit 1
  }
  rm -rf "$corpus"
  echo "fuzz: $target $(grep -o 'Done [0-9]* runs.*' "$build/$target.log")"
done
