// Steps whose work leaves stream-ordered memory allocated: ExecuTorch and CUDASTF allocate outputs.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "cgtree/steps.h"
#include "cgtree/values/explanation.h"
#include "interop/device/device_api.h"
#include "interop/device/graph_api.h"
#include "tests/support/core_fixture.h"
#include "tests/support/test_kernels.h"

namespace cgtree::testing {

// An engine whose step allocates its output: output = draft * x.
class GraphMemoryTest : public TreeTest {
 protected:
  static constexpr std::int64_t kCount = std::int64_t{1} << 18;
  static constexpr std::size_t kBytes = kCount * sizeof(float);

  void SetUp() override {
    TreeTest::SetUp();
    if (!IsSkipped()) x_on_device_ = random_tensor({kCount});
  }
  void TearDown() override {
    x_on_device_ = Tensor();
    TreeTest::TearDown();
  }

  Steps make_steps(StepsOptions options = {.keeps_allocations = true}) {
    options.bindings = {{.name = "x"}};
    return Steps(context(), "decode", std::move(options));
  }
  std::vector<Binding> bindings() const {
    return {{reinterpret_cast<const void*>(x_on_device_.address()), x_on_device_.bytes()}};
  }
  Code free(void* memory) {
    GraphAPI& graphs = context().stream().graphs();
    const Code code = graphs.free_in_order(context().stream().handle(), memory);
    (void)graphs.take_last_error();
    return code;
  }
  // Enqueues the step. Returns its output.
  void* forward(float draft, const void* x, bool frees_another) {
    const StreamRef stream = current_stream();
    const auto allocate = [&] {
      void* memory = nullptr;
      check(stream.graphs().allocate_in_order(stream.handle(), kBytes, &memory), "allocate");
      return memory;
    };
    void* const output = allocate();
    void* const another = frees_another ? allocate() : nullptr;
    check(stream.graphs().memset(stream.handle(), output, 0, kBytes), "clear");
    check(stream.graphs().launch_kernel(stream.handle(), axpy_kernel(), dims_for(kCount),
                                        arguments_of(draft, x, output, kCount)),
          "launch axpy");
    if (frees_another) check(stream.graphs().free_in_order(stream.handle(), another), "free");
    return output;
  }

  // Makes a call and checks it. The engine frees the memory that a run without a graph allocated.
  Outcome call(Steps& steps, int draft, bool frees_another = false) {
    const std::vector<float> x = random_floats(kCount);
    x_on_device_.copy_from<float>(x);
    void* output = outputs_[draft];
    Step step = steps.begin({{"draft", draft}}, bindings());
    for (; step.must_run(); step.end()) {
      output = forward(static_cast<float>(draft), step.address(0), frees_another);
      if (step.is_captured()) outputs_[draft] = output;
    }
    expect_output(output, affine_of(x, static_cast<float>(draft), 0));
    const bool is_graph = step.outcome() == Outcome::kRecord || step.outcome() == Outcome::kReplay;
    if (!is_graph) {
      EXPECT_EQ(free(output), Code::kSuccess);
    }
    return step.outcome();
  }
  void expect_output(const void* output, const std::vector<float>& expected) {
    std::vector<float> found(kCount);
    const StreamRef stream = context().stream();
    check(stream.api().copy(stream.handle(), found.data(), output, kBytes), "copy");
    stream.synchronize();
    EXPECT_EQ(found, expected);
  }
  std::size_t free_bytes() {
    context().synchronize();
    const auto free = context().stream().api().attribute(0, DeviceAttribute::kFreeMemory);
    return static_cast<std::size_t>(std::get<std::int64_t>(free));
  }
  // On a GPU, other programs change the amount of free memory.
  bool is_host() const { return GetParam().name != "cuda"; }

  Tensor x_on_device_;
  std::map<int, void*> outputs_;  // allocated by graphs, by draft
};

}  // namespace cgtree::testing
