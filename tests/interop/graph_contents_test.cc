// Contents of the nodes of a captured graph: the same results on every device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "interop/device/graph_api.h"
#include "interop/device/node_contents.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class GraphContentsTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override { CGTREE_SKIP_IF_MISSING(GetParam()); }

  static void begin(DeviceBench& bench, StreamHandle stream) {
    check(bench.graphs.begin_capture(stream, CaptureMode::kThreadLocal), "begin a capture");
  }
  // Ends the capture of a single node, and reads the node.
  static NodeContents only_node(DeviceBench& bench, StreamHandle stream) {
    const GraphHandle graph = bench.end(stream);
    return only_node(bench, graph);
  }
  static NodeContents only_node(DeviceBench& bench, GraphHandle graph) {
    std::vector<NodeContents> contents;
    check(bench.graphs.read_nodes(graph, &contents), "read the nodes");
    EXPECT_EQ(contents.size(), 1u);
    return std::move(contents.at(0));
  }
  template <typename Value>
  static Value parameter(const NodeContents& contents, std::size_t i) {
    EXPECT_EQ(contents.parameters()[i].bytes, sizeof(Value));
    Value value{};
    std::memcpy(&value, contents.bytes.data() + contents.parameters()[i].offset, sizeof(Value));
    return value;
  }
};

TEST_P(GraphContentsTest, AKernelTellsItsNameAndItsParameters) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(4);
  float* const y = bench.floats(4);
  begin(bench, stream);
  check(bench.graphs.launch_kernel(stream, axpy_kernel(), dims_for(4),
                                   arguments_of(2.5f, x, y, std::int64_t{4})),
        "capture");

  const NodeContents contents = only_node(bench, stream);

  EXPECT_EQ(contents.type, NodeType::kKernel);
  EXPECT_TRUE(contents.is_decoded) << contents.why;
  EXPECT_THAT(demangled(contents.name()), AllOf(HasSubstr("axpy"), Not(HasSubstr("_Z"))));
  ASSERT_EQ(contents.parameters().size(), 4u);
  EXPECT_EQ(parameter<float>(contents, 0), 2.5f);
  EXPECT_EQ(parameter<float*>(contents, 1), x);
  EXPECT_EQ(parameter<float*>(contents, 2), y);
  EXPECT_EQ(parameter<std::int64_t>(contents, 3), 4);
  EXPECT_TRUE(contents.memory.empty());
}

TEST_P(GraphContentsTest, AStructIsOneParameterWithAllItsBytes) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const y = bench.floats(1);
  Weights weights;
  for (std::size_t i = 0; i < weights.values.size(); ++i)
    weights.values[i] = static_cast<float>(i) + 0.5f;
  begin(bench, stream);
  check(bench.graphs.launch_kernel(stream, sum_kernel(), dims_for(1), arguments_of(weights, y)),
        "capture");

  const NodeContents contents = only_node(bench, stream);

  ASSERT_EQ(contents.parameters().size(), 2u);
  EXPECT_EQ(parameter<Weights>(contents, 0).values, weights.values);
  EXPECT_EQ(parameter<float*>(contents, 1), y);
}

TEST_P(GraphContentsTest, ACopyTellsWhatItReadsAndWrites) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(8);
  std::vector<float> host(8);  // pageable
  for (const void* source : {static_cast<const void*>(bench.floats(8)),
                             static_cast<const void*>(bench.pinned_floats(8, 1)),
                             static_cast<const void*>(host.data())}) {
    begin(bench, stream);
    check(bench.api.copy(stream, x + 1, source, 7 * sizeof(float)), "capture");

    const NodeContents contents = only_node(bench, stream);

    EXPECT_EQ(contents.type, NodeType::kMemcpy);
    EXPECT_TRUE(contents.is_decoded) << contents.why;
    ASSERT_EQ(contents.memory.size(), 2u);
    EXPECT_EQ(contents.memory[0].address, reinterpret_cast<std::uintptr_t>(source));
    EXPECT_FALSE(contents.memory[0].is_written);
    EXPECT_EQ(contents.memory[1].address, reinterpret_cast<std::uintptr_t>(x + 1));
    EXPECT_TRUE(contents.memory[1].is_written);
    for (const NodeMemory& memory : contents.memory)
      EXPECT_EQ(memory.bytes, 7 * sizeof(float));
  }
}

TEST_P(GraphContentsTest, AMemsetTellsWhatItWrites) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(8);
  begin(bench, stream);
  check(bench.graphs.memset(stream, x + 2, 7, 5 * sizeof(float)), "capture");

  const NodeContents contents = only_node(bench, stream);

  EXPECT_EQ(contents.type, NodeType::kMemset);
  EXPECT_TRUE(contents.is_decoded) << contents.why;
  ASSERT_EQ(contents.memory.size(), 1u);
  EXPECT_EQ(contents.memory[0].address, reinterpret_cast<std::uintptr_t>(x + 2));
  EXPECT_EQ(contents.memory[0].bytes, 5 * sizeof(float));
  EXPECT_TRUE(contents.memory[0].is_written);
}

TEST_P(GraphContentsTest, AHostFunctionSaysThatItCannotBeSeen) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  begin(bench, stream);
  check(bench.graphs.launch_host_function(
            stream, [](void*) {}, nullptr),
        "capture");

  const NodeContents contents = only_node(bench, stream);

  EXPECT_EQ(contents.type, NodeType::kHost);
  EXPECT_FALSE(contents.is_decoded);
  EXPECT_FALSE(contents.why.empty());
}

// A patch changes the executable graph; the captured graph stays the same.
TEST_P(GraphContentsTest, APatchedExecLeavesTheNodeAsItWas) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  float* const y = bench.floats(1);
  const std::int64_t one = 1;
  begin(bench, stream);
  check(bench.add_one(stream, x), "capture");
  const GraphHandle graph = bench.end(stream);
  std::vector<NodeHandle> nodes;
  check(bench.graphs.graph_nodes(graph, &nodes), "list nodes");
  const ExecHandle exec = bench.instantiate(graph);
  check(bench.graphs.set_kernel_node(exec, nodes[0], add_one_kernel(), dims_for(1),
                                     arguments_of(y, one)),
        "patch");

  EXPECT_EQ(parameter<float*>(only_node(bench, graph), 0), x);
}

TEST_P(GraphContentsTest, LeavesTheLastErrorAsItIs) {
  DeviceBench bench(GetParam());
  const StreamHandle stream = bench.stream();
  float* const x = bench.floats(1);
  begin(bench, stream);
  check(bench.add_one(stream, x), "capture");
  (void)only_node(bench, stream);

  EXPECT_EQ(bench.graphs.peek_last_error(), Code::kSuccess);
}

INSTANTIATE_TEST_SUITE_P(Devices, GraphContentsTest, ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
