#!/usr/bin/env bash
# Tensor parallelism on GPU ranks that share one GPU: the stored traces in f32, and bf16 training
# whose bits must not depend on CUDA graphs, overlap, buckets or recompute. gpu_test.sh calls it
# with the built binary.
set -uo pipefail
source "$(dirname "$0")/gpu_figures.sh"
weft=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0
tp=--parallelism.tensor_parallel_degree
ordered=--comm.reduction=ordered

fail() {
  echo "FAILED: $*"
  failed=1
}

for model in gpt2 llama3; do
  for mesh in "2 $tp=2" "4 $tp=2" "4 $tp=2 --parallelism.data_parallel_replicate_degree=2" "2 $tp=2 --parallelism.sequence_parallel=false"; do
    # shellcheck disable=SC2086
    timeout 120 "$weft" verify "tests/numerics/${model}_batch8" --backend cuda --device.share_gpu=true --ranks $mesh \
      > "$folder/log" 2>&1 || fail "verify $model on $mesh: $(tail -n 4 "$folder/log")"
    echo "$model on $mesh: $(grep -o 'worst [^ ]*' "$folder/log" | tr '\n' ' ')"
  done
done

# run NAME RANKS ARGUMENTS...: eight steps of a small model with dropout.
run() {
  timeout 120 "$weft" train configs/gpt2_tiny.toml --ranks="$2" --device.backend=cuda --device.share_gpu="$([[ $2 -gt 1 ]] && echo true || echo false)" \
    --model.dim=256 --model.n_layers=3 --model.dropout=0.1 --training.seq_len=64 --training.steps=8 --training.global_batch_size=4 \
    --training.mixed_precision_param=bfloat16 --metrics.log_freq=1 --checkpoint.enable=false --job.dump_folder="$folder/$1" "${@:3}" \
    > "$folder/$1.log" 2>&1 || fail "$1: $(tail -n 2 "$folder/$1.log")"
  figures "$folder/$1" 8 || fail "$1"
}

run one 1 --training.local_batch_size=4
run tp2 2 $tp=2 --training.local_batch_size=4
run fsdp2_tp2 4 $tp=2 $ordered --training.local_batch_size=2
run no_graph 4 $tp=2 $ordered --training.local_batch_size=2 --device.cuda_graph=false
run no_overlap 4 $tp=2 $ordered --training.local_batch_size=2 --compile.overlap=false
run recompute 4 $tp=2 $ordered --training.local_batch_size=2 --activation_checkpoint.mode=full
for name in no_graph no_overlap recompute; do
  cmp -s "$folder/fsdp2_tp2.txt" "$folder/$name.txt" || fail "$name differs from fsdp2_tp2"
done
echo "first and last figures: one, tp2, fsdp2_tp2"
for name in one tp2 fsdp2_tp2; do sed -n '1p;$p' "$folder/$name.txt"; done
exit $failed
