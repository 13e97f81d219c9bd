// Matmuls and sums over rows.
#include "runtime/reference/launches.h"
#include "runtime/reference/values.h"

namespace weft::reference {
namespace {

// y[m,n] = sum over rows r of a[r,m] b[r,n].
void matmul_over_rows(const Launch& launch) {
  const Values a = read(launch.operands[0]);
  const Values b = read(launch.operands[1]);
  const int64_t rows = row_count(launch.operands[0]);
  const int64_t m = row_length(launch.operands[0]);
  const int64_t n = row_length(launch.operands[1]);
  Values y(static_cast<size_t>(m * n), 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        y[static_cast<size_t>(i * n + j)] +=
            a[static_cast<size_t>(r * m + i)] * b[static_cast<size_t>(r * n + j)];
      }
    }
  }
  write(launch.results[0], y);
}

}  // namespace

void matmul(const Launch& launch) {
  if (launch.call->bool_attr("ta")) return matmul_over_rows(launch);
  const bool tb = launch.call->bool_attr("tb");
  const Values a = read(launch.operands[0]);
  const Values b = read(launch.operands[1]);
  const int64_t rows = row_count(launch.operands[0]);
  const int64_t k = row_length(launch.operands[0]);
  const int64_t n = row_length(launch.results[0]);
  const Values bias =
      launch.operands.size() > 2 ? read(launch.operands[2]) : Values(static_cast<size_t>(n), 0.0);
  Values y(static_cast<size_t>(rows * n));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        sum +=
            a[static_cast<size_t>(r * k + i)] * b[static_cast<size_t>(tb ? j * k + i : i * n + j)];
      }
      y[static_cast<size_t>(r * n + j)] = sum + bias[static_cast<size_t>(j)];
    }
  }
  write(launch.results[0], y);
}

void sum_rows(const Launch& launch) {
  const Values x = read(launch.operands[0]);
  const size_t n = static_cast<size_t>(row_length(launch.operands[0]));
  Values y(n, 0.0);
  for (size_t i = 0; i < x.size(); ++i) y[i % n] += x[i];
  write(launch.results[0], y);
}

}  // namespace weft::reference
