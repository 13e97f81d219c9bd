// The tile instructions of AMX in plain C++, as the manual defines them, for machines without them.
// Included before gemm_amx.cpp, whose code then runs exactly as on the processor.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace weft::amx_emulation {

struct Tile {
  float at[16][16];  // or pairs of bf16
};
inline thread_local Tile tiles[8];

inline void load(int tile, const void* from, int64_t stride) {
  for (int row = 0; row < 16; ++row) {
    std::memcpy(tiles[tile].at[row], static_cast<const char*>(from) + row * stride, 64);
  }
}

inline void store(int tile, void* to, int64_t stride) {
  for (int row = 0; row < 16; ++row) {
    std::memcpy(static_cast<char*>(to) + row * stride, tiles[tile].at[row], 64);
  }
}

inline float half_of_pair(const float& pair, int half) {
  uint32_t bits;
  std::memcpy(&bits, &pair, sizeof bits);
  bits = half == 0 ? bits << 16 : bits & 0xffff0000u;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline void multiply_bf16(int sum, int left, int right) {
  for (int row = 0; row < 16; ++row) {
    for (int col = 0; col < 16; ++col) {
      float halves[2] = {};
      for (int pair = 0; pair < 16; ++pair) {
        for (int half = 0; half < 2; ++half) {
          halves[half] += half_of_pair(tiles[left].at[row][pair], half) *
                          half_of_pair(tiles[right].at[pair][col], half);
        }
      }
      tiles[sum].at[row][col] += halves[0] + halves[1];
    }
  }
}

}  // namespace weft::amx_emulation

#undef _tile_loadconfig
#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbf16ps
#define _tile_loadconfig(shapes) static_cast<void>(shapes)
#define _tile_loadd(tile, from, stride) weft::amx_emulation::load(tile, from, stride)
#define _tile_stored(tile, to, stride) weft::amx_emulation::store(tile, to, stride)
#define _tile_zero(tile) weft::amx_emulation::tiles[tile] = {}
#define _tile_dpbf16ps(sum, left, right) weft::amx_emulation::multiply_bf16(sum, left, right)
