// Static inputs as the parameters and buffers of modules: their addresses select the recording.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "extensions/watch/monitor.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

class AcceptanceStaticsTest : public TreeTest {
 protected:
  static std::vector<float> sum(std::vector<float> a, const std::vector<float>& b) {
    for (std::size_t i = 0; i < a.size(); ++i)
      a[i] += b[i];
    return a;
  }
  // The treatments of a node's inputs, from the snapshot.
  std::vector<std::string> treatments(int node) {
    std::vector<std::string> found;
    const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
    for (const auto& input : snapshot["nodes"][node]["inputs"])
      found.push_back(input["treatment"]);
    return found;
  }
};
CGTREE_ON_ALL_DEVICES(AcceptanceStaticsTest);

// A user's module: parameters, and a buffer that each forward writes.
struct Module {
  Tensor weights;
  Tensor bias;
  Tensor calls;
};

// Row 85 multi_dispatch_single_compile_param_inputs, forward and backward: p1, p2, p1.
// Acceptance: trees 85.
TEST_P(AcceptanceStaticsTest, ForwardAndBackwardHaveARecordingPerParameterAndReuseIt) {
  const CompileOptions options{.inputs = {{}, {.is_static = true}}};
  const auto step = [](Tensor x, Tensor w) { return add(x, w); };
  CompiledFunction forward = compile(context(), "forward", step, options);
  CompiledFunction backward = compile(context(), "backward", step, options);
  const Tensor parameters[] = {random_tensor({4}), random_tensor({4})};

  for (const int p : {0, 0, 0, 1, 1, 1, 0, 1, 0}) {
    context().mark_step();
    const std::vector<float> x = random_floats(4), w = values(parameters[p]);
    const Tensor y = forward(tensor({4}, x), parameters[p]);
    EXPECT_EQ(values(backward(y, parameters[p])), sum(sum(x, w), w));
  }

  EXPECT_LE(recording_count(), 4u);
  EXPECT_EQ(forward.stats().recordings, 2u);
  EXPECT_EQ(forward.stats().replays, 6u);
  EXPECT_EQ(backward.stats().replays, 6u);
}

// Rows 86 multi_dispatch_single_compile_builtin_module and 88 _custom_module: the same function
// with the parameters of one module or another.
// Acceptance: trees 86, 88.
TEST_P(AcceptanceStaticsTest, ModulesHaveARecordingEachAndReuseIt) {
  CompiledFunction forward =
      compile(context(), "linear",
              [](Tensor x, Tensor weights, Tensor bias) { return add(add(x, weights), bias); },
              {.inputs = {{}, {.is_static = true}, {.is_static = true}}});
  const Module modules[] = {{random_tensor({4}), random_tensor({4}), {}},
                            {random_tensor({4}), random_tensor({4}), {}}};

  for (const int m : {0, 0, 0, 1, 1, 0, 1, 0}) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    const Module& module = modules[m];
    EXPECT_EQ(values(forward(tensor({4}, x), module.weights, module.bias)),
              sum(sum(x, values(module.weights)), values(module.bias)));
  }

  EXPECT_EQ(recording_count(), 2u);
  EXPECT_EQ(forward.stats().replays, 5u);
}

// Rows 87 multi_dispatch_single_compile_builtin_module_buffers and 89 _custom_module_buffer: only
// calls of a module write its buffer, in every phase.
// Acceptance: trees 86, 88.
TEST_P(AcceptanceStaticsTest, ModulesWithBuffersHaveARecordingEachAndReuseIt) {
  CompiledFunction forward =
      compile(context(), "norm",
              [](Tensor x, Tensor weights, Tensor calls) {
                update(calls, 1, 1);
                return add(x, weights);
              },
              {.inputs = {{}, {.is_static = true}, {.is_static = true, .is_mutated = true}}});
  const std::vector<float> zero = {0};
  const Module modules[] = {{random_tensor({4}), {}, tensor({1}, zero)},
                            {random_tensor({4}), {}, tensor({1}, zero)}};
  float calls[] = {0, 0};

  for (const int m : {0, 0, 0, 1, 1, 0, 1, 0}) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    const Module& module = modules[m];
    EXPECT_EQ(values(forward(tensor({4}, x), module.weights, module.calls)),
              sum(x, values(module.weights)));
    EXPECT_EQ(values(module.calls)[0], ++calls[m]);
  }

  EXPECT_EQ(values(modules[0].calls)[0], calls[0]);
  EXPECT_EQ(recording_count(), 2u);
  EXPECT_EQ(forward.stats().replays, 5u);
}

// Row 91 multi_dispatch_parent_node, better: the root has a recording per parameter, and these
// share each child whose inputs are at the recorded addresses.
// Acceptance: trees 91.
TEST_P(AcceptanceStaticsTest, BelowAnotherParameterTheChildIsSharedWhereAddressesAreEqual) {
  CompiledFunction root = compile(context(), "root", [](Tensor x, Tensor w) { return add(x, w); },
                                  {.inputs = {{}, {.is_static = true}}});
  CompiledFunction child = compile(context(), "child", [](Tensor x) { return affine(x, 3, 1); });
  const Tensor parameters[] = {random_tensor({4}), random_tensor({4}), random_tensor({4})};
  std::vector<std::uintptr_t> addresses;

  for (const int p : {0, 0, 0, 1, 1, 2, 2, 0, 1, 2}) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    const Tensor y = root(tensor({4}, x), parameters[p]);
    EXPECT_EQ(values(child(y)), affine_of(sum(x, values(parameters[p])), 3, 1));
    addresses.push_back(y.address());
  }

  EXPECT_EQ(std::count(addresses.begin(), addresses.end(), addresses.back()), 10);
  EXPECT_EQ(root.stats().recordings, 3u);
  EXPECT_EQ(child.stats().recordings, 1u);
  EXPECT_EQ(child.stats().replays, 8u);
}

// Row 96 no_rerecord_with_mark_static_address: eager inputs move at each call, static ones stay.
// Acceptance: trees 96.
TEST_P(AcceptanceStaticsTest, EagerInputsThatMoveBesideStaticOnesThatStayRecordNothingMore) {
  const CompileOptions options{.inputs = {{}, {.is_static = true}}};
  const auto step = [](Tensor x, Tensor w) { return add(x, w); };
  CompiledFunction forward = compile(context(), "forward", step, options);
  CompiledFunction backward = compile(context(), "backward", step, options);
  const Tensor weights = random_tensor({4});
  std::vector<Tensor> held;  // keeps all addresses different

  for (int call = 0; call < 6; ++call) {
    context().mark_step();
    const std::vector<float> x = random_floats(4), w = values(weights);
    held.push_back(tensor({4}, x));
    const Tensor y = forward(held.back(), weights);
    EXPECT_EQ(values(backward(y, weights)), sum(sum(x, w), w));
  }

  EXPECT_EQ(recording_count(), 2u);
}

// Row 133 graph_partition_no_partition_keeps_static: without a gap, parameters and saved outputs of
// the forward are used in place; only the eager input is copied.
// Acceptance: trees 133.
TEST_P(AcceptanceStaticsTest, WithoutAGapParametersAndSavedOutputsAreNotCopied) {
  CompiledFunction forward =
      compile(context(), "forward",
              [](Tensor x, Tensor w) { return std::pair(add(x, w), affine(x, 2, 0)); },
              {.inputs = {{}, {.is_static = true}}});
  CompiledFunction backward =
      compile(context(), "backward", [](Tensor saved, Tensor w) { return add(saved, w); },
              {.inputs = {{}, {.is_static = true}}});
  const Tensor w = random_tensor({4});
  for (int step = 0; step < 3; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    const auto [loss, saved] = forward(tensor({4}, x), w);
    EXPECT_EQ(values(backward(saved, w)), sum(affine_of(x, 2, 0), values(w)));
  }

  EXPECT_EQ(treatments(0), (std::vector<std::string>{"copied", "static"}));
  EXPECT_EQ(treatments(1), (std::vector<std::string>{"managed", "static"}));
  EXPECT_EQ(recording_count(), 2u);
}

// Row 112 tensor_constant_mutation: a tensor that the step function captured is written each call.
// Acceptance: trees 112.
TEST_P(AcceptanceStaticsTest, ACapturedTensorIsMutatedOncePerCallInEveryPhase) {
  const Tensor state = tensor({2}, std::vector<float>{0, 10});
  CompiledFunction f = compile(context(), "f", [=](Tensor x) {
    update(state, 1, 1);
    return add(x, state);
  });

  for (int call = 1; call <= 5; ++call) {
    const std::vector<float> x = random_floats(2);
    const std::vector<float> expected = {0.0f + call, 10.0f + call};
    EXPECT_EQ(values(f(tensor({2}, x))), sum(x, expected));
    EXPECT_EQ(values(state), expected);
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

}  // namespace
}  // namespace cgtree::testing
