// add, cast, gelu, gelu_grad, dropout and the fused chain of them. A single op is a chain of one
// statement, so fusing cannot change bits. A chain runs block by block: each statement computes a
// block in f32 and rounds it to its dtype before the next one reads it. Also shard_rng, for
// dropout.
#include <array>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "graph/fused_body.h"
#include "runtime/cpu/activations.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/kernels.h"
#include "runtime/cpu/random.h"
#include "runtime/cpu/simd.h"

namespace weft {

namespace {

constexpr int64_t kBlock = 1024;
constexpr int64_t kTile = 16 * kBlock;
constexpr size_t kMaxBlocks = ThreadTeam::kScratchFloats / kBlock;

// gelu(x) = x * sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3), which has no cancellation.
constexpr float kGeluScale =
    static_cast<float>(2.0 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
constexpr float kGeluCubic = 0.044715f;

WEFT_CLONES void copy_block(const float* x, int64_t n, float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) y[i] = x[i];
}

WEFT_CLONES void gelu_block(const float* x, int64_t n, float* y) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i];
    y[i] = v * sigmoid_f32(kGeluScale * (v + kGeluCubic * (v * v * v)));
  }
}

}  // namespace

WEFT_CLONES void gelu_grad_block(const float* dy, const float* x, int64_t n, float* dx) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i];
    const float s = sigmoid_f32(kGeluScale * (v + kGeluCubic * (v * v * v)));
    const float slope = kGeluScale * (1.0f + 3.0f * kGeluCubic * (v * v));
    dx[i] = dy[i] * (s + v * (s * (1.0f - s)) * slope);
  }
}

namespace {

enum class Action { Add, Cast, Gelu, GeluGrad, Dropout };

struct Statement {
  Action action = Action::Add;
  DType dtype = DType::F32;
  std::vector<size_t> args;  // values: the operands, then the statements
  // For dropout: the operand that holds the state, the stream and the rate.
  size_t rng = 0;
  int64_t stream = 0;
  double rate = 0;
};

using Chain = std::vector<Statement>;

Action action_of(std::string_view op) {
  if (op == "add" || op == "add_in_place") return Action::Add;
  if (op == "cast") return Action::Cast;
  if (op == "gelu") return Action::Gelu;
  if (op == "gelu_grad") return Action::GeluGrad;
  if (op == "dropout") return Action::Dropout;
  CHECK(false, "no elementwise kernel for ", op);
}

FusedBody body_of(const Call& call) {
  if (call.op->name() == "fused") return parse_fused_body(call.text_attr("body"));
  FusedStatement only{.name = "",
                      .dtype = call.results.at(0).dtype,
                      .op = call.op,
                      .args = {},
                      .attrs = call.attrs};
  for (size_t i = 0; i < call.operands.size(); ++i) only.args.push_back({true, i});
  return {only};
}

std::shared_ptr<const void> prepare_elementwise(const Launch& launch) {
  Chain chain;
  const size_t operands = launch.operands.size();
  for (const FusedStatement& from : body_of(*launch.call)) {
    Statement& to = chain.emplace_back();
    to.action = action_of(from.op->name());
    to.dtype = from.dtype;
    for (const FusedArg& arg : from.args) {
      to.args.push_back(arg.is_operand ? arg.index : operands + arg.index);
    }
    if (to.action != Action::Dropout) continue;
    Call call;
    call.op = from.op;
    call.attrs = from.attrs;
    to.stream = call.int_attr("stream");
    to.rate = call.double_attr("rate");
    to.rng = to.args.at(1);
    to.args.pop_back();
  }
  return std::make_shared<const Chain>(std::move(chain));
}

// Applies dropout to elements [offset, offset + n) of the result.
void drop_block(const Statement& statement, const Launch& launch, int64_t offset, int64_t n,
                const float* from, float* to) {
  const Dropout dropout =
      make_dropout(launch.operands.at(statement.rng), statement.stream, statement.rate);
  const Shape& shape = launch.results[0].shape;
  const int64_t samples = std::max<int64_t>(1, shape.at(0));
  apply_dropout_at(dropout, count(shape) / samples, offset, n, from, to);
}

using Values = std::array<const float*, kMaxBlocks>;

void run_statement(const Statement& statement, const Launch& launch, const Values& values,
                   int64_t offset, int64_t n, float* to) {
  const float* first = values[statement.args[0]];
  switch (statement.action) {
    case Action::Add:
      return add_rows(first, values[statement.args[1]], n, to);
    case Action::Cast:
      return copy_block(first, n, to);
    case Action::Gelu:
      return gelu_block(first, n, to);
    case Action::GeluGrad:
      return gelu_grad_block(first, values[statement.args[1]], n, to);
    case Action::Dropout:
      return drop_block(statement, launch, offset, n, first, to);
  }
}

// Computes elements [offset, offset + n), n at most kBlock.
void run_block(const Chain& chain, const Launch& launch, int64_t offset, int64_t n,
               float* scratch) {
  Values values;
  size_t known = 0;
  float* buffer = scratch;
  for (const Tensor& operand : launch.operands) {
    const bool floating = is_floating(operand.dtype);
    values[known++] = floating ? load(operand, offset, n, buffer) : nullptr;
    buffer += kBlock;
  }
  const Tensor& result = launch.results[0];
  for (size_t i = 0; i < chain.size(); ++i) {
    const bool last = i + 1 == chain.size();
    float* to = last ? place(result, offset, buffer) : buffer;
    run_statement(chain[i], launch, values, offset, n, to);
    if (last) {
      store(result, offset, n, to);
    } else {
      round_to(chain[i].dtype, n, to);
    }
    values[known++] = to;
    buffer += kBlock;
  }
}

void launch_elementwise(const Launch& launch) {
  const auto& chain = *static_cast<const Chain*>(launch.prepared.get());
  const int64_t total = launch.results.at(0).elements();
  team(launch).run(ceil_div(total, kTile), [&](int64_t tile, float* scratch) {
    const int64_t end = std::min(total, (tile + 1) * kTile);
    for (int64_t offset = tile * kTile; offset < end; offset += kBlock) {
      run_block(chain, launch, offset, std::min(kBlock, end - offset), scratch);
    }
  });
}

constexpr int32_t kOneShard[] = {0, 1};

void launch_shard_rng(const Launch& launch) {
  auto* sharded = launch.results.at(0).as<int32_t>();
  const auto* rng = launch.operands.at(0).as<int32_t>();
  const bool head_tail = launch.call->bool_attr("head_tail");
  std::copy(rng, rng + launch.operands[0].elements(), sharded);
  if (head_tail) std::copy_n(kOneShard, 2, sharded + 4);
  sharded[head_tail ? 6 : 4] = scalar_i32(launch.operands.at(1));
  sharded[head_tail ? 7 : 5] = static_cast<int32_t>(launch.call->int_attr("shards"));
}

Decision supports_elementwise(const Call& call) {
  Decision decision = supports_cpu_dtypes(call);
  if (!decision.allowed || call.op->name() != "fused") return decision;
  const size_t values = call.operands.size() + parse_fused_body(call.text_attr("body")).size();
  if (values > kMaxBlocks) {
    return Decision::no(
        cat("takes up to ", kMaxBlocks, " operands and statements, found ", values));
  }
  return decision;
}

}  // namespace

std::span<const Kernel> cpu_elementwise_kernels() {
  static const std::vector<Kernel> rows = [] {
    std::vector<Kernel> same;
    for (const std::string_view op :
         {"add", "add_in_place", "cast", "gelu", "gelu_grad", "dropout", "fused"}) {
      same.push_back({.op = op,
                      .name = "vector",
                      .supports = supports_elementwise,
                      .launch = launch_elementwise,
                      .prepare = prepare_elementwise});
    }
    same.push_back({"shard_rng", "copy", supports_cpu_dtypes, nullptr, launch_shard_rng});
    return same;
  }();
  return rows;
}

}  // namespace weft
