// Counter-based random numbers (Philox4x32-10): a value is a pure function of (seed, stream, step,
// element), so initial weights, dropout and data order depend neither on the number of ranks nor on
// the order of evaluation. The stream is the hash of a path such as "layers.3.attention.dropout".
//
//   key      64 bits = mix64(mix64(seed) ^ stream), low word first
//   counter 128 bits = (block, step), two 64-bit numbers, low word first
//   element e is word e % 4 of block e / 4
//
// mix64 is a bijection, so different streams of one seed have different keys. CMakeLists.txt
// defines WEFT_HOST_DEVICE for host and device code.
#pragma once

#include <cmath>
#include <cstdint>

namespace weft {

// Four words: a Philox counter, or the four random words it maps to.
struct PhiloxBlock {
  uint32_t word[4];
};

struct PhiloxKey {
  uint32_t word[2];
};

// One round of Philox4x32, which also advances the key.
WEFT_HOST_DEVICE constexpr PhiloxBlock philox_round(PhiloxBlock counter, PhiloxKey key) {
  const uint64_t product0 = uint64_t{0xD2511F53} * counter.word[0];
  const uint64_t product1 = uint64_t{0xCD9E8D57} * counter.word[2];
  return {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key.word[0],
           static_cast<uint32_t>(product1),
           static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key.word[1],
           static_cast<uint32_t>(product0)}};
}
WEFT_HOST_DEVICE constexpr PhiloxKey philox_next_key(PhiloxKey key) {
  return {{key.word[0] + 0x9E3779B9u, key.word[1] + 0xBB67AE85u}};
}

inline constexpr int kPhiloxRounds = 10;

WEFT_HOST_DEVICE constexpr PhiloxBlock philox4x32_10(PhiloxBlock counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    counter = philox_round(counter, key);
    key = philox_next_key(key);
  }
  return counter;
}

// A bijection of 64-bit numbers in which every input bit affects every output bit.
WEFT_HOST_DEVICE constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The key of one stream under one seed; make it once and draw many values from it.
WEFT_HOST_DEVICE constexpr PhiloxKey random_key(uint64_t seed, uint64_t stream) {
  const uint64_t key = mix64(mix64(seed) ^ stream);
  return {{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)}};
}

WEFT_HOST_DEVICE constexpr PhiloxBlock random_counter(uint64_t step, uint64_t block) {
  return {{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
           static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)}};
}

// The four random words of elements 4 * block .. 4 * block + 3.
WEFT_HOST_DEVICE constexpr PhiloxBlock random_block(PhiloxKey key, uint64_t step, uint64_t block) {
  return philox4x32_10(random_counter(step, block), key);
}

// The random word of one element.
WEFT_HOST_DEVICE constexpr uint32_t random_bits(PhiloxKey key, uint64_t step, uint64_t element) {
  return random_block(key, step, element / 4).word[element % 4];
}

// Uniform in [0, 1): the upper 24 bits, exact in float.
WEFT_HOST_DEVICE constexpr float unit_from_bits(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

// Uniform in [0, 1) for one element.
WEFT_HOST_DEVICE constexpr float random_unit(PhiloxKey key, uint64_t step, uint64_t element) {
  return unit_from_bits(random_bits(key, step, element));
}

// Four standard normals, each below 6.7 in magnitude.
struct NormalBlock {
  double value[4];
};

// The standard normals of elements 4 * block .. 4 * block + 3, by Box-Muller: words 0 and 1 give
// the first two, words 2 and 3 the last two.
inline NormalBlock normal_block(PhiloxKey key, uint64_t step, uint64_t block) {
  constexpr double kTwoPi = 6.283185307179586476925;
  const PhiloxBlock bits = random_block(key, step, block);
  NormalBlock normals;
  for (int i = 0; i < 4; i += 2) {
    const double u = (static_cast<double>(bits.word[i]) + 1.0) * 0x1p-32;
    const double angle = kTwoPi * (static_cast<double>(bits.word[i + 1]) * 0x1p-32);
    const double radius = std::sqrt(-2.0 * std::log(u));
    normals.value[i] = radius * std::cos(angle);
    normals.value[i + 1] = radius * std::sin(angle);
  }
  return normals;
}

// Uniform integer in [0, limit) from all words of block `index`; the bias is below limit / 2^64.
WEFT_HOST_DEVICE constexpr uint64_t random_below(PhiloxKey key, uint64_t step, uint64_t index,
                                                 uint64_t limit) {
  const PhiloxBlock block = random_block(key, step, index);
  const uint64_t bits = (uint64_t{block.word[1]} << 32) | block.word[0];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * limit) >> 64);
}

}  // namespace weft
