// A SAX handler builds the value on an explicit stack, so hostile nesting cannot exhaust the call
// stack. The library tells it only the position of malformed text; the position of the stream gives
// every error its line.
#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace weft {

namespace {

using nlohmann::json;

class Builder {
 public:
  Builder(std::string_view text, std::string_view where)
      : text_(text), where_(where), in_(std::string(text)) {}

  std::istream& in() { return in_; }
  json take() { return std::move(root_); }

  bool null() { return place(nullptr); }
  bool boolean(bool value) { return place(value); }
  bool number_integer(json::number_integer_t value) { return place(value); }
  bool number_unsigned(json::number_unsigned_t value) { return place(value); }
  bool number_float(json::number_float_t value, const std::string&) { return place(value); }
  bool string(std::string& value) { return place(std::move(value)); }
  bool binary(json::binary_t&) { return false; }
  bool start_object(size_t) { return open(json::object()); }
  bool start_array(size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    const bool fresh = !open_.back()->contains(name);
    INPUT_CHECK(fresh, place_name(), ": duplicate key ", in_quotes(name));
    slot_ = &(*open_.back())[name];
    return true;
  }

  bool parse_error(size_t, const std::string&, const json::exception&) {
    throw UserError(ExitCode::InputFile, cat(place_name(), ": malformed JSON at byte ",
                                             std::max<int64_t>(1, bytes_read())));
  }

 private:
  int64_t bytes_read() { return in_.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in); }

  // File and line of the last character read.
  std::string place_name() {
    const std::string_view before = text_.substr(0, std::max<int64_t>(0, bytes_read() - 1));
    return cat(where_, ":", 1 + std::count(before.begin(), before.end(), '\n'));
  }

  json* add(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_object()) {
      *slot_ = std::move(value);
      return slot_;
    }
    open_.back()->push_back(std::move(value));
    return &open_.back()->back();
  }

  bool place(json value) {
    add(std::move(value));
    return true;
  }

  bool open(json value) {
    INPUT_CHECK(open_.size() < size_t{kMaxJsonNesting}, place_name(),
                ": JSON is nested deeper than ", kMaxJsonNesting, " levels");
    open_.push_back(add(std::move(value)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_;
  std::string_view where_;
  std::istringstream in_;
  json root_;
  json* slot_ = nullptr;
  std::vector<json*> open_;
};

}  // namespace

json parse_json(std::string_view text, std::string_view where) {
  Builder builder(text, where);
  json::sax_parse(builder.in(), &builder);
  return builder.take();
}

json read_json_file(const std::string& path, int64_t max_bytes) {
  return parse_json(read_text_file(path, max_bytes), path);
}

std::string json_type(const json& value) {
  if (value.is_null()) return value.type_name();
  return cat(value.is_array() || value.is_object() ? "an " : "a ", value.type_name());
}

const json& json_member(const json& object, const std::string& key, std::string_view where) {
  INPUT_CHECK(object.is_object(), where, ": found ", json_type(object),
              ", expected an object with \"", key, "\"");
  const auto found = object.find(key);
  INPUT_CHECK(found != object.end(), where, ": \"", key, "\" is missing");
  return *found;
}

std::string json_string(const json& object, const std::string& key, std::string_view where) {
  const json& value = json_member(object, key, where);
  INPUT_CHECK(value.is_string(), where, ": \"", key, "\" is ", json_type(value),
              ", expected a string");
  return value.get<std::string>();
}

int64_t json_int(const json& object, const std::string& key, std::string_view where) {
  const json& value = json_member(object, key, where);
  INPUT_CHECK(value.is_number_integer(), where, ": \"", key, "\" is ",
              value.is_number() ? value.dump() : json_type(value), ", expected a whole number");
  const bool fits = !value.is_number_unsigned() || value.get<uint64_t>() <= uint64_t{INT64_MAX};
  INPUT_CHECK(fits, where, ": \"", key, "\" is ", value.dump(), ", beyond 64 bits");
  return value.get<int64_t>();
}

bool json_flag(const json& object, const std::string& key, std::string_view where) {
  const json& value = json_member(object, key, where);
  INPUT_CHECK(value.is_boolean(), where, ": \"", key, "\" is ", json_type(value),
              ", expected true or false");
  return value.get<bool>();
}

}  // namespace weft
