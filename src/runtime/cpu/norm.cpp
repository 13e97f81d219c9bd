// layer_norm, rms_norm and their gradients, a row at a time, and that of layer_norm with
// adjacent sums; sums over rows are computed in chunks of rows.
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/norm_rows.h"
#include "runtime/cpu/partials.h"

namespace weft {

namespace {

template <Centered kCentered>
void launch_norm(const Launch& launch) {
  const Tensor& x = launch.operands.at(0);
  const Tensor& weight = launch.operands.at(1);
  const Tensor* bias = launch.operands.size() > 2 ? &launch.operands[2] : nullptr;
  const Tensor& y = launch.results.at(0);
  float* mean = kCentered == Centered::Yes ? launch.results.at(1).as<float>() : nullptr;
  float* rstd = launch.results.back().as<float>();
  const int64_t n = row_length(x.shape);
  const int64_t rows = row_count(x.shape);
  const int64_t step = tile_rows(n);
  const float eps = static_cast<float>(launch.call->double_attr("eps"));
  team(launch).run(ceil_div(rows, step), [&](int64_t tile, float* scratch) {
    const float* w = load(weight, 0, n, scratch);
    const float* b = bias != nullptr ? load(*bias, 0, n, scratch + n) : nullptr;
    for (int64_t row = tile * step; row < std::min(rows, (tile + 1) * step); ++row) {
      const float* x_row = load(x, row * n, n, scratch + 2 * n);
      float* y_row = place(y, row * n, scratch + 3 * n);
      const RowStats stats = stats_of(x_row, n, eps, kCentered);
      if (mean != nullptr) mean[row] = stats.mean;
      rstd[row] = stats.rstd;
      normalize_row(x_row, w, b, stats, n, y_row);
      store(y, row * n, n, y_row);
    }
  });
}

// Operands dy, x, w, the statistics. layer_norm_grad_sums has optionally an addend to dx, and as
// further results the sums over the rows of dy and dx.
void launch_norm_grad(const Launch& launch, Centered centered) {
  const Tensor& dy = launch.operands.at(0);
  const Tensor& x = launch.operands.at(1);
  const Tensor& dx = launch.results.at(0);
  const float* mean = centered == Centered::Yes ? launch.operands.at(3).as<float>() : nullptr;
  const float* rstd = launch.operands.at(centered == Centered::Yes ? 4 : 3).as<float>();
  const Tensor* more = launch.operands.size() > 5 ? &launch.operands[5] : nullptr;
  const bool sums = launch.results.size() > 2;
  const int64_t n = row_length(x.shape);
  const float length = static_cast<float>(n);
  const int64_t rows = row_count(x.shape);
  char* memory = static_cast<char*>(launch.workspace);
  const Partials dw_sums(rows, n, memory);
  const Partials dy_sums(rows, n, memory + Partials::bytes(rows, n));
  const Partials dx_sums(rows, n, memory + 2 * Partials::bytes(rows, n));
  team(launch).run(dw_sums.chunks(), [&](int64_t chunk, float* scratch) {
    float* dw = dw_sums.start(chunk);
    float* dy_sum = sums ? dy_sums.start(chunk) : nullptr;
    float* dx_sum = sums ? dx_sums.start(chunk) : nullptr;
    const float* w = load(launch.operands[2], 0, n, scratch);
    for (int64_t row = dw_sums.first_row(chunk); row < dw_sums.end_row(chunk); ++row) {
      const float* dy_row = load(dy, row * n, n, scratch + n);
      const float* x_row = load(x, row * n, n, scratch + 2 * n);
      float* dx_row = place(dx, row * n, scratch + 3 * n);
      const RowStats stats{mean != nullptr ? mean[row] : 0.0f, rstd[row]};
      const float dot = mean != nullptr ? dot_rows(dy_row, w, n) / length : 0.0f;
      const float normalized_dot = dot_normalized_row(dy_row, w, x_row, stats, n) / length;
      norm_grad_row(dy_row, x_row, w, stats, dot, normalized_dot, n, dx_row, dw);
      if (more != nullptr) {
        round_to(dx.dtype, n, dx_row);
        add_rows(dx_row, load(*more, row * n, n, scratch + 4 * n), n, dx_row);
      }
      store(dx, row * n, n, dx_row);
      if (!sums) continue;
      round_to(dx.dtype, n, dx_row);
      add_to_row(dy_row, n, dy_sum);
      add_to_row(dx_row, n, dx_sum);
    }
  });
  dw_sums.combine(team(launch), launch.results.at(1));
  if (!sums) return;
  dy_sums.combine(team(launch), launch.results.at(2));
  dx_sums.combine(team(launch), launch.results.at(3));
}

Decision supports_norm(const Call& call) {
  return supports_rows(call, call.type(0), 5);
}

int64_t norm_grad_workspace(const Call& call) {
  const int64_t sums = static_cast<int64_t>(call.results.size()) - 1;
  return sums * Partials::bytes(row_count(call.type(0).shape), row_length(call.type(0).shape));
}

template <Centered kCentered>
void launch_grad(const Launch& launch) {
  launch_norm_grad(launch, kCentered);
}

}  // namespace

std::span<const Kernel> cpu_norm_kernels() {
  constexpr auto kYes = Centered::Yes;
  constexpr auto kNo = Centered::No;
  static const Kernel rows[] = {
      {"layer_norm", "rows", supports_norm, nullptr, launch_norm<kYes>},
      {"layer_norm_grad", "rows", supports_norm, norm_grad_workspace, launch_grad<kYes>},
      {"rms_norm", "rows", supports_norm, nullptr, launch_norm<kNo>},
      {"rms_norm_grad", "rows", supports_norm, norm_grad_workspace, launch_grad<kNo>},
      {"layer_norm_grad_sums", "rows", supports_norm, norm_grad_workspace, launch_grad<kYes>},
  };
  return rows;
}

}  // namespace weft
