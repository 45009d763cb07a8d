// Strict mode of the host device: it names the work, the range and the owner of a wrong access.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "interop/device/code.h"
#include "simulator/strict_memory.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StrictHostTest : public ::testing::TestWithParam<HostExecutor> {
 protected:
  // Returns the result of a launch, or of the wait for it.
  Code settled(Code code) { return ok(code) ? bench.api.synchronize_device(0) : code; }
  ExecHandle end(StreamHandle stream) { return bench.instantiate(bench.end(stream)); }
  float* allocate(std::size_t bytes) {
    void* data = nullptr;
    check(bench.api.alloc_data_space(0, bytes, &data), "allocate");
    return static_cast<float*>(data);
  }
  void free(void* data) { check(bench.api.free_data_space(0, data), "free"); }
  void begin() { check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin"); }

  StrictHostDevice host = make_strict_host_device({.executor = GetParam(), .seed = 1});
  DeviceBench bench{{"host", Device::host(), host.device.get(), ""}};
  StreamHandle stream = bench.stream();
};

TEST_P(StrictHostTest, FindsNothingWhereNothingIsWrong) {
  float* const x = bench.floats(100);
  float* const pinned = bench.pinned_floats(100, 2);
  std::vector<float> pageable(100);
  begin();
  check(bench.api.copy(stream, x, pinned, 400), "capture");
  check(bench.add_one(stream, x, 100), "capture");
  check(bench.graphs.memset(stream, x + 99, 0, 4), "capture");
  check(bench.api.copy(stream, pageable.data(), x, 400), "capture");

  EXPECT_EQ(settled(bench.graphs.launch(end(stream), stream)), Code::kSuccess);
  EXPECT_EQ(pageable[0], 3);
  EXPECT_EQ(pageable[99], 0);
  EXPECT_THAT(host.memory->take_findings(), IsEmpty());
}

TEST_P(StrictHostTest, AReplayThatCopiesFreedMemoryIsNamedWithItsNode) {
  float* const x = bench.floats(1);
  float* const gone = allocate(100);
  begin();
  check(bench.add_one(stream, x), "capture");
  check(bench.api.copy(stream, x, gone, 4), "capture");
  const ExecHandle exec = end(stream);
  free(gone);

  EXPECT_EQ(settled(bench.graphs.launch(exec, stream)), Code::kIllegalAddress);
  EXPECT_THAT(host.memory->take_findings(),
              ElementsAre(AllOf(HasSubstr("node 1 of graph"), HasSubstr("copy of 4 bytes"),
                                HasSubstr("(100 bytes, data space), which is freed"))));
}

TEST_P(StrictHostTest, AKernelWithAPointerIntoFreedMemoryDoesNotRun) {
  float* const x = bench.floats(1);
  float* const gone = allocate(100);
  free(gone);
  const float a = 1;
  const std::int64_t count = 1;

  EXPECT_EQ(settled(bench.graphs.launch_kernel(stream, axpy_kernel(), dims_for(1),
                                               arguments_of(a, gone, x, count))),
            Code::kIllegalAddress);
  EXPECT_THAT(host.memory->take_findings(),
              ElementsAre(AllOf(HasSubstr("kernel axpy"), HasSubstr("argument 1"),
                                HasSubstr("byte 0 of allocation"), HasSubstr("is freed"))));
  EXPECT_EQ(bench.read(x), 0);
}

TEST_P(StrictHostTest, APointerInsideAStructIsFound) {
  struct Pair {
    std::int64_t first;
    float* second;
  };
  const auto nothing = [](const LaunchDims&, const void* const*) {};
  float* const gone = allocate(100);
  free(gone);
  const Pair pair{7, gone + 3};

  EXPECT_EQ(settled(bench.graphs.launch_kernel(stream, {"pair", nothing, nullptr}, {},
                                               arguments_of(pair))),
            Code::kIllegalAddress);
  EXPECT_THAT(host.memory->take_findings(), ElementsAre(HasSubstr("byte 12 of allocation")));
}

TEST_P(StrictHostTest, AWriteBeyondTheEndIsNamedWithTheNodeThatDidIt) {
  float* const x = allocate(12);
  begin();
  check(bench.fill(stream, x, 1, 3), "capture");
  check(bench.fill(stream, x, 2, 4), "capture");
  check(bench.fill(stream, x, 3, 3), "capture");

  EXPECT_EQ(settled(bench.graphs.launch(end(stream), stream)), Code::kIllegalAddress);
  EXPECT_THAT(host.memory->take_findings(),
              ElementsAre(AllOf(HasSubstr("after node 1 of graph"), HasSubstr("kernel fill"),
                                HasSubstr("byte 12 of allocation"), HasSubstr("beyond its end"))));
  free(x);
}

TEST_P(StrictHostTest, AWriteBeforeTheBeginIsFound) {
  float* const x = allocate(12);

  EXPECT_EQ(settled(bench.fill(stream, x - 1, 1)), Code::kIllegalAddress);
  EXPECT_THAT(host.memory->take_findings(), ElementsAre(HasSubstr("byte -4 of allocation")));
  free(x);
}

// The kernel has the address from outside its arguments.
float* hidden = nullptr;

TEST_P(StrictHostTest, AWriteIntoFreedMemoryIsFoundWhereverItLies) {
  const auto write_hidden = [](const LaunchDims&, const void* const*) { *hidden = 1; };
  for (const std::ptrdiff_t place : {0, 100'000}) {
    float* const gone = allocate(400'004);
    free(gone);
    hidden = gone + place;
    EXPECT_EQ(
        settled(bench.graphs.launch_kernel(stream, {"hidden", write_hidden, nullptr}, {}, {})),
        Code::kIllegalAddress);
    EXPECT_THAT(host.memory->take_findings(),
                ElementsAre(AllOf(HasSubstr("was written, which is freed"),
                                  HasSubstr(place == 0 ? "kernel hidden" : "synchronized"))));
  }
}

TEST_P(StrictHostTest, ACopyOfMoreThanThereIsIsRefused) {
  float* const x = bench.floats(4);
  float* const y = bench.floats(4);

  EXPECT_EQ(settled(bench.api.copy(stream, x, y + 1, 16)), Code::kIllegalAddress);
  EXPECT_THAT(host.memory->take_findings(), ElementsAre(HasSubstr("bytes 4 to 20 are not all in")));
}

TEST_P(StrictHostTest, AMemsetOfForeignMemoryIsRefused) {
  std::vector<float> pageable(4, 5);

  EXPECT_EQ(settled(bench.graphs.memset(stream, pageable.data(), 0, 16)), Code::kIllegalAddress);
  EXPECT_THAT(host.memory->take_findings(), ElementsAre(HasSubstr("are not the device's memory")));
  EXPECT_EQ(pageable[0], 5);
}

TEST_P(StrictHostTest, AHostBufferThatDiedBeforeTheReplayIsNamed) {
  float* const x = bench.floats(4);
  auto buffer = std::make_unique<float[]>(4);
  host.memory->watch(buffer.get(), 16, "the tokens of request 7");
  begin();
  check(bench.api.copy(stream, x, buffer.get(), 16), "capture");
  const ExecHandle exec = end(stream);
  EXPECT_EQ(settled(bench.graphs.launch(exec, stream)), Code::kSuccess);
  host.memory->end(buffer.get());
  buffer.reset();

  EXPECT_EQ(settled(bench.graphs.launch(exec, stream)), Code::kIllegalAddress);
  EXPECT_THAT(host.memory->take_findings(),
              ElementsAre(HasSubstr("lie in the tokens of request 7, which has ended")));
}

TEST_P(StrictHostTest, MemoryIsNotZeroWhenItIsNewAndGoneWhenItIsFreed) {
  float* const x = allocate(4);
  float value = 0;
  EXPECT_EQ(settled(bench.api.copy(stream, &value, x, 4)), Code::kSuccess);
  EXPECT_NE(value, 0);
  free(x);
  void* const next = allocate(4);

  EXPECT_NE(next, x);
  EXPECT_EQ(bench.api.free_data_space(0, x), Code::kInvalidValue);
  free(next);
}

std::string name_of(const ::testing::TestParamInfo<HostExecutor>& info) {
  static constexpr const char* kNames[] = {"Inline", "Threads", "Random"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Executors, StrictHostTest,
                         ::testing::Values(HostExecutor::kInline, HostExecutor::kThreads,
                                           HostExecutor::kRandom),
                         name_of);

TEST(StrictRandomTest, WorkInTheQueueThatNamesMemoryFreedTooEarlyIsFound) {
  int found = 0;
  for (unsigned seed = 0; seed < 20; ++seed) {
    const StrictHostDevice host = make_strict_host_device(
        {.executor = HostExecutor::kRandom, .seed = seed, .free_waits = false});
    DeviceBench bench({"host", Device::host(), host.device.get(), ""});
    const StreamHandle stream = bench.stream();
    void* data = nullptr;
    check(bench.api.alloc_data_space(0, 4, &data), "allocate");
    check(bench.fill(stream, static_cast<float*>(data), 1), "launch");
    check(bench.api.free_data_space(0, data), "free");
    static_cast<void>(bench.api.synchronize_device(0));
    found += !host.memory->take_findings().empty();
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace cgtree::testing
