// The small kernels and the matrix product against plain arithmetic, on every device there is.
#include "examples/serve/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "interop/device/device.h"
#include "interop/tensor/empty.h"

namespace cgtree::serve {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

constexpr float kTolerance = 2e-4f;

std::vector<Device> devices() {
  std::vector<Device> found = {Device::host()};
  if (Device::best() != Device::host()) found.push_back(Device::best());
  return found;
}

class KernelsTest : public testing::TestWithParam<Device> {
 protected:
  KernelsTest() : seed_(std::random_device()()), random_(seed_), stream_(GetParam()) {
    RecordProperty("seed", std::to_string(seed_));
  }

  Floats random_floats(std::int64_t count) {
    std::uniform_real_distribution<float> values(-1, 1);
    Floats result(static_cast<std::size_t>(count));
    for (float& value : result)
      value = values(random_);
    return result;
  }
  Tensor floats(const Shape& shape, const Floats& values) {
    return from_host<float>(shape, values, GetParam());
  }
  Tensor ints(const Shape& shape, const Ints& values) {
    return from_host<std::int32_t>(shape, values, GetParam());
  }
  Tensor result(const Shape& shape, DType dtype = DType::kFloat32) {
    return empty(shape, dtype, GetParam());
  }
  Floats wait_for(const Tensor& tensor) {
    stream_.synchronize();
    return tensor.to_vector<float>();
  }
  void expect_near(const Floats& actual, const Floats& expected) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], kTolerance) << "element " << i;
  }

  std::uint64_t seed_;
  std::mt19937_64 random_;
  Stream stream_;
};

TEST_P(KernelsTest, FillDependsOnTheSeedAlone) {
  const Tensor a = result({1000});
  const Tensor b = result({1000});
  const Tensor c = result({1000});
  fill_uniform(stream_, a, 5, 1.0f, 0.5f);
  fill_uniform(stream_, b, 5, 1.0f, 0.5f);
  fill_uniform(stream_, c, 6, 1.0f, 0.5f);

  const Floats values = wait_for(a);
  EXPECT_EQ(values, wait_for(b));
  EXPECT_NE(values, wait_for(c));
  EXPECT_GE(*std::min_element(values.begin(), values.end()), 0.5f);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 1.5f);
}

TEST_P(KernelsTest, EmbedAddsTheTokensRowAndThePositionsRow) {
  const Tensor batch = ints({3, 2}, {1, 0, /*positions*/ 4, 2, /*slots*/ 0, 1});
  const Tensor x = result({2, 2});

  embed(stream_, batch, floats({2, 2}, {1, 2, 3, 4}), floats({3, 2}, {10, 20, 30, 40, 50, 60}), x);

  EXPECT_EQ(wait_for(x), (Floats{33, 44, 51, 62}));
}

TEST_P(KernelsTest, NormDividesByTheRootOfTheMeanSquare) {
  const std::int64_t rows = 3, width = 301;
  const Floats x = random_floats(rows * width);
  const Floats gain = random_floats(width);
  const Tensor y = result({rows, width});

  rms_norm(stream_, floats({rows, width}, x), floats({width}, gain), y);

  Floats expected(x.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::int64_t i = 0; i < width; ++i)
      squares += double(x[r * width + i]) * x[r * width + i];
    const double root = std::sqrt(squares / width + 1e-5);
    for (std::int64_t i = 0; i < width; ++i)
      expected[r * width + i] = static_cast<float>(x[r * width + i] / root * gain[i]);
  }
  expect_near(wait_for(y), expected);
}

TEST_P(KernelsTest, GeluIsZeroFarLeftAndTheIdentityFarRight) {
  const Tensor x = floats({4}, {-10, 0, 1, 10});

  gelu(stream_, x);

  expect_near(wait_for(x), {0, 0, 0.841192f, 10});
}

TEST_P(KernelsTest, ArgmaxTakesTheFirstOfEqualLogits) {
  const std::int64_t width = 1000;
  Floats logits = random_floats(3 * width);
  logits[999] = 5;                                // the last of row 0
  logits[width + 130] = logits[width + 700] = 5;  // a tie in row 1
  logits[2 * width] = 5;                          // the first of row 2
  const Tensor next = result({3}, DType::kInt32);

  argmax(stream_, floats({3, width}, logits), next);

  stream_.synchronize();
  EXPECT_EQ(next.to_vector<std::int32_t>(), (Ints{999, 130, 0}));
}

TEST_P(KernelsTest, CacheIsWrittenAtThePositionsPlaceAndNotByPaddedRows) {
  const std::int64_t layers = 2, slots = 2, context = 3, hidden = 2;
  const Tensor cache =
      floats({layers, 2, slots, context, hidden}, Floats(layers * 2 * slots * context * hidden, 0));
  const Tensor batch = ints({3, 2}, {0, 0, /*positions*/ 4, 0, /*slots*/ 1, -1});
  const Tensor qkv = floats({2, 6}, {1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7, 7});

  write_cache(stream_, batch, qkv, cache, 1);

  Floats expected(layers * 2 * slots * context * hidden, 0);
  const std::int64_t half = slots * context * hidden;
  const std::int64_t place = 2 * half + (1 * context + 4 % context) * hidden;
  expected[place] = 3, expected[place + 1] = 4;
  expected[place + half] = 5, expected[place + half + 1] = 6;
  EXPECT_EQ(wait_for(cache), expected);
}

// Softmax attention in double, over the whole window at once.
Floats attend_plainly(const Floats& qkv, const Floats& cache, const Ints& positions,
                      const Ints& slots, std::int64_t slot_count, std::int64_t context,
                      std::int64_t heads, std::int64_t size) {
  const std::int64_t hidden = heads * size;
  Floats out(positions.size() * hidden, 0);
  for (std::size_t r = 0; r < positions.size(); ++r) {
    if (slots[r] < 0) continue;
    const std::int64_t window = std::min<std::int64_t>(positions[r] + 1, context);
    const float* const keys = cache.data() + slots[r] * context * hidden;
    const float* const values = keys + slot_count * context * hidden;
    for (std::int64_t h = 0; h < heads; ++h) {
      std::vector<double> weights;
      double sum = 0;
      for (std::int64_t p = 0; p < window; ++p) {
        double score = 0;
        for (std::int64_t d = 0; d < size; ++d)
          score += double(qkv[r * 3 * hidden + h * size + d]) * keys[p * hidden + h * size + d];
        weights.push_back(std::exp(score / std::sqrt(double(size))));
        sum += weights.back();
      }
      for (std::int64_t d = 0; d < size; ++d) {
        double total = 0;
        for (std::int64_t p = 0; p < window; ++p)
          total += weights[p] / sum * values[p * hidden + h * size + d];
        out[r * hidden + h * size + d] = static_cast<float>(total);
      }
    }
  }
  return out;
}

TEST_P(KernelsTest, AttentionLooksBackOverTheWindowOfItsSlot) {
  // Windows of one position, of part of the ring, of several tiles of a CUDA block, and a full
  // ring.
  const Ints positions = {0, 9, 200, 5000, 3};
  const Ints slots = {2, 0, 1, 3, -1};
  const std::int64_t slot_count = 4, context = 300, heads = 3, size = 37, hidden = heads * size;
  const Floats cache = random_floats(2 * slot_count * context * hidden);
  const Floats qkv = random_floats(5 * 3 * hidden);
  Ints batch(5, 0);
  batch.insert(batch.end(), positions.begin(), positions.end());
  batch.insert(batch.end(), slots.begin(), slots.end());
  const Tensor out = result({5, hidden});

  attend(stream_, ints({3, 5}, batch), floats({5, 3 * hidden}, qkv),
         floats({1, 2, slot_count, context, hidden}, cache), 0, heads, out);

  expect_near(wait_for(out),
              attend_plainly(qkv, cache, positions, slots, slot_count, context, heads, size));
}

TEST_P(KernelsTest, ProductsReplaceOrAdd) {
  // More terms than a CUDA block stages at once, and tiles that are not full.
  const std::int64_t rows = 11, depth = 1100, columns = 45;
  const Floats x = random_floats(rows * depth);
  const Floats w = random_floats(depth * columns);
  Floats expected(rows * columns, 0);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      for (std::int64_t k = 0; k < depth; ++k)
        expected[r * columns + c] += x[r * depth + k] * w[k * columns + c];
    }
  }
  const Tensor y = floats({rows, columns}, Floats(rows * columns, 9));

  multiply(stream_, floats({rows, depth}, x), floats({depth, columns}, w), y, false);
  expect_near(wait_for(y), expected);

  multiply(stream_, floats({rows, depth}, x), floats({depth, columns}, w), y, true);
  for (float& value : expected)
    value *= 2;
  expect_near(wait_for(y), expected);
}

// Padding a batch and feeding a prompt at once rely on this.
TEST_P(KernelsTest, ARowsProductIsTheSameToTheBitHoweverManyRowsThereAre) {
  const std::int64_t rows = 37, depth = 700, columns = 50;
  const Floats x = random_floats(rows * depth);
  const Tensor w = floats({depth, columns}, random_floats(depth * columns));
  const Tensor all = result({rows, columns});
  multiply(stream_, floats({rows, depth}, x), w, all, false);
  const Floats expected = wait_for(all);

  for (const std::int64_t count : {1, 2, 3, 4, 7, 8, 9, 20}) {
    const Tensor part = result({count, columns});
    const Floats last(x.end() - count * depth, x.end());
    multiply(stream_, floats({count, depth}, last), w, part, false);
    EXPECT_EQ(wait_for(part), Floats(expected.end() - count * columns, expected.end())) << count;
  }
}

TEST_P(KernelsTest, PaddedRowsAreEmbeddedAsZeros) {
  const Tensor x = result({2, 2});

  embed(stream_, ints({3, 2}, {1, -1, /*positions*/ 0, -1, /*slots*/ 0, -1}),
        floats({2, 2}, {1, 2, 3, 4}), floats({1, 2}, {10, 20}), x);

  EXPECT_EQ(wait_for(x), (Floats{13, 24, 0, 0}));
}

TEST_P(KernelsTest, PromptsAreLaidOutTokenByToken) {
  const Tensor batch = result({3, 6}, DType::kInt32);

  lay_out_prompts(stream_, ints({3, 2}, {7, 8, 9, -1, -1, -1}), ints({3}, {4, 2, -1}), batch);

  stream_.synchronize();
  EXPECT_EQ(batch.to_vector<std::int32_t>(),
            (Ints{7, 8, 9, -1, -1, -1, 0, 1, 0, 1, 0, 1, 4, 4, 2, -1, -1, -1}));
}

TEST_P(KernelsTest, TheRowOfEachPromptsLastTokenIsTaken) {
  const Tensor tokens = ints({4, 3}, {5, 5, 5, 5, -1, -1, 5, 5, -1, -1, -1, -1});
  const Tensor x = floats({12, 2}, {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,
                                    12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23});
  const Tensor last = result({4, 2});

  take_last(stream_, tokens, x, last);

  EXPECT_EQ(wait_for(last), (Floats{4, 5, 6, 7, 14, 15, 18, 19}));
}

INSTANTIATE_TEST_SUITE_P(Devices, KernelsTest, testing::ValuesIn(devices()),
                         [](const auto& device) {
                           return device.param.type == DeviceType::kHost ? "Host" : "Cuda";
                         });

}  // namespace
}  // namespace cgtree::serve
