// Measures rates first, with calls that grow until they keep the device busy; then each distinct
// call of complete training steps, relative to these rates.
#include "tools/calibrate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "compile/compile.h"
#include "config/load.h"
#include "graph/call_text.h"
#include "graph/cost.h"
#include "graph/ops/ops.h"
#include "graph/samples.h"
#include "runtime/kernel_timer.h"

namespace weft {
namespace {

constexpr double kBusySeconds = 0.02;  // a call this long keeps any device busy
constexpr int64_t kLargestMatmul = 8192;
constexpr int64_t kLargestVector = 1 << 28;
constexpr double kLongestStep = 0.5;     // predicted seconds of the longest step that is measured
constexpr double kMinBytes = 1 << 14;    // of a call whose time is more than its launch
constexpr double kMinShareOfTime = 0.1;  // of a call that is not launch

// Steps to measure, from small to large: each device uses, for each type, the largest one it is
// fast enough for. GPT-2's vocabulary is rounded up, as is usual for training: rows of 50257
// logits, which start unaligned, are slower on GPUs and would distort the rate of all matmuls.
constexpr std::string_view kSteps[][2] = {
    {"[model]\nname = \"gpt2\"\nflavor = \"baby\"\ndropout = 0.0\n"
     "[training]\nlocal_batch_size = 4\nglobal_batch_size = 8\nseq_len = 128\n",
     "[model]\nname = \"llama\"\nflavor = \"debug\"\n"
     "[training]\nlocal_batch_size = 4\nglobal_batch_size = 8\nseq_len = 128\n"},
    {"[model]\nname = \"gpt2\"\nflavor = \"124M\"\nvocab_size = 50304\ndropout = 0.0\n"
     "[training]\nlocal_batch_size = 8\nglobal_batch_size = 16\nseq_len = 1024\n",
     "[model]\nname = \"llama\"\nflavor = \"1B\"\n"
     "[training]\nlocal_batch_size = 2\nglobal_batch_size = 4\nseq_len = 2048\n"},
    {"[model]\nname = \"gpt2\"\nflavor = \"124M\"\nvocab_size = 50304\ndropout = 0.0\n"
     "[training]\nlocal_batch_size = 32\nglobal_batch_size = 64\nseq_len = 1024\n",
     "[model]\nname = \"llama\"\nflavor = \"1B\"\n"
     "[training]\nlocal_batch_size = 2\nglobal_batch_size = 4\nseq_len = 8192\n"},
};

// "matmul(f32[64,64], f32[64,64]; tb=true)".
std::string text_of(const Call& call) {
  std::vector<std::string> operands;
  for (const TensorType& type : call.operands) operands.push_back(to_string(type));
  return cat(call.op->name(), "(", join(operands, ", "), print_call_attrs(*call.op, call.attrs),
             ")");
}

Call add_call(int64_t size) {
  return parse_samples(kAdd, cat("a: f32[", size, "], b: f32[", size, "]")).front();
}

class Calibration {
 public:
  Calibration(const Backend& backend, Device& device, DeviceSpec known)
      : backend_(backend),
        device_(device),
        timer_(backend.kernels(), backend.name, device),
        spec_(std::move(known)) {
    spec_.name = device.description();
    spec_.kernels.clear();
    spec_.matmul_efficiency = 1;
    spec_.memory_bytes = device.memory_bytes();
  }

  DeviceSpec run() {
    spec_.launch_latency = timer_.seconds(add_call(1024));
    spec_.matmul_flops_f32 = matmul_rates(DType::F32).best;
    const MatmulRates bf16 = matmul_rates(DType::BF16);
    spec_.matmul_flops_bf16 = bf16.best;
    set_peaks();
    const double unaligned = logits_rate(bf16.widest, bf16.widest + 1);
    spec_.unaligned_share = std::min(1.0, unaligned / logits_rate(bf16.widest, bf16.widest));
    const int64_t size = busy_size();
    const auto rate = [&](const Call& call, double amount) {
      return amount / kernel_seconds(call);
    };
    const Call add = add_call(size);
    spec_.memory_bandwidth = rate(add, cost_of(add).bytes);
    const Call gelu = parse_samples(kGelu, cat("x: f32[", size, "]")).front();
    spec_.vector_flops = rate(gelu, cost_of(gelu).flops);
    measure_steps();
    return spec_;
  }

 private:
  // Without the launch; a kernel that takes hardly longer cannot be measured more precisely.
  double kernel_seconds(const Call& call) {
    const double seconds = timer_.seconds(call);
    return std::max(seconds - spec_.launch_latency, kMinShareOfTime * seconds);
  }

  // FLOP/s of a matmul.
  double matmul_rate(std::string_view sample) {
    const Call call = parse_samples(kMatmul, sample).front();
    return cost_of(call).flops / kernel_seconds(call);
  }

  double square_rate(DType dtype, int64_t n) {
    const std::string type = to_string(TensorType{dtype, {n, n}, {}});
    return matmul_rate(cat("a: ", type, ", b: ", type));
  }

  // As wide as models with this vocabulary are: the cost of unaligned rows is per row.
  double logits_rate(int64_t rows, int64_t vocabulary) {
    const int64_t width = rows / 8;
    return matmul_rate(
        cat("a: bf16[", rows, ",", width, "], b: bf16[", vocabulary, ",", width, "]; tb=true"));
  }

  // FLOP/s of the best matmul, and of the widest matrices.
  struct MatmulRates {
    double best = 0;
    int64_t widest = 0;
  };

  MatmulRates matmul_rates(DType dtype) {
    MatmulRates rates;
    for (int64_t n = 256; n <= kLargestMatmul; n *= 2) {
      rates.widest = n;
      const double rate = square_rate(dtype, n);
      rates.best = std::max(rates.best, rate);
      if (2 * std::pow(n, 3) / rate > kBusySeconds) break;
    }
    return rates;
  }

  // Measured where the device supports it, else from its data sheet; the peak is never below a
  // measured rate.
  void set_peaks() {
    if (const DeviceSpec* own = find_data_sheet(device_.description())) {
      spec_.peak_flops_f32 = own->peak_flops_f32;
      spec_.peak_flops_bf16 = own->peak_flops_bf16;
    }
    spec_.peak_flops_f32 = device_.peak_flops(DType::F32).value_or(spec_.peak_flops_f32);
    spec_.peak_flops_bf16 = device_.peak_flops(DType::BF16).value_or(spec_.peak_flops_bf16);
    spec_.peak_flops_f32 = std::max(spec_.peak_flops_f32, spec_.matmul_flops_f32);
    spec_.peak_flops_bf16 = std::max(spec_.peak_flops_bf16, spec_.matmul_flops_bf16);
  }

  int64_t busy_size() {
    int64_t size = 1 << 20;
    while (size < kLargestVector && kernel_seconds(add_call(size)) < kBusySeconds) {
      size *= 2;
    }
    return size;
  }

  void measure_steps() {
    for (const DType dtype : {DType::F32, DType::BF16}) {
      size_t chosen = 0;
      for (size_t i = 1; i < std::size(kSteps); ++i) {
        const auto fast = [&](std::string_view toml) {
          return predicted(steps_of(toml, dtype)) < kLongestStep;
        };
        if (std::all_of(std::begin(kSteps[i]), std::end(kSteps[i]), fast)) chosen = i;
      }
      for (const std::string_view toml : kSteps[chosen]) {
        for (const auto& [text, call] : steps_of(toml, dtype)) add(call);
      }
    }
    for (const auto& [key, sum] : sums_) {
      spec_.kernels.push_back({key.first, key.second, sum.bound / sum.taken});
    }
  }

  struct Counted {
    Call call;
    int64_t count = 0;
  };
  using Calls = std::map<std::string, Counted>;

  // The calls of one training step by their text.
  Calls steps_of(std::string_view toml, DType dtype) const {
    Config config = parse_config(toml, "calibration", {});
    config.device.backend = backend_.name;
    config.training.mixed_precision_param =
        dtype == DType::F32 ? Precision::Float32 : Precision::Bfloat16;
    const Compiled compiled = compile(config);
    Calls calls;
    for (const Step& step : compiled.plan.program(ProgramKind::Last)) {
      const Call call = call_of(step);
      Counted& counted = calls[text_of(call)];
      counted.call = call;
      ++counted.count;
    }
    return calls;
  }

  double predicted(const Calls& calls) const {
    double seconds = 0;
    for (const auto& [text, counted] : calls) {
      seconds += static_cast<double>(counted.count) * predicted_seconds(counted.call, spec_);
    }
    return seconds;
  }

  void add(const Counted& counted) {
    if (cost_of(counted.call).bytes < kMinBytes) return;
    Sum& sum = sums_[kernel_key(counted.call)];
    sum.bound += static_cast<double>(counted.count) * bound_seconds(counted.call, spec_);
    sum.taken += static_cast<double>(counted.count) * kernel_seconds(counted.call);
  }

  struct Sum {
    double bound = 0;
    double taken = 0;
  };

  const Backend& backend_;
  const Device& device_;
  KernelTimer timer_;
  DeviceSpec spec_;
  std::map<std::pair<std::string, std::string>, Sum> sums_;
};

}  // namespace

DeviceSpec calibrate(const Backend& backend, Device& device, DeviceSpec known) {
  DeviceSpec spec = Calibration(backend, device, std::move(known)).run();
  // By now all libraries have been used, and nothing is allocated any more.
  if (const auto free = device.free_bytes()) {
    spec.memory_bytes = *free;
    spec.context_bytes = device.memory_bytes() - *free;
  }
  return spec;
}

LatencyBandwidth fit_link(const std::vector<Timed>& measured) {
  CHECK(!measured.empty(), "no measurements");
  // Least squares of (latency + bytes x - seconds) / seconds.
  double n = 0, b = 0, bb = 0, s = 0, bs = 0;
  for (const Timed& timed : measured) {
    const double weight = 1 / (timed.seconds * timed.seconds);
    n += weight;
    b += weight * timed.bytes;
    bb += weight * timed.bytes * timed.bytes;
    s += weight * timed.seconds;
    bs += weight * timed.bytes * timed.seconds;
  }
  const double determinant = n * bb - b * b;
  double latency = determinant > 0 ? (s * bb - b * bs) / determinant : 0;
  double slope = determinant > 0 ? (n * bs - b * s) / determinant : bs / bb;
  if (latency < 0 || slope <= 0) {
    latency = 0;
    slope = bs / bb;
  }
  return {latency, 1 / slope};
}

}  // namespace weft
