// Inputs and buffers that a recording uses at the caller's addresses, without copies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "allocator/device/pinned_memory.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device_api.h"
#include "tests/support/test_kernels.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::HasSubstr;

InputOptions rebound(Rebind rebind = Rebind::kAlways, bool is_mutated = false) {
  return {.name = "x", .is_mutated = is_mutated, .rebind = rebind};
}

class RebindTest : public TreeTest {
 protected:
  // Small integers, so that sums are exact.
  std::vector<float> random_floats(std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values)
      value = static_cast<float>(random_() % 2000) - 1000;
    return values;
  }
  Tensor random_tensor(const Shape& shape) {
    return tensor(shape, random_floats(shape.elements()));
  }
  // The newest recording in the snapshot.
  json recording() {
    const json nodes = json::parse(snapshot_json(context()))["nodes"];
    return nodes.empty() ? json() : nodes.back();
  }
  std::string treatment(std::size_t input) { return recording()["inputs"][input]["treatment"]; }
  std::string why_not(std::size_t input) {
    return recording()["inputs"][input]["rebind"]["why_not"];
  }
  // A tensor of random values whose address has exactly this alignment.
  Tensor aligned_to(std::int64_t bytes, const std::vector<float>& x) {
    const auto count = static_cast<std::int64_t>(x.size());
    std::vector<float> padded(static_cast<std::size_t>(bytes / 4), 0);
    padded.insert(padded.end(), x.begin(), x.end());
    return tensor({static_cast<std::int64_t>(padded.size())}, padded)
        .slice(0, bytes / 4, bytes / 4 + count);
  }
  Tensor poisoned(const Shape& shape) {
    return tensor(shape, std::vector<float>(static_cast<std::size_t>(shape.elements()), -99));
  }
};
CGTREE_ON_ALL_DEVICES(RebindTest);

TEST_P(RebindTest, AMovedInputIsReadWhereItIs) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return add(affine(x, 2, 1), affine(x, 3, 0)); },
              {.inputs = {rebound()}});
  for (int call = 0; call < 8; ++call) {
    const std::vector<float> x = random_floats(33);
    EXPECT_EQ(values(f(tensor({33}, x))), affine_of(x, 5, 1)) << call;
  }
  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(f.stats().replays, 6u);
  EXPECT_EQ(treatment(0), "rebound") << why_not(0);
  EXPECT_EQ(recording()["graph_nodes"], 3);  // without a root node
  EXPECT_EQ(recording()["inputs"][0]["rebind"]["nodes"], 2);
}

TEST_P(RebindTest, AMutatedInputIsWrittenWhereItIs) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x, Tensor y) {
                                 update(x, 1, 1);
                                 return add(x, y);
                               },
                               {.inputs = {rebound(Rebind::kAlways, true), {.name = "y"}}});
  Tensor before = random_tensor({9});
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = random_floats(9);
    const std::vector<float> kept = values(before);
    const Tensor next = tensor({9}, x);
    const Tensor zeros = tensor({9}, std::vector<float>(9, 0));
    EXPECT_EQ(values(f(next, zeros)), affine_of(x, 1, 1));
    EXPECT_EQ(values(next), affine_of(x, 1, 1));
    EXPECT_EQ(values(before), kept);
    before = next;
  }
  EXPECT_EQ(treatment(0), "rebound") << why_not(0);
  EXPECT_EQ(treatment(1), "copied");
}

TEST_P(RebindTest, AnOutputThatIsAReboundInputIsTheCallersTensor) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x) {
                                 update(x, 2, 0);
                                 return x.slice(0, 1, 3);
                               },
                               {.inputs = {rebound(Rebind::kAlways, true)}});
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(4);
    const Tensor input = tensor({4}, x);
    const Tensor y = f(input);
    EXPECT_EQ(y.storage(), input.storage());
    EXPECT_EQ(values(y), affine_of({x[1], x[2]}, 2, 0));
  }
  EXPECT_EQ(treatment(0), "rebound") << why_not(0);
}

TEST_P(RebindTest, StridedViewsAreUsedInPlaceAndTheirGapsStay) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x) {
                                 update(x, 1, 1);
                                 return affine(x, 2, 0);
                               },
                               {.inputs = {rebound(Rebind::kAlways, true)}});
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(4 * 8);
    const Tensor table = tensor({4, 8}, x);
    (void)f(table.slice(1, 4, 6));
    std::vector<float> expected = x;
    for (std::size_t row = 0; row < 4; ++row) {
      for (std::size_t column = 4; column < 6; ++column)
        expected[row * 8 + column] += 1;
    }
    EXPECT_EQ(values(table), expected);
  }
  EXPECT_EQ(treatment(0), "rebound") << why_not(0);
}

TEST_P(RebindTest, NeighboursInOneArenaAreToldApart) {
  const std::vector<InputOptions> all(3, rebound());
  CompiledFunction f = compile(
      context(), "f", [](Tensor a, Tensor b, Tensor c) { return add(affine(a, 2, 0), add(b, c)); },
      {.inputs = all});
  for (int call = 0; call < 6; ++call) {
    // 512 bytes each, as the pool rounds their copies, in any order.
    const std::vector<float> x = random_floats(3 * 128);
    const Tensor arena = tensor({3 * 128}, x);
    std::array<std::int64_t, 3> order = {0, 1, 2};
    if (call >= 2) std::shuffle(order.begin(), order.end(), random_);  // at first in order
    const auto part = [&](int i) {
      return arena.slice(0, order[static_cast<std::size_t>(i)] * 128,
                         (order[static_cast<std::size_t>(i)] + 1) * 128);
    };
    const std::vector<float> a = values(part(0)), b = values(part(1)), c = values(part(2));
    std::vector<float> expected;
    for (std::size_t i = 0; i < 128; ++i)
      expected.push_back(2 * a[i] + (b[i] + c[i]));
    EXPECT_EQ(values(f(part(0), part(1), part(2))), expected);
  }
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(treatment(i), "rebound") << why_not(i);
}

TEST_P(RebindTest, OneTensorMayBeSeveralInputs) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor a, Tensor b) { return add(affine(a, 2, 0), b); },
              {.inputs = {rebound(), rebound()}});
  for (int call = 0; call < 8; ++call) {
    const std::vector<float> x = random_floats(6);
    const std::vector<float> y = random_floats(6);
    const Tensor a = tensor({6}, x);
    if (random_() % 2 == 0) {
      EXPECT_EQ(values(f(a, a)), affine_of(x, 3, 0));
    } else {
      std::vector<float> expected = y;
      for (std::size_t i = 0; i < 6; ++i)
        expected[i] += 2 * x[i];
      EXPECT_EQ(values(f(a, tensor({6}, y))), expected);
    }
  }
}

TEST_P(RebindTest, AnOutputOfAnotherCallMayTakeThePlaceOfAnInput) {
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 1, 7); });
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); }, {.inputs = {rebound()}});
  for (int call = 0; call < 8; ++call) {
    const std::vector<float> x = random_floats(6);
    if (call < 3 || random_() % 2 == 0) {
      EXPECT_EQ(values(f(tensor({6}, x))), affine_of(x, 2, 0));
    } else {
      EXPECT_EQ(values(f(g(tensor({6}, x)))), affine_of(affine_of(x, 1, 7), 2, 0));
    }
  }
}

TEST_P(RebindTest, ALessAlignedInputIsRecordedAnewAndOneOfNoAlignmentIsCopied) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); }, {.inputs = {rebound()}});
  const auto expect_call = [&](const Tensor& input, std::size_t recordings) {
    EXPECT_EQ(values(f(input)), affine_of(values(input), 2, 0));
    EXPECT_EQ(f.stats().recordings, recordings);
  };
  (void)f(random_tensor({8}));
  expect_call(random_tensor({8}), 1);
  expect_call(aligned_to(64, random_floats(8)), 2);
  const Explanation why = f.explain(aligned_to(32, random_floats(8)));
  ASSERT_FALSE(why.mismatches.empty());
  EXPECT_EQ(why.mismatches[0].kind, Mismatch::Kind::kAlignment);
  EXPECT_THAT(to_string(why), HasSubstr("aligned to"));
  expect_call(aligned_to(64, random_floats(8)), 2);
  expect_call(aligned_to(128, random_floats(8)), 2);
  expect_call(random_tensor({8}), 2);
  EXPECT_EQ(treatment(0), "rebound");
  expect_call(aligned_to(4, random_floats(8)), 3);  // InputOptions::alignment is 16
  EXPECT_EQ(treatment(0), "copied");
  expect_call(aligned_to(4, random_floats(8)), 3);
}

TEST_P(RebindTest, NothingIsRebundUnlessItIsAskedFor) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  int runs = 0;
  CompiledFunction g = compile(context(), "g", [&](Tensor x) {
    ++runs;
    return affine(x, 2, 0);
  });
  for (int call = 0; call < 3; ++call) {
    (void)f(random_tensor({4}));
    (void)g(random_tensor({4}));
  }
  EXPECT_EQ(treatment(0), "copied");
  EXPECT_EQ(runs, 2);
}

TEST_P(RebindTest, AutoCopiesWhatIsSmallAndUsedOftenAndRebindsWhatIsLarge) {
  constexpr std::int64_t kLarge = 16 << 20;
  CompiledFunction f = compile(context(), "f",
                               [](Tensor small, Tensor large) {
                                 Tensor sum = affine(large.slice(0, 0, 4), 1, 0);
                                 for (int i = 0; i < 24; ++i)
                                   sum = add(sum, small);
                                 return sum;
                               },
                               {.inputs = {{.rebind = Rebind::kAuto}, {.rebind = Rebind::kAuto}}});
  for (int call = 0; call < 4; ++call) {
    const Tensor large = empty({kLarge}, DType::kFloat32, device());
    const Tensor small = tensor({4}, std::vector<float>(4, 1));
    large.slice(0, 0, 4).copy_from<float>(std::vector<float>{1, 2, 3, 4});
    EXPECT_EQ(values(f(small, large)), (std::vector<float>{25, 26, 27, 28}));
  }
  EXPECT_EQ(treatment(0), "copied");
  EXPECT_THAT(why_not(0), HasSubstr("cheaper"));
  EXPECT_EQ(treatment(1), "rebound") << why_not(1);
  const Tensor large = empty({kLarge}, DType::kFloat32, device());
  const std::vector<std::string> notes = f.explain(random_tensor({4}), large).notes;
  EXPECT_THAT(notes, Contains(HasSubstr("is not rebound: a copy is thought to be cheaper")));
  EXPECT_THAT(notes, Contains(HasSubstr("is rebound in 1 nodes")));
}

TEST_P(RebindTest, AStepThatDoesSomethingElseEachTimeIsCopied) {
  float shift = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) { return affine(x, 1, shift += 1); },
                               {.inputs = {rebound()}});
  (void)f(random_tensor({4}));
  (void)f(random_tensor({4}));
  EXPECT_EQ(treatment(0), "copied");
  EXPECT_THAT(why_not(0), HasSubstr("other parameters in two captures"));
  const std::vector<float> x = random_floats(4);
  EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 1, shift));
}

TEST_P(RebindTest, AnInputThatAStepHasAlsoByAnotherWayIsCopied) {
  // A table of addresses that is copied from the host: the second kernel would read its input
  // there.
  std::uintptr_t table[1] = {};
  CompiledFunction f = compile(
      context(), "f",
      [&](Tensor x) {
        table[0] = x.address();
        const Tensor on_device = empty({2}, DType::kFloat32);
        const StreamRef stream = current_stream();
        check(stream.api().copy(stream.handle(), on_device.storage()->data(), table, sizeof(table)),
              "upload a table");
        return affine(x, 2, 0);
      },
      {.inputs = {rebound()}});
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(5);
    EXPECT_EQ(values(f(tensor({5}, x))), affine_of(x, 2, 0));
  }
  EXPECT_EQ(treatment(0), "copied");
  EXPECT_THAT(why_not(0), HasSubstr("table"));
}

// The copy begins four bytes in front of the address.
TEST_P(RebindTest, AnAddressInHostMemoryThatIsNotAlignedIsFound) {
  alignas(8) std::array<std::byte, 32> table{};
  CompiledFunction f = compile(
      context(), "f",
      [&](Tensor x) {
        const std::uintptr_t address = x.address();
        std::memcpy(table.data() + 8, &address, sizeof(address));
        const Tensor on_device = empty({8}, DType::kFloat32);
        const StreamRef stream = current_stream();
        check(stream.api().copy(stream.handle(), on_device.storage()->data(), table.data() + 4, 24),
              "upload a table");
        return affine(x, 2, 0);
      },
      {.inputs = {rebound()}});
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({5}));
  EXPECT_EQ(treatment(0), "copied");
  EXPECT_THAT(why_not(0), HasSubstr("table in host memory"));
}

TEST_P(RebindTest, AStepWhoseKernelReadsPinnedMemoryIsCopied) {
  PinnedMemory pinned(device());
  const Tensor table = pinned.empty({5}, DType::kFloat32);
  std::memset(table.data(), 0, table.bytes());
  CompiledFunction f =
      compile(context(), "f",
              [&](Tensor x) {
                const Tensor y = affine(x, 2, 0);
                const StreamRef stream = current_stream();
                check(stream.graphs().launch_kernel(
                          stream.handle(), axpy_kernel(), dims_for(5),
                          arguments_of(1.0f, table.data(), y.data(), std::int64_t{5})),
                      "axpy");
                return y;
              },
              {.inputs = {rebound()}});
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(5);
    EXPECT_EQ(values(f(tensor({5}, x))), affine_of(x, 2, 0));
  }
  EXPECT_EQ(treatment(0), "copied");
  EXPECT_THAT(why_not(0), HasSubstr("reads memory of the host"));
}

TEST_P(RebindTest, AnInputWhoseAddressNoNodeHasIsCopied) {
  CompiledFunction f = compile(context(), "f", [](Tensor x, Tensor) { return affine(x, 2, 0); },
                               {.inputs = {rebound(), rebound()}});
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({4}), random_tensor({4}));
  EXPECT_EQ(treatment(0), "rebound") << why_not(0);
  EXPECT_EQ(treatment(1), "copied");
  EXPECT_THAT(why_not(1), HasSubstr("no node has its address"));
}

TEST_P(RebindTest, AStepWithAnEagerBreakIsCopied) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x) {
                                 Tensor y = affine(x, 2, 0);
                                 eager_break([](const StepValues&) {});
                                 return affine(y, 1, 1);
                               },
                               {.inputs = {rebound()}});
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(5);
    EXPECT_EQ(values(f(tensor({5}, x))), affine_of(x, 2, 1));
  }
  EXPECT_EQ(treatment(0), "copied");
  EXPECT_THAT(why_not(0), HasSubstr("eager_break"));
}

TEST_P(RebindTest, CopiesAndMemsetsOfAnInputArePatchedToo) {
  CompiledFunction f = compile(
      context(), "f",
      [](Tensor x) {
        const StreamRef stream = current_stream();
        const Tensor y = empty({8}, DType::kFloat32);
        check(stream.api().copy(stream.handle(), y.storage()->data(), x.data<float>(), 32), "copy");
        check(stream.graphs().memset(stream.handle(), x.data<float>() + 4, 0, 16), "memset");
        return y;
      },
      {.inputs = {rebound(Rebind::kAlways, true)}});
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(8);
    const Tensor input = tensor({8}, x);
    EXPECT_EQ(values(f(input)), x);
    std::vector<float> expected = x;
    std::fill(expected.begin() + 4, expected.end(), 0.0f);
    EXPECT_EQ(values(input), expected);
  }
  EXPECT_EQ(treatment(0), "rebound") << why_not(0);
}

TEST_P(RebindTest, AProbeLeavesNoTraceInTheCallersStorage) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x) {
                                 note_use(x.storage(), current_stream());
                                 return affine(x, 2, 0);
                               },
                               {.inputs = {rebound()}});
  (void)f(random_tensor({4}));
  const Tensor x = random_tensor({4});
  (void)f(x);
  EXPECT_EQ(treatment(0), "rebound") << why_not(0);
  EXPECT_EQ(x.storage()->references(), 1u);
}

TEST_P(RebindTest, AStepThatFailsInItsProbeFailsAsItWouldWithoutOne) {
  bool fail = false;
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor x) {
                                 Tensor y = affine(x, 2, 0);
                                 if (fail) throw std::runtime_error("the user's own");
                                 return y;
                               },
                               {.inputs = {rebound()}});
  (void)f(random_tensor({4}));
  fail = true;
  EXPECT_THROW((void)f(random_tensor({4})), std::runtime_error);
  fail = false;
  const std::vector<float> x = random_floats(4);
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 2, 0));
}

TEST_P(RebindTest, InputsThatShareMemoryAndAreWrittenAreRefusedAsCopiesAre) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x, Tensor y) {
                                 update(x, 1, 1);
                                 return affine(y, 1, 0);
                               },
                               {.inputs = {rebound(Rebind::kAlways, true), rebound()}});
  const Tensor x = random_tensor({8});
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> before = values(x);
    EXPECT_EQ(values(f(x, x)), affine_of(before, 1, 1));
  }
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> y = random_floats(8);
    EXPECT_EQ(values(f(random_tensor({8}), tensor({8}, y))), y);
  }
  const std::vector<float> before = values(x);
  EXPECT_EQ(values(f(x, x)), affine_of(before, 1, 1));
}

TEST_P(RebindTest, ABufferIsWrittenByTheKernelsThemselves) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor x) {
                                 std::vector<Tensor> outputs;
                                 const Tensor y = affine(x, 2, 0);
                                 outputs.push_back(add(y, x));
                                 outputs.push_back(affine(outputs[0], 1, 1));
                                 return std::pair(outputs[0], outputs[1]);
                               },
                               {.outputs = {{.rebind = Rebind::kAlways}, {}}});
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = random_floats(16);
    const Tensor buffer = poisoned({16});
    const auto [sum, next] = f.into(buffer)(tensor({16}, x));
    EXPECT_EQ(sum.storage(), buffer.storage());
    EXPECT_EQ(values(buffer), affine_of(x, 3, 0));
    EXPECT_EQ(values(next), affine_of(x, 3, 1));
  }
  EXPECT_EQ(treatment(1), "rebound") << why_not(1);
  EXPECT_EQ(recording()["graph_nodes"], 4);  // with the root, without a tail
}

TEST_P(RebindTest, ABufferForAnOutputThatIsNotATensorOfItsOwnIsCopied) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x) { return affine(x, 2, 0).slice(0, 4, 8); },
              {.outputs = {{.rebind = Rebind::kAlways}}});
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(8);
    const Tensor buffer = poisoned({4});
    (void)f.into(buffer)(tensor({8}, x));
    EXPECT_EQ(values(buffer), affine_of({x.begin() + 4, x.end()}, 2, 0));
  }
  EXPECT_EQ(treatment(1), "buffer");
  EXPECT_THAT(why_not(1), HasSubstr("not a tensor of its own"));
}

TEST_P(RebindTest, AnInputThatIsReturnedIntoABufferIsCopied) {
  CompiledFunction whole =
      compile(context(), "whole", [](Tensor x) { return std::pair(affine(x, 2, 0), x); },
              {.inputs = {rebound()}});
  CompiledFunction view = compile(
      context(), "view", [](Tensor x) { return std::pair(affine(x, 2, 0), x.slice(0, 3, 7)); },
      {.inputs = {rebound()}});
  CompiledFunction written = compile(context(), "written",
                                     [](Tensor x) {
                                       update(x, 2, 0);
                                       return std::pair(affine(x, 1, 0), x);
                                     },
                                     {.inputs = {rebound(Rebind::kAlways, true)}});
  for (int call = 0; call < 6; ++call) {
    const std::vector<float> x = random_floats(9);
    const Tensor buffer = poisoned({9}), part = poisoned({4});
    EXPECT_EQ(values(whole.into(Tensor(), buffer)(tensor({9}, x)).first), affine_of(x, 2, 0));
    EXPECT_EQ(values(buffer), x) << call;
    EXPECT_EQ(values(view.into(Tensor(), part)(tensor({9}, x)).first), affine_of(x, 2, 0));
    EXPECT_EQ(values(part), std::vector<float>(x.begin() + 3, x.begin() + 7)) << call;
    const Tensor input = tensor({9}, x), after = poisoned({9});
    EXPECT_EQ(values(written.into(Tensor(), after)(input).first), affine_of(x, 2, 0));
    EXPECT_EQ(values(after), affine_of(x, 2, 0)) << call;
    EXPECT_EQ(values(input), affine_of(x, 2, 0)) << call;
    if (call == 0) continue;
    EXPECT_EQ(treatment(0), "copied_back");
    EXPECT_THAT(why_not(0), HasSubstr("an output that lies in it is copied to a buffer"));
  }
  EXPECT_EQ(whole.stats().replays, 4u);
  EXPECT_EQ(view.stats().replays, 4u);
  EXPECT_EQ(written.stats().replays, 4u);
}

}  // namespace
}  // namespace cgtree::testing
