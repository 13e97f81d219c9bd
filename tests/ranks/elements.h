// Values for tests of collectives, as bits of any floating-point type, and the meshes they run on.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "base/half.h"
#include "ranks/ranks.h"

namespace weft {

// A value with many mantissa bits, so that a different order of summation shows.
inline float element(int64_t rank, int64_t seed, int64_t i) {
  uint64_t x = static_cast<uint64_t>(rank * 1000003 + seed * 7919 + i + 1) * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 32;
  const int exponent = static_cast<int>(x % 7) - 3;
  return static_cast<float>(std::ldexp(static_cast<double>(x >> 40) / (1 << 23) - 1.0, exponent));
}

inline uint64_t encode(DType dtype, float value) {
  switch (dtype) {
    case DType::BF16:
      return bf16_from_f32(value);
    case DType::F16:
      return f16_from_f32(value);
    default:
      return bits_from_f32(value);
  }
}

inline float decode(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::BF16:
      return f32_from_bf16(static_cast<uint16_t>(bits));
    case DType::F16:
      return f32_from_f16(static_cast<uint16_t>(bits));
    default:
      return f32_from_bits(static_cast<uint32_t>(bits));
  }
}

inline uint64_t read_bits(const Tensor& tensor, int64_t i) {
  uint64_t bits = 0;
  const int64_t bytes = dtype_bytes(tensor.dtype);
  std::memcpy(&bits, tensor.as<char>() + i * bytes, static_cast<size_t>(bytes));
  return bits;
}

inline void write_bits(const Tensor& tensor, int64_t i, uint64_t bits) {
  const int64_t bytes = dtype_bytes(tensor.dtype);
  std::memcpy(tensor.as<char>() + i * bytes, &bits, static_cast<size_t>(bytes));
}

inline void fill(const Tensor& tensor, int64_t rank, int64_t seed) {
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    write_bits(tensor, i, encode(tensor.dtype, element(rank, seed, i)));
  }
}

inline std::string mesh_name(const Mesh& mesh) {
  std::string name;
  for (const MeshAxis& axis : mesh.axes) name += cat(name.empty() ? "" : "x", axis.size);
  return name;
}

inline std::vector<Mesh> meshes() {
  std::vector<Mesh> list;
  for (const int64_t ranks : {1, 2, 3, 4, 5, 8}) list.push_back(make_mesh({{"dp_shard", ranks}}));
  list.push_back(make_mesh({{"dp_replicate", 2}, {"dp_shard", 2}}));
  list.push_back(make_mesh({{"dp_replicate", 2}, {"dp_shard", 4}}));
  list.push_back(make_mesh({{"dp_replicate", 3}, {"dp_shard", 1}}));
  return list;
}

inline std::string case_name(const testing::TestParamInfo<std::tuple<Transport, Mesh>>& test) {
  const auto& [transport, mesh] = test.param;
  return cat(transport == Transport::Threads ? "threads_" : "shm_", mesh_name(mesh));
}

}  // namespace weft
