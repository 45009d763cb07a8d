// Workspaces: their memory, their reuse, and growth that harms no recording.
#include "cgtree/memory/context_memory.h"
#include "cgtree/values/graph_scope.h"
#include "interop/tensor/empty.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "cgtree/tree/tree.h"
#include "interop/device/device_api.h"
#include "interop/tensor/copy.h"
#include "tests/support/core_fixture.h"
#include "tests/support/inside.h"

namespace cgtree::testing {
namespace {

class WorkspaceTest : public TreeTest {
 protected:
  static void copy_bytes(void* to, const void* from, std::size_t bytes) {
    const StreamRef stream = current_stream();
    check(stream.api().copy(stream.handle(), to, from, bytes), "copy");
  }
  // Returns x after a copy to the end of a workspace of `bytes` bytes and back.
  Tensor through_workspace(const Tensor& x, std::size_t bytes) {
    const Workspace workspace(device(), bytes);
    std::byte* const end = static_cast<std::byte*>(workspace.data()) + bytes - x.bytes();
    copy_bytes(end, x.data(), x.bytes());
    const Tensor y = empty(x.shape(), x.dtype());
    copy_bytes(y.data(), end, x.bytes());
    return y;
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, WorkspaceTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(WorkspaceTest, GrowthUnderCaptureHarmsNoEarlierRecording) {
  std::size_t bytes = 1 << 12;
  auto small = compile(context(), "small", [&](Tensor x) { return through_workspace(x, 1 << 12); });
  auto large = compile(context(), "large", [&](Tensor x) { return through_workspace(x, bytes); });
  const auto check_small = [&] {
    const std::vector<float> x = random_floats(64);
    EXPECT_EQ(values(small(tensor({64}, x))), x);
  };
  for (int call = 0; call < 3; ++call)
    check_small();

  std::uint64_t replays = small.stats().replays;
  for (std::int64_t count : {64, 65, 66, 67}) {  // a shape for each, and so a recording for each
    bytes *= 12;
    for (int call = 0; call < 3; ++call) {
      const std::vector<float> x = random_floats(static_cast<std::size_t>(count));
      EXPECT_EQ(values(large(tensor({count}, x))), x) << bytes;
      check_small();
      EXPECT_EQ(small.stats().replays, ++replays) << bytes;
    }
  }
  EXPECT_EQ(small.stats().recordings, 1u);
  EXPECT_EQ(large.stats().recordings, 4u);
}

TEST_P(WorkspaceTest, NothingIsTakenFromTheDeviceOnceTheStepIsRecorded) {
  auto f = compile(context(), "f", [&](Tensor x) { return through_workspace(x, 1 << 20); });
  const Tensor x = random_tensor({16});
  for (int call = 0; call < 2; ++call)
    (void)f(x);
  const auto held = segments_->held();

  for (int call = 0; call < 4; ++call)
    EXPECT_EQ(values(f(x)), values(x));

  EXPECT_EQ(segments_->held(), held);
}

// As in TVM's pool, the last freed workspace is the first to be given out again, in each phase of a
// step.
TEST_P(WorkspaceTest, TheNextScopeOfItsSizeGetsTheSameMemory) {
  std::set<bool> same;
  auto f = compile(context(), "f", [&](Tensor x) {
    const void* first = Workspace(device(), 5000).data();
    const void* second = Workspace(device(), 5000).data();
    same.insert(first == second);
    return affine(x, 1, 0);
  });
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({4}));

  EXPECT_EQ(same, std::set<bool>{true});
}

// The handle of a library whose kernels use the handle's workspace at their launch.
struct Handle {
  void* data = nullptr;
  std::size_t bytes = 0;
};

TEST_P(WorkspaceTest, AHandleHasTheWorkspaceOfTheRecordingAndNoneBehindIt) {
  const auto handle = std::make_shared<Handle>();
  const auto step = [handle](const Tensor& x) {
    const LibraryWorkspace workspace(x.device(), 4096, [handle](void* data, std::size_t bytes) {
      *handle = {data, bytes};
    });
    EXPECT_EQ(handle->bytes, 4096u);
    auto* const kept = static_cast<std::byte*>(handle->data) + 64;
    copy_bytes(kept, x.data(), x.bytes());
    const Tensor y = empty(x.shape(), x.dtype());
    copy_bytes(y.data(), kept, x.bytes());
    return y;
  };
  auto f = compile(context(), "f", step);
  auto g = compile(context(), "g", step);
  for (int call = 0; call < 4; ++call) {
    for (auto* function : {&f, &g}) {
      const std::vector<float> x = random_floats(16);
      EXPECT_EQ(values((*function)(tensor({16}, x))), x);
      EXPECT_EQ(handle->data, nullptr);
      EXPECT_EQ(handle->bytes, 0u);
    }
  }
  EXPECT_EQ(f.stats().replays, 2u);
  EXPECT_EQ(g.stats().replays, 2u);
}

TEST_P(WorkspaceTest, AHandleThatRefusesItsWorkspaceLosesNoMemory) {
  bool refuses = true;
  const auto f = compile(context(), "f", [&](Tensor x) {
    const LibraryWorkspace workspace(x.device(), 8 << 20, [&](const void* data, std::size_t) {
      if (refuses && data != nullptr) throw InvalidArgument("too small");
    });
    return affine(x, 2, 0);
  });
  const Tensor x = random_tensor({4});
  EXPECT_THROW((void)f(x), InvalidArgument);
  const auto held = segments_->held();
  for (int call = 0; call < 3; ++call)
    EXPECT_THROW((void)f(x), InvalidArgument);
  EXPECT_EQ(segments_->held(), held);
  refuses = false;
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(values(f(x))[0], 2 * values(x)[0]);
  EXPECT_EQ(f.stats().replays, 1u);
}

TEST_P(WorkspaceTest, ScopesMayEndInAnyOrder) {
  auto f = compile(context(), "f", [&](Tensor x) {
    std::optional<Workspace> a;
    std::optional<Workspace> b;
    a.emplace(device(), 3000);
    b.emplace(device(), 1);
    copy_bytes(b->data(), x.data(), 1);
    a.reset();
    const Tensor y = through_workspace(x, 3000);
    b.reset();
    return y;
  });
  for (int call = 0; call < 4; ++call) {
    const std::vector<float> x = random_floats(8);
    EXPECT_EQ(values(f(tensor({8}, x))), x);
  }
}

TEST_P(WorkspaceTest, LiveOnesNeverOverlap) {
  auto f = compile(context(), "f", [&](Tensor x) {
    const Workspace a(device(), 1);
    const Workspace b(device(), 4097);
    const Workspace c(device(), 4096);
    std::set<const void*> places{a.data(), b.data(), c.data()};
    EXPECT_EQ(places.size(), 3u);
    EXPECT_EQ(places.count(nullptr), 0u);
    return affine(x, 1, 0);
  });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({4}));
}

TEST_P(WorkspaceTest, OutsideOfAStepAnOpenCaptureIsRefusedWithWhatToDo) {
  const Stream stream(device());
  const StreamScope scope(stream);
  GraphAPI& graphs = stream.ref().graphs();
  check(graphs.begin_capture(stream.ref().handle(), CaptureMode::kThreadLocal), "begin");
  std::string message;
  try {
    const Workspace workspace(device(), 64);
  } catch (const InvalidArgument& error) {
    message = error.message();
  }
  GraphHandle graph = GraphHandle::kNull;
  check(graphs.end_capture(stream.ref().handle(), &graph), "end");  // the capture is still valid
  check(graphs.destroy_graph(graph), "destroy");

  EXPECT_NE(message.find("a workspace of 64 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("lives as long as the graph"), std::string::npos) << message;
}

TEST_P(WorkspaceTest, InAStepAWorkspaceOfAnotherDeviceIsRefusedWhileItIsRecorded) {
  const Device other{device().type == DeviceType::kHost ? device().type : DeviceType::kHost, 1};
  auto f = compile(context(), "f", [&](Tensor x) {
    const Workspace workspace(other, 64);
    return affine(x, 1, 0);
  });
  (void)f(random_tensor({4}));  // in an eager run the workspace is the other device's

  EXPECT_THROW((void)f(random_tensor({4})), Error);
}

// A workspace that the step function keeps, and replaces when it is too small.
class KeptWorkspaceTest : public WorkspaceTest {
 protected:
  // Computes 2 x by way of the workspace. The input is static, so that its copy is not in the
  // footprint.
  CompiledFunction<Tensor(Tensor)> through_kept() {
    const auto step = [this](Tensor x) {
      if (!workspace_.defined() || workspace_.bytes() < x.bytes()) {
        workspace_ = Tensor();
        workspace_ = empty(x.shape(), x.dtype());
      }
      const Tensor scratch = workspace_.slice(0, 0, x.dim(0));
      copy_bytes(scratch.data(), x.data(), x.bytes());
      return affine(scratch, 2, 0);
    };
    return compile(context(), "f", step, {.inputs = {{.is_static = true}}});
  }
  void TearDown() override {
    workspace_ = Tensor();
    WorkspaceTest::TearDown();
  }
  Tensor workspace_;
};
INSTANTIATE_TEST_SUITE_P(Devices, KeptWorkspaceTest, ::testing::ValuesIn(devices_under_test()),
                         [](const auto& info) { return info.param.name; });

TEST_P(KeptWorkspaceTest, ARecordingKeepsTheOneItWasRecordedWith) {
  const std::int64_t small = 1 << 8, big = 1 << 14;
  CompiledFunction f = through_kept();
  const Tensor small_input = random_tensor({small}), big_input = random_tensor({big});
  for (int call = 0; call < 3; ++call)
    (void)f(small_input);
  for (int call = 0; call < 2; ++call)
    (void)f(big_input);  // the warm-up replaces the workspace

  // Later tensors of others must not get the memory of the first workspace.
  Tensor table;
  const std::vector<float> kept = random_floats(small);
  const Tensor values_of_table = tensor({small}, kept);
  CompiledFunction g = compile(context(), "g", [&](Tensor x) {
    if (!table.defined()) {
      table = empty({small}, DType::kFloat32);
      copy_bytes(table.data(), values_of_table.data(), table.bytes());
    }
    return add(x, table);
  });
  const std::vector<float> y = random_floats(small);
  (void)g(tensor({small}, y));
  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(small);
    small_input.copy_from<float>(x);
    EXPECT_EQ(values(f(small_input)), affine_of(x, 2, 0));
    EXPECT_EQ(values(table), kept);
    std::vector<float> sum = y;
    for (std::int64_t i = 0; i < small; ++i)
      sum[i] += kept[i];
    EXPECT_EQ(values(g(tensor({small}, y))), sum);
  }
  validate();
}

TEST_P(KeptWorkspaceTest, ATableThatHasGrownIsStillThereForEarlierRecordings) {
  Tensor table;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (!table.defined() || table.dim(0) < x.dim(0)) {
      table = Tensor();
      table = affine(x, 0, 3);
    }
    return add(x, table.slice(0, 0, x.dim(0)));
  });
  CompiledFunction g =
      compile(context(), "g", [](Tensor x) { return affine(affine(affine(x, 5, 5), 2, 2), 3, 3); });
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({64}));
  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(64), more = random_floats(256);
    EXPECT_EQ(values(f(tensor({256}, more))), affine_of(more, 1, 3));
    (void)g(random_tensor({64}));
    EXPECT_EQ(values(f(tensor({64}, x))), affine_of(x, 1, 3));
  }
  table = Tensor();
}

// A recording of another function may use it, too.
TEST_P(KeptWorkspaceTest, AWorkspaceOfTwoFunctionsStaysForBoth) {
  const Tensor given = random_tensor({512});
  const auto step = [&](Tensor x) {
    copy_bytes(workspace_.data(), x.data(), x.bytes());
    return affine(workspace_.slice(0, 0, x.dim(0)), 3, 0);
  };
  CompiledFunction g = compile(context(), "g", step, {.inputs = {{.is_static = true}}});
  {
    CompiledFunction f = through_kept();
    (void)f(given);
    for (int call = 0; call < 3; ++call)
      (void)g(given);
  }
  workspace_ = Tensor();
  CompiledFunction other = through_kept();
  for (int call = 0; call < 3; ++call)
    (void)other(given);
  const std::vector<float> z = random_floats(512);
  workspace_.copy_from<float>(z);
  for (int call = 0; call < 3; ++call) {
    const std::vector<float> x = random_floats(512);
    given.copy_from<float>(x);
    EXPECT_EQ(values(g(given)), affine_of(x, 3, 0));
    EXPECT_EQ(values(workspace_), z);
  }
  EXPECT_EQ(g.stats().recordings, 1u);
}

// A recording's output has an address at which another function had its workspace for a while.
TEST_P(KeptWorkspaceTest, AnOutputInItsPlaceIsAnOutput) {
  constexpr std::int64_t kCount = 1 << 10;
  bool is_warm = false;
  // The first allocation of the recording is not in the warm-up: so the output is the second one,
  // in scratch memory.
  const auto step = [&](Tensor x) {
    if (is_warm) (void)empty({4}, DType::kFloat32);
    return affine(x, 2, 0);
  };
  CompiledFunction f = compile(context(), "f", step, {.inputs = {{.is_static = true}}});
  const std::vector<float> x = random_floats(kCount);
  const Tensor given = tensor({kCount}, x);
  (void)f(given);
  is_warm = true;
  const std::uintptr_t place = f(given).address();
  CompiledFunction g = through_kept();
  (void)g(given);
  ASSERT_EQ(workspace_.address(), place);
  workspace_ = Tensor();

  const Tensor y = f(given);

  ASSERT_EQ(y.address(), place);
  ASSERT_EQ(f.stats().replays, 1u);
  EXPECT_TRUE(memory_of(context()).any_output_live());
  EXPECT_TRUE(memory_of(context()).workspaces().empty());
  EXPECT_EQ(values(y), affine_of(x, 2, 0));
  context().mark_step();
  EXPECT_THROW((void)y.data(), StaleTensor);
}

TEST_P(KeptWorkspaceTest, AReplacedWorkspaceEndsWithTheLastRecordingThatMayUseIt) {
  constexpr int kReplays = KeyState::kPays;  // of each recording, so that the next is made
  Tensor table;
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor x) {
                                 if (!table.defined() || table.dim(0) != x.dim(0)) {
                                   table = Tensor();
                                   table = affine(x, 0, 3);
                                 }
                                 return add(x, table);
                               },
                               {.max_recordings = 2, .at_limit = AtLimit::kEvict});
  const auto call = [&](std::int64_t size) {
    const std::vector<float> x = random_floats(size);
    EXPECT_EQ(values(f(tensor({size}, x))), affine_of(x, 1, 3));
  };

  for (std::int64_t size = 1; size <= 60; ++size) {
    for (int i = 0; i < 2 + kReplays; ++i)
      call(size);
    EXPECT_LE(stats().live_outputs, 2u) << size;
  }

  EXPECT_EQ(f.stats().evictions, 58u);
  EXPECT_EQ(f.stats().replays, 60u * kReplays);
  table = Tensor();
  validate();
}

// The library asked for the address once, when an eager run made the workspace.
TEST_P(KeptWorkspaceTest, AWorkspaceMadeByAnEagerRunIsKeptByEachRecording) {
  constexpr std::int64_t kCount = 256;
  Tensor workspace;
  void* place = nullptr;
  CompiledFunction f = compile(context(), "f",
                               [&](Tensor x) {
                                 if (!workspace.defined()) {
                                   workspace = empty({kCount}, DType::kFloat32);
                                   place = workspace.data();
                                 }
                                 Tensor y = empty(x.shape(), x.dtype());
                                 copy_bytes(place, x.data(), x.bytes());
                                 copy_bytes(y.data(), place, x.bytes());
                                 return y;
                               },
                               {.inputs = {{.is_static = true}}});
  const Tensor given = random_tensor({kCount});
  {
    const NoGraph none;
    (void)f(given);
  }
  (void)f(given);
  (void)f(given);
  workspace = Tensor();
  CompiledFunction g =
      compile(context(), "g", [](Tensor x) { return affine(x, 3, 0); }, {.enabled = false});
  const std::vector<float> x = random_floats(kCount), z = random_floats(kCount);
  std::vector<Tensor> others;
  for (int i = 0; i < 8; ++i)
    others.push_back(g(tensor({kCount}, z)));
  given.copy_from<float>(x);

  EXPECT_EQ(values(f(given)), x);

  EXPECT_EQ(f.stats().replays, 1u);
  for (const Tensor& other : others)
    EXPECT_EQ(values(other), affine_of(z, 3, 0));
  EXPECT_TRUE(memory_of(context()).workspaces().empty());  // outputs are not workspaces
  validate();
}

TEST_P(KeptWorkspaceTest, AWorkspaceThatIsHeldIsKeptByEachRecording) {
  std::vector<Tensor> all;
  std::optional f = compile(context(), "f", [&](Tensor x) {
    if (static_cast<std::int64_t>(all.size()) < x.dim(0)) all.push_back(affine(x, 0, 3));
    return add(x, all[static_cast<std::size_t>(x.dim(0)) - 1]);
  });
  CompiledFunction g = compile(context(), "g", [&](Tensor x) { return add(x, all[1]); });
  for (const std::int64_t size : {1, 2, 3}) {
    for (int i = 0; i < 3; ++i)
      (void)(*f)(random_tensor({size}));
  }
  for (int i = 0; i < 3; ++i)
    (void)g(random_tensor({2}));
  f.reset();
  all.clear();
  const std::vector<float> x = random_floats(2);

  EXPECT_EQ(values(g(tensor({2}, x))), affine_of(x, 1, 3));

  EXPECT_EQ(stats().live_outputs, 3u);
}

TEST_P(KeptWorkspaceTest, AWorkspaceEndsWithTheLastRecordingMadeDuringItsLife) {
  {
    CompiledFunction f = through_kept();
    const Tensor x = random_tensor({64});
    for (int call = 0; call < 3; ++call)
      (void)f(x);
    workspace_ = Tensor();
    EXPECT_EQ(stats().live_outputs, 1u);
    (void)f(x);
    EXPECT_EQ(f.stats().replays, 2u);
  }
  EXPECT_EQ(stats().live_outputs, 0u);
}

}  // namespace
}  // namespace cgtree::testing
