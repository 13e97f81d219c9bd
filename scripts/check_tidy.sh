#!/usr/bin/env bash
# Runs clang-tidy over the sources that a build compiles. Usage: scripts/check_tidy.sh
set -euo pipefail
cd "$(dirname "$0")/.."

# Configured, never built: clang does not read the headers that g++ precompiles.
build=build-tidy
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DWEFT_TESTS=OFF \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON > /dev/null
mapfile -t files < <(git ls-files 'src/*.cpp' | while read -r file; do
  grep -q "/$file\"" "$build/compile_commands.json" && echo "$file"
done)
# The build names warnings of g++ that clang does not know.
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 4 \
  clang-tidy -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unknown-pragmas 2> /dev/null
echo "clang-tidy: ${#files[@]} files"
