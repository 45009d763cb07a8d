// Callbacks of recorded calls become events of the ledger.
#include "check/cuda/watch.h"

#include <cupti.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace cgtree::graph_check {
namespace {

constexpr std::uintptr_t kBuffer = 0x7000'0000;

template <typename Handle>
Handle handle(std::uintptr_t value) {
  return reinterpret_cast<Handle>(value);
}

class WatchTest : public ::testing::Test {
 protected:
  WatchTest()
      : watch_(questions(),
               [this](const Finding& finding, const Stacks&) { found_.push_back(finding.kind); }) {}

  Questions questions() {
    Questions questions;
    questions.prepare = [this] { ++prepared_; };
    questions.read = [this](GraphHandle, GraphContents* contents) {
      contents->nodes = nodes_;
      return why_;
    };
    questions.is_capturing = [this](CUstream stream) { return stream == stream_ && is_capturing_; };
    questions.allocation_of = [this](std::uintptr_t address) {
      ++asked_;
      const bool is_in = address - older_.address < older_.bytes;
      return is_in ? older_ : BlockRange{};
    };
    questions.watch = [this](Calls calls, bool is_wanted) {
      if (calls == Calls::kWork) is_work_watched_.push_back(is_wanted);
      if (calls == Calls::kLaunches) are_launches_watched_.push_back(is_wanted);
      if (calls == Calls::kMemory) ++memory_;
    };
    return questions;
  }

  // Makes both callbacks of a call.
  void call(CUpti_CallbackId id, const char* name, const void* params, int result = 0) {
    begin(id, name, params);
    end(id, name, params, result);
  }
  void begin(CUpti_CallbackId id, const char* name, const void* params) {
    CUpti_CallbackData data = data_of(name, params);
    data.callbackSite = CUPTI_API_ENTER;
    watch_.on_call(id, data);
  }
  void end(CUpti_CallbackId id, const char* name, const void* params, int result = 0) {
    CUpti_CallbackData data = data_of(name, params);
    data.callbackSite = CUPTI_API_EXIT;
    data.functionReturnValue = &result;
    watch_.on_call(id, data);
  }
  CUpti_CallbackData data_of(const char* name, const void* params) {
    CUpti_CallbackData data = {};
    data.functionName = name;
    data.functionParams = params;
    data.correlationData = &shared_;
    return data;
  }

#define CALL(function, result, ...)                                       \
  do {                                                                    \
    const function##_params params = {__VA_ARGS__};                       \
    call(CUPTI_DRIVER_TRACE_CBID_##function, #function, &params, result); \
  } while (false)

  void begin_capture() {
    CALL(cuStreamBeginCapture_v2, 0, stream_, CU_STREAM_CAPTURE_MODE_GLOBAL);
  }
  void end_capture(int result = 0) {
    CALL(cuStreamEndCapture, result, stream_, &graph_);
  }
  void instantiate() {
    CALL(cuGraphInstantiateWithFlags, 0, &exec_, graph_, 0);
  }
  void launch(int result = 0) {
    CALL(cuGraphLaunch, result, exec_, stream_);
  }
  void allocate(CUdeviceptr address = kBuffer) {
    CALL(cuMemAlloc_v2, 0, &address, 4096);
  }

  static NodeContents kernel(std::uintptr_t address) {
    NodeContents node;
    node.node = static_cast<NodeHandle>(0x900);
    node.type = NodeType::kKernel;
    node.is_decoded = true;
    node.bytes.resize(sizeof address);
    std::memcpy(node.bytes.data(), &address, sizeof address);
    node.kernel = std::make_shared<KernelLayout>(KernelLayout{"axpy", {{0, sizeof address}}});
    return node;
  }

  std::vector<FindingKind> found_;
  std::vector<NodeContents> nodes_;
  std::string why_;
  std::vector<bool> is_work_watched_;
  std::vector<bool> are_launches_watched_;
  BlockRange older_;
  int asked_ = 0;
  int memory_ = 0;
  int prepared_ = 0;
  bool is_capturing_ = false;
  std::uint64_t shared_ = 0;
  CUstream stream_ = handle<CUstream>(0x500);
  CUgraph graph_ = handle<CUgraph>(0x100);
  CUgraphExec exec_ = handle<CUgraphExec>(0x300);
  Watch watch_;
};

TEST_F(WatchTest, AllocationsFreesAndLaunchesAreSeen) {
  allocate();
  nodes_ = {kernel(kBuffer)};
  begin_capture();
  end_capture();
  instantiate();
  launch();
  CALL(cuMemFree_v2, 900, kBuffer);
  launch();
  EXPECT_TRUE(found_.empty());  // the free has failed
  CALL(cuMemFree_v2, 0, kBuffer);
  EXPECT_TRUE(found_.empty());
  const cuGraphLaunch_params params = {exec_, stream_};
  begin(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, "cuGraphLaunch", &params);  // and it may not end
  EXPECT_EQ(std::vector{FindingKind::kFreed}, found_);
  EXPECT_EQ(1, prepared_);
  EXPECT_EQ(1, memory_);
}

TEST_F(WatchTest, TheDriverIsAskedForMemoryFromBeforeTheFirstGraph) {
  older_ = {kBuffer - 64, 4096};
  nodes_ = {kernel(kBuffer), kernel(kBuffer + 8)};
  instantiate();
  EXPECT_EQ(1, asked_);
  instantiate();
  EXPECT_EQ(1, asked_);
  launch();
  CALL(cuMemFreeAsync, 0, kBuffer + 64, stream_);  // a pool's, whose range the driver tells
  launch();
  EXPECT_TRUE(found_.empty());
  CALL(cuMemFreeHost, 0, handle<void*>(kBuffer - 64));
  launch();
  EXPECT_EQ(std::vector{FindingKind::kFreed}, found_);
}

TEST_F(WatchTest, LaunchesAreWatchedWhileTheyMatter) {
  allocate();
  nodes_ = {kernel(kBuffer)};
  EXPECT_TRUE(are_launches_watched_.empty());
  instantiate();
  EXPECT_EQ(std::vector{true}, are_launches_watched_);
  for (int i = 0; i < 10'000; ++i)
    launch();
  EXPECT_EQ((std::vector{true, false}), are_launches_watched_);
  CALL(cuMemFree_v2, 0, kBuffer);
  EXPECT_EQ((std::vector{true, false, true}), are_launches_watched_);
  CALL(cuGraphExecDestroy, 0, exec_);
  launch();
  EXPECT_EQ((std::vector{true, false, true, false}), are_launches_watched_);
  watch_.expect_blocks();
  launch();
  EXPECT_TRUE(are_launches_watched_.back());
}

// Each way to get memory, and the way to give it back.
TEST_F(WatchTest, EachKindOfMemoryIsFollowed) {
  nodes_ = {kernel(kBuffer + 8)};
  CUdeviceptr address = kBuffer;
  void* const pointer = handle<void*>(kBuffer);
  const auto use = [&] {
    older_ = {};
    found_.clear();
    instantiate();
    launch();
  };
  const auto expect = [&](FindingKind kind, int line) {
    launch();
    EXPECT_EQ(std::vector{kind}, found_) << "line " << line;
  };
  CALL(cuMemAllocAsync, 0, &address, 4096, stream_);
  use();
  CALL(cuMemFreeAsync, 0, kBuffer, stream_);
  expect(FindingKind::kFreed, __LINE__);
  CALL(cuMemAllocFromPoolAsync, 0, &address, 4096, nullptr, stream_);
  use();
  CALL(cuMemFree_v2, 0, kBuffer);
  expect(FindingKind::kFreed, __LINE__);
  CALL(cuMemMap, 0, kBuffer, 4096, 0, 0, 0);
  use();
  CALL(cuMemUnmap, 0, kBuffer, 4096);
  expect(FindingKind::kUnmapped, __LINE__);
  const auto use_older = [&] {
    older_ = {kBuffer, 4096};
    found_.clear();
    instantiate();
    launch();
  };
  use_older();
  CALL(cuMemHostUnregister, 0, pointer);
  expect(FindingKind::kFreed, __LINE__);
  use_older();
  CALL(cuIpcCloseMemHandle, 0, kBuffer);
  expect(FindingKind::kFreed, __LINE__);
  use_older();
  CALL(cuMemUnmap, 0, kBuffer - 4096, 8192);
  expect(FindingKind::kUnmapped, __LINE__);
}

TEST_F(WatchTest, MemoryOfNodesIsNoMemoryOfTheProgram) {
  CUdeviceptr address = kBuffer;
  begin_capture();
  is_capturing_ = true;
  CALL(cuMemAllocAsync, 0, &address, 4096, stream_);
  CALL(cuMemFreeAsync, 0, kBuffer, stream_);
  is_capturing_ = false;
  end_capture();
  nodes_ = {kernel(kBuffer)};
  instantiate();
  launch();
  EXPECT_TRUE(found_.empty());
}

TEST_F(WatchTest, AFreeThatBecomesANodeFreesNothing) {
  allocate();
  nodes_ = {kernel(kBuffer)};
  instantiate();
  begin_capture();
  is_capturing_ = true;
  CALL(cuMemFreeAsync, 0, kBuffer, stream_);
  is_capturing_ = false;
  end_capture();
  launch();
  EXPECT_TRUE(found_.empty());
}

TEST_F(WatchTest, AnExecutableIsGoneWhenItsDestructionBegins) {
  allocate();
  nodes_ = {kernel(kBuffer)};
  instantiate();
  const cuGraphExecDestroy_params params = {exec_};
  begin(CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy, "cuGraphExecDestroy", &params);
  instantiate();  // on another thread, with the same handle
  end(CUPTI_DRIVER_TRACE_CBID_cuGraphExecDestroy, "cuGraphExecDestroy", &params);
  CALL(cuMemFree_v2, 0, kBuffer);
  launch();
  EXPECT_EQ(std::vector{FindingKind::kFreed}, found_);
}

TEST_F(WatchTest, AFreeThatReturnsLateFreesNothingElse) {
  allocate();
  const cuMemFree_v2_params params = {kBuffer};
  begin(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, "cuMemFree_v2", &params);
  const std::uint64_t shared = shared_;
  allocate();  // on another thread
  nodes_ = {kernel(kBuffer)};
  instantiate();
  shared_ = shared;
  end(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, "cuMemFree_v2", &params);
  launch();
  EXPECT_TRUE(found_.empty());
}

TEST_F(WatchTest, WorkIsWatchedWhileACaptureIsOpen) {
  begin_capture();
  end_capture();
  begin_capture();
  end_capture(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  EXPECT_EQ((std::vector{true, false, true}), is_work_watched_);
  end_capture(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ((std::vector{true, false, true, false}), is_work_watched_);
}

TEST_F(WatchTest, ACallThatIsRefusedIsSeen) {
  begin_capture();
  cuMemcpyBatchAsync_params copy = {};
  copy.hStream = stream_;
  call(CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync, "cuMemcpyBatchAsync", &copy, 900);
  end_capture();
  instantiate();
  EXPECT_EQ(std::vector{FindingKind::kRefused}, found_);
}

TEST_F(WatchTest, WorkOnTheLegacyStreamIsSeen) {
  begin_capture();
  cuLaunchKernel_params launched = {};
  launched.hStream = stream_;
  call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel", &launched);
  launched.hStream = nullptr;
  call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, "cuLaunchKernel_ptsz", &launched);
  std::thread([&] {
    call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, "cuLaunchKernel", &launched);
  }).join();
  CALL(cuEventRecord, 0, nullptr, nullptr);
  end_capture();
  instantiate();
  EXPECT_TRUE(found_.empty());
  begin_capture();
  CUlaunchConfig config = {};
  const cuLaunchKernelEx_params extended = {&config, nullptr, nullptr, nullptr};
  call(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, "cuLaunchKernelEx", &extended);
  end_capture();
  instantiate();
  EXPECT_EQ(std::vector{FindingKind::kLegacy}, found_);
  begin_capture();
  call(CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoD_v2, "cuMemcpyHtoD_v2", nullptr);
  end_capture();
  instantiate();
  EXPECT_EQ((std::vector{FindingKind::kLegacy, FindingKind::kLegacy}), found_);
}

TEST_F(WatchTest, TheDriverSaysWhichMemoryOfCopiesIsPageable) {
  nodes_.emplace_back();
  nodes_[0].type = NodeType::kMemset;
  nodes_[0].memory = {{0x5000'0000, 64, false}};
  instantiate();
  EXPECT_TRUE(found_.empty());
  nodes_[0].type = NodeType::kMemcpy;
  older_ = {0x5000'0000, 4096};
  instantiate();
  EXPECT_TRUE(found_.empty());
  static const float constant[16] = {};
  nodes_[0].memory[0].address = reinterpret_cast<std::uintptr_t>(&constant);
  instantiate();
  EXPECT_TRUE(found_.empty());
  nodes_[0].memory[0].address = 0x6000'0000;
  instantiate();
  EXPECT_EQ(std::vector{FindingKind::kPageable}, found_);
}

TEST_F(WatchTest, ANodeThatIsPatchedIsForgotten) {
  allocate();
  nodes_ = {kernel(kBuffer)};
  instantiate();
  CALL(cuGraphExecKernelNodeSetParams_v2, 0, exec_, handle<CUgraphNode>(0x900), nullptr);
  CALL(cuMemFree_v2, 0, kBuffer);
  launch();
  EXPECT_TRUE(found_.empty());
}

TEST_F(WatchTest, AGraphThatCannotBeReadIsSaidOnce) {
  why_ = "the driver is too old";
  instantiate();
  instantiate();
  const std::string table = watch_.report({}).table;
  EXPECT_NE(std::string::npos, table.find("not seen: the driver is too old"));
  EXPECT_EQ(table.find("too old"), table.rfind("too old"));
}

TEST_F(WatchTest, ItMayBeStopped) {
  allocate();
  nodes_ = {kernel(kBuffer)};
  instantiate();
  CALL(cuMemFree_v2, 0, kBuffer);
  watch_.stop();
  launch();
  EXPECT_TRUE(found_.empty());
}

TEST(CallsTest, NoneIsListedTwice) {
  std::vector<CUpti_CallbackId> all;
  for (const auto& [calls, least] : std::vector<std::pair<Calls, std::size_t>>{
           {Calls::kGraphs, 23}, {Calls::kMemory, 13}, {Calls::kLaunches, 2}, {Calls::kWork, 66}}) {
    const std::vector<CUpti_CallbackId> some = driver_calls(calls);
    EXPECT_GE(some.size(), least);
    all.insert(all.end(), some.begin(), some.end());
  }
  std::ranges::sort(all);
  EXPECT_EQ(all.end(), std::ranges::adjacent_find(all));
}

}  // namespace
}  // namespace cgtree::graph_check
