// Conditional nodes: the same results on every device. Error numbers are CUDA's (driver 580, CUDA
// 13.0).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "extensions/flow/condition_kernels.h"
#include "interop/device/device_api.h"
#include "interop/device/node_contents.h"
#include "tests/support/device_bench.h"

namespace cgtree::testing {
namespace {

class ConditionalTest : public ::testing::TestWithParam<DeviceUnderTest> {
 protected:
  void SetUp() override {
    CGTREE_SKIP_IF_MISSING(GetParam());
    bench_ = std::make_unique<DeviceBench>(GetParam());
    if (!bench_->api.supports(0, DeviceAttribute::kSupportsConditionalNodes))
      GTEST_SKIP() << "the device has no conditional nodes";
    stream_ = bench_->stream();
    side_ = bench_->stream();
    static_assert(sizeof(float) == sizeof(std::int32_t));
    flag_ = reinterpret_cast<std::int32_t*>(bench_->floats(2));
    rounds_ = flag_ + 1;
    x_ = bench_->floats(4);
  }
  void TearDown() override { bench_.reset(); }

  StreamRef ref(StreamHandle stream) { return {bench_->api, GetParam().device, stream}; }

  void begin() {
    check(bench_->graphs.begin_capture(stream_, CaptureMode::kThreadLocal), "begin a capture");
  }
  ConditionHandle condition(StreamHandle stream) {
    ConditionHandle made = ConditionHandle::kNull;
    check(bench_->graphs.create_condition(bench_->info(stream).graph, &made), "make a condition");
    return made;
  }
  Code try_add(ConditionHandle condition, ConditionalKind kind, std::size_t size) {
    const CaptureInfo info = bench_->info(stream_);
    NodeHandle node = NodeHandle::kNull;
    std::vector<GraphHandle> bodies;
    return bench_->graphs.add_conditional(info.graph, info.dependencies, condition, kind, size,
                                          &node, &bodies);
  }
  // Adds a node after the captured work of `stream`.
  std::vector<GraphHandle> add(StreamHandle stream, ConditionHandle condition, ConditionalKind kind,
                               std::size_t size) {
    const CaptureInfo info = bench_->info(stream);
    NodeHandle node = NodeHandle::kNull;
    std::vector<GraphHandle> bodies;
    check(bench_->graphs.add_conditional(info.graph, info.dependencies, condition, kind, size,
                                         &node, &bodies),
          "add a conditional node");
    const std::vector<NodeHandle> behind{node};
    check(bench_->graphs.set_capture_dependencies(stream, behind), "go on behind it");
    return bodies;
  }
  // Captures body(stream) into the graph.
  template <typename Body>
  void capture_to(GraphHandle graph, StreamHandle stream, Body body) {
    check(bench_->graphs.begin_capture_to(stream, graph, CaptureMode::kThreadLocal),
          "begin a body");
    body(stream);
    GraphHandle ended = GraphHandle::kNull;
    check(bench_->graphs.end_capture(stream, &ended), "end a body");
    EXPECT_EQ(ended, graph);
  }
  void set_flag(std::int32_t value) {
    check(bench_->api.copy(stream_, flag_, &value, sizeof(value)), "set the flag");
    check(bench_->api.synchronize_stream(stream_), "set the flag");
  }
  void launch(ExecHandle exec) { check(bench_->graphs.launch(exec, stream_), "launch"); }
  std::int32_t rounds() {
    std::int32_t value = 0;
    check(bench_->api.synchronize_stream(stream_), "wait");
    check(bench_->api.copy(stream_, &value, rounds_, sizeof(value)), "read");
    check(bench_->api.synchronize_stream(stream_), "wait");
    return value;
  }

  std::unique_ptr<DeviceBench> bench_;
  StreamHandle stream_ = StreamHandle::kNull;
  StreamHandle side_ = StreamHandle::kNull;
  std::int32_t* flag_ = nullptr;
  std::int32_t* rounds_ = nullptr;
  float* x_ = nullptr;
};

TEST_P(ConditionalTest, AnIfRunsOneOfItsTwoBodiesByTheValueOfEachLaunch) {
  begin();
  const ConditionHandle taken = condition(stream_);
  launch_set_condition(ref(stream_), {flag_, false}, -1, taken);
  const auto bodies = add(stream_, taken, ConditionalKind::kIf, 2);
  capture_to(bodies[0], side_, [&](StreamHandle s) { check(bench_->add_one(s, x_), "capture"); });
  capture_to(bodies[1], side_,
             [&](StreamHandle s) { check(bench_->add_one(s, x_ + 1), "capture"); });
  check(bench_->add_one(stream_, x_ + 2), "capture");
  const ExecHandle exec = bench_->instantiate(bench_->end(stream_));

  for (const std::int32_t value : {1, 0, -7, 0, 2}) {
    set_flag(value);
    launch(exec);
  }
  EXPECT_EQ(bench_->read(x_), 3);
  EXPECT_EQ(bench_->read(x_ + 1), 2);
  EXPECT_EQ(bench_->read(x_ + 2), 5) << "what follows runs each time";
}

TEST_P(ConditionalTest, ASwitchRunsTheBodyOfTheNumberAndNoneOutOfRange) {
  begin();
  const ConditionHandle taken = condition(stream_);
  launch_set_condition(ref(stream_), {flag_, false}, -1, taken);
  const auto bodies = add(stream_, taken, ConditionalKind::kSwitch, 3);
  for (std::size_t i = 0; i < 3; ++i) {
    capture_to(bodies[i], side_,
               [&](StreamHandle s) { check(bench_->add_one(s, x_ + i), "capture"); });
  }
  const ExecHandle exec = bench_->instantiate(bench_->end(stream_));

  for (const std::int32_t value : {2, 0, 3, -1, 2, 1000}) {
    set_flag(value);
    launch(exec);
  }
  EXPECT_EQ(bench_->read(x_), 1);
  EXPECT_EQ(bench_->read(x_ + 1), 0);
  EXPECT_EQ(bench_->read(x_ + 2), 2);
}

TEST_P(ConditionalTest, AWhileRunsItsBodyUntilTheConditionIsZeroAndBeginsAnewInEachLaunch) {
  begin();
  const ConditionHandle goes_on = condition(stream_);
  launch_begin_loop(ref(stream_), rounds_, goes_on);
  const auto bodies = add(stream_, goes_on, ConditionalKind::kWhile, 1);
  capture_to(bodies[0], side_, [&](StreamHandle s) {
    check(bench_->add_one(s, x_), "capture");
    launch_end_round(ref(s), {flag_, false}, rounds_, 5, goes_on);
  });
  const ExecHandle exec = bench_->instantiate(bench_->end(stream_));

  set_flag(1);
  launch(exec);
  EXPECT_EQ(rounds(), 5);
  launch(exec);
  EXPECT_EQ(bench_->read(x_), 10);
  set_flag(0);
  launch(exec);
  EXPECT_EQ(rounds(), 1) << "the first round always runs";
  EXPECT_EQ(bench_->read(x_), 11);
}

TEST_P(ConditionalTest, BodiesNestAndForkAndJoin) {
  const StreamHandle inner = bench_->stream();
  const StreamHandle fork = bench_->stream();
  begin();
  const ConditionHandle goes_on = condition(stream_);
  launch_begin_loop(ref(stream_), rounds_, goes_on);
  const auto bodies = add(stream_, goes_on, ConditionalKind::kWhile, 1);
  capture_to(bodies[0], side_, [&](StreamHandle s) {
    bench_->order(s, fork);
    check(bench_->add_one(fork, x_ + 1), "capture");
    check(bench_->add_one(s, x_), "capture");
    bench_->order(fork, s);
    const ConditionHandle taken = condition(s);
    launch_set_condition(ref(s), {rounds_, false}, -1, taken);  // for later rounds only
    const auto inner_bodies = add(s, taken, ConditionalKind::kIf, 1);
    capture_to(inner_bodies[0], inner,
               [&](StreamHandle t) { check(bench_->add_one(t, x_ + 2), "capture"); });
    launch_end_round(ref(s), {flag_, false}, rounds_, 4, goes_on);
  });
  const ExecHandle exec = bench_->instantiate(bench_->end(stream_));
  set_flag(1);
  launch(exec);
  launch(exec);

  EXPECT_EQ(bench_->read(x_), 8);
  EXPECT_EQ(bench_->read(x_ + 1), 8);
  EXPECT_EQ(bench_->read(x_ + 2), 6);
}

TEST_P(ConditionalTest, ABodyMayBeEmpty) {
  begin();
  const ConditionHandle taken = condition(stream_);
  launch_set_condition(ref(stream_), {flag_, false}, -1, taken);
  const auto bodies = add(stream_, taken, ConditionalKind::kSwitch, 2);
  capture_to(bodies[1], side_, [&](StreamHandle s) { check(bench_->add_one(s, x_), "capture"); });
  const ExecHandle exec = bench_->instantiate(bench_->end(stream_));
  for (const std::int32_t value : {0, 1, 0}) {
    set_flag(value);
    launch(exec);
  }
  EXPECT_EQ(bench_->read(x_), 1);
}

TEST_P(ConditionalTest, SizesAreThoseOfTheKindAndAConditionIsOfOneNode) {
  begin();
  const ConditionHandle taken = condition(stream_);
  EXPECT_EQ(try_add(taken, ConditionalKind::kIf, 0), Code::kInvalidValue);
  EXPECT_EQ(try_add(taken, ConditionalKind::kIf, 3), Code::kInvalidValue);
  EXPECT_EQ(try_add(taken, ConditionalKind::kWhile, 2), Code::kInvalidValue);
  EXPECT_EQ(try_add(taken, ConditionalKind::kSwitch, 0), Code::kInvalidValue);
  EXPECT_EQ(try_add(taken, static_cast<ConditionalKind>(7), 1), Code::kInvalidValue);
  EXPECT_EQ(try_add(taken, ConditionalKind::kIf, 2), Code::kSuccess);
  EXPECT_EQ(try_add(taken, ConditionalKind::kIf, 1), Code::kInvalidValue);
}

TEST_P(ConditionalTest, ABodyIsCapturedToOnAStreamThatDoesNotCapture) {
  const StreamHandle other = bench_->stream();
  begin();
  const auto bodies = add(stream_, condition(stream_), ConditionalKind::kIf, 1);
  const CaptureMode mode = CaptureMode::kThreadLocal;
  EXPECT_EQ(bench_->graphs.begin_capture_to(stream_, bodies[0], mode), Code::kIllegalState);
  EXPECT_EQ(bench_->graphs.begin_capture_to(StreamHandle::kNull, bodies[0], mode),
            Code::kStreamCaptureUnsupported);
  ASSERT_EQ(bench_->graphs.begin_capture_to(side_, bodies[0], mode), Code::kSuccess);
  EXPECT_EQ(bench_->info(side_).graph, bodies[0]);
  EXPECT_EQ(bench_->graphs.begin_capture_to(other, bodies[0], mode), Code::kIllegalState);
  GraphHandle ended = GraphHandle::kNull;
  EXPECT_EQ(bench_->graphs.end_capture(side_, &ended), Code::kSuccess);
  EXPECT_EQ(bench_->info(stream_).status, CaptureStatus::kActive);
}

TEST_P(ConditionalTest, DependenciesAreOfAStreamThatCaptures) {
  begin();
  check(bench_->add_one(stream_, x_), "capture");
  const std::vector<NodeHandle> nodes = bench_->info(stream_).dependencies;
  EXPECT_EQ(bench_->graphs.set_capture_dependencies(side_, nodes), Code::kIllegalState);
  EXPECT_EQ(bench_->graphs.set_capture_dependencies(stream_, nodes), Code::kSuccess);
}

// The capture succeeds; the instantiation is refused.
TEST_P(ConditionalTest, AGraphWithAHostFunctionInABodyIsNotInstantiated) {
  begin();
  const auto bodies = add(stream_, condition(stream_), ConditionalKind::kIf, 1);
  capture_to(bodies[0], side_, [&](StreamHandle s) {
    EXPECT_EQ(bench_->graphs.launch_host_function(
                  s, [](void*) {}, nullptr),
              Code::kSuccess);
  });
  const GraphHandle graph = bench_->end(stream_);
  ExecHandle exec = ExecHandle::kNull;
  EXPECT_EQ(bench_->graphs.instantiate(graph, &exec), Code::kInvalidValue);
}

TEST_P(ConditionalTest, AGraphHasOneExecutableGraphAtATime) {
  begin();
  const ConditionHandle taken = condition(stream_);
  launch_set_condition(ref(stream_), {flag_, false}, -1, taken);
  const auto bodies = add(stream_, taken, ConditionalKind::kIf, 1);
  capture_to(bodies[0], side_, [&](StreamHandle s) { check(bench_->add_one(s, x_), "capture"); });
  const GraphHandle graph = bench_->end(stream_);
  const ExecHandle first = bench_->instantiate(graph);
  ExecHandle second = ExecHandle::kNull;
  EXPECT_EQ(bench_->graphs.instantiate(graph, &second), Code::kNotSupported);
  bench_->forget(first);
  check(bench_->graphs.destroy_exec(first), "destroy");
  second = bench_->instantiate(graph);
  set_flag(1);
  launch(second);
  EXPECT_EQ(bench_->read(x_), 1);
}

// Later work of the step is captured, and the body is dropped. A GPU's driver may end the process
// when such a capture ends.
TEST_P(ConditionalTest, ACaptureThatFailsTakesItsBodyWithIt) {
  if (bench_->api.name() == "cuda") GTEST_SKIP() << "the driver does not survive it";
  const StreamHandle fork = bench_->stream();
  begin();
  const auto bodies = add(stream_, condition(stream_), ConditionalKind::kIf, 1);
  const CaptureMode mode = CaptureMode::kThreadLocal;
  check(bench_->graphs.begin_capture_to(side_, bodies[0], mode), "begin a body");
  bench_->order(side_, fork);
  check(bench_->add_one(fork, x_), "capture");
  GraphHandle ended = GraphHandle::kNull;
  EXPECT_EQ(bench_->graphs.end_capture(side_, &ended), Code::kStreamCaptureUnjoined);
  EXPECT_EQ(bench_->info(stream_).status, CaptureStatus::kActive);
  EXPECT_EQ(bench_->graphs.begin_capture_to(side_, bodies[0], mode), Code::kInvalidValue);
  const GraphHandle graph = bench_->end(stream_);
  ExecHandle exec = ExecHandle::kNull;
  EXPECT_EQ(bench_->graphs.instantiate(graph, &exec), Code::kInvalidValue);
}

TEST_P(ConditionalTest, NodesOfABodyAreRead) {
  begin();
  const auto bodies = add(stream_, condition(stream_), ConditionalKind::kIf, 1);
  capture_to(bodies[0], side_, [&](StreamHandle s) {
    check(bench_->add_one(s, x_), "capture");
    check(bench_->graphs.memset(s, x_, 0, 4), "capture");
  });
  (void)bench_->end(stream_);
  std::vector<NodeContents> contents;
  ASSERT_EQ(bench_->graphs.read_nodes(bodies[0], &contents), Code::kSuccess);
  ASSERT_EQ(contents.size(), 2u);
  std::vector<NodeType> types{contents[0].type, contents[1].type};
  std::ranges::sort(types);
  EXPECT_EQ(types, (std::vector{NodeType::kKernel, NodeType::kMemset}));
}

INSTANTIATE_TEST_SUITE_P(Devices, ConditionalTest, ::testing::ValuesIn(executors_under_test()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cgtree::testing
