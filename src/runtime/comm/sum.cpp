#include "runtime/comm/sum.h"

#include <algorithm>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/error.h"
#include "base/tree_level.h"
#include "runtime/cpu/elements.h"
#include "runtime/cpu/simd.h"

namespace weft {
namespace {

constexpr int64_t kBlock = 1024;
// Larger data does not stay in a core's private caches.
constexpr int64_t kStreamBytes = 1 << 20;

// Non-temporal copy: the data is not read soon, and its cache lines need not be fetched first.
void stream_bytes(void* to, const void* from, int64_t bytes) {
  char* at = static_cast<char*>(to);
  const char* source = static_cast<const char*>(from);
  int64_t i = 0;
#if defined(__SSE2__)
  const auto head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(to) & 63);
  i = std::min(head, bytes);
  std::memcpy(at, source, static_cast<size_t>(i));
  for (; i + 64 <= bytes; i += 64) {
    const auto* in = reinterpret_cast<const __m128i*>(source + i);
    auto* out = reinterpret_cast<__m128i*>(at + i);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();  // before any rank is told that the data is there
#endif
  std::memcpy(at + i, source + i, static_cast<size_t>(bytes - i));
}

WEFT_CLONES void sum2(const float* a, const float* b, int64_t n, float* to) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) to[i] = a[i] + b[i];
}

WEFT_CLONES void sum4(const float* a, const float* b, const float* c, const float* d, int64_t n,
                      float* to) {
  WEFT_VECTORIZE
  for (int64_t i = 0; i < n; ++i) to[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

#if defined(__SSE2__)
constexpr int64_t kLine = 16;  // elements of a cache line

// Non-temporal sums of full cache lines; `sum` returns those of elements [i, i + 4).
template <class Sum>
void stream_lines(int64_t n, float* to, const Sum& sum) {
  for (int64_t i = 0; i < n; i += kLine) {
    _mm_stream_ps(to + i, sum(i));
    _mm_stream_ps(to + i + 4, sum(i + 4));
    _mm_stream_ps(to + i + 8, sum(i + 8));
    _mm_stream_ps(to + i + 12, sum(i + 12));
  }
  _mm_sfence();  // before any rank is told that the sums are there
}

// Sums two or four f32 sources without an intermediate block; returns how many elements were
// summed.
int64_t stream_sums(std::span<const void* const> sources, int64_t n, float* to) {
  const int64_t lines = n / kLine * kLine;
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0) return 0;
  const auto at = [&](size_t source, int64_t i) {
    return _mm_loadu_ps(static_cast<const float*>(sources[source]) + i);
  };
  if (sources.size() == 2) {
    stream_lines(lines, to, [&](int64_t i) { return _mm_add_ps(at(0, i), at(1, i)); });
    return lines;
  }
  if (sources.size() == 4) {
    stream_lines(lines, to, [&](int64_t i) {
      return _mm_add_ps(_mm_add_ps(at(0, i), at(1, i)), _mm_add_ps(at(2, i), at(3, i)));
    });
    return lines;
  }
  return 0;
}
#else
int64_t stream_sums(std::span<const void* const>, int64_t, float*) {
  return 0;
}
#endif

// Sums elements [offset, offset + n) of the sources, n at most a block. Partial sums use separate
// blocks, as `to` may be a source that is still to be read.
void sum_block(std::span<const void* const> sources, DType dtype, int64_t offset, int64_t n,
               float* to) {
  float buffers[4][kBlock];
  const auto source = [&](size_t i) {
    const Tensor tensor{const_cast<void*>(sources[i]), dtype, {}};
    return load(tensor, offset, n, buffers[i]);
  };
  switch (sources.size()) {
    case 1: {
      const float* only = source(0);
      if (only != to) std::memcpy(to, only, static_cast<size_t>(n) * sizeof(float));
      return;
    }
    case 2:
      return sum2(source(0), source(1), n, to);
    case 4:
      return sum4(source(0), source(1), source(2), source(3), n, to);
    default: {
      const auto split = static_cast<size_t>(tree_split(static_cast<int64_t>(sources.size())));
      sum_block(sources.first(split), dtype, offset, n, buffers[0]);
      sum_block(sources.subspan(split), dtype, offset, n, buffers[1]);
      return sum2(buffers[0], buffers[1], n, to);
    }
  }
}

void sum_integers(std::span<const void* const> sources, int64_t n, int64_t* to) {
  for (int64_t i = 0; i < n; ++i) {
    uint64_t sum = 0;  // unsigned: wraps where a signed sum would be undefined
    for (const void* source : sources) {
      sum += static_cast<uint64_t>(static_cast<const int64_t*>(source)[i]);
    }
    to[i] = static_cast<int64_t>(sum);
  }
}

}  // namespace

void tree_sum(std::span<const void* const> sources, DType dtype, int64_t n, const Run& to) {
  if (dtype == DType::I64) {
    CHECK(to.dtype == DType::I64, "an i64 sum into ", dtype_name(to.dtype));
    return sum_integers(sources, n, static_cast<int64_t*>(to.data));
  }
  const Tensor result{to.data, to.dtype, {}};
  alignas(64) float buffer[kBlock];
  const bool streams = to.dtype == DType::F32 && n * 4 >= kStreamBytes;
  int64_t offset = 0;
  if (streams && dtype == DType::F32) offset = stream_sums(sources, n, result.as<float>());
  for (; offset < n; offset += kBlock) {
    const int64_t length = std::min(kBlock, n - offset);
    float* sums = streams ? buffer : place(result, offset, buffer);
    sum_block(sources, dtype, offset, length, sums);
    if (streams) {
      stream_bytes(result.as<float>() + offset, sums, length * 4);
    } else {
      store(result, offset, length, sums);
    }
  }
}

void convert(const Run& from, int64_t n, const Run& to) {
  if (from.dtype == to.dtype) return copy_bytes(to.data, from.data, n * dtype_bytes(to.dtype));
  const void* sources[] = {from.data};
  tree_sum(sources, from.dtype, n, to);
}

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes >= kStreamBytes) return stream_bytes(to, from, bytes);
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace weft
