// Random functions with buckets, called with random sizes, against eager calls of the same steps
// with the actual sizes. Replays allocate no host memory.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

#include "tests/support/tree_fixture.h"

namespace {
std::atomic<std::uint64_t> g_allocations{0};
}  // namespace

void* operator new(std::size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* const data = std::malloc(bytes)) return data;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes);
}
void operator delete(void* data) noexcept {
  std::free(data);
}
void operator delete(void* data, std::size_t) noexcept {
  std::free(data);
}

namespace cgtree::testing {
namespace {

class BucketsPropertyTest : public TreeTest {
 protected:
  std::int64_t up_to(std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random_);
  }
  std::vector<std::int64_t> random_buckets() {
    std::vector<std::int64_t> buckets = {1 + up_to(3)};
    while (up_to(2) > 0)
      buckets.push_back(buckets.back() + 1 + up_to(3));
    return buckets;
  }
  Padding random_padding() {
    constexpr Padding::Kind kKinds[] = {Padding::Kind::kZeros, Padding::Kind::kValue,
                                        Padding::Kind::kLast, Padding::Kind::kAnything};
    return {kKinds[up_to(3)], 7};
  }
  // A tensor of these values with poisoned gaps between its rows.
  Tensor spread(std::int64_t rows, std::int64_t columns, const std::vector<float>& x) {
    const std::int64_t wide = columns + up_to(2);
    std::vector<float> all(static_cast<std::size_t>((rows + 1) * wide),
                           std::numeric_limits<float>::quiet_NaN());
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(x.begin() + row * columns, columns, all.begin() + row * wide);
    return tensor({rows + 1, wide}, all).slice(0, 0, rows).slice(1, 0, columns);
  }
  std::vector<float> dense(const Tensor& x) {
    return values(context().eager([&] { return affine(x, 1, 0); }));
  }
};
CGTREE_ON_ALL_DEVICES(BucketsPropertyTest);

TEST_P(BucketsPropertyTest, ChainsGiveWhatEagerCallsGiveOnTheTrueSizes) {
  SCOPED_TRACE(::testing::Message() << "seed " << seed_);
  for (int program = 0; program < 6; ++program) {
    const bool mutates = up_to(1) == 0;
    const CompileOptions options{
        .inputs = {{.is_mutated = mutates,
                    .dynamic = {{0, "rows"}, {1, "columns"}},
                    .padding = random_padding()},
                   {.dynamic = {{0, "rows"}, {1, "columns"}}, .padding = random_padding()}},
        .buckets = {{"rows", random_buckets()}, {"columns", random_buckets()}},
        .outputs = {{.dynamic = {{0, "rows"}, {1, "columns"}}}}};
    const auto f = compile(
        context(), "f",
        [=](Tensor x, Tensor y) {
          if (mutates) update(x, 1, 1);
          return add(affine(x, 2, 0), y);
        },
        options);
    for (int call = 0; call < 60 || f.stats().replays == 0; ++call) {
      if (up_to(2) == 0) context().mark_step();
      const std::int64_t rows = up_to(options.buckets[0].sizes.back() + 1);
      const std::int64_t columns = 1 + up_to(options.buckets[1].sizes.back());
      const std::vector<float> x = random_floats(rows * columns), y = random_floats(rows * columns);
      const Tensor state = spread(rows, columns, x);

      const Tensor once = f(state, spread(rows, columns, y));
      const Tensor twice = f(once, spread(rows, columns, y));

      const float bump = mutates ? 1 : 0;
      std::vector<float> first, second;
      for (std::size_t i = 0; i < x.size(); ++i) {
        first.push_back(2 * (x[i] + bump) + y[i]);
        second.push_back(2 * (first[i] + bump) + y[i]);
      }
      ASSERT_EQ(dense(twice), second);
      ASSERT_EQ(dense(state), affine_of(x, 1, bump));
      ASSERT_EQ(dense(once), affine_of(first, 1, bump));
    }
    validate();
  }
}

TEST_P(BucketsPropertyTest, AReplayTakesNothingFromTheHeapWhateverTheSize) {
  const auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
                         {.inputs = {{.dynamic = {{0, "n"}}}},
                          .buckets = {{"n", {16, 32, 64}}},
                          .outputs = {{.dynamic = {{0, "n"}}}}});
  std::vector<Tensor> inputs;
  for (std::int64_t size = 1; size <= 64; ++size)
    inputs.push_back(random_tensor({size}));
  for (int round = 0; round < 3; ++round) {
    for (const Tensor& x : inputs)
      (void)f(x);
  }

  const std::uint64_t before = g_allocations.load();
  for (const Tensor& x : inputs)
    (void)f(x);
  const std::uint64_t taken = g_allocations.load() - before;

  EXPECT_EQ(f.stats().recordings, 3u);
  EXPECT_EQ(taken, 0u);
}

}  // namespace
}  // namespace cgtree::testing
