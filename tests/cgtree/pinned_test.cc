// Pinned host memory: reused only when no copy, eager or recorded, can still use it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "allocator/device/pinned_memory.h"
#include "base/error.h"
#include "extensions/ranks/collectives.h"
#include "interop/device/graph_api.h"
#include "interop/random/random.h"
#include "interop/tensor/copy.h"
#include "tests/support/captured_log.h"
#include "tests/support/gate.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

// The PinnedMemory ends with the tensor, and with it the device's allocator.
TEST(PinnedOwnerTest, MemoryInUseIsWaitedForWhenItsOwnerEnds) {
  for (const DeviceUnderTest& under_test : devices_that_work_later()) {
    if (!under_test.missing.empty()) continue;
    const CapturedLog log;
    const Stream stream(under_test.device);
    Tensor page = PinnedMemory(under_test.device).empty({64}, DType::kUInt8);
    Gate gate(stream);
    check(under_test.graphs().memset(stream.ref().handle(), page.data(), 7, page.bytes()),
          "write pinned memory");
    page.storage()->owner().used(*page.storage(), stream);
    const auto opens = std::async(std::launch::async, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      gate.open();
    });
    page = Tensor();
    EXPECT_FALSE(gate.is_closed());
    EXPECT_THAT(log.lines(), ::testing::IsEmpty());
  }
}

TEST(PinnedOwnerTest, AStreamThatEndsBeforeItsWorkKeepsTheMemoryItUses) {
  for (const DeviceUnderTest& under_test : devices_that_work_later()) {
    if (!under_test.missing.empty()) continue;
    const Stream stream(under_test.device);
    PinnedMemory pinned(under_test.device);
    Tensor page = pinned.empty({64}, DType::kUInt8);
    std::optional<Stream> gone(std::in_place, under_test.device);
    Gate gate(stream);
    gone->ref().wait_for(stream);
    check(under_test.graphs().memset(gone->ref().handle(), page.data(), 7, page.bytes()),
          "write pinned memory");
    page.storage()->owner().used(*page.storage(), *gone);
    gone.reset();
    page = Tensor();
    (void)pinned.trim();
    EXPECT_EQ(pinned.pending_blocks(), 1u);
    EXPECT_TRUE(gate.is_closed());
  }
}

class PinnedTest : public TreeTest {
 protected:
  // A function that adds the contents of `staging` at each replay.
  CompiledFunction<Tensor(Tensor)> reader(std::string name, const Tensor& staging) {
    return compile(context(), std::move(name),
                   [staging = std::optional(staging)](Tensor x) mutable {
                     const Tensor copied = empty(x.shape(), x.dtype());
                     copy(copied, *staging);
                     return add(x, copied);
                   });
  }
  void write(const Tensor& staging, const std::vector<float>& values) {
    context().synchronize();  // no replay is reading it
    staging.copy_from<float>(values);
  }
  // Expects all memory to be free after the work is done; trim() releases the blocks that waited
  // for it.
  void expect_all_free(PinnedMemory& pinned) {
    context().synchronize();
    (void)pinned.trim();
    EXPECT_EQ(pinned.pending_blocks(), 0u);
    EXPECT_EQ(pinned.statistics().allocation.current, 0u);
    EXPECT_EQ(pinned.statistics().segment.current, 0u);
  }
  static std::vector<float> sum(const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> result(a);
    for (std::size_t i = 0; i < b.size(); ++i)
      result[i] += b[i];
    return result;
  }
};
CGTREE_ON_ALL_DEVICES(PinnedTest);

// Row pin_memory_no_use.
// Acceptance: pools pin_memory_no_use.
TEST_P(PinnedTest, MemoryThatNoCopyUsedServesTheNextTensorAtOnce) {
  PinnedMemory pinned(device());
  const std::uintptr_t first = pinned.empty({1000}, DType::kFloat32).address();

  EXPECT_EQ(pinned.empty({1000}, DType::kFloat32).address(), first);
}

// Rows pin_memory_use and _use2: the memory is not used again while the recording lives, and is
// after its end.
// Acceptance: pools pin_memory_use.
TEST_P(PinnedTest, MemoryThatARecordingCopiesFromIsNotUsedAgainWhileTheRecordingLives) {
  PinnedMemory pinned(device());
  std::uintptr_t address = 0;
  std::vector<float> added;
  {
    std::optional<CompiledFunction<Tensor(Tensor)>> f;
    {
      const Tensor staging = pinned.empty({1000}, DType::kFloat32);
      address = staging.address();
      added = random_floats(1000);
      write(staging, added);
      f.emplace(reader("f", staging));
      for (int call = 0; call < 2; ++call)
        (void)(*f)(random_tensor({1000}));
    }
    for (int call = 0; call < 10; ++call) {
      const Tensor other = pinned.from<float>({1000}, random_floats(1000));
      EXPECT_NE(other.address(), address);
      const std::vector<float> x = random_floats(1000);
      EXPECT_EQ(values((*f)(tensor({1000}, x))), sum(x, added));
    }
  }
  expect_all_free(pinned);
}

// Row two_graphs: the memory is free after the end of the last of two recordings.
// Acceptance: pools two_graphs.
TEST_P(PinnedTest, TwoRecordingsKeepTheMemoryUntilTheLastIsGone) {
  PinnedMemory pinned(device());
  std::uintptr_t address = 0;
  std::optional<CompiledFunction<Tensor(Tensor)>> f, g;
  {
    const Tensor staging = pinned.from<float>({100}, random_floats(100));
    address = staging.address();
    f.emplace(reader("f", staging));
    g.emplace(reader("g", staging));
    for (int call = 0; call < 3; ++call) {
      (void)(*f)(random_tensor({100}));
      (void)(*g)(random_tensor({100}));
    }
  }
  f.reset();
  context().synchronize();
  EXPECT_NE(pinned.empty({100}, DType::kFloat32).address(), address);
  g.reset();
  expect_all_free(pinned);
}

TEST_P(PinnedTest, MemoryThatAnEagerCopyReadsIsNotOverwrittenBeforeItIsDone) {
  PinnedMemory pinned(device());
  const Tensor on_device = random_tensor({1 << 20});
  for (int round = 0; round < 20; ++round) {
    const std::vector<float> sent = random_floats(1 << 20);
    copy(on_device, pinned.from<float>({1 << 20}, sent), context().stream());
    // A freed block would be given to this tensor.
    (void)pinned.from<float>({1 << 20}, random_floats(1 << 20));
    EXPECT_EQ(values(on_device), sent);
  }
}

TEST_P(PinnedTest, AStreamThatEndsBeforeTheTensorDoesNotKeepItsMemory) {
  PinnedMemory pinned(device());
  const std::vector<float> values_read = random_floats(1000);
  const Tensor to = tensor({1000}, random_floats(1000));
  {
    const Tensor staging = pinned.from<float>({1000}, values_read);
    {
      const Stream gone(device());
      copy(to, staging, gone);
      context().stream().wait_for(gone);
    }
  }

  EXPECT_EQ(values(to), values_read);
  expect_all_free(pinned);
}

// The owner could not tell the end of that work, and would reuse the memory too early.
TEST_P(PinnedTest, ACopyThatCannotBeNotedIsNotEnqueued) {
  PinnedMemory pinned(device());
  const Tensor staging = pinned.from<float>({1000}, random_floats(1000));
  const std::vector<float> before = random_floats(1000);
  const Tensor to = tensor({1000}, before);
  const StreamRef per_thread(device(), StreamHandle::kPerThread);

  EXPECT_THROW(copy(to, staging, per_thread), InvalidArgument);
  EXPECT_EQ(values(to), before);

  const std::vector<float> staged = staging.to_vector<float>();
  EXPECT_THROW(copy(staging, to, per_thread), InvalidArgument);
  EXPECT_EQ(staging.to_vector<float>(), staged);
}

TEST(PinnedHostTest, NumbersThatCannotBeNotedAreNotDrawn) {
  PinnedMemory pinned(Device::host());
  const std::vector<float> before(1000, 7);
  const Tensor tensor = pinned.from<float>({1000}, before);
  const Generator generator(1);
  const StreamScope scope(StreamRef(Device::host(), StreamHandle::kPerThread));

  EXPECT_THROW(fill_uniform(tensor, generator), InvalidArgument);
  EXPECT_THROW(fill_normal(tensor, generator), InvalidArgument);
  EXPECT_EQ(tensor.to_vector<float>(), before);
  EXPECT_EQ(generator.state().offset, 0u);
}

TEST(PinnedHostTest, ACollectiveThatCannotBeNotedIsNotEnqueued) {
  PinnedMemory pinned(Device::host());
  const std::vector<float> before(1000, 7);
  const Tensor to = pinned.from<float>({1000}, before);
  const Tensor from = pinned.from<float>({1000}, std::vector<float>(1000, 1));
  const Device devices[] = {Device::host()};
  const auto ranks = make_host_collectives(devices, std::chrono::seconds(5));
  const StreamRef per_thread(Device::host(), StreamHandle::kPerThread);

  EXPECT_THROW(ranks[0]->all_reduce(per_thread, from, to, Reduction::kSum), InvalidArgument);
  EXPECT_EQ(to.to_vector<float>(), before);
}

TEST_P(PinnedTest, AnOutputThatTheStepMadeThereIsNotOverwrittenWhileItIsHeld) {
  PinnedMemory pinned(device());
  const auto f = compile(context(), "f", [&](Tensor x) {
    const Tensor y = affine(x, 2, 0);
    const Tensor there = pinned.empty(y.shape(), y.dtype());
    copy(there, y);
    return std::pair(y, there.slice(0, 1, 4));
  });
  expect_results_elsewhere_stay(f);
}

// Acceptance: pools tensor_delete_after_allocator_delete.
TEST_P(PinnedTest, TensorsOutliveThePool) {
  std::optional<PinnedMemory> pinned(std::in_place, device());
  const std::vector<float> written = random_floats(10);
  const Tensor tensor = pinned->from<float>({10}, written);
  pinned.reset();

  EXPECT_EQ(tensor.to_vector<float>(), written);
  EXPECT_EQ(tensor.device(), Device::host());
}

TEST_P(PinnedTest, AnEmptyTensorTakesNothingAndTrimGivesAllBack) {
  PinnedMemory pinned(device());
  EXPECT_EQ(pinned.empty({0}, DType::kFloat32).elements(), 0);
  EXPECT_EQ(pinned.statistics().segment.current, 0u);
  (void)pinned.empty({1000}, DType::kFloat32);

  EXPECT_GT(pinned.trim(), 0u);
}

}  // namespace
}  // namespace cgtree::testing
