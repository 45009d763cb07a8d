// A thread for each head and split, and then one for each element of the output.
#include "benchmarks/support/attention.h"

#include <cmath>

#include "interop/device/kernel.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kWidth = Attention::kWidth;
constexpr int kPartial = kWidth + 2;  // the sum of values, the largest score, the sum of weights

struct AttendToSplit {
  Attention of;
  int splits;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const auto head = i / splits;
    const auto split = static_cast<int>(i % splits);
    const float* const query = of.query + head * kWidth;
    const std::int64_t row = head * of.capacity;
    float sums[kWidth] = {};
    float largest = -INFINITY, weights = 0;
    const int begin = split * Attention::kSplit, length = *of.length;
    const int end = begin + Attention::kSplit < length ? begin + Attention::kSplit : length;
    for (int token = begin; token < end; ++token) {
      const float* const key = of.keys + (row + token) * kWidth;
      const float* const value = of.values + (row + token) * kWidth;
      float score = 0;
      for (int d = 0; d < kWidth; ++d)
        score += query[d] * key[d];
      const float before = largest;
      largest = fmaxf(largest, score);
      const float scale = before == -INFINITY ? 0 : expf(before - largest);
      const float weight = expf(score - largest);
      weights = weights * scale + weight;
      for (int d = 0; d < kWidth; ++d)
        sums[d] = sums[d] * scale + weight * value[d];
    }
    float* const partial = of.partial + i * kPartial;
    for (int d = 0; d < kWidth; ++d)
      partial[d] = sums[d];
    partial[kWidth] = largest;
    partial[kWidth + 1] = weights;
  }
};

struct Combine {
  Attention of;
  int splits;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const float* const partials = of.partial + i / kWidth * splits * kPartial;
    float largest = -INFINITY;
    for (int split = 0; split < splits; ++split)
      largest = fmaxf(largest, partials[split * kPartial + kWidth]);
    float sum = 0, weights = 0;
    for (int split = 0; split < splits; ++split) {
      const float* const partial = partials + split * kPartial;
      if (partial[kWidth] == -INFINITY) continue;
      const float scale = expf(partial[kWidth] - largest);
      sum += partial[i % kWidth] * scale;
      weights += partial[kWidth + 1] * scale;
    }
    of.output[i] = sum / weights;
  }
};

}  // namespace

void launch_attention(StreamRef stream, const Attention& attention, int splits) {
  parallel_for(stream, std::int64_t{attention.heads} * splits, AttendToSplit{attention, splits});
  parallel_for(stream, std::int64_t{attention.heads} * kWidth, Combine{attention, splits});
}

}  // namespace cgtree::benchmarks
