#!/usr/bin/env bash
# Builds on a machine with an NVIDIA GPU and runs what concerns it: the device and conformance tests,
# then the reference traces on the cuda backend. Arguments go to cmake, e.g.
# -DCMAKE_CUDA_ARCHITECTURES=80.
set -euo pipefail
cd "$(dirname "$0")/.."

build="build-gpu"
headers=()
[[ -d carry/include ]] && headers=(-DWEFT_HEADERS="$PWD/carry/include")

nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DWEFT_CUDA=on "${headers[@]}" "$@"
cmake --build "$build" -j "$(nproc)" --target weft conformance_test cuda_test

failed=0
ctest --test-dir "$build" -R '^(conformance_test|cuda_test)$' --output-on-failure || failed=1
for trace in tests/numerics/gpt2 tests/numerics/llama3; do
  echo "== verify $trace"
  "$build/weft" verify "$trace" --backend cuda || failed=1
done
exit "$failed"
