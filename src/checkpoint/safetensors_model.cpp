// Finds tensors across the files of a model.
#include "checkpoint/safetensors_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace weft {

namespace {

// What the manifest says about a file; null without a manifest.
const ManifestFile* described(const Manifest* manifest, const std::string& path) {
  if (manifest == nullptr) return nullptr;
  const ManifestFile* file = manifest->find(std::filesystem::path(path).filename().string());
  if (file == nullptr) {
    throw UserError(ExitCode::Integrity, path + ": the manifest does not list this file");
  }
  return file;
}

}  // namespace

SafetensorsModel SafetensorsModel::open(const std::string& path, const std::string& stem,
                                        const Manifest* manifest) {
  SafetensorsModel model;
  model.path_ = path;
  if (!std::filesystem::is_directory(path)) {
    model.open_single(path, manifest);
    return model;
  }
  const std::string single = stem + ".safetensors";
  const std::string index = single + ".index.json";
  if (path_exists(path + "/" + index)) {
    model.open_sharded(path, path + "/" + index, manifest);
  } else {
    INPUT_CHECK(path_exists(path + "/" + single), path, ": holds neither ", single, " nor ", index);
    model.open_single(path + "/" + single, manifest);
  }
  return model;
}

void SafetensorsModel::open_single(const std::string& path, const Manifest* manifest) {
  files_.push_back(SafetensorsFile::open(path, described(manifest, path)));
  for (const TensorEntry& entry : files_[0].entries()) places_[entry.name] = {0, &entry};
}

void SafetensorsModel::open_sharded(const std::string& folder, const std::string& index,
                                    const Manifest* manifest) {
  VerifiedFile text = VerifiedFile::open(index, described(manifest, index));
  INPUT_CHECK(text.size() <= kMaxSafetensorsHeader, index, ": file has ", text.size(),
              " bytes, expected at most ", kMaxSafetensorsHeader);
  std::string content(static_cast<size_t>(text.size()), ' ');
  text.read(0, std::as_writable_bytes(std::span(content)));
  const nlohmann::json root = parse_json(content, index);
  const nlohmann::json& map = json_member(root, "weight_map", index);
  INPUT_CHECK(map.is_object(), index, ": \"weight_map\" is ", json_type(map),
              ", expected an object");
  std::map<std::string, size_t> opened;
  for (const auto& [name, value] : map.items()) {
    INPUT_CHECK(value.is_string(), index, ": the file of ", in_quotes(name), " is ",
                json_type(value), ", expected a string");
    const auto file = value.get<std::string>();
    INPUT_CHECK(is_plain_name(file), index, ": the file of ", in_quotes(name), " is ",
                in_quotes(file), ", expected a plain file name");
    const auto [place, fresh] = opened.try_emplace(file, files_.size());
    if (fresh) {
      const std::string path = folder + "/" + file;
      files_.push_back(SafetensorsFile::open(path, described(manifest, path)));
    }
    // Entries keep their address when the vector of files grows: moving a file moves its storage.
    const TensorEntry* entry = files_[place->second].find(name);
    INPUT_CHECK(entry != nullptr, index, ": places ", in_quotes(name), " in ", in_quotes(file),
                ", which does not hold it");
    places_[name] = {place->second, entry};
  }
}

std::vector<std::string> SafetensorsModel::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

const TensorEntry* SafetensorsModel::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : found->second.entry;
}

void SafetensorsModel::read(std::string_view name, int64_t first,
                            std::span<std::byte> bytes) const {
  const auto found = places_.find(name);
  INPUT_CHECK(found != places_.end(), path_, ": tensor ", in_quotes(name), " is missing");
  files_[found->second.file].read(*found->second.entry, first, bytes);
}

}  // namespace weft
