#!/usr/bin/env bash
# Builds on a machine with an NVIDIA GPU and measures Weft against PyTorch there (bench/gpu_bench.py).
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/gpu_build.sh
python3 bench/gpu_bench.py --weft "$build/weft"
