#!/usr/bin/env bash
# What goes wrong on a machine with a GPU before or while a run starts: each gets one sentence and its
# exit code, and nothing hangs. Libraries are hidden from the program by a dlopen that refuses them.
# gpu_test.sh calls it with the built binary.
set -uo pipefail
weft=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

cat > "$folder/hide.c" << 'EOF'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
void* dlopen(const char* file, int flags) {
  const char* hidden = getenv("HIDDEN_LIBRARY");
  if (file != NULL && hidden != NULL && strstr(file, hidden) != NULL) return NULL;
  return ((void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen"))(file, flags);
}
EOF
gcc -shared -fPIC -o "$folder/hide.so" "$folder/hide.c" -ldl || exit 1

# refused NAME CODE TEXT ARGUMENTS...: weft train ends with the code and one line that has the text.
refused() {
  local name=$1 expected=$2 text=$3 code=0
  timeout 60 "$weft" train configs/gpt2_tiny.toml --device.backend=cuda --model.dim=256 \
    --model.n_heads=4 --training.seq_len=64 \
    --training.mixed_precision_param=bfloat16 --training.steps=2 --checkpoint.enable=false \
    --job.dump_folder="$folder/$name" "${@:4}" > "$folder/$name.out" 2> "$folder/$name.err" || code=$?
  echo "$name: exit code $code: $(grep '^weft:' "$folder/$name.err" | head -1)"
  if [[ $code != "$expected" ]] || ! grep -q "^weft: .*$text" "$folder/$name.err"; then
    echo "FAILED: $name: expected exit code $expected and \"$text\"; it wrote:"
    tail -n 5 "$folder/$name.out" "$folder/$name.err"
    failed=1
  fi
}

hidden() {
  HIDDEN_LIBRARY=$1 LD_PRELOAD="$folder/hide.so" refused "without_$1" 64 "$1.so.* does not load (.*); install" "${@:2}"
}

CUDA_VISIBLE_DEVICES="" refused no_gpu 64 "no GPU found"
hidden libcublasLt
hidden libcudnn
hidden libnccl --ranks=2 --device.share_gpu=true
refused too_few_gpus 64 "use --ranks=" --ranks=16
large=--training.local_batch_size=10000000
refused too_large 71 "the plan needs" $large
# A spec that promises more memory than there is: the free memory of the GPU decides.
"$weft" plan configs/gpt2_tiny.toml --device.backend=cuda --spec "$folder/spec.toml" > /dev/null || exit 1
sed -i 's/^memory_bytes = .*/memory_bytes = 1000000000000000000/' "$folder/spec.toml"
refused not_free 71 "the plan needs .* is free; " $large --device.spec="$folder/spec.toml"
exit "$failed"
