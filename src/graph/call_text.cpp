// Splits text outside quotes and brackets, and parses attributes by name.
#include "graph/call_text.h"

namespace weft {

std::vector<std::string_view> split_top_level(std::string_view text, char separator) {
  std::vector<std::string_view> items;
  if (trim(text).empty()) return items;
  int depth = 0;
  bool quoted = false;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c == '"') quoted = false;
      continue;
    }
    if (c == '"') quoted = true;
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    if (c == separator && depth == 0) {
      items.push_back(trim(text.substr(start, i - start)));
      start = i + 1;
    }
  }
  items.push_back(trim(text.substr(start)));
  return items;
}

Attrs parse_call_attrs(const OpDef& op, std::string_view text) {
  const auto& specs = op.parsed().attrs;
  Attrs attrs;
  for (const AttrSpec& spec : specs) attrs.push_back(spec.default_value);
  std::vector<bool> given(specs.size(), false);
  for (std::string_view item : split_top_level(text, ',')) {
    const size_t equals = item.find('=');
    USER_CHECK(equals != std::string_view::npos, "attribute ", in_quotes(item),
               " is not name=value");
    const std::string_view name = trim(item.substr(0, equals));
    size_t index = 0;
    while (index < specs.size() && specs[index].name != name) ++index;
    USER_CHECK(index < specs.size(), op.name(), " has no attribute ", in_quotes(name), "; it is ",
               op.signature);
    attrs[index] = parse_attr(trim(item.substr(equals + 1)), specs[index].default_value);
    given[index] = true;
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    USER_CHECK(given[i] || !specs[i].required, op.name(), " needs the attribute ",
               in_quotes(specs[i].name), "; it is ", op.signature);
  }
  return attrs;
}

std::string print_call_attrs(const OpDef& op, const Attrs& attrs) {
  const auto& specs = op.parsed().attrs;
  std::vector<std::string> items;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].required && attrs.at(i) == specs[i].default_value) continue;
    items.push_back(cat(specs[i].name, "=", to_string(attrs.at(i))));
  }
  return items.empty() ? "" : cat("; ", join(items, ", "));
}

}  // namespace weft
