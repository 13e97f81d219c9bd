// Parses signatures and attribute literals, and derives the rest from op definitions.
#include "graph/op.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "graph/call_text.h"

namespace weft {

namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\' || c == '\n') out += '\\';
    out += c == '\n' ? 'n' : c;
  }
  return out + "\"";
}

std::string unquoted(std::string_view text) {
  USER_CHECK(text.size() >= 2 && text.front() == '"' && text.back() == '"', text,
             " is not a string in double quotes");
  std::string out;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    char c = text[i];
    if (c == '\\') {
      USER_CHECK(i + 2 < text.size(), text, " ends in a lone backslash");
      c = text[++i];
      if (c == 'n') c = '\n';
    }
    out += c;
  }
  return out;
}

std::vector<std::string_view> list_items(std::string_view text) {
  USER_CHECK(text.size() >= 2 && text.front() == '[' && text.back() == ']', text,
             " is not a list in square brackets");
  std::string_view inner = trim(text.substr(1, text.size() - 2));
  return split_top_level(inner, ',');
}

// A default value of the attribute kind named in a signature.
Attr attr_of_kind(std::string_view kind) {
  if (kind == "int") return int64_t{0};
  if (kind == "float") return 0.0;
  if (kind == "bool") return false;
  if (kind == "text") return std::string();
  if (kind == "dtype") return DType::F32;
  if (kind == "state") return StateKey();
  if (kind == "ints") return std::vector<int64_t>();
  if (kind == "texts") return std::vector<std::string>();
  throw InternalError(cat("unknown attribute kind \"", kind, "\" in an op signature"));
}

// The default's literal decides the kind: true, "text", 3, 0.5.
Attr default_attr(std::string_view literal) {
  if (literal == "true" || literal == "false") return literal == "true";
  if (!literal.empty() && literal.front() == '"') return unquoted(literal);
  if (literal == "[]") return std::vector<int64_t>();
  if (literal == "[texts]") return std::vector<std::string>();
  if (auto integer = parse_int(literal)) return *integer;
  if (auto number = parse_double(literal)) return *number;
  throw InternalError(cat("default \"", literal, "\" in an op signature is not a literal"));
}

OperandSpec parse_operand(std::string_view text) {
  if (text.ends_with("..."))
    return {std::string(text.substr(0, text.size() - 3)), OperandKind::Variadic};
  if (text.ends_with("?"))
    return {std::string(text.substr(0, text.size() - 1)), OperandKind::Optional};
  return {std::string(text), OperandKind::Required};
}

std::vector<OperandSpec> parse_operands(std::string_view text) {
  std::vector<OperandSpec> specs;
  if (trim(text).empty()) return specs;
  for (const auto& item : split(text, ',')) specs.push_back(parse_operand(trim(item)));
  return specs;
}

AttrSpec parse_attr_spec(std::string_view text) {
  size_t equals = text.find('=');
  if (equals != std::string_view::npos) {
    return {std::string(trim(text.substr(0, equals))), default_attr(trim(text.substr(equals + 1)))};
  }
  size_t colon = text.find(':');
  CHECK(colon != std::string_view::npos, "attribute \"", text, "\" needs a default or a kind");
  return {std::string(trim(text.substr(0, colon))), attr_of_kind(trim(text.substr(colon + 1))),
          true};
}

Signature parse_signature(std::string_view text) {
  Signature signature;
  size_t open = text.find('(');
  size_t close = text.find(')');
  size_t arrow = text.find("->");
  CHECK(open != std::string_view::npos && close != std::string_view::npos, "signature ", text);
  signature.name = std::string(trim(text.substr(0, open)));
  std::string_view inside = text.substr(open + 1, close - open - 1);
  size_t semicolon = inside.find(';');
  signature.operands = parse_operands(inside.substr(0, semicolon));
  for (size_t i = 0; i + 1 < signature.operands.size(); ++i) {
    CHECK(signature.operands[i].kind == OperandKind::Required, "signature ", text,
          ": only the last operand may be optional or variadic");
  }
  if (semicolon != std::string_view::npos) {
    for (const auto& item : split(inside.substr(semicolon + 1), ',')) {
      signature.attrs.push_back(parse_attr_spec(trim(item)));
    }
  }
  if (arrow != std::string_view::npos) signature.results = parse_operands(text.substr(arrow + 2));
  return signature;
}

// Position of the item called `name` in a list of operands, attributes or results.
template <class Spec>
size_t index_of(const Signature& signature, const std::vector<Spec>& specs, std::string_view name,
                std::string_view kind) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == name) return i;
  }
  throw InternalError(cat("op ", signature.name, " has no ", kind, " \"", name, "\""));
}

template <class T, class Parse>
std::vector<T> parse_list(std::string_view text, Parse parse) {
  std::vector<T> values;
  for (const auto& item : list_items(text)) values.push_back(parse(trim(item)));
  return values;
}

int64_t int_literal(std::string_view text) {
  auto value = parse_int(text);
  USER_CHECK(value, in_quotes(text), " is not a whole number");
  return *value;
}

}  // namespace

std::string to_string(const Attr& attr) {
  struct Printer {
    std::string operator()(int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return format_double(value); }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(const std::string& value) const { return quoted(value); }
    std::string operator()(DType value) const { return std::string(dtype_name(value)); }
    std::string operator()(const StateKey& key) const { return quoted(to_string(key)); }
    std::string operator()(const std::vector<int64_t>& values) const { return to_string(values); }
    std::string operator()(const std::vector<std::string>& values) const {
      std::vector<std::string> items;
      for (const auto& value : values) items.push_back(quoted(value));
      return "[" + join(items, ",") + "]";
    }
  };
  return std::visit(Printer{}, attr);
}

Attr parse_attr(std::string_view text, const Attr& kind) {
  struct Parser {
    std::string_view text;
    Attr operator()(int64_t) const { return int_literal(text); }
    Attr operator()(double) const {
      auto value = parse_double(text);
      USER_CHECK(value, in_quotes(text), " is not a number");
      return *value;
    }
    Attr operator()(bool) const {
      USER_CHECK(text == "true" || text == "false", in_quotes(text), " is not true or false");
      return text == "true";
    }
    Attr operator()(const std::string&) const { return unquoted(text); }
    Attr operator()(DType) const { return parse_dtype(text); }
    Attr operator()(const StateKey&) const { return parse_state_key(unquoted(text)); }
    Attr operator()(const std::vector<int64_t>&) const {
      return parse_list<int64_t>(text, int_literal);
    }
    Attr operator()(const std::vector<std::string>&) const {
      return parse_list<std::string>(text, unquoted);
    }
  };
  return std::visit(Parser{text}, kind);
}

bool Signature::has_variadic_results() const {
  return !results.empty() && results.back().kind == OperandKind::Variadic;
}

size_t Signature::operand_index(std::string_view operand) const {
  return index_of(*this, operands, operand, "operand");
}

size_t Signature::attr_index(std::string_view attr) const {
  return index_of(*this, attrs, attr, "attribute");
}

size_t Signature::result_index(std::string_view result) const {
  return index_of(*this, results, result, "result");
}

const Signature& OpDef::parsed() const {
  static const std::map<const OpDef*, Signature> signatures = [] {
    std::map<const OpDef*, Signature> map;
    for (const OpDef* op : all_ops()) map.emplace(op, parse_signature(op->signature));
    return map;
  }();
  auto found = signatures.find(this);
  CHECK(found != signatures.end(), "op \"", signature, "\" is not in the list of ops");
  return found->second;
}

const OpDef* find_op(std::string_view name) {
  for (const OpDef* op : all_ops()) {
    if (op->name() == name) return op;
  }
  return nullptr;
}

std::string unknown_op(std::string_view name) {
  std::vector<std::string> names;
  for (const OpDef* op : all_ops()) names.emplace_back(op->name());
  const std::optional<std::string> near = nearest(name, names);
  return cat(
      "unknown op ", in_quotes(name),
      near ? cat("; did you mean \"", *near, "\"?") : "; weft opt --list-ops lists them all");
}

const TensorType& Call::type(std::string_view operand) const {
  return operands.at(op->parsed().operand_index(operand));
}

bool Call::has_operand(std::string_view operand) const {
  return op->parsed().operand_index(operand) < operands.size();
}

const Attr& Call::attr(std::string_view name) const {
  return attrs.at(op->parsed().attr_index(name));
}

void Call::refuse(const std::string& message) const {
  throw UserError(ExitCode::Config, cat(op->name(), ": ", message));
}

Cost cost_of(const Call& call) {
  Cost cost = call.op->cost != nullptr ? call.op->cost(call) : Cost{};
  if (cost.bytes < 0) {
    cost.bytes = 0;
    for (const auto& type : call.operands) cost.bytes += static_cast<double>(type.bytes());
    for (const auto& type : call.results) cost.bytes += static_cast<double>(type.bytes());
  }
  return cost;
}

bool is_inferred(const OpDef& op, const TensorType& type, const TensorType& inferred) {
  return type.dtype == inferred.dtype && type.shape == inferred.shape &&
         type.future == inferred.future &&
         (!op.traits.places || type.placement == inferred.placement);
}

std::vector<int> overwritten_operands(const Call& call) {
  const Signature& signature = call.op->parsed();
  std::vector<int> overwritten(call.results.size(), -1);
  if (call.op->overwrites.empty()) return overwritten;
  for (const auto& pair : split(call.op->overwrites, ' ')) {
    size_t arrow = pair.find("<-");
    CHECK(arrow != std::string::npos, "op ", signature.name, " overwrites \"", pair, "\"");
    for (size_t i = 0; i < signature.results.size(); ++i) {
      if (signature.results[i].name != pair.substr(0, arrow)) continue;
      const size_t operand = signature.operand_index(pair.substr(arrow + 2));
      const bool variadic = signature.results[i].kind == OperandKind::Variadic;
      const size_t last = variadic ? overwritten.size() : i + 1;
      for (size_t j = i; j < last; ++j) {
        const size_t index = operand + j - i;
        const bool absent = variadic && index >= call.operands.size();
        if (!absent) overwritten.at(j) = static_cast<int>(index);
      }
    }
  }
  return overwritten;
}

bool has_effect(const Call& call) {
  if (call.op->traits.effect) return true;
  const std::vector<int> overwritten = overwritten_operands(call);
  return std::any_of(overwritten.begin(), overwritten.end(), [](int index) { return index >= 0; });
}

}  // namespace weft
