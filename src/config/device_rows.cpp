// Rows of a device spec as text: words "name=value", each exactly once, in any order.
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "config/device_spec.h"

namespace weft {
namespace {

// The fields of a row by name; each must be given exactly once.
struct Fields {
  std::map<std::string_view, double*> numbers = {};
  std::map<std::string_view, int64_t*> counts = {};
  std::map<std::string_view, std::string*> words = {};

  bool empty() const { return numbers.empty() && counts.empty() && words.empty(); }

  // Removes the field from its map when the name is known.
  bool set(std::string_view word, std::string_view name, std::string_view value) {
    if (const auto at = numbers.find(name); at != numbers.end()) {
      const std::optional<double> found = parse_double(value);
      USER_CHECK(found && *found >= 0 && (*found > 0 || name.ends_with("latency")), in_quotes(word),
                 " is not a valid number");
      *at->second = *found;
      numbers.erase(at);
    } else if (const auto count = counts.find(name); count != counts.end()) {
      const std::optional<int64_t> found = parse_int(value);
      USER_CHECK(found && *found >= 1, in_quotes(word), " is not a whole number of at least 1");
      *count->second = *found;
      counts.erase(count);
    } else if (const auto text = words.find(name); text != words.end()) {
      USER_CHECK(!value.empty(), in_quotes(word), " has no value");
      *text->second = value;
      words.erase(text);
    } else {
      return false;
    }
    return true;
  }
};

void read_row(std::string_view text, Fields fields, const std::string& example) {
  for (const std::string& word : split(trim(text), ' ')) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = std::string_view(word).substr(0, equals);
    const std::string_view value =
        equals < word.size() ? std::string_view(word).substr(equals + 1) : std::string_view();
    USER_CHECK(fields.set(word, name, value), in_quotes(word),
               " is unknown or repeated, expected a row such as \"", example, "\"");
  }
  USER_CHECK(fields.empty(), "row ", in_quotes(text), " is incomplete, expected \"", example, "\"");
}

}  // namespace

std::string to_string(const Link& link) {
  return cat("hosts=", link.hosts, " ranks=", link.ranks,
             " gather_latency=", format_double(link.gather_latency),
             " gather_bandwidth=", format_double(link.gather_bandwidth),
             " scatter_latency=", format_double(link.scatter_latency),
             " scatter_bandwidth=", format_double(link.scatter_bandwidth),
             " sum_latency=", format_double(link.sum_latency),
             " sum_bandwidth=", format_double(link.sum_bandwidth));
}

std::string to_string(const KernelShare& kernel) {
  return cat("op=", kernel.op, " dtype=", kernel.dtype, " share=", format_double(kernel.share));
}

Link parse_link(std::string_view text) {
  Link link;
  read_row(text,
           {.numbers = {{"gather_latency", &link.gather_latency},
                        {"gather_bandwidth", &link.gather_bandwidth},
                        {"scatter_latency", &link.scatter_latency},
                        {"scatter_bandwidth", &link.scatter_bandwidth},
                        {"sum_latency", &link.sum_latency},
                        {"sum_bandwidth", &link.sum_bandwidth}},
            .counts = {{"hosts", &link.hosts}, {"ranks", &link.ranks}}},
           to_string(Link()));
  return link;
}

KernelShare parse_kernel_share(std::string_view text) {
  KernelShare kernel;
  read_row(text,
           {.numbers = {{"share", &kernel.share}},
            .words = {{"op", &kernel.op}, {"dtype", &kernel.dtype}}},
           to_string(KernelShare{"attention", "f32", 0.4}));
  return kernel;
}

}  // namespace weft
