#!/usr/bin/env bash
# Builds on a machine with an NVIDIA GPU and runs what concerns it: the device and conformance tests,
# the reference traces in f32 and bf16, runs with and without CUDA graphs that must have the same
# bits, ranks that share the GPU, and the compute sanitizer over the kernels of this repository. Arguments go to cmake, e.g.
# -DCMAKE_CUDA_ARCHITECTURES=80.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/gpu_build.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
check() {
  echo "== $*"
  "$@" || failed=1
}

# A test program whose tests skip themselves where the GPU or a library such as NCCL is missing;
# here that is a failure.
check_all() {
  echo "== $*"
  "$@" 2>&1 | tee "$folder/tests.log" || failed=1
  if grep -qF '[  SKIPPED ]' "$folder/tests.log"; then
    echo "$1: tests were skipped on a machine that must run them all" >&2
    failed=1
  fi
}

check_all "$build/tests/unit/cuda_test"
check_all "$build/tests/ranks/nccl_test"
check_all "$build/tests/conformance/conformance_test" --gtest_brief=1 --gtest_filter='*cuda*:*Cuda*:FastRows*'
for trace in tests/numerics/gpt2 tests/numerics/llama3; do
  check "$build/weft" verify "$trace" --backend cuda
  # bf16 has 8 bits of mantissa: a loss within a thousandth or two, a gradient within some hundredths
  # of its norm. Weights may differ by their whole way: the gradient of a key's bias is zero but for
  # rounding, and Adam moves it by the rate nevertheless.
  check "$build/weft" verify "$trace" --backend cuda --training.mixed_precision_param=bfloat16 \
    --loss-tolerance 1e-2 --gradient-tolerance 3e-2 --weight-tolerance 1
done

# 200 steps twice, without CUDA graphs and with weights kept in bf16: the same metrics to the last
# digit.
run() {
  "$build/weft" train configs/gpt2_tiny.toml --device.backend=cuda --training.steps=200 \
    --model.dim=256 --training.seq_len=64 --training.mixed_precision_param=bfloat16 --checkpoint.enable=false \
    --metrics.log_freq=1 --job.dump_folder="$folder/$1" "${@:2}" > "$folder/$1.log" 2>&1
  sed -E 's/"(tokens_per_second|mfu|eta_seconds|time|seconds|memory_bytes)":[^,}]*//g' "$folder/$1/metrics.jsonl" \
    > "$folder/$1.txt"
}
check run first
check run second
check run without_graph --device.cuda_graph=false
check run kept --training.keep_low_precision=true
check cmp "$folder/first.txt" "$folder/second.txt"
check cmp "$folder/first.txt" "$folder/without_graph.txt"
check cmp "$folder/first.txt" "$folder/kept.txt"

# Two and four ranks on the one GPU.
check scripts/gpu_ranks.sh "$build/weft"
check scripts/gpu_failures.sh "$build/weft"

if command -v compute-sanitizer > /dev/null; then
  check compute-sanitizer --tool memcheck --error-exitcode 9 --print-limit 5 \
    "$build/tests/conformance/conformance_test" --gtest_brief=1 --gtest_filter='*cuda*:*Cuda*'
  check compute-sanitizer --tool racecheck --error-exitcode 9 --print-limit 5 \
    "$build/tests/conformance/conformance_test" --gtest_brief=1 \
    --gtest_filter='Cuda/FastRows*:-*matmul*:*attention*'
  check compute-sanitizer --tool racecheck --error-exitcode 9 --print-limit 5 \
    --kernel-regex kns=attention_grad_ "$build/tests/conformance/conformance_test" \
    --gtest_brief=1 --gtest_filter='Cuda/FastRows*attention_grad'
else
  echo "no compute-sanitizer here: memory and race checks were not run" >&2
  failed=1
fi
exit "$failed"
