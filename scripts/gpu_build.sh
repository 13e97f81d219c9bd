# Sourced by gpu_test.sh and gpu_bench.sh: builds weft and the tests that need a GPU into $build, or
# says that there is none and fails. Headers that the machine lacks may lie in carry/include, which
# scripts/gpu_carry.sh fills.
if ! command -v nvidia-smi > /dev/null || ! nvidia-smi > /dev/null 2>&1; then
  echo "no GPU found (nvidia-smi does not answer): $(basename "$0") needs an NVIDIA GPU" >&2
  exit 1
fi
build=${BUILD_FOLDER:-build-gpu}
headers=()
[[ -d carry/include ]] && headers=(-DWEFT_HEADERS="$PWD/carry/include")
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DWEFT_CUDA=on "${headers[@]}" "$@"
cmake --build "$build" -j "$(nproc)" --target weft conformance_test cuda_test nccl_test
