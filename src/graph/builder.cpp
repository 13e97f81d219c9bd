// Node building with names and attributes checked against the op's signature.
#include "graph/builder.h"

#include <algorithm>

#include "base/error.h"
#include "graph/ops/ops.h"

namespace weft {

Attrs make_attrs(const OpDef& op, std::initializer_list<NamedAttr> attrs) {
  const Signature& signature = op.parsed();
  Attrs values;
  std::vector<bool> given(signature.attrs.size(), false);
  for (const auto& spec : signature.attrs) values.push_back(spec.default_value);
  for (const auto& [name, value] : attrs) {
    size_t index = signature.attr_index(name);
    CHECK(values[index].index() == value.index(), "op ", signature.name, ": attribute ", name,
          " has the wrong kind");
    values[index] = value;
    given[index] = true;
  }
  for (size_t i = 0; i < given.size(); ++i) {
    CHECK(given[i] || !signature.attrs[i].required, "op ", signature.name, ": attribute ",
          signature.attrs[i].name, " is missing");
  }
  return values;
}

Node* Builder::add(const OpDef& op, std::vector<Value*> operands,
                   std::initializer_list<NamedAttr> attrs, std::string_view name) {
  return graph_.insert(before_, op, std::move(operands), make_attrs(op, attrs),
                       {.name = std::string(name), .path = path_, .phase = phase_});
}

Node* Builder::add(const OpDef& op, std::vector<Value*> operands,
                   std::initializer_list<NamedAttr> attrs, std::vector<std::string> names) {
  return graph_.insert(before_, op, std::move(operands), make_attrs(op, attrs),
                       {.path = path_, .phase = phase_, .result_names = std::move(names)});
}

DType Vjp::grad_dtype(std::string_view operand) const {
  const Value* value = node_.operand(operand);
  const Node* def = value->def;
  if (def->op == &kRepeatKv) def = def->operand("w")->def;
  if (def->op != &kCast) return value->type.dtype;
  const auto& wanted = std::get<std::string>(def->attr("grad"));
  if (wanted.empty()) return value->type.dtype;
  const auto readers = std::count_if(value->users.begin(), value->users.end(),
                                     [](const Node* n) { return n->phase == Phase::Forward; });
  return readers > 1 ? DType::F32 : parse_dtype(wanted);
}

Node* Vjp::add(const OpDef& op, std::vector<Value*> operands,
               std::initializer_list<NamedAttr> attrs, std::string_view of) {
  const size_t first = node_.op->parsed().operand_index(of);
  std::vector<std::string> names;
  for (size_t i = 0; i < op.parsed().results.size(); ++i) {
    names.push_back("d." + node_.operands.at(first + i)->name);
  }
  return builder_.add(op, std::move(operands), attrs, std::move(names));
}

}  // namespace weft
