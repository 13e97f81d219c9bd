# Sourced by gpu_test.sh and gpu_ranks.sh.

# figures RUN STEPS: writes to RUN.txt the metrics of the run in folder RUN that runs of the same bits
# share: all except times, memory and checkpoints, whose digests include the config. Fails unless the run
# has that many steps.
figures() {
  local run=$1 steps=$2 found
  sed -E -e '/"(checkpoint|resumed_from)":/d' -e 's/"(tokens_per_second|mfu|seconds|memory_bytes)":[^,}]*//g' \
    "$run/metrics.jsonl" > "$run.txt" || return 1
  found=$(grep -c '"grad_norm":' "$run.txt")
  [[ $found == "$steps" ]] && return 0
  echo "$run: metrics of $found steps, expected $steps"
  return 1
}

# close FOLDER ONE TWO STEPS: whether the losses of two runs in the folder agree in every step within
# the precision of bf16: sums in another order differ by less than a thousandth of the loss.
close() {
  python3 - "$@" << 'EOF'
import json, sys
folder, one, two, steps = sys.argv[1:]
rows = [[json.loads(line) for line in open(f"{folder}/{name}/metrics.jsonl")] for name in (one, two)]
losses = [[row["loss"] for row in each if "loss" in row] for each in rows]
worst = max(abs(a - b) / abs(b) for a, b in zip(*losses))
print(f"{one} against {two}: losses within {worst:.1e}")
sys.exit(any(len(each) != int(steps) for each in losses) or not worst <= 1e-3)
EOF
}
