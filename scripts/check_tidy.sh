#!/usr/bin/env bash
# Runs clang-tidy over the sources that a build folder compiles. Usage: scripts/check_tidy.sh build
set -euo pipefail
cd "$(dirname "$0")/.."

build=${1:?usage: scripts/check_tidy.sh BUILD}
mapfile -t files < <(git ls-files 'src/*.cpp' | while read -r file; do
  grep -q "/$file\"" "$build/compile_commands.json" && echo "$file"
done)
# The build names warnings of g++ that clang does not know.
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 4 \
  clang-tidy -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-unknown-pragmas 2> /dev/null
echo "clang-tidy: ${#files[@]} files"
