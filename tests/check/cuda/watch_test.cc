// Recorded calls of the driver become events of the ledger.
#define __CUDA_API_VERSION_INTERNAL  // declares all versions of functions
#include "check/cuda/watch.h"

#include <cuda.h>
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
    return questions;
  }

  // Makes calls of a function, with its parameters.
  template <typename Function>
  struct Recorded;
  template <typename... Parameters>
  struct Recorded<CUresult(Parameters...)> {
    WatchTest& test;
    const Call& call;

    void run(int result, Parameters... parameters) {
      begin(parameters...);
      end(result, parameters...);
    }
    void begin(Parameters... parameters) { tell(nullptr, parameters...); }
    void end(int result, Parameters... parameters) { tell(&result, parameters...); }
    void tell(const int* result, Parameters... parameters) {
      const void* const addresses[] = {&parameters...};
      if (test.watch_.wants(call.does))
        test.watch_.on_call({call, addresses, &test.shared_, result});
    }
  };

#define RECORDED(function) (Recorded<decltype(::function)>{*this, kCalls[index_of(#function)]})
#define CALL(function, result, ...) RECORDED(function).run(result, __VA_ARGS__)

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

  // Memory is watched from the first graph on.
  void watch_memory() {
    begin_capture();
    end_capture();
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
  BlockRange older_;
  int asked_ = 0;
  int prepared_ = 0;
  bool is_capturing_ = false;
  std::uint64_t shared_ = 0;
  CUstream stream_ = handle<CUstream>(0x500);
  CUgraph graph_ = handle<CUgraph>(0x100);
  CUgraphExec exec_ = handle<CUgraphExec>(0x300);
  Watch watch_;
};

TEST_F(WatchTest, AllocationsFreesAndLaunchesAreSeen) {
  watch_memory();
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
  RECORDED(cuGraphLaunch).begin(exec_, stream_);  // and it may not end
  EXPECT_EQ(std::vector{FindingKind::kFreed}, found_);
  EXPECT_EQ(1, prepared_);
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

TEST_F(WatchTest, CallsOfMemoryMatterFromTheFirstGraphOn) {
  EXPECT_FALSE(watch_.wants(Does::kAllocate));
  EXPECT_FALSE(watch_.wants(Does::kUnmap));
  EXPECT_TRUE(watch_.wants(Does::kInstantiate));
  instantiate();
  EXPECT_TRUE(watch_.wants(Does::kAllocate));
  EXPECT_TRUE(watch_.wants(Does::kUnmap));
}

// Each way to get memory, and the way to give it back.
TEST_F(WatchTest, EachKindOfMemoryIsFollowed) {
  watch_memory();
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
  watch_memory();
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
  watch_memory();
  allocate();
  nodes_ = {kernel(kBuffer)};
  instantiate();
  RECORDED(cuGraphExecDestroy).begin(exec_);
  instantiate();  // on another thread, with the same handle
  RECORDED(cuGraphExecDestroy).end(0, exec_);
  CALL(cuMemFree_v2, 0, kBuffer);
  launch();
  EXPECT_EQ(std::vector{FindingKind::kFreed}, found_);
}

TEST_F(WatchTest, AFreeThatReturnsLateFreesNothingElse) {
  watch_memory();
  allocate();
  RECORDED(cuMemFree_v2).begin(kBuffer);
  const std::uint64_t shared = shared_;
  allocate();  // on another thread
  nodes_ = {kernel(kBuffer)};
  instantiate();
  shared_ = shared;
  RECORDED(cuMemFree_v2).end(0, kBuffer);
  launch();
  EXPECT_TRUE(found_.empty());
}

TEST_F(WatchTest, WorkMattersWhileACaptureIsOpen) {
  EXPECT_FALSE(watch_.wants(Does::kWork));
  begin_capture();
  EXPECT_TRUE(watch_.wants(Does::kWork));
  end_capture();
  EXPECT_FALSE(watch_.wants(Does::kOrder));
  begin_capture();
  end_capture(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  EXPECT_TRUE(watch_.wants(Does::kWork));
  end_capture(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_FALSE(watch_.wants(Does::kWork));
}

TEST_F(WatchTest, ACallThatIsRefusedIsSeen) {
  begin_capture();
  CALL(cuMemcpyBatchAsync_v2, 900, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0, stream_);
  end_capture();
  instantiate();
  EXPECT_EQ(std::vector{FindingKind::kRefused}, found_);
}

TEST_F(WatchTest, WorkOnTheLegacyStreamIsSeen) {
  begin_capture();
  const auto launch_kernel = [&](CUstream stream) {
    CALL(cuLaunchKernel, 0, nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  };
  launch_kernel(stream_);
  CALL(cuLaunchKernel_ptsz, 0, nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  std::thread([&] { launch_kernel(nullptr); }).join();
  CALL(cuEventRecord, 0, nullptr, nullptr);
  end_capture();
  instantiate();
  EXPECT_TRUE(found_.empty());
  begin_capture();
  CUlaunchConfig config = {};
  CALL(cuLaunchKernelEx, 0, &config, nullptr, nullptr, nullptr);
  end_capture();
  instantiate();
  EXPECT_EQ(std::vector{FindingKind::kLegacy}, found_);
  begin_capture();
  CALL(cuMemcpyHtoD_v2, 0, 0, nullptr, 0);
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
  watch_memory();
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
  watch_memory();
  allocate();
  nodes_ = {kernel(kBuffer)};
  instantiate();
  CALL(cuMemFree_v2, 0, kBuffer);
  watch_.stop();
  launch();
  EXPECT_TRUE(found_.empty());
}

TEST(CallsTest, NoneIsListedTwice) {
  for (std::size_t i = 0; i < std::size(kCalls); ++i)
    EXPECT_EQ(i, index_of(kCalls[i].name)) << kCalls[i].name;
}

}  // namespace
}  // namespace cgtree::graph_check
