// Callbacks of recorded calls become events of the ledger.
#include "check/cuda/watch.h"

#include <cupti.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
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
    questions.is_pageable = [](std::uintptr_t address) { return address == 0x5000'0000; };
    questions.bytes_of = [](std::uintptr_t) { return std::size_t{4096}; };
    questions.watch_work = [this](bool is_wanted) { is_work_watched_.push_back(is_wanted); };
    return questions;
  }

  // Makes both callbacks of a call.
  void call(CUpti_CallbackId id, const char* name, const void* params, int result = 0,
            CUpti_CallbackDomain domain = CUPTI_CB_DOMAIN_DRIVER_API) {
    begin(id, name, params);
    end(id, name, params, result, domain);
  }
  void begin(CUpti_CallbackId id, const char* name, const void* params) {
    CUpti_CallbackData data = data_of(name, params);
    data.callbackSite = CUPTI_API_ENTER;
    watch_.on_call(CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
  }
  void end(CUpti_CallbackId id, const char* name, const void* params, int result = 0,
           CUpti_CallbackDomain domain = CUPTI_CB_DOMAIN_DRIVER_API) {
    CUpti_CallbackData data = data_of(name, params);
    data.callbackSite = CUPTI_API_EXIT;
    data.functionReturnValue = &result;
    watch_.on_call(domain, id, &data);
  }
  CUpti_CallbackData data_of(const char* name, const void* params) {
    CUpti_CallbackData data = {};
    data.functionName = name;
    data.functionParams = params;
    data.correlationData = &shared_;
    data.correlationId = correlation_;
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
  int prepared_ = 0;
  bool is_capturing_ = false;
  std::uint64_t shared_ = 0;
  std::uint32_t correlation_ = 1;
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
  launch(1);
  EXPECT_TRUE(found_.empty());  // the launch has
  launch();
  EXPECT_EQ(std::vector{FindingKind::kFreed}, found_);
  EXPECT_EQ(1, prepared_);
}

// Each way to get memory, and the way to give it back.
TEST_F(WatchTest, EachKindOfMemoryIsFollowed) {
  nodes_ = {kernel(kBuffer + 8)};
  CUdeviceptr address = kBuffer;
  void* pointer = handle<void*>(kBuffer);
  std::size_t pitch = 64;
  const auto check = [&] {
    found_.clear();
    instantiate();
    launch();
  };
  const auto expect = [&](FindingKind kind, int line) {
    launch();
    EXPECT_EQ(std::vector{kind}, found_) << "line " << line;
    // A stack is a number: findings at other places of this function are others.
  };
  CALL(cuMemAllocManaged, 0, &address, 4096);
  check();
  CALL(cuMemFree_v2, 0, kBuffer);
  expect(FindingKind::kFreed, __LINE__);
  CALL(cuMemAllocPitch_v2, 0, &address, &pitch, 50, 2, 4);
  check();
  CALL(cuMemFree_v2, 0, kBuffer);
  expect(FindingKind::kFreed, __LINE__);
  CALL(cuMemHostAlloc, 0, &pointer, 4096);
  check();
  CALL(cuMemFreeHost, 0, pointer);
  expect(FindingKind::kFreed, __LINE__);
  CALL(cuMemHostRegister_v2, 0, pointer, 4096);
  check();
  CALL(cuMemHostUnregister, 0, pointer);
  expect(FindingKind::kFreed, __LINE__);
  CALL(cuMemAllocAsync, 0, &address, 4096, stream_);
  check();
  CALL(cuMemFreeAsync, 0, kBuffer, stream_);
  expect(FindingKind::kFreed, __LINE__);
  CALL(cuIpcOpenMemHandle_v2, 0, &address);
  check();
  CALL(cuIpcCloseMemHandle, 0, kBuffer);
  expect(FindingKind::kFreed, __LINE__);
  CALL(cuMemMap, 0, kBuffer, 4096);
  check();
  CALL(cuMemUnmap, 0, kBuffer, 4096);
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

TEST_F(WatchTest, ACallThatTheRuntimeRefusesIsToldOnce) {
  begin_capture();
  cuMemcpyBatchAsync_params copy = {};
  copy.hStream = stream_;
  constexpr auto kRuntime = CUPTI_RUNTIME_TRACE_CBID_cudaMemcpyBatchAsync_v13000;
  call(CUPTI_DRIVER_TRACE_CBID_cuMemcpyBatchAsync, "cuMemcpyBatchAsync", &copy, 900);
  end(kRuntime, "cudaMemcpyBatchAsync_v13000", nullptr, 900, CUPTI_CB_DOMAIN_RUNTIME_API);
  end_capture();
  instantiate();
  EXPECT_EQ(std::vector{FindingKind::kRefused}, found_);
  begin_capture();
  correlation_ = 2;
  end(kRuntime, "cudaMemcpyBatchAsync_v13000", nullptr, 900, CUPTI_CB_DOMAIN_RUNTIME_API);
  end_capture();
  instantiate();
  EXPECT_EQ((std::vector{FindingKind::kRefused, FindingKind::kRefused}), found_);
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
  const cuLaunchKernelEx_params extended = {&config};
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
  instantiate();
  EXPECT_EQ(std::vector{FindingKind::kPageable}, found_);
}

TEST_F(WatchTest, ANodeThatIsPatchedIsForgotten) {
  allocate();
  nodes_ = {kernel(kBuffer)};
  instantiate();
  CALL(cuGraphExecKernelNodeSetParams_v2, 0, exec_, handle<CUgraphNode>(0x900));
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
  std::vector<CUpti_CallbackId> all = driver_calls(false);
  EXPECT_GT(all.size(), 45u);
  std::ranges::copy(driver_calls(true), std::back_inserter(all));
  EXPECT_GT(all.size(), 110u);
  std::ranges::sort(all);
  EXPECT_EQ(all.end(), std::ranges::adjacent_find(all));
}

}  // namespace
}  // namespace cgtree::graph_check
