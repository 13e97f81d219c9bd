#include "graph/ops/attention_rules.h"

#include <algorithm>

#include "graph/dims.h"

namespace weft {
namespace {

bool has_operand_spec(const Call& call, std::string_view name) {
  const auto& operands = call.op->parsed().operands;
  return std::any_of(operands.begin(), operands.end(),
                     [&](const OperandSpec& spec) { return spec.name == name; });
}

bool has_attr(const Call& call, std::string_view name) {
  const auto& attrs = call.op->parsed().attrs;
  return std::any_of(attrs.begin(), attrs.end(),
                     [&](const AttrSpec& spec) { return spec.name == name; });
}

// The operand whose width says how many heads a call has.
std::string_view width_operand(const Call& call) {
  for (const std::string_view name : {"qkv", "dqkv", "q"}) {
    if (has_operand_spec(call, name)) return name;
  }
  return "x";
}

AttentionHeads require_heads(const Call& call) {
  const AttentionHeads heads{.q = call.int_attr("heads"),
                             .kv = call.int_attr("kv_heads"),
                             .value_dim = call.int_attr("value_dim")};
  call.require(heads.q > 0 && heads.kv > 0 && heads.q % heads.kv == 0, "heads is ", heads.q,
               " and kv_heads is ", heads.kv, ", expected a positive multiple");
  call.require(heads.value_dim >= 0, "value_dim is ", heads.value_dim, ", expected 0 or more");
  return heads;
}

// Checks an operand [batch,time,parts * D + rest]; returns D.
int64_t require_parts(const Call& call, std::string_view name, int64_t parts, int64_t rest,
                      std::string_view meaning) {
  const TensorType& packed = call.type(name);
  call.require(is_floating(packed.dtype) && packed.shape.size() == 3, name, " is ", packed,
               ", expected floating [batch,time,width]");
  const int64_t width = packed.shape[2];
  call.require(width > rest && (width - rest) % parts == 0, "the width of ", name, " is ", width,
               ", expected a multiple of ", meaning, " = ", parts,
               rest > 0 ? cat(" and ", rest, " for the values") : "");
  return (width - rest) / parts;
}

// Mean number of keys that a query sees.
double keys_per_query(const Call& call, int64_t keys, int64_t blocks) {
  const int64_t chunk = call.int_attr("chunk"), length = keys * blocks;
  // A shard of the queries has its share of the pairs, which is half of those with each block.
  if (chunk == 0 || chunk >= length) return static_cast<double>(keys + 1) / 2;
  const auto pairs = [](int64_t n) {
    return static_cast<double>(n) * static_cast<double>(n + 1) / 2;
  };
  const int64_t full = length / chunk;
  const double all = static_cast<double>(full) * pairs(chunk) + pairs(length % chunk);
  return all / static_cast<double>(length) / static_cast<double>(blocks);
}

}  // namespace

void require_positions(const Call& call, const TensorType& x) {
  require_type(call, "positions", DType::I32, leading_dims(x));
}

AttentionHeads require_packed_heads(const Call& call, std::string_view operand) {
  AttentionHeads heads = require_heads(call);
  if (heads.value_dim == 0) {
    heads.dim = require_parts(call, operand, heads.q + 2 * heads.kv, 0, "heads + 2 kv_heads");
    heads.value_dim = heads.dim;
  } else {
    heads.dim =
        require_parts(call, operand, heads.q + heads.kv, heads.v_width(), "heads + kv_heads");
  }
  return heads;
}

AttentionHeads require_query_heads(const Call& call, std::string_view operand) {
  AttentionHeads heads = require_heads(call);
  heads.dim = require_parts(call, operand, heads.q, 0, "heads");
  if (heads.value_dim == 0) heads.value_dim = heads.dim;
  return heads;
}

void require_options(const Call& call) {
  const double scale = call.double_attr("scale"), rate = call.double_attr("dropout");
  call.require(scale >= 0, "scale is ", format_double(scale), ", expected 0 or more");
  call.require(call.int_attr("chunk") >= 0, "chunk is ", call.int_attr("chunk"),
               ", expected 0 or more");
  call.require(rate >= 0 && rate < 1, "dropout is ", format_double(rate),
               ", expected 0 <= dropout < 1");
  if (call.has_operand("rng")) {
    require_rng(call);
    call.require(call.type("rng").shape != Shape{8}, "rng is ", call.type("rng"),
                 ", expected no state of a shard over cp");
  } else {
    call.require(rate == 0, "dropout is ", format_double(rate), " without rng");
  }
}

AttentionHeads heads_of(const Call& call) {
  const std::string_view operand = width_operand(call);
  return operand == "q" ? require_query_heads(call, operand) : require_packed_heads(call, operand);
}

std::string by_head(const Call& call, std::string_view rule) {
  const AttentionHeads heads = heads_of(call);
  const std::string q_k_v = dims::packed("h", {heads.q_width(), heads.k_width(), heads.v_width()});
  const std::string k_v = dims::packed("h", {heads.k_width(), heads.v_width()});
  std::string text;
  for (const char c : rule) text += c == 'p' ? q_k_v : c == 'w' ? k_v : std::string(1, c);
  return text;
}

void localize_heads(const Call& call, Call& local) {
  const Signature& signature = call.op->parsed();
  const std::string_view packed = width_operand(call);
  const int64_t width = row_length(call.type(packed));
  const int64_t part = row_length(local.type(packed));
  for (const std::string_view name : {"heads", "kv_heads"}) {
    if (!has_attr(call, name)) continue;
    const int64_t heads = call.int_attr(name);
    call.require(heads * part % width == 0, name, " is ", heads, ", which does not divide over ",
                 width / part, " ranks");
    local.attrs.at(signature.attr_index(name)) = heads * part / width;
  }
}

Cost cost_attention(const Call& call, const AttentionMatmuls& matmuls) {
  const bool packed = width_operand(call) == "qkv";
  const AttentionHeads heads = heads_of(call);
  const Shape& q = call.type(packed ? "qkv" : "q").shape;
  const int64_t keys = packed ? q[1] : call.type("kv").shape[1];
  const int64_t blocks = packed ? 1 : call.int_attr("blocks");
  const double widths = matmuls.keys * static_cast<double>(heads.dim) +
                        matmuls.values * static_cast<double>(heads.value_dim);
  return {.flops = 2 * widths * static_cast<double>(q[0] * heads.q * q[1]) *
                   keys_per_query(call, keys, blocks)};
}

}  // namespace weft
