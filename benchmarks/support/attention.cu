// One thread for each score, each element of a split's sum, and each element of the output.
#include "benchmarks/support/attention.h"

#include <cmath>

#include "interop/device/kernel.h"

namespace cgtree::benchmarks {
namespace {

constexpr int kWidth = Attention::kWidth;
constexpr int kPartial = kWidth + 2;  // the sum of values, the largest score, the sum of weights

struct Score {
  Attention of;
  int splits;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t slots = std::int64_t{splits} * Attention::kSplit;
    const std::int64_t head = i / slots, token = i % slots;
    if (token >= *of.length) return;
    const float* const query = of.query + head * kWidth;
    const float* const key = of.keys + (head * of.capacity + token) * kWidth;
    float score = 0;
    for (int d = 0; d < kWidth; ++d)
      score += query[d] * key[d];
    of.scores[i] = score;
  }
};

struct AttendToSplit {
  Attention of;
  int splits;
  CGTREE_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t row = i / kWidth;  // of a head and a split
    const auto d = static_cast<int>(i % kWidth);
    const std::int64_t head = row / splits;
    const auto begin = static_cast<int>(row % splits) * Attention::kSplit;
    const int left = *of.length - begin;
    const int tokens = left < Attention::kSplit ? left : Attention::kSplit;
    const float* const scores = of.scores + row * Attention::kSplit;
    const float* const values = of.values + (head * of.capacity + begin) * kWidth;
    float largest = -INFINITY, weights = 0, sum = 0;
    for (int t = 0; t < tokens; ++t)
      largest = fmaxf(largest, scores[t]);
    for (int t = 0; t < tokens; ++t) {
      const float weight = expf(scores[t] - largest);
      weights += weight;
      sum += weight * values[t * kWidth + d];
    }
    float* const partial = of.partial + row * kPartial;
    partial[d] = sum;
    if (d > 0) return;
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
  const std::int64_t rows = std::int64_t{attention.heads} * splits;
  parallel_for(stream, rows * Attention::kSplit, Score{attention, splits});
  parallel_for(stream, rows * kWidth, AttendToSplit{attention, splits});
  parallel_for(stream, std::int64_t{attention.heads} * kWidth, Combine{attention, splits});
}

}  // namespace cgtree::benchmarks
