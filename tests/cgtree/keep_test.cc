// Context::keep(): a kept output holds its values across mark_step(); other outputs become stale.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/core_fixture.h"

namespace cgtree::testing {
namespace {

class KeepTest : public TreeTest {
 protected:
  using Function = CompiledFunction<Tensor(Tensor)>;

  Function make() {
    return compile(context(), "f", [](Tensor x) { return affine(x, 2, 1); });
  }
};
CGTREE_ON_ALL_DEVICES(KeepTest);

TEST_P(KeepTest, AKeptOutputHoldsItsValuesWhileCallsGoOn) {
  const Function f = make();
  std::vector<Tensor> kept;
  std::vector<std::vector<float>> expected;
  for (int call = 0; call < 40; ++call) {
    const std::vector<float> x = random_floats(100);
    const Tensor y = f(tensor({100}, x));
    EXPECT_EQ(values(y), affine_of(x, 2, 1));
    if (random_() % 4 == 0) {
      context().keep(y.slice(0, 10, 50));
      kept.push_back(y);
      expected.push_back(affine_of(x, 2, 1));
    }
    if (kept.size() > 3) {
      kept.erase(kept.begin());
      expected.erase(expected.begin());
    }
    context().mark_step();
    for (std::size_t i = 0; i < kept.size(); ++i)
      EXPECT_EQ(values(kept[i]), expected[i]) << call;
    validate();
  }
}

TEST_P(KeepTest, OtherOutputsBecomeStale) {
  const Function f = make();
  const Tensor first = f(random_tensor({10}));
  const Tensor second = f(random_tensor({10}));
  context().keep(first);
  context().mark_step();
  EXPECT_NO_THROW((void)first.data());
  EXPECT_THROW((void)second.data(), StaleTensor);
  EXPECT_THROW(context().keep(second), StaleTensor);
}

TEST_P(KeepTest, TheNextOutputInThePlaceOfOneThatWasKeptIsNotKept) {
  const Function f = make();
  for (int i = 0; i < 2; ++i)
    (void)f(random_tensor({10}));
  Tensor y = f(random_tensor({10}));
  const std::uintptr_t place = y.address();
  context().keep(y);
  y = Tensor();
  y = f(random_tensor({10}));
  EXPECT_EQ(y.address(), place);
  context().mark_step();
  EXPECT_THROW((void)y.data(), StaleTensor);
}

TEST_P(KeepTest, AKeptOutputIsAManagedInputOfTheNextGeneration) {
  const Function f = make();
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> x = random_floats(10);
    const Tensor y = f(tensor({10}, x));
    context().keep(y);
    context().mark_step();
    EXPECT_EQ(values(f(y)), affine_of(affine_of(x, 2, 1), 2, 1));
  }
}

TEST_P(KeepTest, TensorsThatNoMarkStepEndsMayBeKept) {
  const Tensor eager = context().eager([&] { return affine(random_tensor({10}), 2, 1); });
  const Tensor mine = random_tensor({10});
  context().keep(eager);
  context().keep(mine);
  context().mark_step();
  EXPECT_NO_THROW((void)eager.data());
  EXPECT_THROW(context().keep(Tensor()), InvalidArgument);
  Context other(device());
  EXPECT_THROW(other.keep(eager), InvalidArgument);
}

TEST_P(KeepTest, InsideAStepItIsRefused) {
  const Tensor mine = random_tensor({10});
  const CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    EXPECT_THROW(context().keep(mine), ConcurrentUse);
    return affine(x, 2, 1);
  });
  (void)f(mine);
}

// Another thread releases the last handles while the context keeps outputs, marks steps and makes
// calls.
TEST_P(KeepTest, ReleasesOnAnotherThreadEndWhatIsKept) {
  const Function f = make();
  std::atomic<Tensor*> given = nullptr;
  std::atomic<bool> ends = false;
  std::thread other([&] {
    while (!ends) {
      if (Tensor* const tensor = given.exchange(nullptr)) delete tensor;
    }
  });
  for (int call = 0; call < 300; ++call) {
    const std::vector<float> x = random_floats(10);
    auto y = std::make_unique<Tensor>(f(tensor({10}, x)));
    const Tensor same = random_() % 2 == 0 ? *y : Tensor();
    Tensor* expected = nullptr;
    if (same.defined()) {
      if (given.compare_exchange_strong(expected, y.get())) (void)y.release();
      context().keep(same);
    } else {
      context().keep(*y);
      if (given.compare_exchange_strong(expected, y.get())) (void)y.release();
    }
    context().mark_step();
    if (same.defined()) {
      EXPECT_EQ(values(same), affine_of(x, 2, 1));
    }
  }
  ends = true;
  other.join();
  delete given.exchange(nullptr);
  EXPECT_EQ(stats().live_outputs, 0u);
}

}  // namespace
}  // namespace cgtree::testing
