# Sourced by gpu_test.sh and gpu_ranks.sh.

# figures RUN STEPS: leaves in RUN.txt what must not change between runs of the same bits: the metrics
# of the run in folder RUN, but for times and memory. Fails unless it has so many steps.
figures() {
  local run=$1 steps=$2 found
  sed -E 's/"(tokens_per_second|mfu|eta_seconds|time|seconds|memory_bytes)":[^,}]*//g' "$run/metrics.jsonl" \
    > "$run.txt" || return 1
  found=$(grep -c '"grad_norm":' "$run.txt")
  [[ $found == "$steps" ]] && return 0
  echo "$run: metrics of $found steps, expected $steps"
  return 1
}
