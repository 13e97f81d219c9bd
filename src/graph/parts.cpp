// Parses the parts of a fused op for one call.
#include "graph/parts.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/text.h"
#include "graph/call_text.h"

namespace weft {
namespace {

// The names known so far while parsing the parts, with what each refers to and its type.
struct Names {
  struct Entry {
    PartPlace place;
    TensorType type;
  };

  explicit Names(const Call& call) : signature(call.op->parsed()) {
    for (size_t i = 0; i < signature.operands.size(); ++i) {
      const OperandSpec& spec = signature.operands[i];
      if (i == call.operands.size() && spec.kind == OperandKind::Optional) continue;
      call.require(i < call.operands.size(), "too few operands, expected ", call.op->signature);
      entries[spec.name] = {{PartPlace::Kind::Operand, i}, call.operands[i]};
    }
  }

  bool is_absent(std::string_view name) const {
    return !entries.contains(name) &&
           std::any_of(signature.operands.begin(), signature.operands.end(),
                       [&](const OperandSpec& spec) { return spec.name == name; });
  }

  PartPlace define(std::string_view name, const TensorType& type) {
    PartPlace place{PartPlace::Kind::Temporary, temporaries};
    for (size_t i = 0; i < signature.results.size(); ++i) {
      if (signature.results[i].name == name) place = {PartPlace::Kind::Result, i};
    }
    if (place.kind == PartPlace::Kind::Temporary) ++temporaries;
    entries[std::string(name)] = {place, type};
    return place;
  }

  const Signature& signature;
  std::map<std::string, Entry, std::less<>> entries;
  size_t temporaries = 0;
};

// Attributes written in the part, else those of the fused op, else the defaults.
Attrs attrs_of(const OpDef& op, const Call& fused, std::string_view written) {
  const auto& specs = op.parsed().attrs;
  const auto handed_on = [&](const AttrSpec& spec) {
    const auto& own = fused.op->parsed().attrs;
    return std::any_of(own.begin(), own.end(),
                       [&](const AttrSpec& attr) { return attr.name == spec.name; });
  };
  std::string text(written);
  for (const AttrSpec& spec : specs) {
    if (!spec.required || !handed_on(spec)) continue;
    text += cat(text.empty() ? "" : ", ", spec.name, "=", to_string(fused.attr(spec.name)));
  }
  Attrs attrs = parse_call_attrs(op, text);
  for (size_t i = 0; i < specs.size(); ++i) {
    if (attrs[i] == specs[i].default_value && handed_on(specs[i])) {
      attrs[i] = fused.attr(specs[i].name);
    }
  }
  return attrs;
}

// Parses "y, mean, rstd = layer_norm(sum, w, b; eps=1e-6)"; nullopt if an operand is absent.
std::optional<Part> read_part(std::string_view text, const Call& fused, Names& names) {
  const size_t open = text.find('(');
  const size_t equals = text.find('=');
  CHECK(equals < open && text.ends_with(')'), fused.op->name(), " has a part \"", text, "\"");
  const std::string_view name = trim(text.substr(equals + 1, open - equals - 1));
  const OpDef* op = find_op(name);
  CHECK(op != nullptr, fused.op->name(), " has a part of an unknown op ", name);
  const auto inside = split_top_level(text.substr(open + 1, text.size() - open - 2), ';');
  Part part;
  part.call = {op, {}, {}, attrs_of(*op, fused, inside.size() > 1 ? inside[1] : "")};
  const auto args = split_top_level(inside.at(0), ',');
  for (size_t i = 0; i < args.size(); ++i) {
    if (names.is_absent(args[i])) {
      if (op->parsed().operands.at(i).kind == OperandKind::Optional) continue;
      return std::nullopt;
    }
    const auto found = names.entries.find(args[i]);
    CHECK(found != names.entries.end(), fused.op->name(), " has a part that reads ", args[i]);
    part.operands.push_back(found->second.place);
    part.call.operands.push_back(found->second.type);
  }
  part.call.results = op->infer(part.call);
  const auto results = split_top_level(text.substr(0, equals), ',');
  CHECK(results.size() == part.call.results.size(), fused.op->name(), " has a part with ",
        results.size(), " results");
  for (size_t i = 0; i < results.size(); ++i) {
    part.results.push_back(names.define(results[i], part.call.results[i]));
  }
  return part;
}

}  // namespace

std::vector<Part> parts_of(const Call& call) {
  Names names(call);
  std::vector<Part> parts;
  try {
    for (std::string_view text : split_top_level(call.op->parts, ';')) {
      if (auto part = read_part(text, call, names)) parts.push_back(std::move(*part));
    }
  } catch (const UserError& error) {
    call.refuse(error.what());
  }
  return parts;
}

std::vector<TensorType> infer_parts(const Call& call) {
  std::vector<TensorType> results(call.op->parsed().results.size());
  for (const Part& part : parts_of(call)) {
    for (size_t i = 0; i < part.results.size(); ++i) {
      const PartPlace& place = part.results[i];
      if (place.kind == PartPlace::Kind::Result) results.at(place.index) = part.call.results[i];
    }
  }
  return results;
}

// FLOPs of all parts, but only the bytes of the fused op's operands and results.
Cost cost_parts(const Call& call) {
  Cost cost;
  for (const Part& part : parts_of(call)) cost.flops += cost_of(part.call).flops;
  return cost;
}

}  // namespace weft
