// The kernels compared with plain loops, on each device.
#include "examples/serve/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>

#include "cgtree/cgtree.h"
#include "extensions/flow/control_flow.h"
#include "tests/examples/serve/serve_devices.h"
#include "tests/support/devices.h"

namespace cgtree::serve {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int32_t>;

constexpr float kPoison = 12345;  // not a result of either type

class KernelsTest : public ::testing::TestWithParam<testing::DeviceUnderTest> {
 protected:
  KernelsTest() : seed_(std::random_device()()), random_(seed_) {
    RecordProperty("seed", std::to_string(seed_));
  }
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    stream_ = std::make_unique<Stream>(device());
  }

  Device device() const { return GetParam().device; }
  DType dtype() const { return number_type(device()); }
  StreamRef stream() const { return *stream_; }
  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  // Returns values that the type of the device represents exactly.
  Floats random_floats(std::int64_t count) {
    std::normal_distribution<float> values(0, 1);
    Floats result(static_cast<std::size_t>(count));
    for (float& value : result) {
      value = values(random_);
      if (dtype() == DType::kBFloat16) value = bfloat16_to_float(float_to_bfloat16(value));
    }
    return result;
  }
  Tensor tensor(const Shape& shape, const Floats& values) {
    return tensor_of(shape, values, device());
  }
  Tensor poisoned(const Shape& shape) {
    return tensor(shape, Floats(static_cast<std::size_t>(shape.elements()), kPoison));
  }
  Tensor float32(const Shape& shape, const Floats& values) {
    return from_host<float>(shape, values, device());
  }
  Tensor ints(const Shape& shape, const Ints& values) {
    return from_host<std::int32_t>(shape, values, device());
  }
  Floats wait_for(const Tensor& tensor) {
    stream_->synchronize();
    return floats_of(tensor);
  }
  // `steps`: the number of roundings to the type in a result.
  void expect_near(const Floats& actual, const Floats& expected, float steps = 2) {
    SCOPED_TRACE("seed " + std::to_string(seed_));
    ASSERT_EQ(actual.size(), expected.size());
    const float unit = dtype() == DType::kFloat32 ? 2e-5f : 1.0f / 256;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const float tolerance = steps * unit * std::max(1.0f, std::abs(expected[i]));
      ASSERT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
    }
  }

  std::uint64_t seed_;
  std::mt19937_64 random_;
  std::unique_ptr<Stream> stream_;
};
INSTANTIATE_TEST_SUITE_P(Devices, KernelsTest, ::testing::ValuesIn(testing::devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(KernelsTest, FilledPatchesArePartsOfOneMatrix) {
  const Tensor whole = poisoned({10, 24});
  fill_uniform(stream(), whole, {.seed = 5, .columns = 24}, 1.0f, 0.5f);
  const Tensor part = poisoned({3, 8});
  fill_uniform(stream(), part, {5, 6, 16, 24}, 1.0f, 0.5f);
  const Tensor other = poisoned({10, 24});
  fill_uniform(stream(), other, {.seed = 6, .columns = 24}, 1.0f, 0.5f);

  const Floats values = wait_for(whole), cut = wait_for(part);
  EXPECT_NE(values, wait_for(other));
  EXPECT_GE(*std::min_element(values.begin(), values.end()), 0.5f);
  EXPECT_LE(*std::max_element(values.begin(), values.end()), 1.5f);
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t column = 0; column < 8; ++column)
      ASSERT_EQ(cut[row * 8 + column], values[(row + 6) * 24 + column + 16]);
  }
}

TEST_P(KernelsTest, EmbeddingTakesTheRowOfEachTokenAndZerosForPadding) {
  const std::int64_t hidden = 24;
  const Floats table = random_floats(7 * hidden);
  const Tensor x = poisoned({3, hidden});

  embed(stream(), ints({3, 3}, {6, 0, 0, -1, -1, -1, 2, 5, 0}), tensor({7, hidden}, table), x);

  Floats expected(table.begin() + 6 * hidden, table.end());
  expected.resize(2 * hidden, 0.0f);
  expected.insert(expected.end(), table.begin() + 2 * hidden, table.begin() + 3 * hidden);
  EXPECT_EQ(wait_for(x), expected);
}

TEST_P(KernelsTest, NormAddsFirstAndDividesByTheRootOfTheMeanSquare) {
  for (const std::int64_t width : {8, 264, 2048, 8192}) {
    const std::int64_t rows = 3;
    const Floats x = random_floats(rows * width), delta = random_floats(rows * width);
    const Floats gain = random_floats(width);
    for (const bool adds : {false, true}) {
      const Tensor residual = tensor({rows, width}, x), y = poisoned({rows, width});
      add_norm(stream(), residual, adds ? tensor({rows, width}, delta) : Tensor(),
               tensor({width}, gain), 1e-5f, y);

      Floats sums = x, expected(x.size());
      for (std::int64_t r = 0; r < rows; ++r) {
        double squares = 0;
        for (std::int64_t i = r * width; i < (r + 1) * width; ++i) {
          if (adds) sums[i] += delta[i];
          squares += double(sums[i]) * sums[i];
        }
        for (std::int64_t i = r * width; i < (r + 1) * width; ++i)
          expected[i] =
              static_cast<float>(sums[i] / std::sqrt(squares / width + 1e-5) * gain[i % width]);
      }
      expect_near(wait_for(residual), sums, 1);
      expect_near(wait_for(y), expected, 4);
    }
  }
}

TEST_P(KernelsTest, RopeTurnsQueriesAndKeysAndWritesTheCache) {
  const std::int64_t size = 16 << draw(0, 3), heads = 6, kv_heads = 2, blocks = 3, layers = 2;
  const std::int64_t width = (heads + 2 * kv_heads) * size, rows = 3;
  const Ints batch = {0, 0, 2, -1, 0, 18, 1, 0, 0, -1, -1, -1};  // positions 0 and 18; padding
  const Floats qkv = random_floats(rows * width), angles = random_floats(32 * size);
  const Tensor turned = tensor({rows, width}, qkv);
  const Tensor cache = poisoned({layers, 2, blocks, kv_heads, kBlockSize, size});

  rope_and_cache(stream(), ints({rows, 4}, batch), float32({32, size}, angles), cache, 1, turned);

  Floats expected = qkv;
  Floats cached(static_cast<std::size_t>(cache.elements()), kPoison);
  if (dtype() == DType::kBFloat16) {
    for (float& value : cached)
      value = bfloat16_to_float(float_to_bfloat16(value));
  }
  for (std::int64_t r = 0; r < 2; ++r) {
    const std::int64_t position = r == 0 ? 0 : 18, block = r == 0 ? 2 : 0;
    for (std::int64_t head = 0; head < heads + 2 * kv_heads; ++head) {
      for (std::int64_t i = 0; i < size; ++i) {
        const float* const x = qkv.data() + r * width + head * size;
        const std::int64_t half = size / 2;
        const float other = i < half ? -x[i + half] : x[i - half];
        const float cosine = angles[position * size + i % half];
        const float sine = angles[position * size + half + i % half];
        const bool is_value = head >= heads + kv_heads;
        const float value = is_value ? x[i] : x[i] * cosine + other * sine;
        if (head < heads) {
          expected[r * width + head * size + i] = value;
        } else {
          const std::int64_t kv = (head - heads) % kv_heads;
          const std::int64_t first = ((2 + is_value) * blocks + block) * kv_heads + kv;
          cached[(first * kBlockSize + position % kBlockSize) * size + i] = value;
        }
      }
    }
  }
  const Floats actual = wait_for(turned);
  for (std::int64_t r = 0; r < rows; ++r) {  // the keys and values in qkv are unspecified
    const auto begin = r * width, end = begin + heads * size;
    expect_near(Floats(actual.begin() + begin, actual.begin() + end),
                Floats(expected.begin() + begin, expected.begin() + end));
  }
  expect_near(wait_for(cache), cached);
}

// Softmax attention in double, over all positions at once.
struct PlainAttention {
  std::int64_t heads, kv_heads, size, blocks, table;

  Floats run(const Floats& qkv, const Floats& keys, const Floats& values, const Ints& batch) const {
    const std::int64_t rows = std::ssize(batch) / (2 + table);
    const std::int64_t width = (heads + 2 * kv_heads) * size;
    Floats out(static_cast<std::size_t>(rows * heads * size), 0);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t count = batch[r * (2 + table) + 1] + 1;
      for (std::int64_t h = 0; h < heads && count > 0; ++h) {
        std::vector<double> weights;
        const auto at = [&](std::int64_t p) {
          const std::int64_t block = batch[r * (2 + table) + 2 + p / 16];
          return ((block * kv_heads + h / (heads / kv_heads)) * 16 + p % 16) * size;
        };
        for (std::int64_t p = 0; p < count; ++p) {
          double score = 0;
          for (std::int64_t i = 0; i < size; ++i)
            score += double(qkv[r * width + h * size + i]) * keys[at(p) + i];
          weights.push_back(std::exp(score / std::sqrt(double(size))));
        }
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (std::int64_t i = 0; i < size; ++i) {
          double total = 0;
          for (std::int64_t p = 0; p < count; ++p)
            total += weights[p] / sum * values[at(p) + i];
          out[(r * heads + h) * size + i] = static_cast<float>(total);
        }
      }
    }
    return out;
  }
};

// Parameters: the group of queries, the head size, and the number of rows: a GPU splits few rows,
// and not many.
TEST_P(KernelsTest, AttentionLooksBackOverTheBlocksOfItsRow) {
  for (const std::int64_t size : {16, 32, 64, 128}) {
    for (const std::int64_t group : {1, 2, 3, 4, 8}) {
      const std::int64_t rows = group == 4 ? 40 : 4, kv_heads = draw(1, 3);
      const PlainAttention plain{group * kv_heads, kv_heads, size, 130, 60};
      const std::int64_t width = (plain.heads + 2 * kv_heads) * size;
      Ints order(static_cast<std::size_t>(plain.blocks)), batch;
      std::iota(order.begin(), order.end(), 0);
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t longest = r == 2 ? 959 : 80;
        batch.push_back(0);
        batch.push_back(r == 3 ? -1 : static_cast<std::int32_t>(r == 0 ? 0 : draw(1, longest)));
        std::shuffle(order.begin(), order.end(), random_);
        batch.insert(batch.end(), order.begin(), order.begin() + plain.table);
      }
      const Floats qkv = random_floats(rows * width);
      const std::int64_t half = plain.blocks * kv_heads * kBlockSize * size;
      const Floats cache = random_floats(2 * half);
      const Tensor out = poisoned({rows, plain.heads * size});

      attend(stream(), ints({rows, 2 + plain.table}, batch), tensor({rows, width}, qkv),
             tensor({1, 2, plain.blocks, kv_heads, kBlockSize, size}, cache), 0, out);

      SCOPED_TRACE("head size " + std::to_string(size) + ", group " + std::to_string(group));
      expect_near(wait_for(out), plain.run(qkv, Floats(cache.begin(), cache.begin() + half),
                                           Floats(cache.begin() + half, cache.end()), batch));
    }
  }
}

TEST_P(KernelsTest, SwigluGatesTheSecondHalf) {
  const std::int64_t rows = 3, n = 40;
  const Floats x = random_floats(rows * 2 * n);
  const Tensor out = poisoned({rows, n});

  swiglu(stream(), tensor({rows, 2 * n}, x), out);

  Floats expected;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < n; ++i) {
      const double gate = x[r * 2 * n + i], up = x[r * 2 * n + n + i];
      expected.push_back(static_cast<float>(gate / (1 + std::exp(-gate)) * up));
    }
  }
  expect_near(wait_for(out), expected);
}

TEST_P(KernelsTest, PromptsAreLaidOutTokenByToken) {
  const Tensor batch = ints({6, 4}, Ints(24, 99));

  lay_out_prompts(stream(), ints({3, 2}, {7, 8, 9, -1, -1, -1}), ints({3, 2}, {4, 2, 1, 0, -1, -1}),
                  batch);

  stream_->synchronize();
  EXPECT_EQ(batch.to_vector<std::int32_t>(), (Ints{7,  0,  4, 2, 8,  1,  4,  2,  9,  0,  1,  0,
                                                   -1, -1, 1, 0, -1, -1, -1, -1, -1, -1, -1, -1}));
}

TEST_P(KernelsTest, TheRowOfEachPromptsLastTokenIsTaken) {
  const std::int64_t prompts = 4, length = 3, hidden = 16;
  const Ints lengths = {3, 1, 2, 0};
  const Floats x = random_floats(prompts * length * hidden);
  Ints batch;
  Floats expected;
  for (std::int32_t p = 0; p < prompts; ++p) {
    for (std::int32_t t = 0; t < length; ++t) {
      batch.push_back(0);
      batch.push_back(t < lengths[p] ? t : -1);
    }
    const auto row = x.begin() + (p * length + std::max(lengths[p], 1) - 1) * hidden;
    expected.insert(expected.end(), row, row + hidden);
  }
  const Tensor last = poisoned({prompts, hidden});

  take_last(stream(), ints({prompts * length, 2}, batch), tensor({prompts * length, hidden}, x),
            last);

  EXPECT_EQ(wait_for(last), expected);
}

TEST_P(KernelsTest, ProductsOfAnySizeWithEitherResult) {
  const Products products(device());
  for (const auto [rows, depth, columns] :
       {std::array<std::int64_t, 3>{1, 8, 8}, {1, 2048, 48}, {7, 1104, 40}, {64, 256, 512}}) {
    const Floats x = random_floats(rows * depth), w = random_floats(columns * depth);
    Floats expected(static_cast<std::size_t>(rows * columns));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (std::int64_t k = 0; k < depth; ++k)
          sum += double(x[r * depth + k]) * w[c * depth + k];
        expected[r * columns + c] = static_cast<float>(sum);
      }
    }
    const Tensor y = poisoned({rows, columns});
    const Tensor wide = float32({rows, columns}, Floats(expected.size(), kPoison));
    const StreamScope scope(stream());
    products.multiply(stream(), tensor({rows, depth}, x), tensor({columns, depth}, w), y);
    products.multiply(stream(), tensor({rows, depth}, x), tensor({columns, depth}, w), wide);

    // Terms cancel each other, so that the error of a float32 sum is as large as that of a term.
    expect_near(wait_for(y), expected, dtype() == DType::kFloat32 ? 20 : 2);
    const Floats sums = wait_for(wide);
    for (std::size_t i = 0; i < sums.size(); ++i)  // sums are float32
      ASSERT_NEAR(sums[i], expected[i], 2e-3) << i << ", seed " << seed_;
  }
}

class ChoiceTest : public KernelsTest {
 protected:
  Ints choose_all(const Tensor& logits, float temperature, const PhiloxRange& noise) {
    const std::int64_t rows = logits.dim(0), columns = logits.dim(1);
    const Tensor keys = from_host<std::int64_t>(
        {chunks(rows, columns), rows},
        std::vector<std::int64_t>(static_cast<std::size_t>(chunks(rows, columns) * rows), -1),
        device());
    const Tensor next = ints({rows}, Ints(static_cast<std::size_t>(rows), -7));
    choose(stream(), logits, temperature, noise, 0, columns, keys);
    finish_choice(stream(), keys, next);
    stream_->synchronize();
    return next.to_vector<std::int32_t>();
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, ChoiceTest, ::testing::ValuesIn(testing::devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(ChoiceTest, TheFirstOfTheLargestLogitsIsTaken) {
  for (const std::int64_t rows : {3, 20}) {
    const std::int64_t width = 20'000;
    Floats logits = random_floats(rows * width);
    for (float& logit : logits)
      logit -= 10;                                     // all negative
    logits[width - 1] = 5;                             // the last index, in row 0
    logits[width + 130] = logits[width + 17'001] = 5;  // a tie in row 1
    logits[2 * width] = 5;                             // the first index, in row 2

    const Ints next = choose_all(float32({rows, width}, logits), 0, {});

    EXPECT_EQ(Ints(next.begin(), next.begin() + 3), (Ints{19'999, 130, 0}));
  }
}

TEST_P(ChoiceTest, TokensAreDrawnAsTheSoftmaxOfTheirLogits) {
  const std::int64_t rows = 4000, width = 8;
  const Floats row = random_floats(width);
  Floats logits;
  for (std::int64_t i = 0; i < rows; ++i)
    logits.insert(logits.end(), row.begin(), row.end());
  const float temperature = 0.7f;
  const PhiloxRange noise(PhiloxPosition{seed_, 3});

  const Ints next = choose_all(float32({rows, width}, logits), temperature, noise);

  std::vector<double> expected(width);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = std::exp(row[i] / temperature);
  const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
  double chi_square = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double mean = expected[i] / sum * rows;
    const auto count = std::count(next.begin(), next.end(), static_cast<std::int32_t>(i));
    chi_square += std::pow(static_cast<double>(count) - mean, 2) / mean;
  }
  EXPECT_LT(chi_square, 50) << "seed " << seed_;  // 7 degrees of freedom: exceeded once in 10^8
  EXPECT_EQ(next, choose_all(float32({rows, width}, logits), temperature, noise));
}

}  // namespace
}  // namespace cgtree::serve
