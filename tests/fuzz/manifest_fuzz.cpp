// The input is read as it is, and again with the right digest appended, so that the fuzzer reaches
// what comes after it. Every accepted manifest must survive being written.
#include "base/checksum.h"
#include "checkpoint/manifest.h"
#include "fuzz/fuzz.h"

namespace {

void read_manifest(std::string_view text) {
  weft::only_user_errors([&] {
    const weft::Manifest manifest = weft::parse_manifest(text, "input");
    for (const weft::ManifestFile& file : manifest.files) {
      weft::must_hold(weft::is_plain_name(file.name) && manifest.find(file.name) == &file);
    }
    const std::string printed = weft::manifest_text(manifest);
    weft::must_hold(weft::parse_manifest(printed, "again") == manifest);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = weft::text_of(data, size);
  read_manifest(text);
  read_manifest(weft::cat(text, ",\n\"digest\":\"", weft::digest(text), "\"}\n"));
  return 0;
}
