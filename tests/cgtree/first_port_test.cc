// What a first port gets wrong is refused, in words that name both sides and what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "cgtree/steps.h"
#include "interop/device/device.h"
#include "interop/device/kernel.h"
#include "tests/support/test_kernels.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Outcome = Explanation::Outcome;

// An engine of which one step is: cache += tokens.
class FirstPortTest : public TreeTest {
 protected:
  static constexpr std::int64_t kCount = 64;
  static constexpr std::size_t kBytes = kCount * sizeof(float);

  void SetUp() override {
    TreeTest::SetUp();
    if (IsSkipped()) return;
    for (Tensor& tokens : tokens_)
      tokens = tensor({kCount}, std::vector<float>(kCount, 1));
    cache_ = tensor({kCount}, std::vector<float>(kCount, 0));
  }
  void TearDown() override {
    cache_ = Tensor();
    for (Tensor& tokens : tokens_)
      tokens = Tensor();
    TreeTest::TearDown();
  }

  static Binding binding_of(const Tensor& tensor) { return {address_of(tensor), tensor.bytes()}; }
  static void* address_of(const Tensor& tensor) {
    return reinterpret_cast<void*>(tensor.address());
  }
  Steps make_steps(std::vector<BindingOptions> further = {}) {
    std::vector<BindingOptions> all = {{.name = "tokens", .is_copied = true},
                                       {.name = "cache", .is_mutated = true}};
    all.insert(all.end(), further.begin(), further.end());
    return Steps(context(), "decode", {.bindings = std::move(all)});
  }
  std::vector<Binding> bindings(std::size_t place = 0) const {
    return {binding_of(tokens_[place]), binding_of(cache_)};
  }
  static void add(const void* x, void* y, StreamRef stream = current_stream()) {
    check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(kCount),
                                        arguments_of(1.0F, x, y, kCount)),
          "launch axpy");
  }
  // A call whose work reads tokens where step.address(0) says, or where the engine has them.
  Outcome call(Steps& steps, const Key& key = {}, std::size_t place = 0) {
    Step step = steps.begin(key, bindings(place));
    for (; step.must_run(); step.end())
      add(step.address(0), address_of(cache_));
    return step.outcome();
  }
  void call_with_own_pointer(Steps& steps, std::span<const Binding> given) {
    for (Step step = steps.begin({}, given); step.must_run(); step.end())
      add(given[0].address, address_of(cache_));
  }

  std::array<Tensor, 2> tokens_;
  Tensor cache_;
};
CGTREE_ON_ALL_DEVICES(FirstPortTest);

TEST_P(FirstPortTest, AnAddressOfACopiedBindingIsRefusedByName) {
  Steps steps = make_steps();
  call_with_own_pointer(steps, bindings());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT([&] { call_with_own_pointer(steps, bindings()); },
                ThrowsMessage<InvalidArgument>(
                    AllOf(HasSubstr("work of 'decode'"), HasSubstr("binding 0 'tokens'"),
                          HasSubstr("step.address(0)"), HasSubstr("parameter 1 of 'axpy"))));
  }
  context().synchronize();
  EXPECT_THAT(values(cache_), Each(1));  // of the warm-up: nothing else has run
  manager()->validate();

  EXPECT_EQ(call(steps), Outcome::kRecord);
  EXPECT_EQ(call(steps, {}, 1), Outcome::kReplay);
  context().synchronize();
  EXPECT_THAT(values(cache_), Each(3));
}

TEST_P(FirstPortTest, AnAddressOfACopiedBindingIsRefusedInsideAnArenaThatIsBoundToo) {
  const Tensor arena = tensor({4 * kCount}, std::vector<float>(4 * kCount, 1));
  const Tensor tokens = arena.slice(0, kCount, 2 * kCount);
  const Binding given[] = {binding_of(tokens), binding_of(cache_), binding_of(arena)};
  Steps steps = make_steps({{.name = "arena"}});
  call_with_own_pointer(steps, given);
  EXPECT_THROW(call_with_own_pointer(steps, given), InvalidArgument);
}

TEST_P(FirstPortTest, ACopyOutOfACopiedBindingIsRefused) {
  Steps steps = make_steps();
  const auto run = [&] {
    for (Step step = steps.begin({}, bindings()); step.must_run(); step.end()) {
      const StreamRef stream = current_stream();
      check(stream.api().copy(stream.handle(), address_of(cache_), address_of(tokens_[0]), kBytes),
            "copy");
    }
  };
  run();
  EXPECT_THAT(run, ThrowsMessage<InvalidArgument>(
                       AllOf(HasSubstr("binding 0 'tokens'"), HasSubstr("the source of a copy"))));
}

}  // namespace
}  // namespace cgtree::testing
