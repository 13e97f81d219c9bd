#include "graph/dims.h"

#include "base/error.h"
#include "base/text.h"

namespace weft::dims {

std::string packed(std::string_view name, const std::vector<int64_t>& parts) {
  std::vector<std::string> sizes;
  for (const int64_t part : parts) sizes.push_back(cat(part));
  return cat(name, "(", join(sizes, "|"), ")");
}

std::string_view name_of(std::string_view dim) {
  return dim.substr(0, dim.find('('));
}

std::vector<int64_t> parts_of(std::string_view dim) {
  const size_t open = dim.find('(');
  if (open == std::string_view::npos) return {};
  USER_CHECK(dim.ends_with(')'), "dim ", in_quotes(dim), " is not of the form heads(64|32|32)");
  std::vector<int64_t> parts;
  for (const std::string& size : split(dim.substr(open + 1, dim.size() - open - 2), '|')) {
    const auto part = parse_int(size);
    USER_CHECK(part && *part > 0, "dim ", in_quotes(dim), " is not of the form heads(64|32|32)");
    parts.push_back(*part);
  }
  return parts;
}

}  // namespace weft::dims
