// Results in the caller's own buffers, written by the graph itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "extensions/watch/monitor.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class IntoBuffersTest : public TreeTest {
 protected:
  CompiledFunction<Tensor(Tensor)> twice(CompileOptions options = {}) {
    return compile(
        context(), "twice", [](Tensor x) { return affine(x, 2, 0); }, std::move(options));
  }
  Tensor poisoned(const Shape& shape) {
    return tensor(shape, std::vector<float>(static_cast<std::size_t>(shape.elements()), -99));
  }
  template <typename Call>
  std::string refusal(Call&& call) {
    try {
      call();
    } catch (const InvalidArgument& error) {
      return std::string(error.message());
    }
    return "nothing was thrown";
  }
};
CGTREE_ON_ALL_DEVICES(IntoBuffersTest);

TEST_P(IntoBuffersTest, TheBufferIsTheOutputInEveryKindOfCall) {
  CompiledFunction f = twice();
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = random_floats(5);
    const Tensor buffer = poisoned({5});
    const Tensor y = f.into(buffer)(tensor({5}, x));
    EXPECT_EQ(y.storage(), buffer.storage());
    EXPECT_EQ(values(buffer), affine_of(x, 2, 0));
    EXPECT_EQ(stats().live_outputs, 0u);
  }
  EXPECT_EQ(f.stats().replays, 4u);
  EXPECT_EQ(f.stats().recordings, 1u);
}

// Row 4.2, outputs marked static are not of the pool: the context has no live storage for them, and
// the next generation does not end them.
// Acceptance: random marked_static.
TEST_P(IntoBuffersTest, AnOutputInABufferIsNotOfThePoolAndOutlivesMarkStep) {
  CompiledFunction f = twice();
  const Tensor buffer = poisoned({4});
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(4);
    const Tensor y = f.into(buffer)(tensor({4}, x));
    EXPECT_FALSE(owns(y.data()));
    EXPECT_EQ(stats().live_outputs, 0u);
    context().mark_step();
    EXPECT_EQ(values(y), affine_of(x, 2, 0));
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

TEST_P(IntoBuffersTest, WithAndWithoutBuffersAreRecordedApart) {
  CompiledFunction f = twice();
  const Tensor buffer = poisoned({3});
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3), z = random_floats(3);
    const Tensor held = f(tensor({3}, x));
    (void)f.into(buffer)(tensor({3}, z));
    EXPECT_EQ(values(held), affine_of(x, 2, 0));
    EXPECT_EQ(values(buffer), affine_of(z, 2, 0));
  }
  EXPECT_EQ(f.stats().warm_ups, 2u);
  EXPECT_EQ(f.stats().recordings, 2u);
}

TEST_P(IntoBuffersTest, ElementsOfAStridedBufferAloneAreWritten) {
  CompiledFunction f = twice();
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(4);
    const Tensor table = poisoned({4, 3});
    (void)f.into(table.slice(1, 1, 2))(tensor({4, 1}, x));
    std::vector<float> expected(12, -99);
    for (int row = 0; row < 4; ++row)
      expected[row * 3 + 1] = 2 * x[row];
    EXPECT_EQ(values(table), expected);
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

TEST_P(IntoBuffersTest, AnUndefinedTensorMeansAnOutputAsUsual) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    return std::array{y, affine(x, 3, 0), y};
  });
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(3);
    const Tensor last = poisoned({3});
    const auto [first, second, third] = f.into(Tensor(), Tensor(), last)(tensor({3}, x));
    EXPECT_EQ(values(first), affine_of(x, 2, 0));
    EXPECT_EQ(values(second), affine_of(x, 3, 0));
    EXPECT_EQ(values(last), affine_of(x, 2, 0));
    EXPECT_EQ(third.storage(), last.storage());
    EXPECT_EQ(stats().live_outputs, 2u);
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

TEST_P(IntoBuffersTest, OutputsThatAreInputsOrConstantsGoThereToo) {
  const Tensor constant = random_tensor({3});
  CompiledFunction f = compile(context(), "f", [=](Tensor x) {
    return std::array{x.slice(0, 1, 3), constant};
  });
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(3);
    const Tensor view = poisoned({2}), same = poisoned({3});
    (void)f.into(view, same)(tensor({3}, x));
    EXPECT_EQ(values(view), (std::vector<float>{x[1], x[2]}));
    EXPECT_EQ(values(same), values(constant));
  }
}

TEST_P(IntoBuffersTest, AMutatedInputIsCopiedBackBesideThem) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x) {
                                 update(x, 1, 1);
                                 return affine(x, 2, 0);
                               },
                               {.inputs = {{.is_mutated = true}}});
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(3);
    const Tensor given = tensor({3}, x), buffer = poisoned({3});
    (void)f.into(buffer)(given);
    EXPECT_EQ(values(given), affine_of(x, 1, 1));
    EXPECT_EQ(values(buffer), affine_of(affine_of(x, 1, 1), 2, 0));
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

TEST_P(IntoBuffersTest, EagerAndNestedCallsWriteThemToo) {
  CompiledFunction off = twice({.enabled = false});
  const Tensor buffer = poisoned({3}), inner_buffer = poisoned({3});
  CompiledFunction inner = twice();
  CompiledFunction outer = compile(
      context(), "outer", [&](Tensor x) { return affine(inner.into(inner_buffer)(x), 1, 1); });
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(3), z = random_floats(3);
    EXPECT_EQ(off.into(buffer)(tensor({3}, x)).storage(), buffer.storage());
    EXPECT_EQ(values(buffer), affine_of(x, 2, 0));
    EXPECT_EQ(values(outer(tensor({3}, z))), affine_of(z, 2, 1));
    EXPECT_EQ(values(inner_buffer), affine_of(z, 2, 0));
  }
  EXPECT_EQ(outer.stats().replays, 3u);
}

TEST_P(IntoBuffersTest, AnyNumberOfInputsTakesAListOfBuffers) {
  CompiledFunction f = compile(context(), "f", [](std::span<const Tensor> x) {
    std::vector<Tensor> outputs;
    for (const Tensor& each : x)
      outputs.push_back(affine(each, 2, 0));
    return outputs;
  });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3), z = random_floats(2);
    const std::vector<Tensor> inputs = {tensor({3}, x), tensor({2}, z)};
    const std::vector<Tensor> buffers = {Tensor(), poisoned({2})};
    const std::vector<Tensor> outputs = f.into(buffers)(inputs);
    EXPECT_EQ(values(outputs[0]), affine_of(x, 2, 0));
    EXPECT_EQ(outputs[1].storage(), buffers[1].storage());
    EXPECT_EQ(values(buffers[1]), affine_of(z, 2, 0));
  }
}

TEST_P(IntoBuffersTest, ABufferOfAnotherShapeOrTypeIsRefusedWithBothSides) {
  CompiledFunction f = twice();
  for (int call = 0; call < 3; ++call) {
    const Tensor x = random_tensor({3});
    EXPECT_THAT(refusal([&] { (void)f.into(poisoned({4}))(x); }),
                HasSubstr("output 0 of 'twice' is float32 {3}"));
    EXPECT_THAT(refusal([&] { (void)f.into(empty({3}, DType::kInt32, device()))(x); }),
                HasSubstr("the buffer for it int32 {3}"));
    EXPECT_THAT(refusal([&] { (void)f.into(poisoned({3}), poisoned({3}))(x); }),
                HasSubstr("2 buffers given to 'twice', which has 1 outputs"));
    (void)f(x);
  }
  EXPECT_EQ(f.stats().replays, 1u);
}

TEST_P(IntoBuffersTest, ABufferThatSharesMemoryIsRefusedBeforeAnythingIsDone) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    return std::array{affine(x, 2, 0), affine(x, 3, 0)};
  });
  const Tensor x = random_tensor({3});
  const std::vector<float> before = values(x);
  for (int call = 0; call < 4; ++call) {
    const Tensor buffer = poisoned({3});
    EXPECT_THAT(refusal([&] { (void)f.into(x)(x); }), HasSubstr("the buffer of output 0 of 'f'"));
    EXPECT_THAT(refusal([&] { (void)f.into(x)(x); }), HasSubstr("shares memory with input 0"));
    EXPECT_THAT(refusal([&] { (void)f.into(buffer, buffer)(x); }),
                HasSubstr("shares memory with the buffer of output 0"));
    const Tensor repeated(buffer.storage(), 0,
                          Shape(std::array<std::int64_t, 1>{3}, std::array<std::int64_t, 1>{0}),
                          DType::kFloat32);
    EXPECT_THAT(refusal([&] { (void)f.into(repeated)(x); }),
                HasSubstr("whose elements share memory"));
    EXPECT_EQ(values(x), before);
    EXPECT_EQ(values(buffer), std::vector<float>(3, -99));
    (void)f.into(buffer, poisoned({3}))(x);  // with the signature of the refused calls
    EXPECT_EQ(values(buffer), affine_of(before, 2, 0));
  }
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(IntoBuffersTest, AStaleBufferAndOneOnAnotherDeviceAreRefused) {
  CompiledFunction f = twice();
  const Tensor stale = f(random_tensor({3}));
  context().mark_step();
  EXPECT_THROW((void)f.into(stale)(random_tensor({3})), StaleTensor);
  const Tensor elsewhere = from_host<float>({3}, std::vector<float>(3, 0), Device::host(1));
  EXPECT_THAT(refusal([&] { (void)f.into(elsewhere)(random_tensor({3})); }),
              HasSubstr("the buffer of output 0 of 'twice' is float32 {3} on host:1"));
}

// A kernel that copies the output may have no access to the buffer.
TEST_P(IntoBuffersTest, AnOutputOnAnotherDeviceThanItsBufferIsRefused) {
  const Device other = {DeviceType::kHost, device().type == DeviceType::kHost ? 1 : 0};
  const Tensor constant = from_host<float>({3}, random_floats(3), other);
  const auto f =
      compile(context(), "f", [&](Tensor x) { return std::pair(affine(x, 2, 0), constant); });
  const auto made = compile(context(), "made", [&](Tensor x) {
    return std::pair(affine(x, 2, 0), from_host<float>({3}, std::vector<float>(3, 1), other));
  });
  const Tensor x = random_tensor({3}), buffer = poisoned({3});
  for (int call = 0; call < 3; ++call) {
    EXPECT_THAT(refusal([&] { (void)f.into(Tensor(), buffer)(x); }),
                HasSubstr("output 1 of 'f' is"));
    EXPECT_THAT(refusal([&] { (void)made.into(Tensor(), buffer)(x); }),
                HasSubstr("output 1 of 'made' is"));
    EXPECT_EQ(f(x).second.storage(), constant.storage());
  }
  EXPECT_EQ(values(buffer), std::vector<float>(3, -99));
}

TEST_P(IntoBuffersTest, AHeldOutputMayBeABuffer) {
  CompiledFunction f = twice();
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = random_floats(3), z = random_floats(3);
    const Tensor held = f(tensor({3}, x));
    (void)f.into(held)(tensor({3}, z));
    EXPECT_EQ(values(held), affine_of(z, 2, 0));
  }
  EXPECT_LE(recording_count(), 3u);
}

// Row 30 graph_partition_with_memory_plan_reuse: two parts around an unsafe operation, one buffer.
// Acceptance: trees 30.
TEST_P(IntoBuffersTest, PartsAroundAnEagerGapWriteIntoOneBuffer) {
  CompiledFunction first = twice();
  CompiledFunction second = compile(context(), "second", [](Tensor x) { return affine(x, 3, 0); });
  const Tensor buffer = poisoned({3});
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    (void)first.into(buffer)(tensor({3}, x));
    const Tensor between = context().eager([&] { return affine(buffer, 1, 1); });
    (void)second.into(buffer)(between);
    EXPECT_EQ(values(buffer), affine_of(affine_of(x, 2, 1), 3, 0));
  }
  EXPECT_EQ(stats().replays, 4u);
}

TEST_P(IntoBuffersTest, TheSnapshotSaysBuffer) {
  CompiledFunction f = twice();
  for (int call = 0; call < 2; ++call)
    (void)f.into(poisoned({2}))(random_tensor({2}));

  const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
  const auto& node = snapshot.at("nodes").at(0);
  EXPECT_EQ(node.at("inputs").at(1).at("treatment"), "buffer");
  EXPECT_EQ(node.at("outputs").at(0).at("kind"), "input");
  EXPECT_EQ(node.at("outputs").at(0).at("index"), 1u);
}

TEST_P(IntoBuffersTest, ABufferIsNotAnInputOfTheSameShape) {
  CompiledFunction f = compile(
      context(), "f", [](std::span<const Tensor> x) { return std::vector{affine(x[0], 2, 0)}; });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> a = random_floats(3), b = random_floats(3);
    const std::vector<Tensor> both = {tensor({3}, a), tensor({3}, b)};
    EXPECT_EQ(values(f(both)[0]), affine_of(a, 2, 0));
    EXPECT_EQ(values(both[1]), b);
    const std::vector<Tensor> first = {both[0]}, buffers = {both[1]};
    (void)f.into(buffers)(first);
    EXPECT_EQ(values(both[1]), affine_of(a, 2, 0));
  }
}

TEST_P(IntoBuffersTest, OfTwoOutputsOfOneStorageOneMayGoIntoABuffer) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    return std::array{y, y.slice(0, 1, 3), y.slice(0, 0, 1)};
  });
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(3);
    const Tensor buffer = poisoned({3});
    const auto [whole, view, other] = f.into(buffer)(tensor({3}, x));
    EXPECT_EQ(whole.storage(), buffer.storage());
    EXPECT_EQ(values(buffer), affine_of(x, 2, 0));
    EXPECT_NE(view.storage(), buffer.storage());
    EXPECT_EQ(view.storage(), other.storage());
    EXPECT_EQ(values(view), (std::vector<float>{2 * x[1], 2 * x[2]}));
    EXPECT_EQ(values(other)[0], 2 * x[0]);
    EXPECT_EQ(stats().live_outputs, 1u);
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

// The output of any kind of call may have any strides, with and without padding.
TEST_P(IntoBuffersTest, AnOutputThatIsNotRowMajorIsSlicedIntoABuffer) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0).transpose(0, 1); },
              {.inputs = {{.dynamic = {{0, "n"}}}},
               .buckets = {{"n", {4}}},
               .outputs = {{.dynamic = {{1, "n"}}}}});
  for (int call = 0; call < 8; ++call) {
    const std::int64_t n = 4 - call % 4;
    const std::vector<float> x = random_floats(n * 3);
    const Tensor buffer = poisoned({3, n});
    (void)f.into(buffer)(tensor({n, 3}, x));
    const std::vector<float> written = values(buffer);
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t column = 0; column < 3; ++column)
        EXPECT_EQ(written[column * n + row], 2 * x[row * 3 + column]) << call;
    }
  }
  EXPECT_EQ(f.stats().replays, 6u);
}

// The function that into() returns may outlive the original: it follows a move, and owns a
// temporary.
TEST_P(IntoBuffersTest, TheFunctionOfIntoOutlivesAMoveAndATemporary) {
  const Tensor buffer = poisoned({3}), other = poisoned({3});
  CompiledFunction f = twice();
  const auto into = f.into(buffer);
  const CompiledFunction moved = std::move(f);
  const auto owner = twice().into(other);
  const auto list_owner = compile(context(), "list", [](std::span<const Tensor> x) {
                            return std::vector{affine(x[0], 3, 0)};
                          }).into(std::vector{other});
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(3);
    const Tensor given = tensor({3}, x);
    (void)into(given);
    EXPECT_EQ(values(buffer), affine_of(x, 2, 0));
    (void)owner(given);
    EXPECT_EQ(values(other), affine_of(x, 2, 0));
    (void)list_owner(std::vector{given});
    EXPECT_EQ(values(other), affine_of(x, 3, 0));
  }
  EXPECT_EQ(moved.stats().replays, 2u);
}

}  // namespace
}  // namespace cgtree::testing
