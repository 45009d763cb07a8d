// Outputs of every kind: aliases, views, constants, empty tensors, none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "tests/support/core_fixture.h"

namespace cgtree::testing {
namespace {

class OutputsTest : public TreeTest {};
CGTREE_ON_ALL_DEVICES(OutputsTest);

// Rows 34 constant_output, 39 aliasing_static_ref, 42 aliased_static_parameter, 62
// alias_of_parameter: the static input is passed through, not managed; the parameter stays alive,
// and one output is live.
// Acceptance: trees 34, 39, 42, 62.
TEST_P(OutputsTest, AnOutputThatIsAStaticInputIsPassedThrough) {
  CompiledFunction f =
      compile(context(), "f",
              [](Tensor x, Tensor weights) {
                return std::array{weights, weights.slice(0, 2, 4), affine(x, 2, 0)};
              },
              {.inputs = {{}, {.is_static = true}}});
  const Tensor weights = random_tensor({8});

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(5);
    const auto [same, view, fresh] = f(tensor({5}, x), weights);
    EXPECT_EQ(same.storage(), weights.storage());
    EXPECT_EQ(view.storage(), weights.storage());
    EXPECT_EQ(view.address(), weights.address() + 8);
    EXPECT_EQ(values(fresh), affine_of(x, 2, 0));
    EXPECT_EQ(stats().live_outputs, 1u);
  }
}

// Row 39 aliasing_static_ref: a child's output that aliases its parent's is not a second slot.
// Acceptance: trees 39.
TEST_P(OutputsTest, AnOutputThatIsAManagedInputKeepsItsStorage) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction f = compile(
      context(), "f", [](Tensor x) { return std::pair(x.slice(0, 1, 3), affine(x, 1, 1)); });

  for (int step = 0; step < 4; ++step) {
    context().mark_step();
    const std::vector<float> x = random_floats(4);
    Tensor made = make(tensor({4}, x));
    const auto [view, fresh] = f(made);
    EXPECT_EQ(view.storage(), made.storage());
    made = Tensor();
    EXPECT_EQ(values(view)[0], 2 * x[1]);
    EXPECT_EQ(values(fresh), affine_of(x, 2, 1));
    EXPECT_EQ(stats().live_outputs, 2u);
  }
}

// Row 51 output_alias: the copy of an eager input, and a view of it, share one storage.
// Acceptance: trees 51.
TEST_P(OutputsTest, AnOutputThatIsACopiedInputHoldsTheValuesOfItsCall) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return std::pair(x, x.slice(0, 1, 3)); });
  std::vector<std::pair<Tensor, Tensor>> held;
  std::vector<std::vector<float>> expected;

  for (int call = 0; call < 5; ++call) {
    expected.push_back(random_floats(4));
    held.push_back(f(tensor({4}, expected.back())));
  }

  for (std::size_t i = 0; i < held.size(); ++i) {
    const auto& [whole, view] = held[i];
    EXPECT_EQ(whole.storage(), view.storage());
    EXPECT_EQ(values(whole), expected[i]);
    EXPECT_EQ(values(view)[1], expected[i][2]);
  }
}

// Row 38 aliased_storage_single_weakref: one storage per allocation, however many outputs.
// Acceptance: trees 38.
TEST_P(OutputsTest, OutputsOfOneAllocationShareOneStorage) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    const Tensor y = affine(x, 3, 0);
    return std::array{y, y.transpose(0, 1), y, y.slice(0, 1, 2)};
  });

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(6);
    auto [y, transposed, again, row] = f(tensor({2, 3}, x));
    EXPECT_EQ(y.storage(), transposed.storage());
    EXPECT_EQ(y.storage(), again.storage());
    EXPECT_EQ(y.storage(), row.storage());
    EXPECT_EQ(stats().live_outputs, 1u);
    EXPECT_EQ(transposed.shape(),
              Shape(std::array<std::int64_t, 2>{3, 2}, std::array<std::int64_t, 2>{1, 3}));
    EXPECT_EQ(values(row)[0], 3 * x[3]);
    y = transposed = again = row = Tensor();
    EXPECT_EQ(stats().live_outputs, 0u);
  }
}

TEST_P(OutputsTest, AConstantFromOutsideIsTheSameEachTime) {
  const Tensor constant = random_tensor({3});
  const std::vector<float> expected = values(constant);
  CompiledFunction f =
      compile(context(), "f", [=](Tensor x) { return std::pair(constant, add(x, constant)); });

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    const auto [same, sum] = f(tensor({3}, x));
    EXPECT_EQ(same.storage(), constant.storage());
    EXPECT_EQ(values(sum)[0], x[0] + expected[0]);
  }
}

// Rows 50 empty_cpu_tensor and 52 empty_storage.
// Acceptance: trees 50, 52.
TEST_P(OutputsTest, EmptyTensorsComeInAndGoOutWithoutMemory) {
  CompiledFunction f = compile(context(), "f", [](Tensor x, Tensor nothing) {
    return std::array{affine(x, 2, 0), nothing, empty({0, 4}, DType::kFloat32)};
  });
  const Tensor nothing = random_tensor({0});

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    const auto [y, none, also_none] = f(tensor({3}, x), nothing);
    EXPECT_EQ(values(y), affine_of(x, 2, 0));
    EXPECT_EQ(none.elements(), 0);
    EXPECT_EQ(also_none.shape(), (Shape{0, 4}));
    EXPECT_EQ(stats().live_outputs, 1u);
  }
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(OutputsTest, AFunctionMayReturnNothingOrManyTensors) {
  const Tensor state = tensor({1}, std::vector<float>{0});
  CompiledFunction bump = compile(context(), "bump", [](Tensor s) { update(s, 1, 1); },
                                  {.inputs = {{.is_static = true, .is_mutated = true}}});
  for (int call = 1; call <= 4; ++call) {
    bump(state);
    EXPECT_EQ(values(state)[0], call);
  }

  CompiledFunction many = compile(context(), "many", [](std::span<const Tensor> x) {
    std::vector<Tensor> outputs;
    for (int i = 0; i < 20; ++i)
      outputs.push_back(affine(x[0], 1, i));
    return outputs;
  });
  for (int call = 0; call < 4; ++call) {
    const Tensor x = random_tensor({2});
    const std::vector<Tensor> outputs = many(std::array{x});
    ASSERT_EQ(outputs.size(), 20u);
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(values(outputs[i]), affine_of(values(x), 1, i));
  }
}

// The earlier output may have ended by a replay; in an eager call it is alive.
TEST_P(OutputsTest, AFunctionThatReturnsAnEarlierOutputWithoutTakingItRunsEagerly) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  const Tensor made = make(random_tensor({3}));
  const std::vector<float> expected = values(made);
  const auto returns_it = [=](Tensor x) { return std::pair(affine(x, 3, 1), made); };
  CompiledFunction f = compile(context(), "f", returns_it);
  for (int call = 0; call < 5; ++call) {
    const Tensor x = random_tensor({3});
    const auto [y, earlier] = f(x);
    EXPECT_EQ(values(y), affine_of(values(x), 3, 1));
    EXPECT_EQ(earlier.storage(), made.storage());
    EXPECT_EQ(values(earlier), expected);
  }
  EXPECT_EQ(f.stats().failures, 0u);
  EXPECT_EQ(f.stats().recordings, 0u);
  EXPECT_EQ(f.stats().skipped(SkipReason::kCaptureFailed), 4u);
  EXPECT_EQ(f.explain(random_tensor({3})).skip_reason, SkipReason::kCaptureFailed);

  CompiledFunction graphed = compile(context(), "graphed", returns_it, {.require_graph = true});
  (void)graphed(random_tensor({3}));
  try {
    (void)graphed(random_tensor({3}));
    ADD_FAILURE() << "not refused";
  } catch (const CaptureError& error) {
    EXPECT_NE(std::string(error.what()).find("output 1 of 'graphed'"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("pass it as an input"), std::string::npos);
  }
  validate();
}

// The step expects the table to be filled, and an abandoned capture would leave it empty.
TEST_P(OutputsTest, ATableThatIsMadeBesideAnEarlierOutputIsFilled) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  const Tensor made = make(random_tensor({3}));
  Tensor table;
  bool looks_up = false;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (!looks_up) return std::pair(affine(x, 3, 1), made);
    if (!table.defined()) table = affine(made, 5, 0);
    return std::pair(affine(table, 3, 1), made);
  });
  (void)f(random_tensor({3}));
  looks_up = true;
  for (int call = 0; call < 4; ++call) {
    const auto [y, earlier] = f(random_tensor({3}));
    EXPECT_EQ(values(y), affine_of(affine_of(values(made), 5, 0), 3, 1)) << call;
    EXPECT_EQ(earlier.storage(), made.storage());
  }
  EXPECT_EQ(f.stats().failures, 0u);
}

// An output belongs to the input with its bytes, not to the first input of the same storage.
TEST_P(OutputsTest, AnOutputThatIsOneOfTwoInputsOfOneStorageIsThatInput) {
  constexpr std::int64_t kHalf = 1 << 10;
  CompiledFunction one =
      compile(context(), "one", [](Tensor x) { return affine(x.slice(0, 0, 2 * kHalf), 2, 0); });
  CompiledFunction two = compile(context(), "two", [](Tensor x) {
    return std::pair(affine(x.slice(0, 0, kHalf), 2, 0),
                     affine(x.slice(0, kHalf, 2 * kHalf), 3, 0));
  });
  CompiledFunction second = compile(context(), "second", [](Tensor a, Tensor b) {
    update(a, 1, 1);
    return b;
  });
  const Tensor x = random_tensor({2 * kHalf});
  Tensor whole = one(x);
  const std::uintptr_t first_at = whole.address();
  for (int call = 0; call < 2; ++call) {
    const Tensor b = whole.slice(0, kHalf, 2 * kHalf);
    EXPECT_EQ(second(whole.slice(0, 0, kHalf), b).address(), b.address());
  }
  whole = Tensor();
  const auto [a, b] = two(x);
  ASSERT_EQ(a.address(), first_at);
  ASSERT_EQ(b.address(), first_at + kHalf * sizeof(float));

  const Tensor same = second(a, b);

  EXPECT_EQ(second.stats().replays, 1u);
  EXPECT_EQ(same.storage(), b.storage());
  EXPECT_EQ(same.address(), b.address());
}

TEST_P(OutputsTest, AFunctionWhoseOutputReachesBeyondAManagedInputRunsEagerly) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction widen = compile(context(), "widen", [](Tensor x) {
    return Tensor(x.storage(), 0, Shape{8}, DType::kFloat32);
  });
  const Tensor made = make(random_tensor({8}));
  for (int call = 0; call < 4; ++call) {
    const Tensor wide = widen(made.slice(0, 0, 4));
    EXPECT_EQ(wide.address(), made.address());
    EXPECT_EQ(values(wide), values(made));
  }
  EXPECT_EQ(widen.stats().failures, 0u);
  EXPECT_EQ(widen.stats().skipped(SkipReason::kCaptureFailed), 3u);
}

TEST_P(OutputsTest, AnOutputThatReachesBeyondAStaticInputIsTheCallersMemory) {
  CompiledFunction widen =
      compile(context(), "widen",
              [](Tensor x) { return Tensor(x.storage(), 0, Shape{8}, DType::kFloat32); },
              {.inputs = {{.is_static = true}}});
  const Tensor table = random_tensor({8});
  for (int call = 0; call < 4; ++call) {
    const Tensor wide = widen(table.slice(0, 4, 8));
    EXPECT_EQ(wide.address(), table.address());
    EXPECT_EQ(values(wide), values(table));
  }
}

// The step function itself may assign the variable that the caller passed.
TEST_P(OutputsTest, AStepFunctionMayAssignTheVariableThatItWasGiven) {
  Tensor current, back;
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor x) {
                                 update(x, 1, 1);
                                 current = back;
                                 return affine(x, 2, 0);
                               },
                               {.inputs = {{.is_mutated = true}}});
  for (int call = 0; call < 5; ++call) {
    for (const bool to_nothing : {false, true}) {
      const std::vector<float> x = random_floats(4), other = random_floats(4);
      const Tensor given = tensor({4}, x), never_passed = tensor({4}, other);
      current = given;
      back = to_nothing ? Tensor() : never_passed;
      const Tensor y = f(current);
      EXPECT_EQ(values(given), affine_of(x, 1, 1)) << call;
      EXPECT_EQ(values(never_passed), other) << call;
      EXPECT_EQ(values(y), affine_of(affine_of(x, 1, 1), 2, 0)) << call;
    }
  }
  EXPECT_EQ(f.stats().recordings, 1u);
}

// Memory outside the context's pools has no slot.
class OutputsElsewhereTest : public OutputsTest {
 protected:
  Device other() const { return {DeviceType::kHost, device().type == DeviceType::kHost ? 1 : 0}; }
  Tensor copy_of(const Tensor& y, Tensor there) {
    copy(there, y);
    return there;
  }
  Tensor fresh(const Tensor& y) { return empty(y.shape(), y.dtype(), other()); }
};
CGTREE_ON_ALL_DEVICES(OutputsElsewhereTest);

TEST_P(OutputsElsewhereTest, AnOutputThatTheStepMadeThereIsNotOverwrittenWhileItIsHeld) {
  const auto f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    return std::pair(y, copy_of(y, fresh(y)).slice(0, 1, 4));
  });
  expect_results_elsewhere_stay(f);
}

TEST_P(OutputsElsewhereTest, WhereAGraphIsRequiredTheOutputIsNamed) {
  const auto f = compile(context(), "f",
                         [&](Tensor x) {
                           const Tensor y = affine(x, 2, 0);
                           return std::pair(y, copy_of(y, fresh(y)));
                         },
                         {.outputs = {{}, {.name = "logits"}}, .require_graph = true});
  (void)f(random_tensor({4}));
  try {
    (void)f(random_tensor({4}));
    FAIL();
  } catch (const CaptureError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("output 1 'logits' is"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("which the step function made"));
  }
}

TEST_P(OutputsElsewhereTest, ATensorKeptInACaptureIsFilledAndNotRecorded) {
  Tensor kept;
  const auto f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    kept = copy_of(y, fresh(y));
    return y;
  });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 2, 0));
    context().synchronize();
    EXPECT_EQ(values(kept), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().skipped(SkipReason::kKeepsTensor), 3u);

  kept = Tensor();
}

TEST_P(OutputsElsewhereTest, TensorsUsedOnlyInTheStepAreKeptForReplays) {
  const auto f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    const Tensor there = copy_of(y, fresh(y));
    const Tensor back = empty(y.shape(), y.dtype());
    copy(back, there);
    return back;
  });
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

TEST_P(OutputsElsewhereTest, AnOutputFromOutsideIsTheSameEachTime) {
  const Tensor outside = fresh(random_tensor({4}));
  const auto f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    return std::pair(y, copy_of(y, outside));
  });
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(4);
    const auto [y, there] = f(tensor({4}, x));
    EXPECT_EQ(there.storage(), outside.storage());
    EXPECT_EQ(values(y), affine_of(x, 2, 0));
    EXPECT_EQ(values(there), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

}  // namespace
}  // namespace cgtree::testing
