#include "config/toml_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace weft {
namespace {

// Thrown where the TOML library finds one of its own assumptions broken.
struct BrokenAssumption {};

constexpr void require(bool condition) {
  if (!condition) {
    throw BrokenAssumption();
  }
}

}  // namespace
}  // namespace weft

// With NDEBUG the library tells the compiler to assume what malformed text can break, for example
// that a key follows "[".
#undef NDEBUG
#define TOML_ASSERT(condition) weft::require(static_cast<bool>(condition))
#define TOML_MAX_NESTED_VALUES 32
#include <toml++/toml.h>

#include "base/error.h"
#include "base/text.h"

namespace weft {
namespace {

constexpr size_t kLongestQuote = 60;

// One line of printable ASCII, for text that comes from a file into a message.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c >= ' ' && c <= '~' ? c : '?';
  }
  return out;
}

std::string shortened(std::string text) {
  if (text.size() > kLongestQuote) {
    text.resize(kLongestQuote - 3);
    text += "...";
  }
  return printable(text);
}

// Walks over TOML text before the library does and skips what strings and comments hold, to refuse
// what the library does not survive.
class TomlGuard {
 public:
  TomlGuard(std::string_view text, std::string file_name)
      : text_(text), file_name_(std::move(file_name)) {}

  // Throws UserError(Config) for a key of too many parts (each makes a table, and nested tables are
  // destroyed recursively) and for bytes that are not ASCII where TOML has none.
  void check() {
    int dots = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"' || c == '\'') {
        skip_string(c);
        continue;
      }
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      }
      USER_CHECK((c >= ' ' && c <= '~') || c == '\t' || c == '\r' || c == '\n', file_name_, ":",
                 line_, ": malformed TOML: a character that needs quotes; write it inside \"...\"");
      line_ += c == '\n';
      const bool key_ends = c == '\n' || c == '=' || c == ',' || c == '{' || c == '[';
      dots = key_ends ? 0 : dots + (c == '.');
      USER_CHECK(dots <= kDeepestToml, file_name_, ":", line_, ": a key has more than ",
                 kDeepestToml, " parts, expected \"section.key\"");
      ++at_;
    }
  }

 private:
  void skip_string(char quote) {
    const std::string triple(3, quote);
    const bool multi_line = text_.substr(at_, 3) == triple;
    at_ += multi_line ? 3 : 1;
    while (at_ < text_.size()) {
      if (multi_line ? text_.substr(at_, 3) == triple : text_[at_] == quote) {
        // Up to two quotes before the closing three belong to the text.
        at_ = multi_line ? std::min(text_.find_first_not_of(quote, at_), at_ + 5) : at_ + 1;
        return;
      }
      if (!multi_line && text_[at_] == '\n') {
        return;
      }
      if (quote == '"' && text_[at_] == '\\') {
        ++at_;
        check_escape();
      }
      if (at_ < text_.size()) {
        line_ += text_[at_] == '\n';
        ++at_;
      }
    }
  }

  // The library classifies what follows a backslash or an escaped line end as white space or not,
  // which for characters outside ASCII has no defined result.
  void check_escape() const {
    const size_t next = text_.find_first_not_of(" \t\r\n", at_);
    USER_CHECK(
        next == std::string_view::npos || (text_[next] & 0x80) == 0, file_name_, ":", line_,
        ": malformed TOML: a character outside ASCII follows a backslash; remove the backslash");
  }

  std::string_view text_;
  std::string file_name_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

// Where a column starts; columns count characters from 1.
size_t byte_of_column(std::string_view line, size_t column) {
  size_t at = 0;
  for (size_t i = 1; i < column && at < line.size(); ++i) {
    do {
      ++at;
    } while (at < line.size() && (line[at] & 0xc0) == 0x80);
  }
  return at;
}

std::string type_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return std::string(kTableFound);
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

ConfigValue value_of(const toml::node& node) {
  if (const auto* flag = node.as_boolean()) {
    return flag->get();
  }
  if (const auto* whole = node.as_integer()) {
    return whole->get();
  }
  if (const auto* number = node.as_floating_point()) {
    return number->get();
  }
  if (const auto* text = node.as_string()) {
    return text->get();
  }
  if (const auto* list = node.as_array()) {
    std::vector<std::string> items;
    for (const toml::node& item : *list) {
      if (!item.is_string()) {
        return {};
      }
      items.push_back(item.as_string()->get());
    }
    return items;
  }
  return {};
}

// What the library says, as the end of our sentence.
std::string error_text(std::string_view description) {
  constexpr std::string_view kPrefix = "Error while parsing ";
  const bool known = description.substr(0, kPrefix.size()) == kPrefix;
  const std::string text = printable(known ? description.substr(kPrefix.size()) : description);
  const std::string sentence = cat("malformed ", known ? "" : "TOML: ", text);
  return sentence.substr(0, sentence.find(" (TOML_"));
}

class Flattener {
 public:
  Flattener(std::string_view text, std::string file_name)
      : lines_(split(text, '\n')), file_name_(std::move(file_name)) {}

  std::vector<Entry> entries(const toml::table& root) {
    add_table("", root);
    // The library keeps tables sorted by name; messages should name the first mistake of the file.
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Placed& a, const Placed& b) { return a.line < b.line; });
    std::vector<Entry> out;
    for (Placed& placed : found_) {
      out.push_back(std::move(placed.entry));
    }
    return out;
  }

 private:
  struct Placed {
    int64_t line;
    Entry entry;
  };

  void add_table(const std::string& prefix, const toml::table& table) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      const toml::table* inner = node.as_table();
      if (inner != nullptr && !inner->empty()) {
        add_table(key + ".", *inner);
      } else {
        add_value(key, node);
      }
    }
  }

  void add_value(const std::string& key, const toml::node& node) {
    const int64_t line = node.source().begin.line;
    const std::string where = cat(file_name_, ":", line);
    const std::string shown = shortened(key);
    const bool section = node.is_table() || node.is_array_of_tables();
    const std::string written = section ? shown : cat(shown, " = ", written_form(node));
    found_.push_back({line,
                      {.key = key,
                       .shown = shown,
                       .value = value_of(node),
                       .found = type_of(node),
                       .where = where,
                       .subject = cat(where, ": ", written)}});
  }

  // The value as the user wrote it; a value of several lines by its first.
  std::string written_form(const toml::node& node) const {
    const toml::source_region& at = node.source();
    const std::string& line = lines_.at(at.begin.line - 1);
    const size_t begin = byte_of_column(line, at.begin.column);
    const bool one_line = at.begin.line == at.end.line && at.end.column > at.begin.column;
    const size_t end = one_line ? byte_of_column(line, at.end.column) : line.size();
    return shortened(std::string(trim(std::string_view(line).substr(begin, end - begin))));
  }

  std::vector<std::string> lines_;
  std::string file_name_;
  std::vector<Placed> found_;
};

}  // namespace

std::vector<Entry> read_toml(std::string_view text, const std::string& file_name) {
  USER_CHECK(static_cast<int64_t>(text.size()) <= kLargestTomlBytes, file_name, ": the file has ",
             text.size(), " bytes, expected at most ", kLargestTomlBytes);
  TomlGuard(text, file_name).check();
  try {
    return Flattener(text, file_name).entries(toml::parse(text, file_name));
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    throw UserError(ExitCode::Config, cat(file_name, ":", at.line, ":", at.column, ": ",
                                          error_text(error.description())));
  } catch (const BrokenAssumption&) {
    throw UserError(ExitCode::Config,
                    cat(file_name, ": malformed TOML; check that a key follows every \"[\""));
  }
}

std::string read_config_file(const std::string& path) {
  std::error_code error;
  USER_CHECK(std::filesystem::exists(path, error), path,
             ": no such config file; give the path of a TOML file");
  USER_CHECK(!std::filesystem::is_directory(path, error), path,
             ": is a folder, expected a TOML file");
  std::ifstream in(path, std::ios::binary);
  std::string text(kLargestTomlBytes + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  USER_CHECK(in.gcount() > 0 || in.eof(), path,
             ": the config file cannot be read; check its permissions");
  USER_CHECK(in.gcount() <= kLargestTomlBytes, path, ": the file has more than ", kLargestTomlBytes,
             " bytes, expected a config of at most that size");
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

}  // namespace weft
