// What precedes what in a captured graph, and what it costs to know.
#include "caching/captures/capture_order.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/allocator/fake_capture.h"

namespace cgtree {
namespace {

class DagOrderTest : public testing::Test {
 protected:
  bool precedes(NodeId node, StreamId stream) { return order_.precedes(std::vector{node}, stream); }

  FakeDag dag_{1};
  DagOrder order_{dag_};
};

TEST_F(DagOrderTest, ANodePrecedesWhatComesAfterItOnItsStream) {
  const NodeId first = dag_.run(1);
  EXPECT_TRUE(precedes(first, 1));
  dag_.run(1);
  EXPECT_TRUE(precedes(first, 1));
}

TEST_F(DagOrderTest, ParallelBranchesDoNotPrecedeEachOther) {
  dag_.run(1);
  dag_.wait(2, 1);
  const NodeId left = dag_.run(1);
  const NodeId right = dag_.run(2);

  EXPECT_FALSE(precedes(left, 2));
  EXPECT_FALSE(precedes(right, 1));
}

TEST_F(DagOrderTest, AJoinPutsBothBranchesBefore) {
  dag_.wait(2, 1);
  const NodeId right = dag_.run(2);
  dag_.run(1);
  dag_.wait(1, 2);

  EXPECT_TRUE(precedes(right, 1));
}

TEST_F(DagOrderTest, NothingPrecedesAStreamThatIsNoPartOfTheCapture) {
  const NodeId node = dag_.run(1);
  EXPECT_FALSE(precedes(node, 3));
}

TEST_F(DagOrderTest, ManyQuestionsVisitEachNodeOncePerStream) {
  const NodeId first = dag_.run(1);
  for (int i = 0; i < 1000; ++i) {
    dag_.run(1);
    EXPECT_TRUE(precedes(first, 1));
  }
  EXPECT_EQ(dag_.visits(), dag_.nodes());
}

TEST_F(DagOrderTest, AStreamThatIsMovedBackForgetsWhatCameAfter) {
  const NodeId first = dag_.run(1);
  const NodeId second = dag_.run(1);
  ASSERT_TRUE(precedes(second, 1));

  dag_.move_to(1, {first});

  EXPECT_FALSE(precedes(second, 1));
  EXPECT_TRUE(precedes(first, 1));
}

TEST_F(DagOrderTest, AgreesWithAPlainWalkOnRandomGraphs) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  for (StreamId stream = 2; stream <= 4; ++stream)
    dag_.wait(stream, 1);
  for (int i = 0; i < 500; ++i) {
    const StreamId stream = 1 + random() % 4;
    if (random() % 3 == 0) {
      dag_.wait(stream, 1 + random() % 4);
    } else if (random() % 40 == 0) {
      dag_.move_to(stream, {1 + random() % std::max<std::size_t>(1, dag_.nodes())});
    } else {
      dag_.run(stream);
    }
    if (dag_.nodes() == 0) dag_.run(1);
    const NodeId node = 1 + random() % dag_.nodes();
    const StreamId asked = 1 + random() % 4;
    ASSERT_EQ(precedes(node, asked), dag_.all_before(asked).contains(node));
  }
}

}  // namespace
}  // namespace cgtree
