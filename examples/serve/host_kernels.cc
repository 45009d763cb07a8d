// The kernels' bodies on the host device. Inner loops run over contiguous memory, so that the
// compiler vectorises them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "examples/serve/kernel_arguments.h"

namespace cgtree::serve {
namespace {

// Eight partial sums hide the latency of the additions; without -ffast-math the compiler may not
// reorder them itself.
template <typename T>
float dot(const T* a, const T* b, std::int64_t count) {
  float sum[8] = {};
  for (std::int64_t i = 0; i < count; i += 8) {
    for (int part = 0; part < 8; ++part)
      sum[part] += to_float(a[i + part]) * to_float(b[i + part]);
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

template <typename T>
void attend_one(const AttentionArguments<T>& a, std::int64_t row, std::int64_t head,
                std::vector<float>& scores, std::vector<float>& sum) {
  const std::int64_t size = a.cache.head_size;
  const std::int64_t kv_head = head / (a.heads / a.cache.kv_heads);
  const std::int32_t* const blocks = a.batch.blocks(row);
  const std::int32_t count = a.batch.position(row) + 1;
  const T* const q = a.qkv + row * a.qkv_width() + head * size;
  scores.clear();
  sum.assign(static_cast<std::size_t>(size), 0);
  float highest = -INFINITY;
  for (std::int32_t p = 0; p < count; ++p) {
    scores.push_back(dot(q, a.cache.keys + a.cache.at(blocks, kv_head, p), size) * a.scale);
    highest = std::max(highest, scores.back());
  }
  float total = 0;
  for (std::int32_t p = 0; p < count; ++p) {
    const float weight = std::exp(scores[static_cast<std::size_t>(p)] - highest);
    const T* const value = a.cache.values + a.cache.at(blocks, kv_head, p);
    total += weight;
    for (std::int64_t d = 0; d < size; ++d)
      sum[static_cast<std::size_t>(d)] += weight * to_float(value[d]);
  }
  for (std::int64_t d = 0; d < size; ++d) {
    a.out[(row * a.heads + head) * size + d] =
        from_float<T>(count == 0 ? 0 : sum[static_cast<std::size_t>(d)] / total);
  }
}

}  // namespace

template <typename T>
void add_norm_on_host(const LaunchDims&, NormArguments<T> a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    T* const x = a.x + row * a.width;
    for (std::int64_t i = 0; a.delta != nullptr && i < a.width; ++i)
      x[i] = from_float<T>(to_float(x[i]) + to_float(a.delta[row * a.width + i]));
    const float mean_square = dot(x, x, a.width) / static_cast<float>(a.width);
    const float factor = 1.0f / std::sqrt(mean_square + a.epsilon);
    for (std::int64_t i = 0; i < a.width; ++i) {
      const float scaled = to_float(from_float<T>(to_float(x[i]) * factor));
      a.y[row * a.width + i] = from_float<T>(scaled * to_float(a.gain[i]));
    }
  }
}

template <typename T>
void attend_on_host(const LaunchDims&, AttentionArguments<T> a) {
  std::vector<float> scores, sum;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::int64_t head = 0; head < a.heads; ++head)
      attend_one(a, row, head, scores, sum);
  }
}

// Rows are the inner loop, so that a row of weights is read from memory once.
template <typename T, typename Y>
void multiply_on_host(const LaunchDims&, ProductArguments<T, Y> a) {
  for (std::int64_t column = 0; column < a.columns; ++column) {
    for (std::int64_t row = 0; row < a.rows; ++row) {
      a.y[row * a.columns + column] =
          from_float<Y>(dot(a.x + row * a.depth, a.w + column * a.depth, a.depth));
    }
  }
}

void find_top_k_on_host(const LaunchDims&, TopKArguments a) {
  std::vector<float> values(static_cast<std::size_t>(a.parts * a.columns));
  const auto nth = values.begin() + std::min<std::ptrdiff_t>(a.k, std::ssize(values)) - 1;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = a.logit(row, static_cast<std::int64_t>(i));
    std::nth_element(values.begin(), nth, values.end(), std::greater<>());
    a.thresholds[row] = *nth;
  }
}

void choose_on_host(const LaunchDims&, ChoiceArguments a) {
  for (std::int64_t first = 0; first < a.columns; first += a.chunk) {
    for (std::int64_t row = 0; row < a.rows; ++row) {
      std::uint64_t best = 0;
      for (std::int64_t i = first; i < std::min(first + a.chunk, a.columns); i += 4)
        best = std::max(best, a.best_of_four(row, i));
      a.keys[first / a.chunk * a.rows + row] = best;
    }
  }
}

void finish_choice_on_host(const LaunchDims&, FinishArguments a) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    std::uint64_t best = 0;
    for (std::int64_t chunk = 0; chunk < a.chunks; ++chunk)
      best = std::max(best, a.keys[chunk * a.rows + row]);
    a.next[row] = static_cast<std::int32_t>(~static_cast<std::uint32_t>(best));
  }
}

template void add_norm_on_host(const LaunchDims&, NormArguments<float>);
template void add_norm_on_host(const LaunchDims&, NormArguments<BFloat16>);
template void attend_on_host(const LaunchDims&, AttentionArguments<float>);
template void attend_on_host(const LaunchDims&, AttentionArguments<BFloat16>);
template void multiply_on_host(const LaunchDims&, ProductArguments<float, float>);
template void multiply_on_host(const LaunchDims&, ProductArguments<BFloat16, float>);
template void multiply_on_host(const LaunchDims&, ProductArguments<BFloat16, BFloat16>);

}  // namespace cgtree::serve
