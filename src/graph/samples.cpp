// Turns samples into calls.
#include "graph/samples.h"

#include "graph/call_text.h"

namespace weft {
namespace {

// Checks the operand names against the signature: optional ones may be missing, a variadic one
// repeats.
void check_names(const OpDef& op, const std::vector<std::string_view>& names) {
  size_t next = 0;
  for (const OperandSpec& spec : op.parsed().operands) {
    const bool found = next < names.size() && names[next] == spec.name;
    CHECK(found || spec.kind != OperandKind::Required, "operand ", spec.name, " is missing");
    if (!found) continue;
    ++next;
    while (spec.kind == OperandKind::Variadic && next < names.size() && names[next] == spec.name) {
      ++next;
    }
  }
  CHECK(next == names.size(), "operand ", names[next], " is not in ", op.signature);
}

Call parse_sample(const OpDef& op, std::string_view text) {
  const auto parts = split_top_level(text, ';');
  CHECK(parts.size() == 1 || parts.size() == 2, "expected \"operands; attributes\"");
  Call call{.op = &op, .operands = {}, .results = {}, .attrs = {}};
  std::vector<std::string_view> names;
  for (std::string_view item : split_top_level(parts[0], ',')) {
    const size_t colon = item.find(':');
    CHECK(colon != std::string_view::npos, "\"", item, "\" is not \"name: type\"");
    names.push_back(trim(item.substr(0, colon)));
    call.operands.push_back(parse_type(trim(item.substr(colon + 1))));
  }
  check_names(op, names);
  call.attrs = parse_call_attrs(op, parts.size() == 2 ? parts[1] : "");
  call.results = op.infer(call);
  return call;
}

}  // namespace

std::vector<Call> parse_samples(const OpDef& op) {
  return parse_samples(op, op.samples);
}

std::vector<Call> parse_samples(const OpDef& op, std::string_view samples) {
  std::vector<Call> calls;
  for (std::string_view text : split_top_level(samples, '|')) {
    try {
      calls.push_back(parse_sample(op, text));
    } catch (const std::exception& error) {
      throw InternalError(cat("sample \"", text, "\" of ", op.name(), ": ", error.what()));
    }
  }
  return calls;
}

}  // namespace weft
