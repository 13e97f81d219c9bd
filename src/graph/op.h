// One op, one definition: signature, meaning, shapes, gradient, cost, samples. Printing, parsing,
// equality and hashing of nodes follow from the signature. Ops stand in one explicit list
// (all_ops).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "graph/type.h"

namespace weft {

using Attr = std::variant<int64_t, double, bool, std::string, DType, std::vector<int64_t>,
                          std::vector<std::string>>;
using Attrs = std::vector<Attr>;  // in signature order, defaults filled in

// The literal form: 3, 1e-05, true, "text", bf16, [1, 2], ["a", "b"].
std::string to_string(const Attr& attr);

// Parses a literal as the same alternative as `kind`; throws UserError.
Attr parse_attr(std::string_view text, const Attr& kind);

enum class OperandKind { Required, Optional, Variadic };

struct OperandSpec {
  std::string name;
  OperandKind kind = OperandKind::Required;
};

struct AttrSpec {
  std::string name;
  Attr default_value;     // its alternative is the attribute's type
  bool required = false;  // no default: the text must give it
};

// The parsed form of an OpDef's signature string.
struct Signature {
  std::string name;
  std::vector<OperandSpec> operands;
  std::vector<AttrSpec> attrs;
  std::vector<OperandSpec> results;  // Variadic: the last, any number of results

  // Whether the number of results depends on the call.
  bool has_variadic_results() const;
  // Index of the attribute; throws InternalError if the op has none of that name.
  size_t attr_index(std::string_view attr) const;
};

struct OpDef;

// One application of an op as types alone: what infer, cost, supports and workspace may look at.
// Optional operands that are absent are simply not there; variadic operands come last.
struct Call {
  const OpDef* op = nullptr;
  std::vector<TensorType> operands;
  std::vector<TensorType> results;  // empty while inferring
  Attrs attrs;

  const TensorType& type(size_t operand) const { return operands.at(operand); }
  int64_t int_attr(std::string_view name) const { return std::get<int64_t>(attr(name)); }
  double double_attr(std::string_view name) const { return std::get<double>(attr(name)); }
  bool bool_attr(std::string_view name) const { return std::get<bool>(attr(name)); }
  DType dtype_attr(std::string_view name) const { return std::get<DType>(attr(name)); }
  const std::string& text_attr(std::string_view name) const {
    return std::get<std::string>(attr(name));
  }
  const std::vector<std::string>& texts_attr(std::string_view name) const {
    return std::get<std::vector<std::string>>(attr(name));
  }
  const std::vector<int64_t>& ints_attr(std::string_view name) const {
    return std::get<std::vector<int64_t>>(attr(name));
  }
  const Attr& attr(std::string_view name) const;

  // Throws UserError "op: message" unless the condition holds.
  template <class... Parts>
  void require(bool condition, const Parts&... parts) const {
    if (!condition) refuse(cat(parts...));
  }
  [[noreturn]] void refuse(const std::string& message) const;
};

// What one application costs. Bytes default to operands plus results when negative.
struct Cost {
  double flops = 0;
  double bytes = -1;
};

struct Value;
class Vjp;

// Traits that passes and the planner ask for: what holds of an op, instead of a list of ops. Passes
// that rewrite or fuse particular ops name those.
struct OpTraits {
  bool elementwise = false;    // result i depends on element i of the operands; fusible
  bool in_place = false;       // as elementwise for memory: its result may lie on a dying operand
  bool effect = false;         // kept even when nothing reads its results
  bool source = false;         // input, param or state: no operands, bound from outside
  bool differentiable = true;  // false: autodiff refuses it when a gradient arrives
  bool matmul = false;         // FLOPs run at the matrix rate
  bool linear = false;         // commutes with sums over ranks: partial sums give partial sums
  bool collective = false;     // moves data between ranks, or waits for that; kernels in comm
};

struct OpDef {
  // "rms_norm(x, w; eps = 1e-5) -> y, rstd"; operands "b?" optional, "g..." variadic;
  // attributes "name = default" or "name: kind" (required), kind one of int, float, bool, text,
  // dtype, ints, texts.
  std::string_view signature;
  // One or two sentences; the reference page is generated from it.
  std::string_view doc;
  OpTraits traits = {};
  // Result i is written over operand j, pairs "result<-operand" by name: "w2<-w m2<-m"; variadic
  // ones pair up one by one.
  std::string_view overwrites = "";
  // The ops that a joined op stands for, "dx = gelu_grad(dy, x); db = sum_rows(dx)", whose bits it
  // has; see graph/parts.h. Empty for all others.
  std::string_view parts = "";
  // The collective that this op starts, to be ended by a wait; null for all others.
  const OpDef* starts = nullptr;
  // Operand types to result types; refuses what the op cannot take.
  std::vector<TensorType> (*infer)(const Call&) = nullptr;
  // Gradients of the operands from gradients of the results; empty for non-differentiable ops.
  std::vector<Value*> (*vjp)(Vjp&) = nullptr;
  // Default: no FLOPs, bytes of operands and results.
  Cost (*cost)(const Call&) = nullptr;
  // How results lie on the mesh when operands are cut: "...k, kn -> ...n", see graph/sharding.h.
  // Empty only for sources and collectives.
  std::string_view sharding = "";
  // The same where it depends on attributes or operands; used instead when not null.
  std::string (*sharding_of)(const Call&) = nullptr;
  // Cases for the generated tests: "x: f32[2,8], w: f32[8]; eps=1e-6 | ...". Empty only for
  // sources and collectives.
  std::string_view samples = "";

  const Signature& parsed() const;  // parsed once, cached
  std::string_view name() const { return parsed().name; }
};

// Every op, in the order of the reference page.
std::span<const OpDef* const> all_ops();

// The op of that name, or nullptr.
const OpDef* find_op(std::string_view name);

// What a message says of a name that find_op does not know, with the nearest one.
std::string unknown_op(std::string_view name);

// Cost with bytes filled in.
Cost cost_of(const Call& call);

// Whether a result's type is what infer gives. Placements of most ops are given by passes, only the
// infer of a collective computes them.
bool is_inferred(const OpDef& op, const TensorType& type, const TensorType& inferred);

// For each result of the call: the operand index it overwrites, or -1.
std::vector<int> overwritten_operands(const Call& call);

// Whether the call must stay when nothing reads its results: it has an effect or overwrites.
bool has_effect(const Call& call);

}  // namespace weft
