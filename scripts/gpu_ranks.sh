#!/usr/bin/env bash
# Training on ranks with a GPU each, on a machine that may have only one: 2 and 4 ranks share it
# (device.share_gpu). Runs that must have the same bits are compared to the last digit: bucketings,
# overlap, recompute, CUDA graphs, weights kept in the compute type, and all modes of sharding with
# ordered sums; elastic runs on one, two and four ranks. gpu_test.sh calls it with the built binary.
set -uo pipefail
source "$(dirname "$0")/gpu_figures.sh"
weft=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

fail() {
  echo "FAILED: $*"
  failed=1
}

# run NAME RANKS ARGUMENTS...: twelve steps of a small model; the figures that must not change stay
# in NAME.txt.
run() {
  local name=$1 ranks=$2 shared=() code=0
  [[ $ranks -gt 1 ]] && shared=(--device.share_gpu=true)
  timeout 120 "$weft" train configs/gpt2_tiny.toml --ranks="$ranks" --device.backend=cuda \
    "${shared[@]}" --model.dim=256 --model.n_layers=3 --training.seq_len=64 \
    --training.local_batch_size=2 --training.steps=12 --training.mixed_precision_param=bfloat16 \
    --validation.enable=true --validation.freq=6 --validation.steps=1 \
    --metrics.log_freq=1 --job.dump_folder="$folder/$name" "${@:3}" > "$folder/$name.log" 2>&1 || code=$?
  if [[ $code != 0 ]]; then
    fail "$name: exit code $code"
    tail -3 "$folder/$name.log"
    return
  fi
  figures "$folder/$name" 12 || fail "$name"
}

# same NAME RANKS ARGUMENTS...: a run that must have the metrics, weights and optimizer state of
# `first`.
same() {
  run "$@"
  cmp -s "$folder/$first.txt" "$folder/$1.txt" || fail "$1 differs from $first"
  for file in model optimizer; do
    cmp -s "$folder/$first/checkpoints/step-12/$file.safetensors" "$folder/$1/checkpoints/step-12/$file.safetensors" ||
      fail "$file.safetensors of $1 differs from that of $first"
  done
}

ordered=--comm.reduction=ordered
keep=--training.keep_low_precision=true
replicate=--parallelism.data_parallel_replicate_degree
first=fsdp2
run fsdp2 2 $ordered
same again2 2 $ordered
same no_graph2 2 $ordered --device.cuda_graph=false
same step_by_step2 2 $ordered --device.step_by_step=true
same no_overlap2 2 $ordered --compile.overlap=false
same no_buckets2 2 $ordered --compile.bucketing=none
same by_size2 2 $ordered --compile.bucketing=size --compile.bucket_min_parameters=100000
same recompute2 2 $ordered --activation_checkpoint.mode=full
same zero2 2 $ordered --parallelism.fsdp_reshard_after_forward=never
same zero1 2 $ordered --parallelism.zero_stage=1
same ddp2 2 $ordered $replicate=2
same kept2 2 $ordered $keep
same kept_zero1 2 $ordered $keep --parallelism.zero_stage=1
same kept_ddp2 2 $ordered $keep $replicate=2

first=fsdp4
run fsdp4 4 $ordered
same ddp4 4 $ordered $replicate=4
same hsdp4 4 $ordered $replicate=2
same kept_hsdp4 4 $ordered $keep $replicate=2

batches=--training.global_batch_size=8
first=accumulate2
run accumulate2 2 $ordered $batches
same accumulate_ddp2 2 $ordered $batches $replicate=2
same accumulate_no_graph2 2 $ordered $batches --device.cuda_graph=false
same accumulate_kept2 2 $ordered $batches $keep
first=once2
run once2 2 $ordered $batches --training.reduce_every_micro_batch=false
same zero1_once2 2 $ordered $batches --parallelism.zero_stage=1

# Four micro-batches per step on one, two or four ranks.
elastic=(--debug.deterministic=elastic --debug.elastic_shards=4)
first=elastic1
run elastic1 1 "${elastic[@]}"
same elastic2 2 "${elastic[@]}"
same elastic4 4 "${elastic[@]}"
same elastic_ddp4 4 "${elastic[@]}" $replicate=4
same elastic_once2 2 "${elastic[@]}" --training.reduce_every_micro_batch=false
same elastic_no_graph2 2 "${elastic[@]}" --device.cuda_graph=false

half=--training.mixed_precision_param=float16
first=half2
run half2 2 $ordered $half
same half_ddp2 2 $ordered $half $replicate=2
same half_kept2 2 $ordered $half $keep
run sent_half2 2 --training.mixed_precision_reduce=bfloat16

# NCCL's own order: the same bits in two runs, with and without graphs, and close to the ordered sums.
first=library2
run library2 2
same library_again2 2
same library_no_graph2 2 --device.cuda_graph=false
run library_ddp4 4 $replicate=4
for pair in "library2 fsdp2" "library_ddp4 fsdp4" "sent_half2 fsdp2"; do
  close "$folder" $pair 12 || fail "$pair"
done

# One rank continues with the weights of two.
timeout 60 "$weft" train configs/gpt2_tiny.toml --device.backend=cuda --model.dim=256 --model.n_layers=3 \
  --training.seq_len=64 --training.steps=1 --checkpoint.initial_load_path="$folder/fsdp2" \
  --job.dump_folder="$folder/loaded" > "$folder/loaded.log" 2>&1 || fail "weights of two ranks do not load"

# A killed rank is reported at once, a stopped one after the timeout.
lose() {
  local name=$1 signal=$2 expected=$3 text=$4 code=0
  timeout 120 "$weft" train configs/gpt2_tiny.toml --ranks=2 --device.backend=cuda --device.share_gpu=true \
    --training.steps=1000000 --checkpoint.enable=false --comm.timeout_seconds=3 \
    --job.dump_folder="$folder/$name" > "$folder/$name.log" 2>&1 &
  local launcher=$!
  for _ in $(seq 300); do
    [[ $(cat "$folder/$name/metrics.jsonl" 2> /dev/null | wc -l) -ge 3 ]] && break
    sleep 0.1
  done
  local weft_pid rank start=$SECONDS
  weft_pid=$(pgrep -P "$launcher" | head -1)
  rank=$(pgrep -P "$weft_pid" | tail -1)
  kill "-$signal" "$rank"
  wait "$launcher" || code=$?
  local taken=$((SECONDS - start))
  echo "$name: exit code $code after $taken s: $(grep '^weft:' "$folder/$name.log" | head -1)"
  [[ $code == "$expected" && $taken -le 15 ]] || fail "$name: exit code $code after $taken s"
  grep -q "$text" "$folder/$name.log" || fail "$name: $(tail -3 "$folder/$name.log")"
}
lose killed KILL 76 "was killed by signal 9 (SIGKILL) at training step"
lose stopped STOP 79 "hangs: no heartbeat for"

exit "$failed"
