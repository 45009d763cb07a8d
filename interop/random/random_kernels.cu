// Fills memory with random numbers: one body per block of random words, for both devices.
#include "interop/random/random_kernels.h"

#include "interop/device/kernel.h"
#include "interop/random/philox.h"

namespace cgtree {
namespace {

struct FillUniform {
  PhiloxRange range;
  float* data;
  std::int64_t count;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const PhiloxBlock block = range.block(static_cast<std::uint64_t>(i));
    for (std::int64_t j = 0; j < kFloatsPerPhiloxBlock && i * kFloatsPerPhiloxBlock + j < count;
         ++j)
      data[i * kFloatsPerPhiloxBlock + j] = to_uniform(block.words[j]);
  }
};

struct FillNormal {
  PhiloxRange range;
  float* data;
  std::int64_t count;
  float mean;
  float deviation;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const PhiloxBlock block = range.block(static_cast<std::uint64_t>(i));
    for (std::int64_t j = 0; j < kFloatsPerPhiloxBlock && i * kFloatsPerPhiloxBlock + j < count;
         ++j) {
      const NormalPair pair = to_normals(block.words[j & ~1], block.words[j | 1]);
      data[i * kFloatsPerPhiloxBlock + j] = mean + deviation * pair.values[j & 1];
    }
  }
};

struct FillIntegers {
  PhiloxRange range;
  std::int64_t* data;
  std::int64_t count;
  std::int64_t low;
  std::uint64_t span;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const PhiloxBlock block = range.block(static_cast<std::uint64_t>(i));
    for (std::int64_t j = 0; j < kIntegersPerPhiloxBlock && i * kIntegersPerPhiloxBlock + j < count;
         ++j) {
      const std::uint64_t above = to_integer(block.words[2 * j], block.words[2 * j + 1], span);
      data[i * kIntegersPerPhiloxBlock + j] =
          static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + above);
    }
  }
};

std::int64_t blocks_of(std::int64_t count, std::int64_t per_block) {
  return (count + per_block - 1) / per_block;
}

}  // namespace

void launch_fill_uniform(StreamRef stream, const PhiloxRange& range, float* data,
                         std::int64_t count) {
  parallel_for(stream, blocks_of(count, kFloatsPerPhiloxBlock), FillUniform{range, data, count});
}

void launch_fill_normal(StreamRef stream, const PhiloxRange& range, float* data, std::int64_t count,
                        float mean, float deviation) {
  parallel_for(stream, blocks_of(count, kFloatsPerPhiloxBlock),
               FillNormal{range, data, count, mean, deviation});
}

void launch_fill_integers(StreamRef stream, const PhiloxRange& range, std::int64_t* data,
                          std::int64_t count, std::int64_t low, std::uint64_t span) {
  parallel_for(stream, blocks_of(count, kIntegersPerPhiloxBlock),
               FillIntegers{range, data, count, low, span});
}

}  // namespace cgtree
