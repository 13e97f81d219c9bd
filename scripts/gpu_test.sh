#!/usr/bin/env bash
# Builds on a machine with an NVIDIA GPU and runs what concerns it: the device and conformance tests,
# the reference traces in f32 and bf16, runs with and without CUDA graphs and recompute that must have
# the same bits, ranks that share the GPU, and the compute sanitizer over the kernels of this
# repository. Arguments go to cmake, e.g. -DCMAKE_CUDA_ARCHITECTURES=80.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/gpu_build.sh
source scripts/gpu_figures.sh

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
  # bf16 has 8 bits of mantissa: the loss agrees within one or two thousandths, a gradient within
  # some hundredths of its norm. A weight may differ by as much as it moved: the gradient of a key's
  # bias is zero except for rounding, yet Adam moves the bias by the full learning rate.
  check "$build/weft" verify "$trace" --backend cuda --training.mixed_precision_param=bfloat16 \
    --loss-tolerance 1e-2 --gradient-tolerance 3e-2 --weight-tolerance 1
done

# Runs that must have the same bits: equal metrics in every step, to the last digit, and equal weights
# at the end.

# run NAME ARGUMENTS...: a run of the current model and steps, in bf16.
run() {
  local name=$1
  if ! "$build/weft" train "${model[@]}" --device.backend=cuda --training.mixed_precision_param=bfloat16 \
    --training.steps="$steps" --metrics.log_freq=1 --checkpoint.enable=true --job.dump_folder="$folder/$name" \
    "${@:2}" > "$folder/$name.log" 2>&1; then
    echo "$name: $(tail -n 3 "$folder/$name.log")"
    return 1
  fi
  figures "$folder/$name" "$steps"
}

# same NAME ARGUMENTS...: a run that must have the bits of `first`.
same() {
  local saved=checkpoints/step-$steps
  run "$@" && cmp "$folder/$first.txt" "$folder/$1.txt" &&
    cmp "$folder/$first/$saved/model.safetensors" "$folder/$1/$saved/model.safetensors" &&
    cmp "$folder/$first/$saved/optimizer.safetensors" "$folder/$1/$saved/optimizer.safetensors"
}

steps=200
model=(configs/gpt2_tiny.toml --model.dim=256 --training.seq_len=64)
first=tiny
check run tiny
check same tiny_again
check same tiny_without_graph --device.cuda_graph=false
check same tiny_step_by_step --device.step_by_step=true
check same tiny_kept --training.keep_low_precision=true

# Sums over many rows, long rows of logits and many keys, where an order could depend on scheduling.
steps=20
model=(bench/gpu/gpt2_124m.toml --model.n_layers=2 --training.local_batch_size=8 --training.seq_len=1024)
first=gpt2
check run gpt2
check same gpt2_again
check same gpt2_without_graph --device.cuda_graph=false
check same gpt2_recompute --activation_checkpoint.mode=full
first=chunks
check run chunks --training.loss_chunks=4
check same chunks_again --training.loss_chunks=4
check close "$folder" chunks gpt2 "$steps"
first=odd_logits
check run odd_logits --training.loss_chunks=4 --model.vocab_size=50257
check same odd_logits_without_graph --training.loss_chunks=4 --model.vocab_size=50257 --device.cuda_graph=false
first=dropout
check run dropout --model.dropout=0.1
check same dropout_again --model.dropout=0.1
check same dropout_without_graph --model.dropout=0.1 --device.cuda_graph=false
model=(configs/llama_debug.toml --model.dim=256 --model.n_heads=4 --model.n_kv_heads=2 --model.n_layers=2
  --training.local_batch_size=8 --training.seq_len=512)
first=llama
check run llama
check same llama_again
check same llama_without_graph --device.cuda_graph=false
check same llama_recompute --activation_checkpoint.mode=full

# Two and four ranks on one GPU.
check scripts/gpu_ranks.sh "$build/weft"
check scripts/gpu_meshes.sh "$build/weft"
check scripts/gpu_failures.sh "$build/weft"

if command -v compute-sanitizer > /dev/null; then
  check compute-sanitizer --tool memcheck --error-exitcode 9 --print-limit 5 \
    "$build/tests/conformance/conformance_test" --gtest_brief=1 --gtest_filter='*cuda*:*Cuda*'
  check compute-sanitizer --tool racecheck --error-exitcode 9 --print-limit 5 \
    "$build/tests/conformance/conformance_test" --gtest_brief=1 \
    --gtest_filter='Cuda/FastRows*:-*matmul*:*attention*'
  check compute-sanitizer --tool racecheck --error-exitcode 9 --print-limit 5 \
    --kernel-name kns=attention_grad_ "$build/tests/conformance/conformance_test" \
    --gtest_brief=1 --gtest_filter='Cuda/FastRows*attention_grad'
  check compute-sanitizer --tool racecheck --error-exitcode 9 --print-limit 5 \
    --kernel-name kns=tiled_attention "$build/tests/conformance/conformance_test" \
    --gtest_brief=1 --gtest_filter='Cuda/FastRows*attention'
  # The plain rows: kernels of this repository by their namespace, not those of libraries.
  check compute-sanitizer --tool racecheck --error-exitcode 9 --print-limit 5 \
    --kernel-name kns=weft "$build/tests/conformance/conformance_test" \
    --gtest_brief=1 --gtest_filter='AllOps/BackendTest*cuda*'
else
  echo "no compute-sanitizer here: memory and race checks were not run" >&2
  failed=1
fi
exit "$failed"
