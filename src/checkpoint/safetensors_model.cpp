// Finds tensors across the files of a model.
#include "checkpoint/safetensors_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace weft {

namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// A plain file name cannot refer to another folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

}  // namespace

SafetensorsModel SafetensorsModel::open(const std::string& path) {
  SafetensorsModel model;
  model.path_ = path;
  if (!std::filesystem::is_directory(path)) {
    model.open_single(path);
    return model;
  }
  const std::string index = path + "/" + kIndex;
  const std::string single = path + "/" + kSingle;
  if (path_exists(index)) {
    model.open_sharded(path, index);
  } else {
    INPUT_CHECK(path_exists(single), path, ": holds neither ", kSingle, " nor ", kIndex);
    model.open_single(single);
  }
  return model;
}

void SafetensorsModel::open_single(const std::string& path) {
  files_.push_back(SafetensorsFile::open(path));
  for (const TensorEntry& entry : files_[0].entries()) places_[entry.name] = {0, &entry};
}

void SafetensorsModel::open_sharded(const std::string& folder, const std::string& index) {
  const nlohmann::json root = read_json_file(index, kMaxSafetensorsHeader);
  const nlohmann::json& map = json_member(root, "weight_map", index);
  INPUT_CHECK(map.is_object(), index, ": \"weight_map\" is ", map.type_name(),
              ", expected an object");
  std::map<std::string, size_t> opened;
  for (const auto& [name, value] : map.items()) {
    INPUT_CHECK(value.is_string(), index, ": the file of ", in_quotes(name), " is ",
                value.type_name(), ", expected a string");
    const auto file = value.get<std::string>();
    INPUT_CHECK(is_plain_name(file), index, ": the file of ", in_quotes(name), " is ",
                in_quotes(file), ", expected a plain file name");
    const auto [place, fresh] = opened.try_emplace(file, files_.size());
    if (fresh) files_.push_back(SafetensorsFile::open(folder + "/" + file));
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

std::span<const std::byte> SafetensorsModel::bytes(std::string_view name) const {
  const auto found = places_.find(name);
  INPUT_CHECK(found != places_.end(), path_, ": tensor ", in_quotes(name), " is missing");
  return files_[found->second.file].bytes(*found->second.entry);
}

}  // namespace weft
