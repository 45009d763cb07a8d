// The kernels' bodies on the host device. Inner loops run over contiguous memory, so that the
// compiler vectorises them.
#include "examples/serve/kernel_arguments.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace cgtree::serve {
namespace {

// Four partial sums hide the latency of the additions; without -ffast-math the compiler may not
// reorder them itself.
float dot(const float* a, const float* b, std::int64_t count) {
  float sum[4] = {};
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (int part = 0; part < 4; ++part)
      sum[part] += a[i + part] * b[i + part];
  }
  for (; i < count; ++i)
    sum[0] += a[i] * b[i];
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Turns scores into weights that sum to 1.
void softmax(std::vector<float>& scores) {
  const float highest = *std::max_element(scores.begin(), scores.end());
  float sum = 0;
  for (float& score : scores) {
    score = std::exp(score - highest);
    sum += score;
  }
  for (float& score : scores)
    score /= sum;
}

void attend_one(const AttentionArguments& a, std::int64_t row, std::int64_t head,
                std::vector<float>& scores) {
  const std::int64_t slot = a.batch.slots[row];
  const std::int64_t offset = head * a.head_size;
  const float* const q = a.qkv + row * 3 * a.cache.hidden + offset;
  float* const out = a.out + row * a.cache.hidden + offset;
  std::fill_n(out, a.head_size, 0.0f);
  if (slot < 0) return;
  scores.resize(static_cast<std::size_t>(a.cache.window(a.batch.positions[row])));
  for (std::size_t p = 0; p < scores.size(); ++p) {
    const float* const key = a.cache.keys + a.cache.row(slot, static_cast<std::int64_t>(p));
    scores[p] = dot(q, key + offset, a.head_size) * a.scale;
  }
  softmax(scores);
  for (std::size_t p = 0; p < scores.size(); ++p) {
    const float* const value =
        a.cache.values + a.cache.row(slot, static_cast<std::int64_t>(p)) + offset;
    for (std::int64_t d = 0; d < a.head_size; ++d)
      out[d] += scores[p] * value[d];
  }
}

// Computes kRows rows of y at once, so that each weight is read once for all of them.
template <int kRows>
void multiply_rows(const ProductArguments& a, std::int64_t first) {
  const float* x[kRows];
  float* y[kRows];
  for (int r = 0; r < kRows; ++r) {
    x[r] = a.x + (first + r) * a.depth;
    y[r] = a.y + (first + r) * a.columns;
    if (!a.accumulate) std::fill_n(y[r], a.columns, 0.0f);
  }
  for (std::int64_t k = 0; k < a.depth; ++k) {
    const float* __restrict__ const w = a.w + k * a.columns;
    for (int r = 0; r < kRows; ++r) {
      float* __restrict__ const out = y[r];
      const float factor = x[r][k];
      for (std::int64_t n = 0; n < a.columns; ++n)
        out[n] += factor * w[n];
    }
  }
}

}  // namespace

void rms_norm_on_host(const LaunchDims&, NormArguments a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* const x = a.x + row * a.width;
    float* const y = a.y + row * a.width;
    const float mean_square = dot(x, x, a.width) / static_cast<float>(a.width);
    const float factor = 1.0f / std::sqrt(mean_square + kNormEpsilon);
    for (std::int64_t i = 0; i < a.width; ++i)
      y[i] = x[i] * factor * a.gain[i];
  }
}

void attend_on_host(const LaunchDims&, AttentionArguments a) {
  std::vector<float> scores;
  scores.reserve(static_cast<std::size_t>(a.cache.context));
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::int64_t head = 0; head < a.heads; ++head)
      attend_one(a, row, head, scores);
  }
}

void argmax_on_host(const LaunchDims&, ArgmaxArguments a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const float* const logits = a.logits + row * a.width;
    a.next[row] = static_cast<std::int32_t>(std::max_element(logits, logits + a.width) - logits);
  }
}

void multiply_on_host(const LaunchDims&, ProductArguments a) {
  std::int64_t row = 0;
  for (; row + 4 <= a.rows; row += 4)
    multiply_rows<4>(a, row);
  for (; row < a.rows; ++row)
    multiply_rows<1>(a, row);
}

}  // namespace cgtree::serve
