#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: checkpoints between the CPU and the GPU, resuming with the same
# bits, and the cost of saving in the background while Llama 1B trains.
# Usage: scripts/gpu_checkpoints.sh BUILD-FOLDER [FOLDER-FOR-RUNS]
set -euo pipefail
cd "$(dirname "$0")/.."
weft=$1/weft
folder=${2:-$(mktemp -d)}
failed=0

small=(configs/llama_debug.toml --training.steps=8 --checkpoint.interval=3 --metrics.log_freq=1
  --training.global_batch_size=8 --training.local_batch_size=2)
# train NAME ARGUMENTS...
train() {
  "$weft" train "${small[@]}" --job.dump_folder="$folder/$1" "${@:2}" > "$folder/$1.log" 2>&1 ||
    { tail -n 3 "$folder/$1.log"; failed=1; }
}
# losses NAME: the losses of steps 4 to 8.
losses() {
  python3 - "$folder/$1/metrics.jsonl" << 'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
print(*[row["loss"] for row in rows if "loss" in row and row["step"] > 3])
PY
}
# near NAME NAME BOUND: their losses differ by at most this, relatively.
near() {
  python3 - "$(losses "$1")" "$(losses "$2")" "$3" << 'PY' || failed=1
import sys
a, b = ([float(x) for x in text.split()] for text in sys.argv[1:3])
worst = max(abs(x - y) / abs(x) for x, y in zip(a, b))
print(f"   worst relative difference of a loss: {worst:.2e} (at most {sys.argv[3]})")
sys.exit(not (len(a) == len(b) == 5 and worst <= float(sys.argv[3])))
PY
}

echo "== resume between backends and ranks"
train cpu
train cuda --device.backend=cuda
train cpu_to_cuda --resume="$folder/cpu/checkpoints/step-3" --device.backend=cuda
near cpu cpu_to_cuda 1e-5
train cuda_to_cpu --resume="$folder/cuda/checkpoints/step-3"
near cuda cuda_to_cpu 1e-5
train cuda_again --resume="$folder/cuda/checkpoints/step-3" --device.backend=cuda
near cuda cuda_again 0
cmp "$folder/cuda/checkpoints/step-8/optimizer.safetensors" \
  "$folder/cuda_again/checkpoints/step-8/optimizer.safetensors" || failed=1
train cuda_async --device.backend=cuda --checkpoint.async_mode=async
cmp "$folder/cuda/checkpoints/step-6/optimizer.safetensors" \
  "$folder/cuda_async/checkpoints/step-6/optimizer.safetensors" || failed=1
export NCCL_SOCKET_IFNAME=lo
for ranks in 2 4; do
  train "cuda_to_$ranks" --resume="$folder/cuda/checkpoints/step-3" --device.backend=cuda --ranks "$ranks" \
    --device.share_gpu=true
  near cuda "cuda_to_$ranks" 1e-5
  train "cuda_from_$ranks" --resume="$folder/cuda_to_$ranks/checkpoints/step-6" --device.backend=cuda
done

echo "== Llama 1B, a checkpoint in the background"
large=(bench/gpu/llama_1b.toml --training.local_batch_size=2 --training.seq_len=8192)
"$weft" train "${large[@]}" --training.steps=90 --checkpoint.enable=true --checkpoint.interval=30 \
  --checkpoint.async_mode=async --checkpoint.keep_latest_k=1 --metrics.log_freq=1 --job.dump_folder="$folder/large" \
  > "$folder/large.log" 2>&1 || { tail -n 3 "$folder/large.log"; failed=1; }
python3 - "$folder/large/metrics.jsonl" << 'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
steps = {row["step"]: row["seconds"] for row in rows if "loss" in row}
saves = [row for row in rows if "checkpoint" in row]
median = lambda values: sorted(values)[len(values) // 2]
quiet = median([seconds for step, seconds in steps.items() if 5 < step <= 30])
for save in saves[:-1]:
    begin, seconds = save["step"], save["seconds"]
    during, left = [], seconds - save["blocked_seconds"]
    for step in range(begin + 1, 91):
        if left < steps.get(step, 9e9): break
        during.append(steps[step]); left -= steps[step]
    print(f"   step {begin}: {seconds:.1f} s, blocked {save['blocked_seconds']:.2f} s, {len(during)} steps meanwhile, "
          f"median {median(during) if during else 0:.4f} s against {quiet:.4f} s: {(median(during) / quiet - 1) * 100 if during else 0:.1f} %")
print(f"   last save, synchronous: {saves[-1]['seconds']:.1f} s")
PY
bytes=$(du -sb "$folder/large/checkpoints" | awk "{ print \$1 }")
echo "   bytes $bytes"
dd if=/dev/zero of="$folder/dd" bs=4M count=$((bytes / 4194304)) conv=fsync 2>&1 | tail -n 1
rm -f "$folder/dd"
# What was just written lies in memory; a restarted machine would read it from disk.
sync && echo 3 > /proc/sys/vm/drop_caches
dd if="$folder/large/checkpoints/step-90/optimizer.safetensors" of=/dev/null bs=4M 2>&1 | tail -n 1
sync && echo 3 > /proc/sys/vm/drop_caches
"$weft" train "${large[@]}" --training.steps=91 --resume="$folder/large/checkpoints/step-90" \
  --metrics.log_freq=1 --job.dump_folder="$folder/large_again" 2>&1 | grep -E "resumed|step 91|weft:"
exit $failed
