// JSON with the digest of all bytes before it as the last member.
#include "checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json.h"

namespace weft {

namespace {

using nlohmann::json;

constexpr std::string_view kDigestKey = ",\n\"digest\":\"";
constexpr size_t kDigestLength = 32;

// Where the digest begins, or npos.
size_t digest_at(std::string_view text) {
  const size_t key = text.rfind(kDigestKey);
  return key == std::string_view::npos ? key : key + kDigestKey.size();
}

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw UserError(ExitCode::Integrity, cat(where, ": ", what));
}

uint64_t parse_hex(const std::string& text, const std::string& where) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, 16);
  if (text.size() != 16 || error != std::errc() || at != end) {
    fail(where, cat("checksum ", in_quotes(text), ", expected 16 hexadecimal digits"));
  }
  return value;
}

const json& list_of(const json& object, const std::string& key, const std::string& where) {
  const json& list = json_member(object, key, where);
  if (!list.is_array()) fail(where, cat("\"", key, "\" is ", json_type(list), ", expected a list"));
  return list;
}

ManifestFile read_file_entry(const json& object, const std::string& manifest) {
  ManifestFile file{json_string(object, "name", manifest), {}};
  const std::string where = cat(manifest, ": file ", in_quotes(file.name));
  if (!is_plain_name(file.name)) fail(where, "not a plain file name");
  const json& sizes = list_of(object, "block_bytes", where);
  const json& sums = list_of(object, "checksums", where);
  if (sizes.size() != sums.size()) {
    fail(where, cat(sizes.size(), " blocks with ", sums.size(), " checksums"));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool valid = sizes[i].is_number_unsigned() && sizes[i].get<uint64_t>() >= 1 &&
                       sizes[i].get<uint64_t>() <= uint64_t{kMaxBlockBytes};
    if (!valid || !sums[i].is_string()) fail(where, cat("block ", i, " is malformed"));
    file.blocks.push_back({sizes[i].get<int64_t>(), parse_hex(sums[i].get<std::string>(), where)});
  }
  if (json_int(object, "bytes", where) != file.bytes()) {
    fail(where, cat("\"bytes\" is ", json_int(object, "bytes", where), ", its blocks have ",
                    file.bytes()));
  }
  return file;
}

Manifest read_manifest(std::string_view text, const std::string& where) {
  const json root = parse_json(text, where);
  const int64_t format = json_int(root, "format", where);
  if (format < 1) fail(where, cat("format ", format, ", expected 1 or more"));
  INPUT_CHECK(format <= kManifestFormat, where, ": format ", format,
              ", this build reads formats up to ", kManifestFormat, "; use a newer build");
  Manifest manifest{.step = json_int(root, "step", where), .files = {}};
  std::set<std::string> names;
  for (const json& object : list_of(root, "files", where)) {
    manifest.files.push_back(read_file_entry(object, where));
    const std::string& name = manifest.files.back().name;
    if (!names.insert(name).second) fail(where, cat("lists ", in_quotes(name), " twice"));
  }
  if (manifest.step < 0) fail(where, cat("step ", manifest.step, ", expected 0 or more"));
  return manifest;
}

}  // namespace

int64_t ManifestFile::bytes() const {
  return std::accumulate(blocks.begin(), blocks.end(), int64_t{0},
                         [](int64_t sum, const Block& block) { return sum + block.bytes; });
}

const ManifestFile* Manifest::find(std::string_view name) const {
  const auto at = std::find_if(files.begin(), files.end(),
                               [&](const ManifestFile& file) { return file.name == name; });
  return at == files.end() ? nullptr : &*at;
}

int64_t Manifest::bytes() const {
  return std::accumulate(files.begin(), files.end(), int64_t{0},
                         [](int64_t sum, const ManifestFile& file) { return sum + file.bytes(); });
}

std::string manifest_text(const Manifest& manifest) {
  std::string text =
      cat("{\"format\":", kManifestFormat, ",\n\"step\":", manifest.step, ",\n\"files\":[");
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const ManifestFile& file = manifest.files[i];
    text +=
        cat(i > 0 ? "," : "", "\n{\"name\":", json(file.name).dump(), ",\"bytes\":", file.bytes());
    const auto add_list = [&](const char* key, auto write) {
      text += cat(",\"", key, "\":[");
      for (size_t b = 0; b < file.blocks.size(); ++b) {
        if (b > 0) text += ',';
        write(file.blocks[b]);
      }
      text += ']';
    };
    add_list("block_bytes", [&](const Block& block) { text += std::to_string(block.bytes); });
    add_list("checksums", [&](const Block& block) {
      text += '"';
      text += to_hex(block.checksum);
      text += '"';
    });
    text += '}';
  }
  text += ']';
  const std::string own = digest(text);
  return cat(text, kDigestKey, own, "\"}\n");
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  const size_t at = digest_at(text);
  if (at == std::string_view::npos) fail(where, "has no digest; it is damaged");
  const std::string_view body = text.substr(0, at - kDigestKey.size());
  const std::string expected = cat(digest(body), "\"}\n");
  if (text.substr(at) != expected) {
    fail(where, cat("its digest is ", digest(body), ", expected ",
                    in_quotes(std::string(text.substr(at, kDigestLength))), "; it is damaged"));
  }
  return read_manifest(text, where);
}

std::string manifest_digest(std::string_view text) {
  return std::string(text.substr(digest_at(text), kDigestLength));
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

}  // namespace weft
