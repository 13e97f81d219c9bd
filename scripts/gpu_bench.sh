#!/usr/bin/env bash
# Builds on a machine with an NVIDIA GPU, measures its rates, then Weft against PyTorch and against
# what Weft predicts with these rates (bench/gpu_bench.py, whose options may be given).
set -euo pipefail
cd "$(dirname "$0")/.."
options=("$@")
set --  # gpu_build.sh gives its arguments to cmake
source scripts/gpu_build.sh
"$build/weft" bench --calibrate --backend cuda --ranks 2 --share-gpu --output "$build/gpu.toml"
python3 bench/gpu_bench.py --weft "$build/weft" --spec "$build/gpu.toml" "${options[@]}"
