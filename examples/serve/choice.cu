// Chooses the next token from logits. Without CUDA a C++ compiler compiles this file too.
//
// A choice is a key: a larger key wins, and among equal logits the lower column has the larger key.
// Keys of the chunks of a row, which may be the work of several ranks, are compared by a second
// kernel.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "examples/serve/kernels.h"
#include "examples/serve/numbers.h"
#include "interop/device/kernel.h"

namespace cgtree::serve {
namespace {

// Returns numbers in the order of the floats.
CGTREE_HOST_DEVICE inline std::uint32_t ordered_bits(float value) {
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Choose {
  const float* logits;
  std::uint64_t* keys;
  PhiloxRange noise;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t first_column;
  std::int64_t vocabulary;
  std::int64_t chunk;         // columns, a multiple of 4
  float inverse_temperature;  // 0: greedy
  // An explicit field, because the padding would have bytes of the stack: loop() compares two runs
  // of a body.
  std::uint32_t unused = 0;

  // Returns the best key of four columns.
  CGTREE_HOST_DEVICE std::uint64_t best_of_four(std::int64_t row, std::int64_t column) const {
    struct alignas(16) Four {
      float v[4];
    };
    const Four from = load_aligned<Four>(logits + row * columns + column);
    PhiloxBlock words{};
    if (inverse_temperature > 0) {
      const std::int64_t first = row * vocabulary + first_column + column;
      words = noise.block(static_cast<std::uint64_t>(first) / 4);
    }
    std::uint64_t best = 0;
    for (int i = 0; i < 4; ++i) {
      float value = from.v[i];
      if (inverse_temperature > 0) {
        const float uniform = (static_cast<float>(words.words[i] >> 9) + 0.5f) * 0x1p-23f;
        value = value * inverse_temperature - logf(-logf(uniform));
      }
      const auto index = static_cast<std::uint32_t>(first_column + column + i);
      const std::uint64_t key = static_cast<std::uint64_t>(ordered_bits(value)) << 32 | ~index;
      if (key > best) best = key;
    }
    return best;
  }
};

struct Finish {
  const std::uint64_t* keys;
  std::int32_t* next;
  std::int64_t chunks;
  std::int64_t rows;

  CGTREE_HOST_DEVICE void take(std::int64_t row, std::uint64_t key) const {
    next[row] = static_cast<std::int32_t>(~static_cast<std::uint32_t>(key));
  }
};

void choose_on_host(const LaunchDims&, Choose a) {
  for (std::int64_t first = 0; first < a.columns; first += a.chunk) {
    for (std::int64_t row = 0; row < a.rows; ++row) {
      std::uint64_t best = 0;
      for (std::int64_t i = first; i < std::min(first + a.chunk, a.columns); i += 4)
        best = std::max(best, a.best_of_four(row, i));
      a.keys[first / a.chunk * a.rows + row] = best;
    }
  }
}

void finish_choice_on_host(const LaunchDims&, Finish a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    std::uint64_t best = 0;
    for (std::int64_t chunk = 0; chunk < a.chunks; ++chunk)
      best = std::max(best, a.keys[chunk * a.rows + row]);
    a.take(row, best);
  }
}

constexpr int kThreads = 256;

#ifdef __CUDACC__
__device__ std::uint64_t warp_max(std::uint64_t value) {
  for (int step = 16; step > 0; step /= 2) {
    const std::uint64_t other = __shfl_xor_sync(0xFFFFFFFF, value, step);
    value = other > value ? other : value;
  }
  return value;
}

// Returns the largest of the block to its first thread.
__device__ std::uint64_t block_max(std::uint64_t value) {
  __shared__ std::uint64_t values[32];
  value = warp_max(value);
  if (threadIdx.x % 32 == 0) values[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_max(threadIdx.x < blockDim.x / 32 ? values[threadIdx.x] : 0);
}

// Grid: {chunks, rows}.
__global__ void __launch_bounds__(kThreads) choose_on_cuda(Choose a) {
  const std::int64_t first = blockIdx.x * a.chunk;
  const std::int64_t end = min(first + a.chunk, a.columns);
  std::uint64_t best = 0;
  for (std::int64_t i = first + 4 * threadIdx.x; i < end; i += 4 * kThreads) {
    const std::uint64_t key = a.best_of_four(blockIdx.y, i);
    best = key > best ? key : best;
  }
  best = block_max(best);
  if (threadIdx.x == 0) a.keys[blockIdx.x * a.rows + blockIdx.y] = best;
}

// Grid: {rows}.
__global__ void __launch_bounds__(kThreads) finish_choice_on_cuda(Finish a) {
  std::uint64_t best = 0;
  for (std::int64_t chunk = threadIdx.x; chunk < a.chunks; chunk += kThreads) {
    const std::uint64_t key = a.keys[chunk * a.rows + blockIdx.x];
    best = key > best ? key : best;
  }
  best = block_max(best);
  if (threadIdx.x == 0) a.take(blockIdx.x, best);
}
#endif

// Columns of a row of logits that a block of choose() processes.
std::int64_t chunk_of(std::int64_t rows) {
  return rows <= 16 ? 1024 : 8192;
}

}  // namespace

std::int64_t chunks(std::int64_t rows, std::int64_t columns) {
  return (columns + chunk_of(rows) - 1) / chunk_of(rows);
}

void choose(StreamRef stream, const Tensor& logits, float temperature, const PhiloxRange& noise,
            std::int64_t first_column, std::int64_t vocabulary, const Tensor& keys) {
  static const auto kernel =
      make_kernel<&choose_on_host>("choose", SERVE_CUDA_FUNCTION(choose_on_cuda));
  const std::int64_t rows = logits.dim(0), columns = logits.dim(1);
  launch(
      stream, kernel,
      {.grid = {static_cast<std::uint32_t>(chunks(rows, columns)),
                static_cast<std::uint32_t>(rows)},
       .block = {kThreads}},
      Choose{logits.data<float>(), static_cast<std::uint64_t*>(keys.data()), noise, rows, columns,
             first_column, vocabulary, chunk_of(rows), temperature > 0 ? 1 / temperature : 0});
}

void finish_choice(StreamRef stream, const Tensor& keys, const Tensor& next) {
  static const auto kernel = make_kernel<&finish_choice_on_host>(
      "finish_choice", SERVE_CUDA_FUNCTION(finish_choice_on_cuda));
  const std::int64_t rows = next.dim(0);
  launch(stream, kernel, {.grid = {static_cast<std::uint32_t>(rows)}, .block = {kThreads}},
         Finish{static_cast<std::uint64_t*>(keys.data()), next.data<std::int32_t>(),
                keys.elements() / rows, rows});
}

}  // namespace cgtree::serve
