// One op, one definition: signature, meaning, shapes, gradient, cost, samples. Printing, parsing,
// equality and hashing of nodes follow from the signature. Every op is listed in all_ops.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "graph/roles.h"
#include "graph/type.h"

namespace weft {

using Attr = std::variant<int64_t, double, bool, std::string, DType, StateKey, std::vector<int64_t>,
                          std::vector<std::string>>;
using Attrs = std::vector<Attr>;  // in signature order, defaults filled in

// The literal form: 3, 1e-05, true, "text", bf16, [1, 2], ["a", "b"]; the name of a state in
// quotes.
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
  std::vector<OperandSpec> operands;  // only the last may be Optional or Variadic
  std::vector<AttrSpec> attrs;
  std::vector<OperandSpec> results;  // only the last may be Variadic

  // Whether the number of results depends on the call.
  bool has_variadic_results() const;
  // Position of the operand, attribute or result of that name; throws InternalError if there is
  // none.
  size_t operand_index(std::string_view operand) const;
  size_t attr_index(std::string_view attr) const;
  size_t result_index(std::string_view result) const;
};

struct OpDef;

// One application of an op, described by types alone: all that infer, cost, supports and workspace
// may see. An absent optional operand is left out.
struct Call {
  const OpDef* op = nullptr;
  std::vector<TensorType> operands;
  std::vector<TensorType> results;  // empty while inferring
  Attrs attrs;

  const TensorType& type(size_t operand) const { return operands.at(operand); }
  const TensorType& type(std::string_view operand) const;
  // Whether the optional operand is present.
  bool has_operand(std::string_view operand) const;
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

// Cost of one call. Negative bytes mean operands plus results.
struct Cost {
  double flops = 0;
  double bytes = -1;
};

struct CollectiveInfo;
struct Value;
class Vjp;

// Properties of an op that passes and the planner query instead of keeping lists of ops. They name
// an op only to create, rewrite or fuse it, or to follow a parameter or a collective through it.
struct OpTraits {
  bool elementwise = false;    // result i depends on element i of the operands
  bool in_place = false;       // like elementwise, its result may reuse a dying operand's memory
  bool effect = false;         // kept even if nothing reads its results
  bool source = false;         // input, param or state: no operands, bound from outside
  bool differentiable = true;  // false: autodiff fails if a gradient reaches it
  bool matmul = false;         // FLOPs run at the matmul rate
  bool linear = false;         // commutes with sums over ranks: partial sums in, partial sums out
  bool bilinear = false;       // linear in each of two floating operands while the other is full
  bool collective = false;     // moves data between ranks, or waits for it; kernels are in comm
  bool places = false;         // infer computes the placements of results; no sharding rule
  bool update = false;         // overwrites the parameter w, by its gradient g
  bool decides = false;        // compares values: never repeated, so that it decides once
};

struct OpDef {
  // "rms_norm(x, w; eps = 1e-5) -> y, rstd"; operands "b?" optional, "g..." variadic;
  // attributes "name = default" or "name: kind" (required), kind one of int, float, bool, text,
  // dtype, state, ints, texts. The default [] is an empty list of ints, [texts] one of texts.
  std::string_view signature;
  // One or two sentences; the reference page is generated from it.
  std::string_view doc;
  OpTraits traits = {};
  // Results that overwrite operands, as "result<-operand" pairs: "w2<-w m2<-m". Variadic ones are
  // paired element by element.
  std::string_view overwrites = "";
  // The ops that a fused op replaces, bit for bit: "added = matmul(a, b); sum = add_in_place(acc,
  // added)"; see graph/parts.h. Empty for other ops.
  std::string_view parts = "";
  // Floating operands that have no gradient, separated by spaces: a parameter that is read as one
  // is not trained.
  std::string_view constants = "";
  // What a collective does, see graph/collective.h; null for other ops and for wait.
  const CollectiveInfo* collective = nullptr;
  // The collective that this op starts and a wait completes; null for other ops.
  const OpDef* starts = nullptr;
  // Maps operand types to result types; throws for types that the op does not support.
  std::vector<TensorType> (*infer)(const Call&) = nullptr;
  // Gradients of the operands from the gradients of the results; null for non-differentiable ops.
  std::vector<Value*> (*vjp)(Vjp&) = nullptr;
  // Default: no FLOPs, bytes of operands and results.
  Cost (*cost)(const Call&) = nullptr;
  // Placements of results when operands are sharded: "...k, kn -> ...n", see graph/sharding.h.
  // Empty only for sources and ops whose infer computes placements.
  std::string_view sharding = "";
  // Used instead of `sharding` when the rule depends on attributes or operands.
  std::string (*sharding_of)(const Call&) = nullptr;
  // The letter of the rule whose shard the op must know the number of, if that dim is sharded. The
  // pass `place` passes it as the last operand, `coordinate`, or, to an op with an operand `rng`,
  // in that: a sharded rng.
  char located = '\0';
  // Turns the attributes of a call with global types into those of one rank, whose types are in
  // `local`; null: they are the same. See graph/local_call.h.
  void (*localize)(const Call& call, Call& local) = nullptr;
  // Calls for the generated tests: "x: f32[2,8], w: f32[8]; eps=1e-6 | ...". Empty only for sources
  // and ops whose infer computes placements.
  std::string_view samples = "";

  const Signature& parsed() const;  // parsed once, cached
  std::string_view name() const { return parsed().name; }
};

// Every op, in the order of the reference page.
std::span<const OpDef* const> all_ops();

// The op of that name, or nullptr.
const OpDef* find_op(std::string_view name);

// The error text for a name that find_op does not know, with the nearest known name.
std::string unknown_op(std::string_view name);

// Cost with bytes filled in.
Cost cost_of(const Call& call);

// Whether a result's type is the inferred one. Placements are compared only for ops whose infer
// computes them: those of other ops are set by passes.
bool is_inferred(const OpDef& op, const TensorType& type, const TensorType& inferred);

// For each result of the call: the operand index it overwrites, or -1.
std::vector<int> overwritten_operands(const Call& call);

// Whether the call must be kept even if nothing reads its results: it has an effect or overwrites
// an operand.
bool has_effect(const Call& call);

}  // namespace weft
