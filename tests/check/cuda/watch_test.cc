// Recorded calls of the driver become events of the ledger.
#define __CUDA_API_VERSION_INTERNAL  // declares all versions of functions
#include "check/cuda/watch.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
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
      if (test.watch_of_->wants(call.does))
        test.watch_of_->on_call({call, addresses, &test.shared_, result});
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
  Watch* watch_of_ = &watch_;
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
  CALL(cuMemFreeAsync, 0, kBuffer, stream_);  // until the next launch of the graph with the node
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
  is_capturing_ = true;
  CALL(cuMemcpyBatchAsync_v2, 900, nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0, stream_);
  end_capture();
  instantiate();
  EXPECT_EQ(std::vector{FindingKind::kRefused}, found_);
}

// A kernel that asks for too much, say, and is launched with less then.
TEST_F(WatchTest, ACallThatFailsOutsideOfTheCaptureIsNoneOfIt) {
  begin_capture();
  is_capturing_ = true;
  const auto launch_kernel = [&] {
    const auto stream = handle<CUstream>(0x501);
    CALL(cuLaunchKernel, 701, nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  };
  launch_kernel();
  std::thread([&] {
    launch_kernel();
    CALL(cuMemcpyHtoD_v2, 1, 0, nullptr, 0);
  }).join();
  end_capture();
  instantiate();
  EXPECT_TRUE(found_.empty());
}

TEST_F(WatchTest, ACaptureIntoAGraphMayEndWithoutTheGraph) {
  nodes_ = {kernel(kBuffer)};
  const auto body = handle<CUgraph>(0x880);
  CALL(cuStreamBeginCaptureToGraph, 0, stream_, body, nullptr, nullptr, 0,
       CU_STREAM_CAPTURE_MODE_GLOBAL);
  is_capturing_ = true;
  CALL(cuMemcpyHtoDAsync_v2, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, kBuffer, nullptr, 8, stream_);
  CALL(cuStreamEndCapture, 0, stream_, nullptr);
  is_capturing_ = false;
  CALL(cuGraphInstantiateWithFlags, 0, &exec_, body, 0);
  EXPECT_EQ(found_, std::vector{FindingKind::kRefused});
}

TEST_F(WatchTest, ACaptureEndsWithItsStream) {
  begin_capture();
  CALL(cuStreamDestroy_v2, 0, stream_);
  EXPECT_FALSE(watch_.wants(Does::kWork));
}

TEST_F(WatchTest, CallsWithoutTheirParametersAreLeftToTheDriver) {
  begin_capture();
  CALL(cuLaunchKernelEx, 1, nullptr, nullptr, nullptr, nullptr);
  end_capture();
  CALL(cuGraphInstantiateWithParams, 1, &exec_, graph_, nullptr);
  EXPECT_TRUE(found_.empty());
}

TEST_F(WatchTest, ALaunchThatFailsForAnotherReasonIsNotThatOfItsMemory) {
  nodes_.emplace_back();
  nodes_[0].type = NodeType::kAllocation;
  nodes_[0].memory = {{0x5000'0000, 64, false}};
  instantiate();
  launch();
  launch(700);
  EXPECT_TRUE(found_.empty());
  launch(1);
  EXPECT_EQ(std::vector{FindingKind::kAllocating}, found_);
}

// A handler of a signal that calls exit() while this thread is in on_call().
TEST_F(WatchTest, AReportInsideOfAWatchedCallIsNone) {
  bool has_thrown = false;
  Watch watch(questions(), [&](const Finding&, const Stacks&) {
    try {
      static_cast<void>(watch_of_->report({}));
    } catch (const std::exception&) {
      has_thrown = true;
    }
  });
  watch_of_ = &watch;
  nodes_.emplace_back();
  nodes_[0].type = NodeType::kMemcpy;
  nodes_[0].memory = {{0x6000'0000, 64, false}};
  instantiate();
  EXPECT_TRUE(has_thrown);
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

// Each thread has its own handles and memory, and another makes reports. A sanitizer looks at the
// locks.
TEST(ThreadsTest, CallsMayComeFromAllAtOnce) {
  Questions questions;
  questions.prepare = [] {};
  questions.read = [](GraphHandle graph, GraphContents* contents) {
    NodeContents node;
    node.type = NodeType::kMemset;
    node.memory = {{static_cast<std::uintptr_t>(graph), 64, true}};
    contents->nodes = {node};
    return std::string();
  };
  questions.is_capturing = [](CUstream) { return false; };
  questions.allocation_of = [](std::uintptr_t) { return BlockRange{}; };
  std::atomic<std::size_t> told = 0;
  Watch watch(questions, [&](const Finding&, const Stacks&) { ++told; });
  std::atomic<bool> is_over{false};
  std::thread reports([&] {
    while (!is_over)
      EXPECT_FALSE(watch.report({}).json.empty());
  });
  std::vector<std::thread> threads;
  for (std::uintptr_t i = 1; i <= 4; ++i) {
    threads.emplace_back([&watch, i] {
      for (int round = 0; round < 300; ++round) {
        CUdeviceptr address = i << 20;
        auto graph = handle<CUgraph>(address);
        auto exec = handle<CUgraphExec>(address);
        const auto stream = handle<CUstream>(i);
        std::uint64_t shared = 0;
        const auto call = [&](const Call& function, auto... parameters) {
          const void* const addresses[] = {&parameters...};
          const int result = 0;
          if (!watch.wants(function.does)) return;
          watch.on_call({function, addresses, &shared, nullptr});
          watch.on_call({function, addresses, &shared, &result});
        };
#define MAKE(function, ...) call(kCalls[index_of(#function)], __VA_ARGS__)
        MAKE(cuMemAlloc_v2, &address, std::size_t{4096});
        MAKE(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
        MAKE(cuEventRecord, nullptr, stream);
        MAKE(cuStreamEndCapture, stream, &graph);
        MAKE(cuGraphInstantiateWithFlags, &exec, graph, 0ull);
        MAKE(cuGraphLaunch, exec, stream);
        MAKE(cuMemFree_v2, address);
        if (round % 2 == 0) MAKE(cuGraphLaunch, exec, stream);
        MAKE(cuGraphExecDestroy, exec);
        MAKE(cuGraphDestroy, graph);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  is_over = true;
  reports.join();
  const std::string table = watch.report({}).table;
  EXPECT_GE(told, 1u);
  EXPECT_NE(std::string::npos, table.find("launches: 1800"));
}

#undef CALL
// Returns whether the parameters are those that an effect names: words, the stream of work.
template <typename... Parameters>
constexpr bool has_parameters(const Call& call, CUresult (*)(Parameters...)) noexcept {
  const std::size_t sizes[] = {sizeof(Parameters)...};
  const bool are_streams[] = {std::is_same_v<Parameters, CUstream>...};
  for (const std::size_t at : {call.first, call.second, call.third})
    if (at != Call::kNone && (at >= sizeof...(Parameters) || sizes[at] != sizeof(void*)))
      return false;
  const bool is_of_stream = call.does == Does::kWork || call.does == Does::kOrder;
  return !is_of_stream || call.first == Call::kNone || are_streams[call.first];
}

// A wrapper has the parameters of its function, which the table numbers.
#define CALL(name, ...) static_assert(has_parameters(kCalls[index_of(#name)], &::name));
#define BOTH(name, suffix, ...) \
  CALL(name) static_assert(has_parameters(kCalls[index_of(#name #suffix)], &::name));
#include "check/cuda/calls.inc"
#undef BOTH
#undef CALL

TEST(CallsTest, NoneIsListedTwice) {
  for (std::size_t i = 0; i < std::size(kCalls); ++i)
    EXPECT_EQ(i, index_of(kCalls[i].name)) << kCalls[i].name;
}

}  // namespace
}  // namespace cgtree::graph_check
