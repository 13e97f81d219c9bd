#!/usr/bin/env bash
# Fails when a tracked source is not formatted as clang-format would.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t files < <(git ls-files '*.h' '*.cpp' '*.cu')
clang-format --dry-run -Werror "${files[@]}"
echo "format: ${#files[@]} files"
