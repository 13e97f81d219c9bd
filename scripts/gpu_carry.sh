#!/usr/bin/env bash
# Copies the header libraries (those of cuDNN and NCCL among them, if they are here) and the GoogleTest sources
# of this machine into carry/ (ignored by git), so that a GPU machine without packages and network can
# build from the working tree.
set -euo pipefail
cd "$(dirname "$0")/.."

include=${1:-/usr/include}
googletest=${2:-/usr/src/googletest/googletest}

for source in "$include/toml++/toml.h" "$include/nlohmann/json.hpp" "$include/CLI/CLI.hpp" "$include/xxhash.h" \
  "$googletest/CMakeLists.txt"; do
  if [[ ! -f $source ]]; then
    echo "$source: not found; install libtomlplusplus-dev nlohmann-json3-dev libcli11-dev libxxhash-dev libgtest-dev" >&2
    exit 1
  fi
done

rm -rf carry
mkdir -p carry/include carry/googletest
cp -r "$include/toml++" "$include/nlohmann" "$include/CLI" "$include/xxhash.h" carry/include/
cp -r "$googletest/CMakeLists.txt" "$googletest/cmake" "$googletest/src" carry/googletest/
for library in cudnn nccl; do
  for folder in "$include" /usr/local/cuda/include; do
    if [[ -f $folder/$library.h ]]; then
      cp "$folder/$library"*.h carry/include/
      break
    fi
  done
done
# Debian keeps the public headers with the others.
if [[ -d $googletest/include ]]; then
  cp -r "$googletest/include" carry/googletest/
else
  mkdir -p carry/googletest/include
  cp -r "$include/gtest" carry/googletest/include/
fi
du -sh carry
