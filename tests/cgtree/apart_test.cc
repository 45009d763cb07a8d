// The test for inputs that must not overlap, against a comparison of every pair.
#include "cgtree/record/apart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

class ApartPairsTest : public ::testing::Test {
 protected:
  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

  // A row, or every second or third element, of one block of memory.
  Tensor somewhere() {
    const Shape shape(std::array<std::int64_t, 1>{below(8)},
                      std::array<std::int64_t, 1>{1 + below(3)});
    return Tensor(memory_.storage(), static_cast<std::size_t>(below(kElements - 24)) * 4, shape,
                  DType::kFloat32);
  }
  static std::size_t bytes_of(const Tensor& tensor) {
    return static_cast<std::size_t>(tensor.shape().extent()) * 4;
  }

  static constexpr int kElements = 400;
  const unsigned seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  const Tensor memory_ = empty({kElements}, DType::kFloat32, Device::host());
};

TEST_F(ApartPairsTest, MeetExactlyIfOneOfThePairsSharesMemory) {
  SCOPED_TRACE(seed_);
  int met = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Tensor> inputs;
    std::vector<std::uintptr_t> fixed;
    for (int i = 1 + below(12); i > 0; --i) {
      inputs.push_back(somewhere());
      fixed.push_back(below(2) == 0 ? inputs.back().address() : 0);
    }
    std::vector<Apart> pairs;
    const auto size = static_cast<std::uint32_t>(inputs.size());
    for (std::uint32_t i = 0; i < size; ++i) {
      for (std::uint32_t j = 0; j < i; ++j) {
        if ((fixed[i] != 0 && fixed[j] != 0) || below(3) == 0) continue;
        pairs.push_back({{i, j}, bytes_of(inputs[i]), bytes_of(inputs[j])});
        if (fixed[i] == 0 && below(4) == 0) pairs.back().first_bytes = Apart::kUnknownBytes;
      }
    }
    const ApartPairs apart(pairs, fixed);
    EXPECT_EQ(apart.pairs().size(), pairs.size());
    for (int call = 0; call < 8; ++call) {
      for (std::uint32_t i = 0; i < size; ++i) {
        if (fixed[i] != 0) continue;
        const std::int64_t offset = below(kElements - 24) * 4;
        inputs[i] = Tensor(memory_.storage(), static_cast<std::size_t>(offset), inputs[i].shape(),
                           DType::kFloat32);
      }
      const bool expected = std::ranges::any_of(pairs, [&](const Apart& pair) {
        return may_overlap(inputs[pair.pair.first], inputs[pair.pair.second]);
      });
      EXPECT_EQ(apart.meet(InputList(std::span<const Tensor>(inputs))), expected);
      met += expected;
    }
  }
  EXPECT_GT(met, 100);
  EXPECT_LT(met, 3100);
}

}  // namespace
}  // namespace cgtree
