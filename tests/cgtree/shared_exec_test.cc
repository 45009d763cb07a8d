// Recordings that share an executable graph: replays are right for every order of switches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cgtree/record/graph_bytes.h"
#include "cgtree/values/eager_break.h"
#include "extensions/ranks/group.h"
#include "extensions/verify/verification.h"
#include "extensions/verify/verify.h"
#include "interop/device/graph_api.h"
#include "interop/random/random.h"
#include "simulator/host_device.h"
#include "tests/support/failing_device.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

// Two kernels and the root node.
constexpr std::size_t kGraphBytes = graph_bytes_of_chain(3);

Tensor quadrupled(Tensor x) {
  return affine(affine(x, 2, 0), 2, 0);
}

class SharedExecTest : public TreeTest {
 protected:
  using F = CompiledFunction<Tensor(Tensor)>;

  F compile_shared(Tensor (*step)(Tensor), std::size_t max_switch_nodes = 100) {
    return compile(context(), "f", step, {.max_switch_nodes = max_switch_nodes});
  }
  void call_with_size(const F& f, std::int64_t size, float factor = 4) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, factor, 0)) << size;
  }
  void record(const F& f, std::int64_t size, float factor = 4) {
    call_with_size(f, size, factor);
    call_with_size(f, size, factor);
  }
  void record_up_to(const F& f, std::int64_t most) {
    for (std::int64_t size = 1; size <= most; ++size)
      record(f, size);
  }
  // Makes 40 calls of random sizes up to `most`, all of which replay.
  void replay(const F& f, std::int64_t most) {
    const std::uint64_t before = f.stats().replays;
    for (int call = 0; call < 40; ++call)
      call_with_size(f, 1 + static_cast<std::int64_t>(random_() % most));
    EXPECT_EQ(f.stats().replays, before + 40);
  }
};
CGTREE_ON_ALL_DEVICES(SharedExecTest);

TEST_P(SharedExecTest, SizesThatTakeTurnsSeeTheirOwnInputsAndShapes) {
  const F f = compile_shared(quadrupled);
  record_up_to(f, 6);
  EXPECT_EQ(f.stats().recordings, 6u);
  EXPECT_EQ(stats().graph_bytes, kGraphBytes);
  replay(f, 6);
  validate();
}

TEST_P(SharedExecTest, WithoutTheOptionEachHasItsOwn) {
  const F f = compile_shared(quadrupled, 0);
  record_up_to(f, 3);
  EXPECT_EQ(stats().graph_bytes, 3 * kGraphBytes);
  replay(f, 3);
}

// Each size differs in both kernels.
TEST_P(SharedExecTest, ASwitchThatPatchesMoreNodesThanAllowedIsNotMade) {
  const F f = compile_shared(quadrupled, 1);
  record(f, 1);
  record(f, 2);
  EXPECT_EQ(stats().graph_bytes, 2 * kGraphBytes);
  replay(f, 2);
}

TEST_P(SharedExecTest, OtherKernelsHaveTheirOwnGraph) {
  const F f = compile_shared([](Tensor x) {
    return x.elements() % 2 == 0 ? quadrupled(x) : add(affine(x, 2, 0), affine(x, 2, 0));
  });
  record_up_to(f, 6);
  EXPECT_EQ(stats().graph_bytes, kGraphBytes + graph_bytes_of_chain(4));
  replay(f, 6);
}

TEST_P(SharedExecTest, FunctionsShareNothing) {
  const F f = compile_shared(quadrupled);
  const F g = compile(context(), "g", quadrupled, {.max_switch_nodes = 100});
  record(f, 2);
  record(g, 3);
  EXPECT_EQ(stats().graph_bytes, 2 * kGraphBytes);
}

TEST_P(SharedExecTest, TheGraphStaysWhenItsFirstRecordingGoes) {
  make_context({.max_recordings = 3, .at_limit = AtLimit::kEvict});
  const F f = compile_shared(quadrupled);
  for (std::int64_t size = 1; size <= 7; ++size) {
    record(f, size);
    EXPECT_EQ(stats().graph_bytes, kGraphBytes);
    validate();
  }
  EXPECT_EQ(f.stats().evictions, 4u);
  const std::uint64_t before = f.stats().replays;
  for (int call = 0; call < 20; ++call)
    call_with_size(f, 5 + static_cast<std::int64_t>(random_() % 3));
  EXPECT_EQ(f.stats().replays, before + 20);
}

TEST_P(SharedExecTest, TheGraphGoesWithItsLastRecording) {
  const F f = compile_shared(quadrupled);
  record(f, 2);
  record(f, 3);
  context().release_memory();
  EXPECT_EQ(stats().graph_bytes, 0u);
  record(f, 3);
  record(f, 2);
  EXPECT_EQ(stats().graph_bytes, kGraphBytes);
}

TEST_P(SharedExecTest, AtTheLimitOfGraphBytesARecordingThatSharesEvictsNone) {
  make_context({.max_graph_bytes = kGraphBytes, .at_limit = AtLimit::kEvict});
  const F f = compile_shared(quadrupled);
  record_up_to(f, 4);
  EXPECT_EQ(f.stats().evictions, 0u);
  EXPECT_EQ(stats().graph_bytes, kGraphBytes);
  replay(f, 4);
}

// The oldest recording shares its graph with the last recording but one.
TEST_P(SharedExecTest, ForGraphBytesTheGraphGoesThatWasUsedLeastRecently) {
  make_context({.max_graph_bytes = 2 * kGraphBytes, .at_limit = AtLimit::kEvict});
  const F f = compile_shared(quadrupled);
  const F g = compile(context(), "g", quadrupled);
  const F h = compile(context(), "h", quadrupled);
  record(f, 1);
  record(g, 1);
  record(f, 2);
  record(h, 1);
  EXPECT_EQ(f.stats().evictions, 0u);
  EXPECT_EQ(g.stats().evictions, 1u);
  EXPECT_EQ(stats().graph_bytes, 2 * kGraphBytes);
  record(g, 1);  // evicts both, which share a graph
  EXPECT_EQ(f.stats().evictions, 2u);
  EXPECT_EQ(h.stats().evictions, 0u);
  EXPECT_EQ(stats().graph_bytes, 2 * kGraphBytes);
  validate();
}

TEST_P(SharedExecTest, OutputsThatAreHeldStayWhileOthersReplay) {
  const F f = compile_shared(quadrupled);
  std::vector<std::pair<Tensor, std::vector<float>>> held;
  for (int call = 0; call < 60 || f.stats().replays <= 20; ++call) {
    const std::vector<float> x = random_floats(1 + static_cast<std::int64_t>(random_() % 4));
    const Tensor given = tensor({static_cast<std::int64_t>(x.size())}, x);
    held.emplace_back(f(given), affine_of(x, 4, 0));
    if (held.size() > 3) held.erase(held.begin() + static_cast<std::ptrdiff_t>(random_() % 3));
    for (const auto& [output, expected] : held)
      EXPECT_EQ(values(output), expected);
  }
  validate();
}

TEST_P(SharedExecTest, StaticInputsInTwoPlacesAreEachTheirOwn) {
  const auto f = compile(context(), "f", [](Tensor x, Tensor w) { return add(affine(x, 2, 0), w); },
                         {.inputs = {{}, {.is_static = true}}, .max_switch_nodes = 100});
  const std::vector<float> first = random_floats(4);
  const std::vector<float> second = random_floats(4);
  const Tensor weights[] = {tensor({4}, first), tensor({4}, second)};
  for (int call = 0; call < 20; ++call) {
    const std::size_t which = call < 4 ? static_cast<std::size_t>(call / 2) : random_() % 2;
    const std::vector<float> x = random_floats(4);
    std::vector<float> expected = affine_of(x, 2, 0);
    for (std::size_t i = 0; i < 4; ++i)
      expected[i] += (which == 0 ? first : second)[i];
    EXPECT_EQ(values(f(tensor({4}, x), weights[which])), expected);
  }
  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_EQ(stats().graph_bytes, kGraphBytes);
}

// The second recording differs from the first in one node; after its end, another recording differs
// in another node.
TEST_P(SharedExecTest, ARecordingThatHasGoneLeavesItsNodesToOthers) {
  const auto f =
      compile(context(), "f", [](Tensor x, Tensor v, Tensor w) { return add(add(x, v), w); },
              {.inputs = {{}, {.is_static = true}, {.is_static = true}}, .max_switch_nodes = 1});
  std::vector<std::vector<float>> known;
  std::vector<Tensor> weights;
  for (int i = 0; i < 4; ++i) {
    known.push_back(random_floats(4));
    weights.push_back(tensor({4}, known.back()));
  }
  const auto call = [&](std::size_t v, std::size_t w) {
    const std::vector<float> x = random_floats(4);
    const std::vector<float> y = values(f(tensor({4}, x), weights[v], weights[w]));
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(y[i], x[i] + known[v][i] + known[w][i]) << v << w;
  };
  for (int i = 0; i < 2; ++i)
    call(0, 1);
  call(2, 1);
  EXPECT_EQ(context().invalidate(weights[2].data(), weights[2].bytes()), 1u);
  call(0, 3);
  EXPECT_EQ(f.stats().recordings, 3u);
  EXPECT_EQ(stats().graph_bytes, kGraphBytes);
  for (int i = 0; i < 6; ++i)
    call(0, i % 2 == 0 ? 1 : 3);
  EXPECT_EQ(f.stats().replays, 6u);
}

TEST_P(SharedExecTest, EachReplayDrawsAnewAndAsAnEagerCallDoes) {
  const Generator drawn(seed_);
  const Generator eager(seed_);
  const auto step = [](const Generator& generator) {
    return [generator](Tensor x) { return add(x, uniform(x.shape(), generator)); };
  };
  const auto f = compile(context(), "f", step(drawn), {.max_switch_nodes = 100});
  const auto expected = compile(context(), "g", step(eager), {.enabled = false});
  for (int call = 0; call < 40; ++call) {
    const Tensor x = random_tensor({1 + static_cast<std::int64_t>(random_() % 3)});
    EXPECT_EQ(values(f(x)), values(expected(x))) << call;
  }
  EXPECT_EQ(f.stats().recordings, 3u);
  EXPECT_LT(stats().graph_bytes, 2 * kGraphBytes);
}

TEST_P(SharedExecTest, WithBreaksEachHasItsOwn) {
  int breaks = 0;
  const F f = compile(context(), "f",
                      [&](Tensor x) {
                        const Tensor y = affine(x, 2, 0);
                        eager_break([&](const StepValues&) { ++breaks; });
                        return affine(y, 2, 0);
                      },
                      {.max_switch_nodes = 100});
  for (int call = 0; call < 20; ++call)
    call_with_size(f, 1 + call % 2);
  EXPECT_EQ(breaks, 20);
  EXPECT_EQ(f.stats().recordings, 2u);
  EXPECT_GT(stats().graph_bytes, 2 * kGraphBytes);
}

TEST_P(SharedExecTest, ReplaysAreVerifiedAfterASwitch) {
  make_context({.extensions = {verify({.every = 1})}});
  const F f = compile_shared(quadrupled);
  record(f, 2);
  record(f, 3);
  for (int call = 0; call < 10; ++call)
    call_with_size(f, 2 + call % 2);
  EXPECT_EQ(verification_of(context()).functions.at(0).verified, 10u);
}

TEST(SharedExecHostTest, AGroupRefusesTheOption) {
  std::vector<std::unique_ptr<Group>> groups = make_thread_groups(1);
  Context context(Device{}, {.group = std::move(groups[0])});
  try {
    (void)compile(context, "f", quadrupled, {.max_switch_nodes = 1});
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("max_switch_nodes in a group"));
  }
}

// Kernels with one parameter, the address.
void write_grid(const LaunchDims& dims, const void* const* arguments) {
  **static_cast<float* const*>(arguments[0]) = static_cast<float>(dims.grid.x);
}
void write_two(const LaunchDims&, const void* const* arguments) {
  **static_cast<float* const*>(arguments[0]) = 2;
}

void launch(const KernelFunction& kernel, std::uint32_t grid, const Tensor& written) {
  void* const address = written.data();
  const KernelArgument arguments[] = {{&address, sizeof(address)}};
  const StreamRef stream = current_stream();
  check(stream.graphs().launch_kernel(stream.handle(), kernel, {.grid = {grid}}, arguments),
        "launch a kernel");
}

TEST(SharedExecHostTest, KernelsThatDifferInTheirFunctionAloneHaveTheirOwnGraph) {
  Context context(Device::host());
  const Tensor written = from_host<float>({1}, std::vector<float>{-1}, Device::host());
  const auto f =
      compile(context, "f",
              [written](Tensor x) {
                launch(x.elements() == 1 ? KernelFunction{"write_grid", write_grid, nullptr}
                                         : KernelFunction{"write_two", write_two, nullptr},
                       1, written);
                return affine(x, 2, 0);
              },
              {.max_switch_nodes = 100});
  for (const std::int64_t size : {1, 1, 2, 2, 1, 2, 1}) {
    written.copy_from<float>(std::vector<float>{-1});
    (void)f(from_host<float>({size}, std::vector<float>(static_cast<std::size_t>(size)),
                             Device::host()));
    EXPECT_EQ(written.to_vector<float>(), std::vector<float>{static_cast<float>(size)});
  }
  EXPECT_EQ(f.stats().replays, 3u);
  EXPECT_EQ(context.stats().graph_bytes, 2 * kGraphBytes);
}

TEST(SharedExecHostTest, KernelsThatDifferInTheirGridAloneHaveEachTheirOwn) {
  Context context(Device::host());
  const Tensor grid = from_host<float>({1}, std::vector<float>{-1}, Device::host());
  const auto f = compile(
      context, "f",
      [grid](Tensor x) {
        launch({"write_grid", write_grid, nullptr}, static_cast<std::uint32_t>(x.elements()), grid);
        return affine(x, 2, 0);
      },
      {.max_switch_nodes = 100});
  for (const std::int64_t size : {1, 1, 2, 2, 3, 3, 1, 2, 3, 1}) {
    grid.copy_from<float>(std::vector<float>{-1});
    (void)f(from_host<float>({size}, std::vector<float>(static_cast<std::size_t>(size)),
                             Device::host()));
    EXPECT_EQ(grid.to_vector<float>(), std::vector<float>{static_cast<float>(size)});
  }
  EXPECT_EQ(f.stats().replays, 4u);
  EXPECT_EQ(context.stats().graph_bytes, kGraphBytes);
}

// A device whose comparison finds nodes equal, but whose parameters cannot be read.
class UnreadableNodes final : public CallHook {
 public:
  Code around(const DeviceCall& call, Forward forward) override {
    return std::string_view(call.function) == "prepare_patch" ? Code::kNotSupported : forward();
  }
};
class UnreadableDevice final : public ForwardingDevice {
 public:
  explicit UnreadableDevice(UnreadableNodes& hook) : ForwardingDevice(host_device_api(), hook) {}
  std::string_view name() const noexcept override { return "unreadable"; }
};

TEST(SharedExecHostTest, KernelsWhoseParametersCannotBeReadAreNotTheSame) {
  static auto* const api = new UnreadableDevice(*new UnreadableNodes);
  register_device_api(DeviceType::kFirstUserType, *api);
  const Device device{DeviceType::kFirstUserType, 0};
  Context context(device);
  const auto f = compile(context, "f", quadrupled, {.max_switch_nodes = 100});
  float value = 0;
  for (const std::int64_t size : {1, 1, 2, 2, 3, 3, 1, 2, 3}) {
    const std::vector<float> x(static_cast<std::size_t>(size), ++value);
    EXPECT_EQ(f(from_host(Shape{size}, std::span(x), device)).to_vector<float>(),
              std::vector<float>(x.size(), 4 * value));
  }
  EXPECT_EQ(f.stats().replays, 3u);
}

TEST(SharedExecHostTest, ARecordingWhosePatchesAreRefusedHasItsOwnGraphAndLeavesNoError) {
  FailingDevice& failing = FailingDevice::instance();
  Context context(failing.device());
  const auto f = compile(context, "f", quadrupled, {.max_switch_nodes = 100});
  const auto call = [&](std::int64_t size) {
    const std::vector<float> x(static_cast<std::size_t>(size), static_cast<float>(size));
    EXPECT_EQ(f(from_host(Shape{size}, std::span(x), failing.device())).to_vector<float>(),
              std::vector<float>(x.size(), static_cast<float>(4 * size)));
  };
  for (const std::int64_t size : {1, 1, 2})
    call(size);
  failing.arm({.at = 0, .function = "set_node"});
  call(2);
  EXPECT_EQ(failing.failed_function(), "set_node");
  failing.disarm();
  EXPECT_EQ(context.stream().graphs().peek_last_error(), Code::kSuccess);
  EXPECT_EQ(context.stats().graph_bytes, 2 * kGraphBytes);
  for (const std::int64_t size : {1, 2, 1, 2})
    call(size);
  EXPECT_EQ(f.stats().replays, 4u);
}

// The device refuses one patch of a switch, at each position in turn: the call throws or succeeds,
// and all later calls are right.
TEST(SharedExecHostTest, ARefusedSwitchHarmsNoLaterCall) {
  FailingDevice& failing = FailingDevice::instance();
  bool has_failed = true;
  for (long at = 0; has_failed; ++at) {
    Context context(failing.device());
    const auto f = compile(context, "f", quadrupled, {.max_switch_nodes = 100});
    float value = 0;
    const auto call = [&](std::int64_t size) {
      const std::vector<float> given(static_cast<std::size_t>(size), ++value);
      const Tensor x = from_host(Shape{size}, std::span(given), failing.device());
      EXPECT_EQ(f(x).to_vector<float>(), std::vector<float>(given.size(), 4 * value)) << at;
    };
    for (const std::int64_t size : {1, 1, 2, 2})
      call(size);
    std::int64_t last = 2;
    failing.arm({.at = at, .function = "set_node"});
    try {
      for (const std::int64_t size : {3, 3, 2, 1, 2, 3, 2, 1}) {
        call(size);
        last = size;
      }
    } catch (const DeviceError&) {
    }
    has_failed = !failing.failed_function().empty();
    failing.disarm();
    call(last);  // the failed switch may have patched some of the nodes
    for (const std::int64_t size : {3, 3, 2, 1, 2, 1})  // these recordings may have been dropped
      call(size);
    const std::uint64_t before = f.stats().replays;
    for (const std::int64_t size : {3, 1, 2, 3, 2, 1})
      call(size);
    EXPECT_EQ(f.stats().replays, before + 6) << at;
  }
}

}  // namespace
}  // namespace cgtree::testing
