// Norms and the gated feed-forward, row by row.
#include <cmath>

#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

// Gradient of y = xhat * w with xhat = (x - mean) * rstd, where mean is absent for rms_norm:
// dx = rstd * (g - [mean(g)] - xhat * mean(g * xhat)) with g = dy * w.
void norm_grad(const Launch& launch, const Values* mean, const Values& rstd) {
  const Values dy = read(launch.operands[0]);
  const Values x = read(launch.operands[1]);
  const Values w = read(launch.operands[2]);
  const size_t n = w.size();
  Values dx(x.size());
  Values dw(n, 0.0);
  for (size_t row = 0; row < rstd.size(); ++row) {
    const size_t first = row * n;
    const double center = mean != nullptr ? (*mean)[row] : 0.0;
    double sum_g = 0;
    double sum_g_xhat = 0;
    for (size_t i = 0; i < n; ++i) {
      const double xhat = (x[first + i] - center) * rstd[row];
      sum_g += dy[first + i] * w[i];
      sum_g_xhat += dy[first + i] * w[i] * xhat;
      dw[i] += dy[first + i] * xhat;
    }
    const double mean_g = mean != nullptr ? sum_g / static_cast<double>(n) : 0.0;
    for (size_t i = 0; i < n; ++i) {
      const double xhat = (x[first + i] - center) * rstd[row];
      dx[first + i] =
          rstd[row] * (dy[first + i] * w[i] - mean_g - xhat * sum_g_xhat / static_cast<double>(n));
    }
  }
  write(launch.results[0], dx);
  write(launch.results[1], dw);
}

}  // namespace

void layer_norm(const Launch& launch) {
  Values x = read(launch.operands[0]);
  const Values w = read(launch.operands[1]);
  const size_t n = w.size();
  const Values b = launch.operands.size() > 2 ? read(launch.operands[2]) : Values(n, 0.0);
  const double eps = launch.call->double_attr("eps");
  Values mean(x.size() / n, 0.0);
  Values rstd(mean.size());
  for (size_t row = 0; row < mean.size(); ++row) {
    double* values = x.data() + row * n;
    for (size_t i = 0; i < n; ++i) mean[row] += values[i] / static_cast<double>(n);
    double variance = 0;
    for (size_t i = 0; i < n; ++i) {
      variance += (values[i] - mean[row]) * (values[i] - mean[row]) / static_cast<double>(n);
    }
    rstd[row] = 1.0 / std::sqrt(variance + eps);
    for (size_t i = 0; i < n; ++i) values[i] = (values[i] - mean[row]) * rstd[row] * w[i] + b[i];
  }
  write(launch.results[0], x);
  write(launch.results[1], mean);
  write(launch.results[2], rstd);
}

void layer_norm_grad(const Launch& launch) {
  const Values mean = read(launch.operands[3]);
  norm_grad(launch, &mean, read(launch.operands[4]));
}

void rms_norm(const Launch& launch) {
  Values x = read(launch.operands[0]);
  const Values w = read(launch.operands[1]);
  const size_t n = w.size();
  const double eps = launch.call->double_attr("eps");
  Values rstd(x.size() / n);
  for (size_t row = 0; row < rstd.size(); ++row) {
    double* values = x.data() + row * n;
    double mean_square = 0;
    for (size_t i = 0; i < n; ++i) mean_square += values[i] * values[i] / static_cast<double>(n);
    rstd[row] = 1.0 / std::sqrt(mean_square + eps);
    for (size_t i = 0; i < n; ++i) values[i] *= rstd[row] * w[i];
  }
  write(launch.results[0], x);
  write(launch.results[1], rstd);
}

void rms_norm_grad(const Launch& launch) {
  norm_grad(launch, nullptr, read(launch.operands[3]));
}

void swiglu(const Launch& launch) {
  const Values x = read(launch.operands[0]);
  const size_t f = static_cast<size_t>(row_length(launch.results[0]));
  Values y(x.size() / 2);
  for (size_t i = 0; i < y.size(); ++i) {
    const double gate = x[i / f * 2 * f + i % f];
    const double up = x[i / f * 2 * f + f + i % f];
    y[i] = gate * sigmoid(gate) * up;
  }
  write(launch.results[0], y);
}

void swiglu_grad(const Launch& launch) {
  const Values dy = read(launch.operands[0]);
  const Values x = read(launch.operands[1]);
  const size_t f = static_cast<size_t>(row_length(launch.operands[0]));
  Values dx(x.size());
  for (size_t i = 0; i < dy.size(); ++i) {
    const size_t at_gate = i / f * 2 * f + i % f;
    const double gate = x[at_gate];
    const double s = sigmoid(gate);
    dx[at_gate] = dy[i] * x[at_gate + f] * s * (1.0 + gate * (1.0 - s));
    dx[at_gate + f] = dy[i] * gate * s;
  }
  write(launch.results[0], dx);
}

}  // namespace weft::reference
