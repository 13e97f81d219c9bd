// Compiled in place of Hopper's kernels for other GPUs: their rows of the table refuse every call.
#include "base/error.h"
#include "runtime/cuda/device/probe.h"
#include "runtime/cuda/launches.h"

namespace weft::cuda {

namespace {

void refuse() {
  CHECK(false, "a kernel for Hopper in a build for other GPUs");
}

}  // namespace

bool has_hopper_code_for_this_gpu() {
  return true;
}

void launch_hopper_attention_grad(const Launch&) {
  refuse();
}

void launch_cluster_cross_entropy(const Launch&) {
  refuse();
}

void launch_cluster_cross_entropy_both(const Launch&) {
  refuse();
}

}  // namespace weft::cuda
