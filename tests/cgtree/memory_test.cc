// Memory that step functions use besides inputs and outputs: workspaces, and tensors that they
// copy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "base/error.h"
#include "cgtree/memory/recorded_memory.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device_api.h"
#include "interop/exchange/lent_memory.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "tests/support/inside.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class MemoryTest : public TreeTest {};
CGTREE_ON_ALL_DEVICES(MemoryTest);

TEST_P(MemoryTest, CopyMovesValuesBetweenAnyTwoOfHostAndDevice) {
  const std::vector<float> values = random_floats(6);
  const Tensor on_host = from_host<float>({2, 3}, values, Device::host());
  const Tensor on_device = random_tensor({2, 3});
  const Tensor also_on_device = random_tensor({2, 3});
  const Tensor back = from_host<float>({2, 3}, random_floats(6), Device::host());
  const StreamRef stream = context().stream();

  copy(on_device, on_host, stream);
  copy(also_on_device, on_device, stream);
  copy(back, also_on_device, stream);
  stream.synchronize();

  EXPECT_EQ(back.to_vector<float>(), values);
}

TEST_P(MemoryTest, CopyRefusesSidesThatDoNotMatchAndShowsBoth) {
  const Tensor x = random_tensor({2, 3});
  const StreamRef stream = context().stream();
  const auto message_of = [&](const Tensor& to, const Tensor& from) -> std::string {
    try {
      copy(to, from, stream);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "no error";
  };

  EXPECT_THAT(message_of(x, random_tensor({3, 2})), HasSubstr("float32 {2, 3}"));
  EXPECT_THAT(message_of(x, random_tensor({3, 2})), HasSubstr("float32 {3, 2}"));
  EXPECT_THAT(message_of(x, x.transpose(0, 1).transpose(0, 1).slice(1, 0, 2)), HasSubstr("shape"));
  EXPECT_THAT(message_of(random_tensor({2, 2}), x.slice(1, 0, 2)), HasSubstr("contiguous"));
  EXPECT_THAT(message_of(x, Tensor()), HasSubstr("undefined"));
  EXPECT_THROW(copy(x, x), InvalidArgument);  // there is no current stream
}

// Each replay reads the source of a recorded copy again.
// Acceptance: pools unpinned_memory_use.
TEST_P(MemoryTest, ARecordingKeepsTheMemoryItsCopiesRead) {
  std::optional<Tensor> source = random_tensor({4});
  const StorageRef storage = source->storage();
  std::optional<CompiledFunction<Tensor(Tensor)>> f = compile(context(), "f", [&](Tensor x) {
    const Tensor copied = empty({4}, DType::kFloat32);
    copy(copied, *source);
    return add(x, copied);
  });
  for (int call = 0; call < 3; ++call)
    (void)(*f)(random_tensor({4}));
  const Tensor last = *source;  // a handle for changing its contents
  source.reset();

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(4);
    const std::vector<float> added = random_floats(4);
    last.copy_from<float>(added);
    const Tensor y = (*f)(tensor({4}, x));
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(values(y)[i], x[i] + added[i]);
  }
  EXPECT_EQ(storage->references(), 3u);  // two of the test and one of the recording
  f.reset();
  EXPECT_EQ(storage->references(), 2u);
}

// Row 4.2 initial_mempool, with a source of segments instead of a pool: all memory of calls is from
// its segments.
// Acceptance: random initial_mempool.
TEST_P(MemoryTest, PoolsTakeTheirMemoryFromTheSourceThatIsGiven) {
  CountingSegments source(device());
  {
    Context own(device(), {.segments = &source});
    CompiledFunction f = compile(own, "f", [](Tensor x) { return affine(affine(x, 2, 0), 1, 1); });
    const std::vector<float> x = random_floats(1 << 10);
    const Tensor given = tensor({1 << 10}, x);
    EXPECT_EQ(source.requests(), 0);
    for (int call = 0; call < 3; ++call) {
      const Tensor y = f(given);
      EXPECT_EQ(values(y), affine_of(x, 2, 1));
      EXPECT_TRUE(cgtree::testing::owns(own, y.data()));
    }
    EXPECT_EQ(f.stats().replays, 1u);
    EXPECT_GE(source.held(), 2);  // one for memory that stays, one for scratch memory
  }
  EXPECT_EQ(source.held(), 0);
}

// The sizes of calls grow: one range serves them all, segments of fixed sizes do not.
TEST_P(MemoryTest, PoolsThatGrowInPlaceReserveLess) {
  const auto reserved = [&](bool in_place) {
    Context own(device(), {.pools_grow_in_place = in_place});
    CompiledFunction f = compile(own, "f", [](Tensor x) { return affine(affine(x, 2, 0), 1, 1); });
    for (const std::int64_t count : {3 << 20, 4 << 20, 5 << 20}) {
      const std::vector<float> x = random_floats(count);
      for (int call = 0; call < 2; ++call)
        (void)f(tensor({count}, x));
      EXPECT_EQ(values(f(tensor({count}, x))), affine_of(x, 2, 1));
    }
    EXPECT_EQ(f.stats().replays, 3u);
    cgtree::testing::validate(own);
    return own.stats().pool_reserved_bytes;
  };

  EXPECT_LT(reserved(true), reserved(false));
}

TEST_P(MemoryTest, AWorkspaceInAStepFunctionComesFromThePool) {
  int outside_of_pool = 0;
  const auto f_eager = [&](const Tensor& x) {
    const Workspace workspace(device(), x.bytes());
    check(current_stream().api().copy(current_stream().handle(), workspace.data(), x.data(),
                                      x.bytes()),
          "copy");
    const Tensor y = empty(x.shape(), x.dtype());
    check(current_stream().api().copy(current_stream().handle(), y.data(), workspace.data(),
                                      x.bytes()),
          "copy");
    outside_of_pool += !owns(workspace.data());
    return y;
  };
  CompiledFunction f = compile(context(), "f", [&](Tensor x) { return f_eager(x); });

  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(1000);
    EXPECT_EQ(values(f(tensor({1000}, x))), x);
  }

  EXPECT_EQ(outside_of_pool, 0);
  EXPECT_EQ(f.stats().replays, 2u);
}

TEST_P(MemoryTest, AWorkspaceOutsideComesFromTheDevice) {
  const Workspace workspace(device(), 4096);
  const Workspace nothing(device(), 0);

  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workspace.data()) % 256, 0u);
  EXPECT_FALSE(owns(workspace.data()));
  EXPECT_EQ(nothing.data(), nullptr);
}

TEST_P(MemoryTest, AnAbsurdWorkspaceIsOutOfMemory) {
  EXPECT_THROW(Workspace(device(), std::size_t{1} << 50), OutOfMemory);
}

// The same holds for the context's own tensors: a tensor is made between calls, and a step reads or
// writes it although it is not an input.
TEST_P(MemoryTest, ARecordingKeepsATensorOfTheContextThatItsCopiesUse) {
  const auto fresh = [&](const std::vector<float>& values) {
    return context().eager([&] {
      Tensor made = empty({4}, DType::kFloat32);
      made.copy_from<float>(values);
      return made;
    });
  };
  Tensor source = fresh({1, 2, 3, 4}), destination = fresh({0, 0, 0, 0});
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor copied = empty({4}, DType::kFloat32);
    copy(copied, source);
    copy(destination, x);
    return add(x, copied);
  });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({4}));
  source = destination = Tensor();
  std::vector<Tensor> others;
  for (int i = 0; i < 8; ++i)
    others.push_back(fresh({9, 9, 9, 9}));

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(4);
    const std::vector<float> y = values(f(tensor({4}, x)));
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(y[i], x[i] + static_cast<float>(i + 1));
    for (const Tensor& other : others)
      EXPECT_EQ(values(other), (std::vector<float>{9, 9, 9, 9}));
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

// For instance a weight in the step function's closure.
TEST_P(MemoryTest, ARecordingKeepsATensorThatItsKernelsReadAndThatWasNotPassedIn) {
  const auto fresh = [&](float value) {
    return context().eager([&] {
      Tensor made = empty({4}, DType::kFloat32);
      made.copy_from<float>(std::vector<float>(4, value));
      return made;
    });
  };
  Tensor captured = fresh(5);
  const std::uintptr_t address = captured.address();
  CompiledFunction f = compile(context(), "f", [&](Tensor x) { return add(x, captured); });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({4}));
  captured = Tensor();
  std::vector<Tensor> others;
  for (int i = 0; i < 8; ++i)
    others.push_back(fresh(9));

  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(4);
    const std::vector<float> y = values(f(tensor({4}, x)));
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(y[i], x[i] + 5);
  }
  EXPECT_EQ(f.stats().replays, 3u);
  const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
  const auto& kept = snapshot["nodes"][0]["kept"];
  EXPECT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0]["address"], address);
}

TEST_P(MemoryTest, ARecordingDoesNotKeepStaticInputs) {
  Tensor weight = random_tensor({4});
  const StorageRef storage = weight.storage();
  CompiledFunction f = compile(context(), "f", [](Tensor w, Tensor x) { return add(w, x); },
                               {.inputs = {{.is_static = true}}});
  for (int call = 0; call < 3; ++call)
    (void)f(weight, random_tensor({4}));
  weight = Tensor();
  context().synchronize();

  EXPECT_EQ(storage->references(), 1u);
}

TEST_P(MemoryTest, ARecordingKeepsAnOutputThatItsCopiesUseAndThatWasNotPassedIn) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  Tensor captured = make(tensor({4}, std::vector<float>{1, 2, 3, 4}));
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor copied = empty({4}, DType::kFloat32);
    copy(copied, captured);
    return add(x, copied);
  });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({4}));
  captured = Tensor();

  for (int call = 0; call < 4; ++call) {
    (void)make(random_tensor({4}));
    const std::vector<float> x = random_floats(4);
    const std::vector<float> y = values(f(tensor({4}, x)));
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_EQ(y[i], x[i] + 2 * static_cast<float>(i + 1));
  }
  EXPECT_EQ(f.stats().replays, 4u);
  EXPECT_EQ(stats().live_outputs, 1u);
  validate();
}

// mark_step() ends outputs; a recording that uses such an output is dropped, and its function gives
// the reason.
TEST_P(MemoryTest, ARecordingGoesWithTheOutputThatItsCopiesUse) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  Tensor captured = make(random_tensor({4}));
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor copied = empty({4}, DType::kFloat32);
    copy(copied, captured);
    return add(x, copied);
  });
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({4}));
  ASSERT_EQ(f.stats().replays, 1u);

  context().mark_step();
  EXPECT_EQ(recording_count(), 0u);
  EXPECT_THROW((void)f(random_tensor({4})), StaleTensor);
  captured = make(tensor({4}, std::vector<float>{1, 1, 1, 1}));
  const std::vector<float> x = random_floats(4);
  EXPECT_EQ(values(f(tensor({4}, x))), affine_of(x, 1, 2));
  validate();
}

// The other context reports the end of its output.
TEST_P(MemoryTest, ARecordingGoesWithTheOutputOfAnotherContextThatItUses) {
  Context other(device());
  CompiledFunction make = compile(other, "make", [](Tensor x) { return affine(x, 2, 0); });
  const auto made = [&](float value) {
    Tensor y = make(tensor({4}, std::vector<float>(4, value)));
    other.synchronize();
    return y;
  };
  Tensor captured = made(1);
  CompiledFunction sum = compile(context(), "sum", [&](Tensor x) { return add(x, captured); });
  CompiledFunction copied = compile(context(), "copied", [&](Tensor x) {
    const Tensor both = empty({4}, DType::kFloat32);
    copy(both, captured);
    return add(x, both);
  });
  CompiledFunction passed =
      compile(context(), "passed", [&](Tensor x) { return std::pair(affine(x, 1, 0), captured); });
  const auto expect_captured = [&](float value) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(sum(tensor({4}, x))), affine_of(x, 1, value));
    EXPECT_EQ(values(copied(tensor({4}, x))), affine_of(x, 1, value));
    EXPECT_EQ(passed(tensor({4}, x)).second.storage(), captured.storage());
  };
  for (int call = 0; call < 4; ++call)
    expect_captured(2);
  EXPECT_EQ(stats().recordings, 3u);

  const std::uintptr_t place = captured.address();
  const Tensor beside = made(7);
  other.mark_step();
  const Tensor first = made(9), second = made(9);
  ASSERT_EQ(second.address(), place);

  EXPECT_THROW((void)sum(random_tensor({4})), StaleTensor);
  EXPECT_THROW((void)copied(random_tensor({4})), StaleTensor);
  EXPECT_THROW((void)passed(random_tensor({4})), StaleTensor);
  captured = made(3);
  for (int call = 0; call < 4; ++call)
    expect_captured(6);

  const std::uint64_t recordings = stats().recordings;
  other.keep(captured);
  other.mark_step();
  expect_captured(6);
  EXPECT_EQ(stats().recordings, recordings);
  validate();
  cgtree::testing::validate(other);
}

// The recording returns the output without a kernel that uses it.
TEST_P(MemoryTest, ARecordingGoesWithTheOutputOfAnotherContextThatItHandsOut) {
  Context other(device());
  CompiledFunction make = compile(other, "make", [](Tensor x) { return affine(x, 2, 0); });
  Tensor captured = make(random_tensor({4}));
  other.synchronize();
  CompiledFunction passed =
      compile(context(), "passed", [&](Tensor x) { return std::pair(affine(x, 1, 0), captured); });
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(passed(random_tensor({4})).second.storage(), captured.storage());
  ASSERT_EQ(passed.stats().replays, 1u);

  other.mark_step();

  EXPECT_THROW((void)passed(random_tensor({4})), StaleTensor);
  EXPECT_EQ(recording_count(), 0u);
}

// Either context may end first.
TEST_P(MemoryTest, AContextMayEndBeforeTheRecordingsOfAnotherThatUseItsOutput) {
  for (const bool ends_first : {false, true}) {
    std::optional<Context> other(std::in_place, device());
    Tensor captured = compile(*other, "make", [](Tensor x) { return affine(x, 2, 0); })(
        tensor({4}, std::vector<float>(4, 1)));
    other->synchronize();
    {
      CompiledFunction sum = compile(context(), "sum", [&](Tensor x) { return add(x, captured); });
      for (int call = 0; call < 3; ++call)
        (void)sum(random_tensor({4}));
      if (ends_first) other.reset();
      const std::vector<float> x = random_floats(4);
      EXPECT_EQ(values(sum(tensor({4}, x))), affine_of(x, 1, 2));
    }
    if (other) other->mark_step();
    EXPECT_EQ(recording_count(), 0u);
  }
}

// Each call gives the address of an input: a recording that copies from it does not keep it alive.
TEST_P(MemoryTest, ARecordingDoesNotKeepTheInputsThatItsCopiesRead) {
  CompiledFunction make = compile(context(), "make", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    const Tensor copied = empty({4}, DType::kFloat32);
    copy(copied, x);
    return copied;
  });
  for (int call = 0; call < 5; ++call) {
    const std::vector<float> x = random_floats(4);
    EXPECT_EQ(values(f(make(tensor({4}, x)))), affine_of(x, 2, 0));
    EXPECT_EQ(stats().live_outputs, 0u);
    context().mark_step();
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

TEST_P(MemoryTest, AnOutputThatAnotherLibraryHoldsStaysWhereItIs) {
  std::optional<Lease> lease;
  std::uintptr_t address = 0;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 2, 1);
    if (address == 0) {
      lease.emplace(y.storage());
      address = y.address();
    }
    return y;
  });
  CompiledFunction g =
      compile(context(), "g", [](Tensor x) { return affine(affine(affine(x, 1, 1), 1, 1), 1, 1); });
  const std::vector<float> values_of_x = random_floats(300);
  const Tensor x = tensor({300}, values_of_x);
  const std::vector<float> expected = values(f(x));

  for (int i = 0; i < 4; ++i) {
    (void)g(random_tensor({300}));
    (void)f(random_tensor({300}));
  }

  EXPECT_EQ(lease->storage()->address(), address);
  EXPECT_EQ(values(Tensor(lease->storage(), 0, {300}, DType::kFloat32)), expected);
}

TEST(FootprintTest, ItIsTheSetOfItsBytes) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto upto = [&](std::size_t most) { return random() % (most + 1); };
  constexpr std::size_t kBytes = 64;
  for (int round = 0; round < 2000; ++round) {
    std::vector<Range> ranges;
    std::vector<bool> expected(kBytes + 1, false);
    for (std::size_t i = upto(6); i > 0; --i) {
      const std::size_t begin = upto(kBytes - 1), bytes = 1 + upto(kBytes - 1 - begin);
      ranges.push_back({begin, bytes});
      std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(begin), bytes, true);
    }
    const Footprint footprint(ranges);
    EXPECT_EQ(footprint.bytes(),
              static_cast<std::size_t>(std::count(expected.begin(), expected.end(), true)));
    for (std::size_t begin = 0; begin < kBytes; ++begin) {
      for (std::size_t bytes = 1; begin + bytes <= kBytes; ++bytes) {
        const auto first = expected.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto last = first + static_cast<std::ptrdiff_t>(bytes);
        ASSERT_EQ(footprint.overlaps({begin, bytes}), std::find(first, last, true) != last)
            << "seed " << seed << ", [" << begin << ", " << begin + bytes << ")";
      }
    }
    for (std::size_t i = 1; i < footprint.ranges().size(); ++i)
      ASSERT_LT(footprint.ranges()[i - 1].end(), footprint.ranges()[i].address);
  }
}

}  // namespace
}  // namespace cgtree::testing
