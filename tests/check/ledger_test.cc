// Each rule of the ledger: the fault, and the same program without it.
#include "check/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cgtree::graph_check {
namespace {

constexpr StackId kCapture{1};
constexpr StackId kMake{2};
constexpr StackId kFree{3};
constexpr StackId kAgain{4};
constexpr auto kGraph = static_cast<GraphHandle>(0x100);
constexpr auto kOtherGraph = static_cast<GraphHandle>(0x200);
constexpr auto kExec = static_cast<ExecHandle>(0x300);
constexpr auto kOtherExec = static_cast<ExecHandle>(0x400);
constexpr std::uint64_t kThread = 7;
constexpr StreamKey kStream{0x500, 0};
constexpr std::uintptr_t kBuffer = 0x7000'0000;
constexpr std::size_t kBytes = 4096;

TakeStack at(StackId stack) {
  return [stack] { return stack; };
}

NodeContents kernel(const std::string& name, std::initializer_list<std::uintptr_t> words) {
  static std::uintptr_t next_node = 0x900;
  NodeContents node;
  node.node = static_cast<NodeHandle>(next_node++);
  node.type = NodeType::kKernel;
  node.is_decoded = true;
  node.function = "function";
  KernelLayout layout{name, {}};
  for (const std::uintptr_t word : words) {
    layout.parameters.push_back({node.bytes.size(), sizeof word});
    node.bytes.resize(node.bytes.size() + sizeof word);
    std::memcpy(node.bytes.data() + node.bytes.size() - sizeof word, &word, sizeof word);
  }
  node.kernel = std::make_shared<KernelLayout>(std::move(layout));
  return node;
}

NodeContents of_memory(NodeType type, std::vector<NodeMemory> memory) {
  NodeContents node;
  node.type = type;
  node.is_decoded = true;
  node.memory = std::move(memory);
  return node;
}

class LedgerTest : public ::testing::Test {
 protected:
  void allocate(std::uintptr_t address, std::size_t bytes = kBytes, StackId stack = kAgain) {
    ledger_.allocate(address, bytes, "cuMemAlloc_v2", MemoryKind::kPlain, at(stack));
  }
  void map(std::uintptr_t address, std::size_t bytes = kBytes) {
    ledger_.allocate(address, bytes, "cuMemMap", MemoryKind::kMapping, at(kAgain));
  }
  void free(std::uintptr_t address) {
    ledger_.free(address, ledger_.number_at(address), "cuMemFree_v2", at(kFree));
  }
  void capture(GraphHandle graph = kGraph) {
    ledger_.begin_capture(kStream, kThread, kCapture);
    ledger_.end_capture(kStream, graph);
  }
  void instantiate(std::vector<NodeContents> nodes, GraphHandle graph = kGraph,
                   ExecHandle exec = kExec, std::uint64_t flags = 0) {
    GraphContents contents;
    contents.nodes = std::move(nodes);
    contents.flags = flags;
    contents.bytes = 1000;
    contents.pageable = {0x5000'0000};
    ledger_.instantiate(graph, exec, std::move(contents), kMake, now_ += 1'000'000);
  }
  void launch(ExecHandle exec = kExec) { ledger_.launch(exec, now_ += 1'000'000); }

  std::vector<FindingKind> kinds() const {
    std::vector<FindingKind> kinds;
    for (const Finding& finding : ledger_.findings())
      kinds.push_back(finding.kind);
    return kinds;
  }
  std::size_t remarks(FindingKind kind) const {
    std::size_t count = 0;
    for (const Finding& remark : ledger_.remarks())
      if (remark.kind == kind) count += remark.count;
    return count;
  }

  Ledger ledger_;
  Time now_ = 1'000'000'000;
};

TEST_F(LedgerTest, ALaunchAfterAFreeIsAFault) {
  allocate(kBuffer);
  capture();
  instantiate({kernel("first", {1, 2}), kernel("_Z4axpyf", {0x3f800000, kBuffer + 16})});
  launch();
  free(kBuffer);
  EXPECT_TRUE(kinds().empty());
  EXPECT_EQ(1u, ledger_.totals().dangling);
  launch();
  launch();
  ASSERT_EQ(1u, ledger_.findings().size());
  const Finding& found = ledger_.findings()[0];
  EXPECT_EQ(FindingKind::kFreed, found.kind);
  EXPECT_EQ("kernel 'axpy(float)'", found.node_text);
  EXPECT_EQ(1u, found.node);
  EXPECT_EQ("parameter 1", found.place);
  EXPECT_EQ(kBuffer + 16, found.address);
  EXPECT_EQ("byte 16 of 4096 bytes of cuMemAlloc_v2", found.memory);
  EXPECT_EQ("cuMemFree_v2", found.call);
  EXPECT_EQ(kFree, found.called);
  EXPECT_EQ(kCapture, found.captured);
  EXPECT_EQ(2u, found.launches);
  EXPECT_EQ(0u, ledger_.totals().dangling);
}

TEST_F(LedgerTest, AFreeAfterTheLastLaunchIsNoFault) {
  allocate(kBuffer);
  allocate(kBuffer + 0x10000);
  instantiate({kernel("axpy", {kBuffer})});
  launch();
  free(kBuffer + 0x10000);
  launch();
  free(kBuffer);
  ledger_.destroy_exec(kExec);
  EXPECT_TRUE(kinds().empty());
  EXPECT_EQ(0u, ledger_.totals().dangling);
}

TEST_F(LedgerTest, MemoryThatIsAllocatedAgainIsToldWithTheFirst) {
  allocate(kBuffer);
  instantiate({kernel("axpy", {kBuffer})});
  free(kBuffer);
  launch();
  EXPECT_EQ(std::vector{FindingKind::kFreed}, kinds());
  allocate(kBuffer, 64);
  launch();
  ASSERT_EQ(std::vector{FindingKind::kReused}, kinds());
  EXPECT_EQ("64 bytes of cuMemAlloc_v2 at 0x70000000", ledger_.findings()[0].again);
  EXPECT_EQ(kAgain, ledger_.findings()[0].allocated);
}

TEST_F(LedgerTest, AnAddressThatIsAllocatedBeforeTheFreeReturnsIsNotFreed) {
  allocate(kBuffer);
  const std::uint64_t number = ledger_.number_at(kBuffer);  // the free begins
  allocate(kBuffer);                                        // on another thread
  instantiate({kernel("axpy", {kBuffer})});
  ledger_.free(kBuffer, number, "cuMemFree_v2", at(kFree));
  launch();
  EXPECT_TRUE(kinds().empty());
}

TEST_F(LedgerTest, ALaunchAfterAnUnmapIsAFault) {
  map(kBuffer);
  map(kBuffer + kBytes);
  instantiate({kernel("axpy", {kBuffer + kBytes})});
  ledger_.unmap(kBuffer, 2 * kBytes, "cuMemUnmap", at(kFree));
  launch();
  EXPECT_EQ(std::vector{FindingKind::kUnmapped}, kinds());
}

TEST_F(LedgerTest, AMappingAtTheSamePlaceGivesTheRangeBack) {
  map(kBuffer);
  instantiate({kernel("axpy", {kBuffer})});
  ledger_.unmap(kBuffer, kBytes, "cuMemUnmap", at(kFree));
  map(kBuffer);
  launch();
  EXPECT_TRUE(kinds().empty());
}

TEST_F(LedgerTest, AMappingThatIsGivenBackMayGoAgain) {
  map(kBuffer);
  instantiate({kernel("axpy", {kBuffer})});
  ledger_.unmap(kBuffer, kBytes, "cuMemUnmap", at(kFree));
  map(kBuffer);
  launch();
  ledger_.unmap(kBuffer, kBytes, "cuMemUnmap", at(kAgain));
  launch();
  EXPECT_EQ(std::vector{FindingKind::kUnmapped}, kinds());
}

TEST_F(LedgerTest, SmallerMappingsGiveTheirPartsOfARangeBack) {
  map(kBuffer, 2 * kBytes);
  instantiate({kernel("axpy", {kBuffer, kBuffer + kBytes + 8})});
  instantiate({kernel("axpy", {kBuffer + 16})}, kOtherGraph, kOtherExec);
  ledger_.unmap(kBuffer, 2 * kBytes, "cuMemUnmap", at(kFree));
  map(kBuffer);
  launch(kOtherExec);
  EXPECT_TRUE(kinds().empty());
  EXPECT_EQ(1u, ledger_.totals().dangling);
  map(kBuffer + kBytes);
  launch();
  EXPECT_TRUE(kinds().empty());
  EXPECT_EQ(0u, ledger_.totals().dangling);
}

TEST_F(LedgerTest, MemoryOfNodesBelongsToItsGraph) {
  constexpr std::uintptr_t kOfNode = 0x5000'0000;  // pageable, as far as the driver knows
  instantiate({of_memory(NodeType::kAllocation, {{kOfNode - 64, 128, false}})});
  launch();
  for (int i = 0; i < 2; ++i) {
    GraphContents contents;
    contents.nodes = {kernel("axpy", {kOfNode}),
                      of_memory(NodeType::kMemcpy, {{kOfNode, 32, false}, {kBuffer, 32, true}})};
    contents.older = {{kOfNode - 64, 128}};
    contents.pageable = {kOfNode};
    EXPECT_EQ((std::set<std::uintptr_t>{kBuffer}), ledger_.unknown_words(contents.nodes));
    ledger_.instantiate(kOtherGraph, kOtherExec, std::move(contents), kMake, now_);
    launch(kOtherExec);
    free(kOfNode - 64);  // cuMemFreeAsync
    launch();            // allocates it again, at the same place
    launch(kOtherExec);
  }
  instantiate({of_memory(NodeType::kAllocation, {{kOfNode - 64, 128, false}})});
  launch(kOtherExec);
  EXPECT_TRUE(kinds().empty());
}

TEST_F(LedgerTest, MemoryThatIsGoneIsForgottenWithItsGraphs) {
  for (unsigned i = 0; i < 10; ++i) {
    allocate(kBuffer + i * kBytes);
    instantiate({kernel("axpy", {kBuffer + i * kBytes})});
    free(kBuffer + i * kBytes);
    ledger_.destroy_exec(kExec);
  }
  int taken = 0;
  ledger_.allocate(kBuffer, 10 * kBytes, "cuMemAlloc_v2", MemoryKind::kPlain, [&] {
    ++taken;
    return kAgain;
  });
  EXPECT_LE(taken, 1);
}

TEST_F(LedgerTest, ACallThatIsRefusedIsAFaultWhereTheGraphIsUsed) {
  ledger_.begin_capture(kStream, kThread, kCapture);
  ledger_.refuse(kStream, kThread, "cuMemcpyBatchAsync returned 900", at(kFree));
  ledger_.end_capture(kStream, kGraph);
  EXPECT_TRUE(kinds().empty());
  instantiate({});
  ASSERT_EQ(std::vector{FindingKind::kRefused}, kinds());
  EXPECT_EQ("cuMemcpyBatchAsync returned 900", ledger_.findings()[0].call);
  EXPECT_EQ(kCapture, ledger_.findings()[0].captured);
}

TEST_F(LedgerTest, ACallThatIsRefusedInACaptureThatIsDroppedIsNoFault) {
  ledger_.begin_capture(kStream, kThread, kCapture);
  ledger_.refuse(kStream, kThread, "cuMemAlloc_v2 returned 900", at(kFree));
  ledger_.end_capture(kStream, GraphHandle::kNull);
  ledger_.begin_capture(kStream, kThread, kCapture);
  ledger_.refuse(kStream, kThread, "cuMemcpyBatchAsync returned 900", at(kFree));
  ledger_.end_capture(kStream, kGraph);
  ledger_.destroy_graph(kGraph);
  capture();
  instantiate({});
  EXPECT_TRUE(kinds().empty());
}

TEST_F(LedgerTest, ARefusedCallIsThatOfItsStreamThenOfItsThread) {
  constexpr StreamKey kSecond{0x501, 0};
  ledger_.begin_capture(kStream, kThread, kCapture);
  ledger_.begin_capture(kSecond, 8, StackId{9});
  ledger_.refuse(kSecond, kThread, "by stream", at(kFree));
  ledger_.refuse({0x502, 0}, 8, "by thread", at(kFree));
  ledger_.refuse({0x502, 0}, 10, "of neither", at(kFree));
  ledger_.end_capture(kStream, kGraph);
  ledger_.end_capture(kSecond, kOtherGraph);
  instantiate({});
  EXPECT_TRUE(kinds().empty());
  instantiate({}, kOtherGraph, kOtherExec);
  EXPECT_EQ((std::vector{FindingKind::kRefused, FindingKind::kRefused}), kinds());
}

TEST_F(LedgerTest, ARefusedCallWithoutAStreamIsThatOfItsThreadAlone) {
  ledger_.begin_capture(kStream, kThread, kCapture);
  ledger_.refuse({}, 8, "of another thread", at(kFree));
  ledger_.end_capture(kStream, kGraph);
  instantiate({});
  EXPECT_TRUE(kinds().empty());
}

TEST_F(LedgerTest, ACaptureHasTheCallsOfAGraphThatItAddsToAlone) {
  ledger_.begin_capture(kStream, kThread, kCapture);
  ledger_.refuse(kStream, kThread, "cuMemcpyBatchAsync returned 900", at(kFree));
  ledger_.end_capture(kStream, kGraph);
  capture();  // the graph of the handle was destroyed with another that had it
  instantiate({});
  EXPECT_TRUE(kinds().empty());
  ledger_.begin_capture(kStream, kThread, kAgain, kGraph);
  ledger_.refuse(kStream, kThread, "cuMemcpyBatchAsync returned 1", at(kFree));
  ledger_.end_capture(kStream, kGraph);
  ledger_.begin_capture(kStream, kThread, kAgain, kGraph);  // adds to it
  ledger_.end_capture(kStream, kGraph);
  instantiate({});
  EXPECT_EQ(std::vector{FindingKind::kRefused}, kinds());
}

TEST_F(LedgerTest, WorkOnTheLegacyStreamIsThatOfACaptureOfItsThread) {
  ledger_.begin_capture(kStream, kThread, kCapture);
  ledger_.use_legacy_stream(8, "cuLaunchKernel", at(kFree));
  ledger_.end_capture(kStream, kGraph);
  instantiate({});
  EXPECT_TRUE(kinds().empty());
  ledger_.begin_capture(kStream, kThread, kCapture);
  ledger_.use_legacy_stream(kThread, "cuLaunchKernel", at(kFree));
  ledger_.end_capture(kStream, kOtherGraph);
  instantiate({}, kOtherGraph, kOtherExec);
  EXPECT_EQ(std::vector{FindingKind::kLegacy}, kinds());
}

TEST_F(LedgerTest, ACopyOfPageableMemoryIsAFault) {
  allocate(kBuffer);
  instantiate({of_memory(NodeType::kMemcpy, {{0x6000'0000, 64, false}, {kBuffer, 64, true}})});
  EXPECT_TRUE(kinds().empty());
  instantiate({of_memory(NodeType::kMemcpy, {{0x5000'0000, 64, false}, {kBuffer, 64, true}})});
  ASSERT_EQ(std::vector{FindingKind::kPageable}, kinds());
  EXPECT_EQ("the source", ledger_.findings()[0].place);
}

TEST_F(LedgerTest, MemoryOfTheGraphsOwnNodesIsNotPageable) {
  instantiate({of_memory(NodeType::kAllocation, {{0x5000'0000 - 64, 128, false}}),
               of_memory(NodeType::kMemcpy, {{0x5000'0000, 64, false}, {0x6000'0000, 64, true}})});
  EXPECT_TRUE(kinds().empty());
}

TEST_F(LedgerTest, ACopyToMemoryThatWasFreedIsAFault) {
  allocate(kBuffer);
  instantiate({of_memory(NodeType::kMemcpy, {{0x6000'0000, 64, false}, {kBuffer - 32, 64, true}})});
  instantiate({of_memory(NodeType::kMemset, {{kBuffer + 32, 64, true}})}, kOtherGraph, kOtherExec);
  free(kBuffer);
  launch();
  launch(kOtherExec);
  ASSERT_EQ(std::vector{FindingKind::kFreed}, kinds());
  EXPECT_EQ("memset", ledger_.findings()[0].node_text);
  EXPECT_EQ("the destination", ledger_.findings()[0].place);
}

TEST_F(LedgerTest, AllocationNodesAreAFaultWhereALaunchIsRefused) {
  const auto alloc = of_memory(NodeType::kAllocation, {{0x9'0000, 64, false}});
  const auto release = of_memory(NodeType::kFree, {{0x9'0000, 0, false}});
  instantiate({alloc, release});
  launch();
  launch();
  ledger_.refuse_launch(kExec, "cuGraphLaunch returned 700", at(kFree));
  instantiate({alloc}, kGraph, kExec, kAutoFreeOnLaunch);
  launch();
  launch();
  ledger_.refuse_launch(kExec, "cuGraphLaunch returned 1", at(kFree));
  instantiate({alloc});
  launch();
  ledger_.refuse_launch(kExec, "cuGraphLaunch returned 1", at(kFree));
  EXPECT_TRUE(kinds().empty());
  launch();
  ledger_.refuse_launch(kExec, "cuGraphLaunch returned 1", at(kFree));
  EXPECT_EQ(std::vector{FindingKind::kAllocating}, kinds());
}

TEST_F(LedgerTest, TheSameNodesThatAreCapturedAgainAndAgainAreARemark) {
  for (int i = 0; i < 20; ++i) {
    capture(static_cast<GraphHandle>(0x1000 + i));
    instantiate({kernel("evaluate", {})}, static_cast<GraphHandle>(0x1000 + i));
    launch();
  }
  ASSERT_EQ(20u, remarks(FindingKind::kRecaptured));
  EXPECT_NEAR(0.5, ledger_.remarks()[0].per_second, 0.01);
}

TEST_F(LedgerTest, GraphsOfOneStackThatDifferAreNoRemark) {
  for (unsigned i = 0; i < 20; ++i) {
    capture(static_cast<GraphHandle>(0x1000 + i));
    NodeContents node = kernel("evaluate", {});
    node.dims.grid.x = i + 1;
    instantiate({node}, static_cast<GraphHandle>(0x1000 + i));
    launch();
  }
  EXPECT_EQ(0u, remarks(FindingKind::kRecaptured));
}

TEST_F(LedgerTest, RecapturesThatAreLaunchedOftenAreNoRemark) {
  for (int i = 0; i < 20; ++i) {
    capture();
    instantiate({kernel("evaluate", {})});
    for (int j = 0; j < 5; ++j)
      launch();
  }
  EXPECT_EQ(0u, remarks(FindingKind::kRecaptured));
}

TEST_F(LedgerTest, UpdatesCountAsCaptures) {
  instantiate({kernel("evaluate", {})});
  for (int i = 0; i < 20; ++i) {
    capture(kOtherGraph);
    GraphContents contents;
    contents.nodes = {kernel("evaluate", {})};
    ledger_.update(kExec, kOtherGraph, std::move(contents), kMake, now_ += 1'000'000);
    launch();
  }
  EXPECT_EQ(20u, remarks(FindingKind::kRecaptured));
}

TEST_F(LedgerTest, ExecutablesThatNewerOnesReplaceAreARemark) {
  for (int i = 0; i < 40; ++i) {
    const auto exec = static_cast<ExecHandle>(0x1000 + i);
    instantiate({}, kGraph, exec);
    launch(exec);
  }
  EXPECT_EQ(24u, remarks(FindingKind::kLeaked));
}

TEST_F(LedgerTest, ExecutablesThatAreMadeAheadAreNoRemark) {
  for (int i = 0; i < 40; ++i)
    instantiate({}, kGraph, static_cast<ExecHandle>(0x1000 + i));
  EXPECT_EQ(40u, remarks(FindingKind::kUnlaunched));
  EXPECT_EQ(40u * 1000, ledger_.remarks()[0].bytes);
  EXPECT_EQ(40u * 1000, ledger_.totals().bytes_alive);
  for (int i = 0; i < 40; ++i)
    launch(static_cast<ExecHandle>(0x1000 + i));
  EXPECT_TRUE(ledger_.remarks().empty());
}

TEST_F(LedgerTest, ExecutablesThatWereNeverLaunchedAreCountedAfterTheirEnd) {
  instantiate({});
  ledger_.destroy_exec(kExec);
  EXPECT_EQ(1u, remarks(FindingKind::kUnlaunched));
  instantiate({}, kGraph, kExec, kDeviceLaunch);
  ledger_.destroy_exec(kExec);
  EXPECT_EQ(1u, remarks(FindingKind::kUnlaunched));
}

TEST_F(LedgerTest, AnUpdateReplacesTheAddresses) {
  allocate(kBuffer);
  allocate(kBuffer + 0x10000);
  instantiate({kernel("axpy", {kBuffer})});
  free(kBuffer);
  GraphContents contents;
  contents.nodes = {kernel("axpy", {kBuffer + 0x10000})};
  ledger_.update(kExec, kOtherGraph, std::move(contents), kMake, now_);
  launch();
  EXPECT_TRUE(kinds().empty());
  free(kBuffer + 0x10000);
  launch();
  EXPECT_EQ(std::vector{FindingKind::kFreed}, kinds());
}

TEST_F(LedgerTest, AnUpdateMayReferToMemoryThatIsAllocatedAgain) {
  allocate(kBuffer);
  instantiate({kernel("axpy", {kBuffer})});
  free(kBuffer);
  allocate(kBuffer);
  GraphContents contents;
  contents.nodes = {kernel("axpy", {kBuffer})};
  ledger_.update(kExec, kOtherGraph, std::move(contents), kMake, now_);
  launch();
  EXPECT_TRUE(kinds().empty());
}

TEST_F(LedgerTest, ANodeThatIsPatchedIsForgotten) {
  allocate(kBuffer);
  const NodeContents patched = kernel("axpy", {kBuffer});
  instantiate({patched, kernel("other", {kBuffer + 8})});
  ledger_.forget_node(kExec, patched.node);
  free(kBuffer);
  launch();
  ASSERT_EQ(1u, kinds().size());
  EXPECT_EQ("kernel 'other'", ledger_.findings()[0].node_text);
  EXPECT_EQ(1u, ledger_.totals().forgotten_nodes);
}

TEST_F(LedgerTest, APatchOfNodesThatAreNotKnownForgetsAll) {
  allocate(kBuffer);
  NodeContents child;
  child.node = static_cast<NodeHandle>(0x800);
  child.type = NodeType::kChildGraph;
  instantiate({kernel("inside", {kBuffer}), child});
  ledger_.forget_node(kExec, child.node);
  instantiate({kernel("updated", {kBuffer})}, kGraph, kOtherExec);
  ledger_.forget_node(kOtherExec, static_cast<NodeHandle>(0x801));  // of the graph before an update
  free(kBuffer);
  launch();
  launch(kOtherExec);
  EXPECT_TRUE(kinds().empty());
  EXPECT_EQ(2u, ledger_.totals().forgotten_nodes);
}

TEST_F(LedgerTest, TheEndOfARangeIsNoAddressOfTheNext) {
  allocate(kBuffer);
  allocate(kBuffer + kBytes);
  instantiate({kernel("fill", {kBuffer, kBuffer + kBytes})});
  free(kBuffer + kBytes);
  launch();
  EXPECT_TRUE(kinds().empty());
}

TEST_F(LedgerTest, NumbersThatNoAllocationHasAreNoAddresses) {
  instantiate({kernel("axpy", {kBuffer})});
  allocate(kBuffer);
  free(kBuffer);
  launch();
  EXPECT_TRUE(kinds().empty());
}

TEST_F(LedgerTest, FindingsThatDifferInTheGraphAloneAreOne) {
  allocate(kBuffer);
  for (int i = 0; i < 3; ++i) {
    capture(static_cast<GraphHandle>(0x1000 + i));
    instantiate({kernel("axpy", {kBuffer})}, static_cast<GraphHandle>(0x1000 + i),
                static_cast<ExecHandle>(0x2000 + i));
  }
  free(kBuffer);
  for (int i = 0; i < 3; ++i)
    launch(static_cast<ExecHandle>(0x2000 + i));
  ASSERT_EQ(1u, ledger_.findings().size());
  EXPECT_EQ(3u, ledger_.findings()[0].count);
}

class BlocksOfLedgerTest : public LedgerTest {
 protected:
  BlocksOfLedgerTest() {
    allocate(kBuffer, 1 << 20);
    instantiate({kernel("axpy", {kBuffer + 512})});
    made_ = now_;
    launch();
    now_ += 10'000'000;
    launch();
  }
  BlockEvent event(Time time, bool is_free) const {
    return {time, kBuffer + 512, 256, is_free, "train.py:3"};
  }

  Time made_;
};

TEST_F(BlocksOfLedgerTest, ABlockThatIsFreedBeforeTheLastLaunchIsAFault) {
  const std::vector events = {event(made_ - 10, false), event(made_ + 10, true)};
  ledger_.add_blocks("PyTorch", events, {});
  ASSERT_EQ(std::vector{FindingKind::kFreed}, kinds());
  EXPECT_EQ("byte 0 of a block of 256 bytes of PyTorch", ledger_.findings()[0].memory);
  EXPECT_EQ("PyTorch at train.py:3", ledger_.findings()[0].call);
  ledger_.add_blocks("PyTorch", events, {});
  EXPECT_EQ(1u, ledger_.findings()[0].count);
}

TEST_F(BlocksOfLedgerTest, ExecutablesThatEndAreKeptIfBlocksAreExpected) {
  ledger_.expect_blocks();
  ledger_.destroy_exec(kExec);
  ledger_.add_blocks("PyTorch", std::vector{event(made_ + 10, true)}, {});
  EXPECT_EQ(std::vector{FindingKind::kFreed}, kinds());
}

TEST_F(BlocksOfLedgerTest, ABlockThatIsAllocatedAgainIsTold) {
  ledger_.add_blocks("PyTorch", std::vector{event(made_ + 10, true), event(made_ + 20, false)}, {});
  EXPECT_EQ(std::vector{FindingKind::kReused}, kinds());
}

TEST_F(BlocksOfLedgerTest, BlocksOfOtherTimesAndOfGraphsPoolsAreNoFault) {
  ledger_.add_blocks("PyTorch", std::vector{event(made_ - 10, true)}, {});
  ledger_.add_blocks("PyTorch", std::vector{event(now_ + 10, true)}, {});
  ledger_.add_blocks("PyTorch", std::vector{event(made_ + 10, false), event(made_ + 20, true)}, {});
  ledger_.add_blocks("PyTorch", std::vector{event(made_ + 10, true)},
                     std::vector{BlockRange{kBuffer, 1 << 20}});
  EXPECT_TRUE(kinds().empty());
}

}  // namespace
}  // namespace cgtree::graph_check
