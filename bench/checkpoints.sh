#!/usr/bin/env bash
# Saving and loading GPT-2 124M (1.5 GB with its optimizer state) against dd with fsync on the same
# disk, and the cost of a save in the background against a plain copy in memory.
# Usage: bench/checkpoints.sh build/weft [FOLDER]. Dropping the page cache needs root; without it the
# loads come from memory.
set -euo pipefail
cd "$(dirname "$0")/.."
weft=$1
folder=${2:-$(mktemp -d)}
printf '[model]\nname = "gpt2"\nflavor = "124M"\n' > "$folder/gpt2.toml"
run=("$folder/gpt2.toml" --training.local_batch_size=1 --training.seq_len=64 --metrics.log_freq=1)

drop_caches() { sync; echo 3 2> /dev/null > /proc/sys/vm/drop_caches || true; }

# saves NAME KEY: the values of a key in the lines of checkpoints.
saves() {
  python3 -c 'import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
print(*[round(row[sys.argv[2]], 3) for row in rows if "checkpoint" in row])' "$folder/$1/metrics.jsonl" "$2"
}

echo "== synchronous saves and dd, in turn"
for i in 1 2 3; do
  "$weft" train "${run[@]}" --training.steps=1 --job.dump_folder="$folder/sync$i" > "$folder/log" 2>&1 || tail -n 2 "$folder/log"
  bytes=$(du -sb "$folder/sync$i/checkpoints/step-1" | awk '{ print $1 }')
  sync
  start=$(date +%s.%N)
  dd if=/dev/zero of="$folder/dd" bs=4M count=$((bytes / 4194304)) conv=fsync status=none
  echo "save $(saves "sync$i" seconds) s, dd $(echo "$(date +%s.%N) - $start" | bc) s, $bytes bytes"
  rm -f "$folder/dd"
done

echo "== loads and dd"
for i in 1 2 3; do
  drop_caches
  start=$(date +%s.%N)
  dd if="$folder/sync$i/checkpoints/step-1/optimizer.safetensors" of=/dev/null bs=4M status=none
  dd if="$folder/sync$i/checkpoints/step-1/model.safetensors" of=/dev/null bs=4M status=none
  read_seconds=$(echo "$(date +%s.%N) - $start" | bc)
  drop_caches
  loaded=$("$weft" train "${run[@]}" --training.steps=2 --checkpoint.enable=false --job.dump_folder="$folder/load$i" \
    --resume="$folder/sync$i" 2>&1 | grep -o 'loaded in .*')
  echo "$loaded, dd $read_seconds s"
done

echo "== saves in the background"
"$weft" train "${run[@]}" --training.steps=40 --checkpoint.interval=20 --checkpoint.async_mode=async \
  --job.dump_folder="$folder/async" > "$folder/log" 2>&1 || tail -n 2 "$folder/log"
python3 - "$folder/async/metrics.jsonl" << 'PY'
import json, sys, time
rows = [json.loads(line) for line in open(sys.argv[1])]
steps = {row["step"]: row["seconds"] for row in rows if "loss" in row}
save = next(row for row in rows if "checkpoint" in row)
median = lambda values: sorted(values)[len(values) // 2]
quiet = median([steps[step] for step in range(8, 21)])
during, left = [], save["seconds"] - save["blocked_seconds"]
for step in range(21, 41):
    if left < steps[step]: break
    during.append(steps[step]); left -= steps[step]
size = 12 * 124475904
source, target = bytearray(size), bytearray(size)
copies = []
for _ in range(3):
    start = time.time(); target[:] = source; copies.append(time.time() - start)
print(f"blocked {save['blocked_seconds']:.3f} s, a copy of {size} bytes {min(copies):.3f} s; saved in {save['seconds']:.1f} s, "
      f"{len(during)} steps meanwhile: median {median(during) if during else 0:.3f} s against {quiet:.3f} s")
PY
