// The input is the index of a model in two files, "one" with tensor a and "two" with tensor b.
// Every tensor of an accepted index can be read.
#include <vector>

#include "checkpoint/safetensors_model.h"
#include "fuzz/fuzz.h"
#include "support/safetensors_file.h"
#include "support/temp_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const weft::TempFolder folder;
  static const bool made = [] {
    const std::vector<weft::TensorSpec> a = {{"a", "I32", {2}}}, b = {{"b", "F32", {}}};
    weft::write_safetensors(folder / "one", a, "12345678");
    weft::write_safetensors(folder / "two", b, "1234");
    return true;
  }();
  weft::must_hold(made);
  folder.write("model.safetensors.index.json", weft::text_of(data, size));
  weft::only_user_errors([&] {
    const auto model = weft::SafetensorsModel::open(folder.path());
    for (const std::string& name : model.names()) {
      const weft::TensorEntry* entry = model.find(name);
      std::vector<std::byte> bytes(static_cast<size_t>(entry->end - entry->begin));
      model.read(name, 0, bytes);
      weft::must_hold(bytes.size() == (name == "a" ? 8 : 4) && bytes[0] == std::byte{'1'});
    }
  });
  return 0;
}
