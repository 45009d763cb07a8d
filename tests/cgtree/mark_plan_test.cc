// The places of marks in a graph, and the report about them.
#include "extensions/progress/mark_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>

#include "extensions/progress/progress_json.h"
#include "extensions/progress/progress_watch.h"
#include "interop/device/graph_api.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

NodeHandle node(int number) {
  return static_cast<NodeHandle>(100 + number);
}

// A graph of kernels by name.
struct Nodes {
  explicit Nodes(const std::vector<std::pair<std::string, std::string>>& scopes_and_kernels) {
    for (const auto& [scope, kernel] : scopes_and_kernels) {
      NodeContents& one = contents.emplace_back();
      one.node = node(static_cast<int>(contents.size()) - 1);
      one.type = NodeType::kKernel;
      auto layout = std::make_shared<KernelLayout>();
      layout->name = kernel;
      one.kernel = std::move(layout);
      names.push_back(scope);
    }
    scopes.assign(names.begin(), names.end());
  }
  void chain() {
    for (std::size_t i = 1; i < contents.size(); ++i)
      edges.push_back({contents[i - 1].node, contents[i].node});
  }
  std::vector<PlannedMark> plan() const { return plan_marks(contents, edges, scopes).marks; }

  std::vector<NodeContents> contents;
  std::vector<GraphEdge> edges;
  std::vector<std::string> names;
  std::vector<std::string_view> scopes;
};

std::vector<std::string> scopes_of(const std::vector<PlannedMark>& marks) {
  std::vector<std::string> scopes;
  for (const PlannedMark& mark : marks)
    scopes.push_back(mark.scope);
  return scopes;
}

TEST(MarkPlanTest, AMarkLiesBehindTheNodesOfAScope) {
  Nodes nodes({{"a", "one"}, {"a", "two"}, {"a", "one"}, {"b", "three"}});
  nodes.chain();
  const std::vector<PlannedMark> marks = nodes.plan();
  ASSERT_THAT(scopes_of(marks), ElementsAre("a", "b"));
  EXPECT_THAT(marks[0].kernels, ElementsAre("one", "two"));
  EXPECT_THAT(marks[0].after, ElementsAre(node(2)));
  EXPECT_THAT(marks[0].before, ElementsAre(node(3)));
  EXPECT_THAT(marks[1].after, ElementsAre(node(3)));
  EXPECT_THAT(marks[1].before, IsEmpty());
}

// The second branch has no predecessor, and is in the scope that follows the first.
TEST(MarkPlanTest, AStretchKnowsTheMarksThatItFollows) {
  Nodes nodes({{"a", "one"}, {"b", "two"}, {"b", "apart"}, {"b", "both"}, {"c", "three"}});
  nodes.edges = {{node(0), node(1)},
                 {node(1), node(3)},
                 {node(2), node(3)},
                 {node(3), node(4)},
                 {node(0), node(4)}};
  const std::vector<PlannedMark> marks = nodes.plan();
  ASSERT_THAT(scopes_of(marks), ElementsAre("a", "b", "c"));
  EXPECT_THAT(marks[0].behind, IsEmpty());
  EXPECT_THAT(marks[1].behind, ElementsAre(0u));
  EXPECT_THAT(marks[2].behind, ElementsAre(0u, 1u));
}

TEST(MarkPlanTest, ACollectiveHasAMarkOfItsOwn) {
  Nodes nodes({{"a", "one"},
               {"a", "_Z38ncclDevKernel_AllReduce_Sum_f32_RING_LL24"},
               {"a", "collective"},
               {"a", "two"}});
  nodes.chain();
  const std::vector<PlannedMark> marks = nodes.plan();
  ASSERT_THAT(scopes_of(marks), ElementsAre("a", "a", "a", "a"));
  EXPECT_FALSE(marks[0].is_collective);
  EXPECT_TRUE(marks[1].is_collective);
  EXPECT_TRUE(marks[2].is_collective);
  EXPECT_FALSE(marks[3].is_collective);
}

TEST(MarkPlanTest, AScopeWithManyNodesHasSeveralMarksAndNoneIsNeededForAnEmptyGraph) {
  Nodes nodes(std::vector<std::pair<std::string, std::string>>(3 * kLongestStretch + 1, {"", "k"}));
  nodes.chain();
  EXPECT_EQ(nodes.plan().size(), 4u);
  EXPECT_THAT(Nodes({}).plan(), IsEmpty());
}

TEST(MarkPlanTest, TheNumberOfMarksHasALimit) {
  std::vector<std::pair<std::string, std::string>> many;
  for (std::size_t i = 0; i < kMostMarks + 50; ++i)
    many.push_back({std::to_string(i), "k"});
  Nodes nodes(many);
  nodes.chain();
  const std::vector<PlannedMark> marks = nodes.plan();
  ASSERT_EQ(marks.size(), kMostMarks);
  EXPECT_EQ(marks[kMostMarks - 2].scope, std::to_string(kMostMarks - 2));
  EXPECT_EQ(marks.back().scope, "(more)");  // of several scopes
}

TEST(MarkPlanTest, TheLastMarkIsNoCollectiveIfItIsBehindOtherNodesToo) {
  Nodes nodes(
      std::vector<std::pair<std::string, std::string>>(kMostMarks + 1, {"a", "collective"}));
  nodes.chain();
  const std::vector<PlannedMark> marks = nodes.plan();
  ASSERT_EQ(marks.size(), kMostMarks);
  EXPECT_TRUE(marks[kMostMarks - 2].is_collective);
  EXPECT_FALSE(marks.back().is_collective);
  EXPECT_EQ(marks.back().scope, "a");
}

// Parallel branches do not wait for each other's marks.
TEST(MarkPlanTest, BranchesStayApart) {
  Nodes nodes({{"", "fork"}, {"a", "one"}, {"b", "two"}, {"a", "three"}, {"", "join"}});
  nodes.edges = {{node(0), node(1)},
                 {node(0), node(2)},
                 {node(1), node(3)},
                 {node(2), node(4)},
                 {node(3), node(4)}};
  const std::vector<PlannedMark> marks = nodes.plan();
  ASSERT_THAT(scopes_of(marks), ElementsAre("", "a", "b", "a", ""));
  EXPECT_THAT(marks[1].before, ElementsAre(node(3)));
  EXPECT_THAT(marks[2].before, ElementsAre(node(4)));
  EXPECT_THAT(marks[3].before, ElementsAre(node(4)));
}

// Random graphs: marks make no cycle, each node is before exactly one mark, and no node behind a
// mark can run before it.
TEST(MarkPlanTest, MarksMakeNoCycleInAnyGraph) {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const int count = static_cast<int>(random() % 40);
    std::vector<std::pair<std::string, std::string>> kinds;
    for (int i = 0; i < count; ++i) {
      kinds.push_back({std::string(1, static_cast<char>('a' + random() % 3)),
                       random() % 6 == 0 ? "collective" : "k"});
    }
    Nodes nodes(kinds);
    std::vector<int> place(
        static_cast<std::size_t>(count));  // the order may differ from the numbers
    for (int i = 0; i < count; ++i)
      place[static_cast<std::size_t>(i)] = i;
    std::ranges::shuffle(place, random);
    for (int i = 0; i < count; ++i) {
      for (int j = i + 1; j < count; ++j) {
        if (random() % 8 == 0) {
          nodes.edges.push_back(
              {node(place[static_cast<std::size_t>(i)]), node(place[static_cast<std::size_t>(j)])});
        }
      }
    }
    const std::vector<PlannedMark> marks = nodes.plan();

    std::map<int, std::set<int>> in_front;  // by number; marks count from 1000
    const auto number = [](NodeHandle one) { return static_cast<int>(one) - 100; };
    for (int i = 0; i < count; ++i)
      in_front[i];
    for (const GraphEdge& edge : nodes.edges)
      in_front[number(edge.to)].insert(number(edge.from));
    for (std::size_t i = 0; i < marks.size(); ++i) {
      const int mark = 1000 + static_cast<int>(i);
      in_front[mark];
      for (const NodeHandle one : marks[i].after)
        in_front[mark].insert(number(one));
      for (const NodeHandle one : marks[i].before)
        in_front[number(one)].insert(mark);
    }
    std::set<int> done;
    for (bool goes_on = true; std::exchange(goes_on, false);) {
      for (const auto& [one, before] : in_front) {
        if (done.contains(one)) continue;
        if (!std::ranges::all_of(before, [&](int other) { return done.contains(other); })) continue;
        done.insert(one);
        goes_on = true;
      }
    }
    EXPECT_EQ(done.size(), in_front.size()) << "a cycle; seed " << seed << ", round " << round;
  }
}

ReplayMark mark(std::string scope, bool is_reached, bool is_collective = false) {
  return {std::move(scope), {is_collective ? "collective" : "k"}, is_collective, is_reached};
}

ContextProgressReport rank(int rank, std::vector<ReplayMark> marks, bool has_ended = false) {
  ContextProgressReport report{.context = "c", .device = "host:0", .rank = rank, .ranks = 2};
  ReplayProgress& replay = report.replays.emplace_back();
  replay.function = "f";
  replay.node = 7;
  replay.number = 3;
  replay.has_begun = true;
  replay.has_ended = has_ended;
  replay.marks = std::move(marks);
  return report;
}

TEST(ProgressTextTest, ARankThatHasLeftOutACollectiveIsNamedWithIt) {
  const ContextProgressReport all[] = {
      rank(0, {mark("a", true, true), mark("b", true, true), mark("c", false, true)}),
      rank(1, {mark("a", true, true), mark("c", true, true)}, /*has_ended=*/true)};
  const std::string text = to_string(all);
  EXPECT_THAT(text, HasSubstr("it is collective 3 of 3, which waits for the other ranks"));
  EXPECT_THAT(text,
              HasSubstr("rank 0 waits in collective 3, 'c': rank 1 has ended replay 3 of 'f' "
                        "(recording 7); its recording has 2 collectives where this one has 3, and "
                        "collective 2 is 'c' where here it is 'b'"));
}

TEST(ProgressTextTest, RecordingsWhoseCollectivesDifferOtherwiseAreComparedToo) {
  const auto text_of = [](std::vector<ReplayMark> first, std::vector<ReplayMark> second) {
    const ContextProgressReport all[] = {rank(0, std::move(first)),
                                         rank(1, std::move(second), /*has_ended=*/true)};
    return to_string(all);
  };
  EXPECT_THAT(text_of({mark("a", true, true), mark("b", false, true)},
                      {mark("a", true, true), mark("c", true, true)}),
              HasSubstr("(recording 7); collective 2 is 'c' where here it is 'b'\n"));
  EXPECT_THAT(
      text_of({mark("a", false, true)}, {mark("a", true, true), mark("b", true, true)}),
      HasSubstr("its recording has 2 collectives where this one has 1, and 'b' behind them"));
  EXPECT_THAT(text_of({mark("a", true, true), mark("b", false, true)}, {mark("a", true, true)}),
              HasSubstr("where this one has 2, and none like collective 2, 'b'\n"));
}

TEST(ProgressTextTest, ARankThatHangsElsewhereIsNamedWithItsKernels) {
  const ContextProgressReport all[] = {rank(0, {mark("a", true), mark("a", false, true)}),
                                       rank(1, {mark("a", false), mark("a", false, true)})};
  EXPECT_THAT(to_string(all),
              HasSubstr("rank 0 waits in collective 1, 'a': rank 1 is in front of its collective 1 "
                        "of 1, 'a': kernel k\n"));
}

TEST(ProgressTextTest, ContextsThatAreNoRanksAreNotCompared) {
  ContextProgressReport one = rank(0, {mark("a", false, true)});
  ContextProgressReport other = rank(0, {mark("a", true, true)}, true);
  one.ranks = other.ranks = 1;
  const ContextProgressReport all[] = {one, other};
  EXPECT_THAT(to_string(all), Not(HasSubstr("rank 0")));
}

TEST(ProgressJsonTest, HasWhatTheReportHas) {
  ContextProgressReport one = rank(1, {mark("a/b", true), mark("\"c\"\n", false, true)});
  one.unwatched = 3;
  one.replays[0].age = std::chrono::milliseconds(1234);
  one.replays[0].why_unmarked = "why";
  one.replays[0].marks[0].kernels = {"k1", "k2"};
  const ContextProgressReport both[] = {one, rank(0, {}, true)};
  const nlohmann::json json = nlohmann::json::parse(progress_json(both));

  EXPECT_EQ(json["schema"], "cgtree.progress");
  EXPECT_EQ(json["version"], 1);
  ASSERT_EQ(json["contexts"].size(), 2u);
  const nlohmann::json& first = json["contexts"][0];
  EXPECT_EQ(first["context"], one.context);
  EXPECT_EQ(first["device"], one.device);
  EXPECT_EQ(first["rank"], 1);
  EXPECT_EQ(first["ranks"], one.ranks);
  EXPECT_EQ(first["unwatched"], 3);
  const nlohmann::json expected = {
      {"scope", "a/b"}, {"kernels", {"k1", "k2"}}, {"collective", false}, {"reached", true}};
  const ReplayProgress& replay = one.replays[0];
  const nlohmann::json& written = first["replays"][0];
  EXPECT_EQ(written["function"], replay.function);
  EXPECT_EQ(written["node"], replay.node);
  EXPECT_EQ(written["number"], replay.number);
  EXPECT_EQ(written["age_ms"], 1234);
  EXPECT_EQ(written["begun"], replay.has_begun);
  EXPECT_EQ(written["ended"], replay.has_ended);
  EXPECT_EQ(written["why_unmarked"], "why");
  EXPECT_EQ(written["marks"][0], expected);
  EXPECT_EQ(written["marks"][1]["scope"], "\"c\"\n");
  EXPECT_EQ(written["marks"][1]["collective"], true);
  EXPECT_EQ(written["marks"][1]["reached"], false);
  EXPECT_EQ(json["contexts"][1]["replays"][0]["ended"], true);
}

}  // namespace
}  // namespace cgtree::testing
