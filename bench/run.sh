#!/usr/bin/env bash
# Measures Weft and PyTorch in turns. PyTorch comes from a throw-away virtual environment, made on
# first use; without it Weft is measured alone, and the output says so. The table is printed and, with
# the time of every step, written to build/bench_cpu.md.
# Usage: bench/run.sh build/weft [arguments of bench.py]
set -euo pipefail

weft=${1:?usage: bench/run.sh WEFT [arguments of bench.py]}
shift
cd "$(dirname "$0")/.."
environment=build/bench_env
python=$environment/bin/python

# An interpreter that is given with --python is used as it is.
if [[ " $* " != *" --python "* ]] && ! "$python" -c 'import torch' 2> /dev/null; then
  echo "installing PyTorch into $environment"
  if ! { python3 -m venv "$environment" &&
    "$environment/bin/pip" install -q torch numpy && "$python" -c 'import torch'; }; then
    python=""
  fi
fi
mkdir -p build
exec python3 bench/bench.py "$weft" --python "$python" --output build/bench_cpu.md "$@"
