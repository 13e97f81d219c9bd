#include "train/exchange_text.h"

#include <algorithm>
#include <cstdint>

namespace weft {

std::vector<std::string> exchange_texts(Communicator& comm, std::string text) {
  const auto ranks = static_cast<size_t>(comm.ranks());
  const uint64_t own = text.size();
  std::vector<uint64_t> sizes(ranks);
  comm.exchange(std::span(reinterpret_cast<const char*>(&own), sizeof own),
                std::span(reinterpret_cast<char*>(sizes.data()), ranks * sizeof own));
  const uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::string> texts(ranks);
  if (longest == 0) return texts;
  text.resize(longest);
  std::vector<char> all(longest * ranks);
  comm.exchange(text, all);
  for (size_t rank = 0; rank < ranks; ++rank) {
    texts[rank].assign(&all[rank * longest], sizes[rank]);
  }
  return texts;
}

}  // namespace weft
