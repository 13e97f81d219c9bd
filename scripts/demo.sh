#!/usr/bin/env bash
# Trains the character GPT of configs/demo.toml on this repository's own text and writes a sample.
# Usage: scripts/demo.sh build/weft
set -euo pipefail

weft=${1:?usage: scripts/demo.sh WEFT}
cd "$(dirname "$0")/.."
config=configs/demo.toml
data=data/demo
run=runs/demo

# Text only, in a fixed order, so that two demos see the same characters. The fuzzing corpus is left
# out because not all of it is text.
mapfile -t files < <(find src docs tests configs scripts README.md CONTRIBUTING.md -type f \
  -not -path 'tests/fuzz/corpus/*' \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.md' -o -name '*.toml' -o -name '*.txt' \
  -o -name '*.sh' \) 2> /dev/null | LC_ALL=C sort)

echo "== data: ${#files[@]} files of this repository"
"$weft" data prepare "${files[@]}" --output "$data" --tokenizer char --validation-fraction 0.1

echo
echo "== training: $config (a few minutes on two cores)"
"$weft" train "$config" --overwrite

echo
echo "== sample"
"$weft" generate "$run" --prompt "// " --tokens 400 --temperature 0.8 --top-k 40 --top-p 0.95 --seed 1

# The last line with a validation loss holds the final one.
loss=$(grep -o '"validation_loss": *[0-9.eE+-]*' "$run/metrics.jsonl" | tail -n 1 | sed 's/.*: *//')
echo
echo "== done"
echo "validation loss  $loss"
echo "token files      $data"
echo "run folder       $run: $(cd "$run" && echo *)"
