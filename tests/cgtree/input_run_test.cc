// Runs of many static or copied inputs: while none of them changes, one check covers them all.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <initializer_list>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/support/core_fixture.h"

namespace cgtree::testing {
namespace {

class InputRunTest : public TreeTest {
 protected:
  using F = CompiledFunction<Tensor(std::span<const Tensor>)>;
  static constexpr std::size_t kWeights = 12;

  // Returns the sum of x, which is copied, and of the weights, which are static.
  F summer(std::size_t weights = kWeights) {
    CompileOptions options;
    options.inputs.resize(weights + 1, {.is_static = true});
    options.inputs[0] = {};
    return compile(
        context(), "summer",
        [](std::span<const Tensor> x) {
          Tensor sum = affine(x[0], 1, 0);
          for (const Tensor& weight : x.subspan(1))
            sum = add(sum, weight);
          return sum;
        },
        options);
  }
  // Returns the sum of its inputs: those in `statics` are static, the others copied. Each second
  // input is mutated: incremented by one.
  F copied_summer(std::initializer_list<std::size_t> statics = {}) {
    CompileOptions options;
    options.inputs.resize(kWeights + 1);
    for (const std::size_t i : statics)
      options.inputs[i].is_static = true;
    for (std::size_t i = 0; i < options.inputs.size(); i += 2)
      options.inputs[i].is_mutated = true;
    return compile(
        context(), "copied_summer",
        [](std::span<const Tensor> x) {
          Tensor sum = affine(x[0], 1, 0);
          for (const Tensor& one : x.subspan(1))
            sum = add(sum, one);
          for (std::size_t i = 0; i < x.size(); i += 2)
            update(x[i], 1, 1);
          return sum;
        },
        options);
  }
  // Weights are small whole numbers, so that sums are exact in any order.
  Tensor weight(const Shape& shape) {
    std::vector<float> list(static_cast<std::size_t>(shape.elements()));
    for (float& value : list)
      value = static_cast<float>(random_() % 64);
    return tensor(shape, list);
  }
  // Weights have one shape and memory of different sizes: a storage that is allocated where another
  // has ended has the same address, and memory elsewhere.
  Tensor weight() {
    const Tensor whole = weight({static_cast<std::int64_t>(4 + 1024 * (1 + random_() % 64))});
    return Tensor(whole.storage(), 0, shape_, DType::kFloat32);
  }
  std::vector<Tensor> inputs(std::size_t weights = kWeights) {
    std::vector<Tensor> list;
    for (std::size_t i = 0; i <= weights; ++i)
      list.push_back(weight());
    return list;
  }
  std::vector<float> sum_of(std::span<const Tensor> list) {
    std::vector<float> sum(4, 0);
    for (const Tensor& one : list) {
      const std::vector<float> these = values(one);
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] += these[i];
    }
    return sum;
  }
  void call(const F& f, const std::vector<Tensor>& list) {
    const std::vector<float> expected = sum_of(list);
    EXPECT_EQ(values(f(list)), expected) << "seed " << seed_;
  }

  // Like call(), for copied_summer(). No two tensors share memory.
  void call_and_count(const F& f, const std::vector<Tensor>& list) {
    std::vector<std::vector<float>> expected;
    for (const Tensor& one : list)
      expected.push_back(values(one));
    for (std::size_t i = 0; i < list.size(); i += 2) {
      for (float& value : expected[i])
        ++value;
    }
    call(f, list);
    for (std::size_t i = 0; i < list.size(); ++i)
      EXPECT_EQ(values(list[i]), expected[i]) << "input " << i << ", seed " << seed_;
  }

  const Shape shape_ = {4};
};
CGTREE_ON_ALL_DEVICES(InputRunTest);

TEST_P(InputRunTest, WeightsThatStayAreReplayedWhereverTheListLies) {
  const F f = summer();
  std::vector<Tensor> list = inputs();
  for (int i = 0; i < 6; ++i) {
    list[0] = weight();
    call(f, list);
    call(f, std::vector<Tensor>(list));  // other handles
  }
  EXPECT_EQ(stats().recordings, 1u);
  EXPECT_EQ(stats().warm_ups, 1u);
}

// The new storage may have the address of the old one, and so may its memory.
TEST_P(InputRunTest, AWeightThatIsReplacedIsSeenThoughAllWereKnown) {
  const F f = summer();
  std::vector<Tensor> list = inputs();
  for (int i = 0; i < 40; ++i) {
    for (int j = 0; j < 4; ++j)  // the unchanged inputs become a known run
      call(f, list);
    Tensor& replaced = list[1 + random_() % kWeights];
    replaced = Tensor();
    replaced = weight();
  }
}

// The run consists of the inputs before the copied one.
TEST_P(InputRunTest, AWeightBehindTheRunIsSeenThoughTheRunIsKnown) {
  CompileOptions options;
  options.inputs.resize(kWeights + 1, {.is_static = true});
  options.inputs[kWeights - 1] = {};
  const F f = compile(
      context(), "behind",
      [](std::span<const Tensor> x) {
        Tensor sum = affine(x[0], 1, 0);
        for (const Tensor& one : x.subspan(1))
          sum = add(sum, one);
        return sum;
      },
      options);
  std::vector<Tensor> list = inputs();
  const std::vector<Tensor> others = {list.back(), weight(), weight()};
  for (std::size_t i = 0; i < 12; ++i) {
    for (int j = 0; j < 4; ++j)  // the unchanged inputs become a known run
      call(f, list);
    list.back() = others[i % others.size()];
  }
  EXPECT_EQ(stats().recordings, others.size());
}

TEST_P(InputRunTest, StaticAndCopiedRunsAreSeenToChangeInEitherOrder) {
  constexpr std::size_t kHalf = (kWeights + 1) / 2 + 3;  // both halves are long enough for a run
  for (const std::size_t first_static : {std::size_t{0}, kHalf}) {
    CompileOptions options;
    options.inputs.resize(2 * kHalf);
    for (std::size_t i = 0; i < kHalf; ++i)
      options.inputs[first_static + i].is_static = true;
    const F f = compile(
        context(), "both",
        [](std::span<const Tensor> x) {
          Tensor sum = affine(x[0], 1, 0);
          for (const Tensor& one : x.subspan(1))
            sum = add(sum, one);
          return sum;
        },
        options);
    const std::size_t first_copied = kHalf - first_static;
    std::vector<Tensor> list = inputs(2 * kHalf - 1), others = inputs(2 * kHalf - 1);
    for (int i = 0; i < 100; ++i) {
      const std::size_t copied = first_copied + random_() % kHalf;
      if (random_() % 4 == 0) std::swap(list[copied], others[copied]);
      if (random_() % 4 == 0) std::swap(list[first_static + 2], others[first_static + 2]);
      call(f, list);
    }
    EXPECT_EQ(f.stats().recordings, 2u) << "seed " << seed_;
  }
}

TEST_P(InputRunTest, AViewOfTheSameStorageIsAnotherWeight) {
  const F f = summer();
  std::vector<Tensor> list = inputs();
  const Tensor both = weight({8});
  for (int i = 0; i < 12; ++i) {
    list[5] = both.slice(0, i / 4 % 2 * 4, i / 4 % 2 * 4 + 4);
    call(f, list);
  }
}

TEST_P(InputRunTest, AWeightOfAnotherTypeOrShapeIsAnotherCall) {
  const F f = summer();
  std::vector<Tensor> list = inputs();
  const Tensor wide = weight({16});
  list[3] = Tensor(wide.storage(), 0, Shape{4}, DType::kFloat32);
  for (int i = 0; i < 4; ++i)
    call(f, list);
  const std::uint64_t recordings = stats().recordings;

  // The same storage and offset: every second element.
  const std::int64_t dims[] = {4}, strides[] = {2};
  list[3] = Tensor(wide.storage(), 0, Shape(dims, strides), DType::kFloat32);
  const std::vector<float> all = values(wide);
  std::vector<float> expected(4, 0);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::vector<float> these =
        i == 3 ? std::vector<float>{all[0], all[2], all[4], all[6]} : values(list[i]);
    std::ranges::transform(expected, these, expected.begin(), std::plus<>());
  }
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(values(f(list)), expected);
  EXPECT_EQ(stats().recordings, recordings + 1);
}

TEST_P(InputRunTest, TwoWeightsThatChangePlacesAreTwoOthers) {
  const F f = summer();
  std::vector<Tensor> list = inputs();
  for (int i = 0; i < 4; ++i)
    call(f, list);
  const std::uint64_t recordings = stats().recordings;
  std::swap(list[2], list[9]);
  for (int i = 0; i < 3; ++i)
    call(f, list);
  EXPECT_EQ(stats().recordings, recordings + 1);
}

TEST_P(InputRunTest, AnUndefinedWeightIsRefusedThoughAllWereKnown) {
  const F f = summer();
  std::vector<Tensor> list = inputs();
  for (int i = 0; i < 4; ++i)
    call(f, list);
  const Tensor given = std::exchange(list[7], Tensor());
  EXPECT_THROW((void)f(list), InvalidArgument);
  list[7] = given;
  call(f, list);
}

// A storage that ends on any thread between calls invalidates the known run, and nothing else.
TEST_P(InputRunTest, StoragesThatEndOnOtherThreadsChangeNoAnswer) {
  const F f = summer();
  std::vector<Tensor> list = inputs();
  std::atomic<bool> ends = false;
  std::thread other([&] {
    while (!ends)
      (void)from_host<float>({1}, std::vector<float>{1}, Device::host());
  });
  for (int i = 0; i < 200; ++i) {
    if (i % 8 == 0) list[1 + random_() % kWeights] = weight();
    list[0] = weight();
    call(f, list);
  }
  ends = true;
  other.join();
}

TEST_P(InputRunTest, RandomChangesOfTheListAreSeen) {
  const F f = summer();
  std::vector<std::vector<Tensor>> lists = {inputs(), inputs()};
  const Tensor shared = weight({64});
  for (int i = 0; i < 400; ++i) {
    std::vector<Tensor>& list = lists[random_() % 8 == 0];
    const std::size_t j = 1 + random_() % kWeights;
    switch (random_() % 16) {
      case 0:
        list[j] = weight();
        break;
      case 1: {
        const std::int64_t at = static_cast<std::int64_t>(random_() % 15) * 4;
        list[j] = shared.slice(0, at, at + 4);
        break;
      }
      case 2:
        std::swap(list[j], list[1 + random_() % kWeights]);
        break;
      case 3:
        list[j].copy_from<float>(values(weight()));  // the same address, other contents
        break;
      case 4:
        list = std::vector<Tensor>(list);
        break;
      case 5:
        list[j] = list[1 + random_() % kWeights];
        break;
      default:
        break;
    }
    list[0] = weight();
    call(f, list);
  }
}

TEST_P(InputRunTest, CopiedInputsAreReadAndWrittenWhereTheyAreInAnyTurn) {
  const F f = copied_summer();
  std::vector<std::vector<Tensor>> lists = {inputs(), inputs(), inputs()};
  for (int i = 0; i < 300; ++i) {
    const std::size_t which = random_() % 4 == 0 ? random_() % 3 : 0;
    std::vector<Tensor>& list = lists[which];
    const std::size_t j = random_() % list.size();
    switch (random_() % 16) {
      case 0:
        list[j] = Tensor();  // the next storage may use its address
        list[j] = weight();
        break;
      case 1:
        std::swap(list[j], lists[(which + 1) % 3][random_() % list.size()]);
        break;
      case 2:
        std::swap(list[j], list[random_() % list.size()]);
        break;
      case 3:
        list[j].copy_from<float>(values(weight()));  // the same address, other contents
        break;
      default:
        break;
    }
    call_and_count(f, list);
  }
  EXPECT_EQ(stats().recordings, 1u);
}

// A storage that is allocated where another has ended has the same address, and memory elsewhere.
// No other storage ends in between.
TEST_P(InputRunTest, CopiedInputsThatAreMemoryOfTheContextAreSeenToMove) {
  const F f = copied_summer();
  const std::vector<Tensor> sources = inputs();
  const auto eager = [&](const Tensor& x) {
    return context().eager([&] {
      const auto count = static_cast<std::int64_t>(4 + 1024 * (1 + random_() % 64));
      const Tensor whole = empty({count}, DType::kFloat32);
      const Tensor made(whole.storage(), 0, shape_, DType::kFloat32);
      made.copy_from<float>(values(x));
      return made;
    });
  };
  std::vector<Tensor> list;
  for (const Tensor& one : sources)
    list.push_back(eager(one));
  for (int i = 0; i < 60; ++i) {
    for (int j = 0; j < 4; ++j)  // the unchanged inputs would become a known run
      call_and_count(f, list);
    Tensor& replaced = list[random_() % list.size()];
    replaced = Tensor();
    replaced = eager(sources[random_() % sources.size()]);
  }
}

TEST_P(InputRunTest, CopiedInputsThatAreOutputsAreSeenToBeStale) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 1, 0); });
  const F f = copied_summer();
  const std::vector<Tensor> sources = inputs();
  std::vector<Tensor> list;
  for (const Tensor& one : sources)
    list.push_back(context().eager([&] { return affine(one, 1, 0); }));
  for (int i = 0; i < 4; ++i)
    call_and_count(f, list);
  Tensor held = f(list);  // keeps other outputs away from the memory that the recording writes
  for (Tensor& one : list)
    one = make(one);
  held = Tensor();
  for (int i = 0; i < 6; ++i)
    call_and_count(f, list);
  EXPECT_EQ(f.stats().recordings, 1u);

  context().mark_step();

  EXPECT_THROW((void)f(list), StaleTensor);
}

// The run consists of the inputs after the static one. One node copies all of them.
TEST_P(InputRunTest, ACopiedInputBesideTheRunMayMove) {
  const F f = copied_summer({3});
  std::vector<Tensor> list = inputs(), others = inputs();
  for (std::size_t i = 0; i < 20; ++i) {
    if (i > 6) std::swap(list[i % 3], others[i % 3]);
    call_and_count(f, list);
  }
  EXPECT_EQ(stats().recordings, 1u);
}

// The shape of a view ends with its tensor, while the storage stays; the next shape may have the
// same address.
TEST_P(InputRunTest, AShapeInThePlaceOfOneThatHasEndedIsAnotherShape) {
  const F f = copied_summer();
  std::vector<Tensor> list = inputs();
  const Tensor wide = weight({16});
  const std::vector<float> all = values(wide);
  for (int i = 0; i < 20; ++i) {
    const std::int64_t dims[] = {4}, strides[] = {1 + i % 2};
    list[3] = Tensor();
    list[3] = Tensor(wide.storage(), 0, Shape(dims, strides), DType::kFloat32);
    for (int j = 0; j < 5; ++j) {  // the unchanged inputs become a known run
      std::vector<Tensor> others = list;
      others.erase(others.begin() + 3);
      std::vector<float> expected = sum_of(others);
      for (std::size_t k = 0; k < 4; ++k)
        expected[k] += all[k * static_cast<std::size_t>(strides[0])];
      EXPECT_EQ(values(f(list)), expected) << "seed " << seed_;
    }
  }
  EXPECT_EQ(stats().recordings, 2u);
}

// The two lists have shapes at different addresses, which are equal.
TEST_P(InputRunTest, CopiedInputsThatStayPatchNothing) {
  const F f = copied_summer();
  const std::vector<std::vector<Tensor>> lists = {inputs(), inputs()};
  for (int i = 0; i < 6; ++i)
    call_and_count(f, lists[0]);
  EXPECT_EQ(stats().root_patches, 0u);
  for (int i = 0; i < 4; ++i)
    call_and_count(f, lists[1]);
  EXPECT_EQ(stats().root_patches, 1u);
  for (int i = 0; i < 4; ++i)
    call_and_count(f, lists[0]);
  EXPECT_EQ(stats().root_patches, 2u);
}

// A context that ends while other threads release its outputs frees its memory once.
TEST_P(InputRunTest, OutputsThatThreadsReleaseWhileTheContextEndsLetGoOfItsMemory) {
  for (int round = 0; round < 20; ++round) {
    make_context({});
    constexpr std::size_t kFunctions = 70;  // more slots than a word of the live mask has
    std::vector<Tensor> held[2];
    const Tensor x = random_tensor({4});
    for (std::size_t i = 0; i < kFunctions; ++i) {
      const auto f = compile(
          context(), "f", [](Tensor y) { return affine(y, 2, 1); }, CompileOptions{});
      (void)f(x);
      held[i % 2].push_back(f(x));
    }
    std::vector<std::thread> threads;
    for (std::vector<Tensor>& list : held) {
      threads.emplace_back([&list] {
        while (!list.empty())
          list.pop_back();
      });
    }
    context_.reset();
    for (std::thread& thread : threads)
      thread.join();
    EXPECT_EQ(segments_->held(), 0u) << "round " << round;
  }
  make_context({});
}

}  // namespace
}  // namespace cgtree::testing
