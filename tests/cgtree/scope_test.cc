// Scopes: each node of a recording has the path of the scopes that were open when it was captured.
#include "extensions/scopes/scope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cgtree/tree/engine.h"
#include "extensions/audit/audit.h"
#include "extensions/scopes/scope_stack.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device_api.h"
#include "interop/device/node_contents.h"
#include "tests/support/captured_log.h"
#include "tests/support/test_kernels.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string text_of(const CapturedLog& log) {
  std::string text;
  for (const std::string& line : log.lines())
    text += line + "\n";
  return text;
}

// A model of the open scopes: a list, and the path at each launch.
class ModelOfScopes {
 public:
  void open(std::string name) {
    names_.push_back(std::move(name));
    scopes_.push_back(std::make_unique<Scope>(names_.back()));
  }
  void close(std::size_t i) {
    scopes_.erase(scopes_.begin() + static_cast<std::ptrdiff_t>(i));
    names_.erase(names_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  std::size_t size() const { return names_.size(); }
  std::string path() const {
    std::string path;
    for (const std::string& name : names_)
      path += (path.empty() ? "" : "/") + name;
    return path;
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<Scope>> scopes_;
};

class ScopeTest : public TreeTest {
 protected:
  static constexpr std::int64_t kCount = 8;

  // Launches a kernel with a unique number; the model keeps the path for this number.
  void launch(const Tensor& x, StreamRef stream = current_stream()) {
    const auto number = static_cast<float>(++launches_);
    paths_[number] = model_.path();
    void* const address = x.data<float>();
    check(stream.graphs().launch_kernel(stream.handle(), fill_kernel(), dims_for(kCount),
                                        arguments_of(address, number, kCount)),
          "launch fill");
  }
  void launch_on_side(const Tensor& x) {
    side_->ref().wait_for(current_stream());
    launch(x, side_->ref());
  }
  void join() { current_stream().wait_for(side_->ref()); }

  static float number_of(const NodeContents& node) {
    float number = 0;
    std::memcpy(&number, node.bytes.data() + node.parameters()[1].offset, sizeof(number));
    return number;
  }
  // Compares the nodes of launch() in all recordings with the model. Returns their number.
  std::size_t expect_paths() {
    std::size_t nodes = 0;
    for (const auto& node : engine()->tree.nodes()) {
      const NodeScopes& scopes = audit_of(node->recording).scopes;
      std::size_t i = 0;
      node->recording.for_each_graph([&](const Graph& graph, GraphExec& exec) {
        std::vector<NodeContents> contents;
        check(exec.api().read_nodes(graph.handle(), &contents), "read nodes");
        for (const NodeContents& one : contents) {
          const std::size_t at = i++;
          // The address that the gather kernel has as a parameter may contain such a number.
          const bool is_fill =
              one.parameters().size() == 3 && one.parameters()[1].bytes == sizeof(float);
          if (!is_fill || !paths_.contains(number_of(one))) continue;
          const std::string& path = paths_[number_of(one)];
          ++nodes;
          if (scopes.nodes.empty()) {
            EXPECT_EQ(path, "");
            continue;
          }
          EXPECT_EQ(scopes.paths[scopes.nodes[at].path], path) << "node " << at;
          EXPECT_EQ(scopes.nodes[at].type, NodeType::kKernel);
          EXPECT_EQ(scopes.kernels[scopes.nodes[at].kernel], one.name());
        }
        if (!scopes.nodes.empty()) {
          EXPECT_LE(i, scopes.nodes.size());
        }
      });
    }
    return nodes;
  }

  Tensor output() { return empty({kCount}, DType::kFloat32); }

  ModelOfScopes model_;
  int launches_ = 0;
  std::unordered_map<float, std::string> paths_;
  std::optional<Stream> side_;
};
CGTREE_ON_ALL_DEVICES(ScopeTest);

TEST_P(ScopeTest, NodesHaveThePathsOfTheScopesThatWereOpen) {
  const auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y = output();
    launch(y);
    model_.open("layer 0");
    launch(y);
    model_.open("attention");
    launch(y);
    model_.close(0);  // scopes may cross
    launch(y);
    model_.close(0);
    launch(y);
    return add(x, y);
  });
  for (int call = 0; call < 4; ++call)
    (void)f(random_tensor({kCount}));
  EXPECT_EQ(expect_paths(), 5u);
  const auto& recording = engine()->tree.nodes()[0]->recording;
  EXPECT_THAT(audit_of(recording).scopes.paths,
              ElementsAre("", "layer 0", "layer 0/attention", "attention"));
}

TEST_P(ScopeTest, ARecordingWithoutScopesHasNoTable) {
  const auto f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({kCount}));
  EXPECT_THAT(snapshot_json(context()), ::testing::Not(HasSubstr("node_paths")));
}

TEST_P(ScopeTest, ScopesAroundACallArePartOfThePath) {
  const auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y = output();
    launch(y);
    model_.open("inner");
    launch(y);
    model_.close(1);
    return add(x, y);
  });
  model_.open("server");
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({kCount}));
  model_.close(0);
  EXPECT_EQ(expect_paths(), 2u);
}

TEST_P(ScopeTest, SnapshotsShowTheTable) {
  const auto f = compile(context(), "f", [&](Tensor x) {
    const Scope scope("a \"layer\"");
    return affine(x, 2, 0);
  });
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({kCount}));
  const auto snapshot = nlohmann::json::parse(snapshot_json(context()));
  const auto& node = snapshot["nodes"][0];
  const auto& scopes = node["scopes"];
  EXPECT_EQ(scopes["paths"], (nlohmann::json{"", "a \"layer\""}));
  ASSERT_EQ(scopes["node_paths"].size(), node["graph_nodes"]);
  for (const char* const column : {"node_types", "node_kernels", "node_ids"})
    EXPECT_EQ(scopes[column].size(), node["graph_nodes"]);
  std::size_t named = 0;
  for (std::size_t i = 0; i < scopes["node_paths"].size(); ++i)
    named += scopes["node_paths"][i] == 1 && scopes["node_types"][i] == "kernel";
  EXPECT_EQ(named, 1u);
}

// Random actions; each launch is checked against the model's path.
class RandomScopeTest : public ScopeTest {
 protected:
  void act(const Tensor& y, int depth) {
    switch (random_() % 10) {
      case 0:
      case 1:
        if (model_.size() < 12) model_.open("scope " + std::to_string(random_() % 5));
        return;
      case 2:
        if (model_.size() > outside_)
          model_.close(outside_ + random_() % (model_.size() - outside_));
        return;
      case 3:
        launch_on_side(y);
        if (random_() % 2 == 0) join();
        return;
      case 4:
        if (depth > 2) return;
        try {
          const std::size_t before = model_.size();
          model_.open("throws");
          act(y, depth + 1);
          while (model_.size() > before)
            model_.close(model_.size() - 1);
          throw std::runtime_error("caught in the step");
        } catch (const std::runtime_error&) {
        }
        return;
      case 5:
        if (depth == 0 && nested_) (void)(*nested_)(y);
        return;
      case 6:
        if (depth > 0 || !may_break_) return;
        join();
        eager_break([](const StepValues&) {});
        side_->ref().wait_for(current_stream());
        return;
      default:
        launch(y);
    }
  }
  void run(const Tensor& y) {
    side_->ref().wait_for(current_stream());
    const std::uint32_t actions = random_() % 60;
    for (std::uint32_t i = 0; i < actions; ++i)
      act(y, 0);
    launch(y);
    join();
    // Scopes that end with the step, in any order.
    while (model_.size() > outside_ && random_() % 8 != 0)
      model_.close(outside_ + random_() % (model_.size() - outside_));
  }
  void end_run() {
    while (model_.size() > outside_)
      model_.close(model_.size() - 1);
  }

  std::optional<CompiledFunction<Tensor(Tensor)>> nested_;
  std::size_t outside_ = 0;
  bool may_break_ = true;
};
CGTREE_ON_ALL_DEVICES(RandomScopeTest);

TEST_P(RandomScopeTest, AllNodesOfRandomProgramsHaveTheRightPath) {
  side_.emplace(device());
  const CapturedLog log;  // steps may leave scopes open
  nested_.emplace(compile(context(), "nested", [&](Tensor x) {
    may_break_ = false;
    const Tensor z = output();
    act(z, 1);
    launch(z);
    may_break_ = true;
    return add(x, z);
  }));
  std::size_t nodes = 0;
  for (int program = 0; program < 30 || nodes <= 300; ++program) {
    const auto f = compile(context(), "f" + std::to_string(program), [&](Tensor x) {
      Tensor y = output();
      run(y);
      return add(x, y);
    });
    if (random_() % 3 == 0) model_.open("outside");
    outside_ = model_.size();
    for (int call = 0; call < 3; ++call) {
      (void)f(random_tensor({kCount}));
      end_run();
    }
    EXPECT_EQ(f.stats().recordings, 1u);
    nodes += expect_paths();
    while (model_.size() > 0)
      model_.close(0);
    outside_ = 0;
    paths_.clear();
  }
  EXPECT_EQ(of_thread<ScopeStack>().size(), 0u);
  nested_.reset();  // the function keeps the context alive
  side_.reset();
}

TEST_P(RandomScopeTest, StepsBetweenBeginAndEndHaveTheRightPaths) {
  side_.emplace(device());
  const CapturedLog log;
  struct Block {
    float value = 0;
  };
  const Tensor y = random_tensor({kCount});
  std::size_t nodes = 0;
  for (int program = 0; program < 20 || nodes <= 200; ++program) {
    Steps steps(context(), "engine" + std::to_string(program),
                {.bindings = {{}, {.host_bytes = sizeof(Block)}}});
    for (int call = 0; call < 3; ++call) {
      Block block{static_cast<float>(call)};
      const std::vector<Binding> bindings = {{y.data<float>(), kCount * sizeof(float)},
                                             {&block, sizeof(block)}};
      if (random_() % 4 == 0) model_.open("before begin()");
      outside_ = model_.size();
      Step step = steps.begin(Key(), bindings, context().stream());
      while (step.must_run()) {
        const StreamScope stream(context().stream());
        run(y);
        step.end();
        end_run();
      }
      while (model_.size() > 0)
        model_.close(0);
      outside_ = 0;
    }
    EXPECT_EQ(steps.stats().recordings, 1u);
    nodes += expect_paths();
    paths_.clear();
  }
  side_.reset();
}

TEST_P(ScopeTest, AScopeThatAStepLeavesOpenEndsWithTheStepAndTheLogWarnsOnce) {
  const CapturedLog log;
  const auto f = compile(context(), "f", [&](Tensor x) {
    (void)open_scope("left");
    return affine(x, 2, 0);
  });
  const auto g = compile(context(), "g", [&](Tensor x) {
    Tensor y = output();
    launch(y);
    return add(x, y);
  });
  for (int call = 0; call < 3; ++call) {
    (void)f(random_tensor({kCount}));
    EXPECT_EQ(of_thread<ScopeStack>().path(), "");
    (void)g(random_tensor({kCount}));
  }
  expect_paths();
  EXPECT_THAT(text_of(log), HasSubstr("scopes_left_open function=f"));
  EXPECT_EQ(text_of(log).find("scopes_left_open"), text_of(log).rfind("scopes_left_open"));
}

// The step leaves as many scopes open as it found, but not the same ones.
TEST_P(ScopeTest, AScopeThatAStepLeavesOpenEndsWithItAlsoIfItHasClosedAnother) {
  const CapturedLog log;
  std::uint64_t outer = 0;
  const auto f = compile(context(), "f", [&](Tensor x) {
    close_scope(outer);
    (void)open_scope("left");
    return affine(x, 2, 0);
  });
  for (int call = 0; call < 3; ++call) {
    outer = open_scope("outer");
    (void)f(random_tensor({kCount}));
    EXPECT_EQ(of_thread<ScopeStack>().path(), call < 2 ? "" : "outer") << call;
    close_scope(outer);
    EXPECT_EQ(of_thread<ScopeStack>().size(), 0u);
  }
  EXPECT_THAT(text_of(log), HasSubstr("scopes_left_open function=f"));
}

TEST_P(ScopeTest, AStepThatThrowsLeavesNoScopeOpen) {
  const CapturedLog log;
  const auto f = compile(context(), "f", [&](Tensor x) {
    (void)open_scope("left");
    const Scope scope("closed");
    if (x.defined()) throw std::runtime_error("thrown");
    return x;
  });
  for (int call = 0; call < 3; ++call) {
    EXPECT_THROW((void)f(random_tensor({kCount})), std::runtime_error);
    EXPECT_EQ(of_thread<ScopeStack>().path(), "");
  }
}

// In an eager run, in a recording call and in replays; also if the break throws.
TEST_P(ScopeTest, AScopeThatABreakLeavesOpenEndsWithTheCall) {
  const CapturedLog log;
  bool throws = false;
  const auto f = compile(context(), "f", [&](Tensor x) {
    Tensor y = affine(x, 2, 0);
    eager_break([&](const StepValues&) {
      (void)open_scope("left");
      if (throws) throw std::runtime_error("thrown");
    });
    return affine(y, 3, 0);
  });
  for (int call = 0; call < 8; ++call) {
    throws = call % 3 == 2;
    const Scope around("around");
    const auto run = [&] { (void)f(random_tensor({kCount})); };
    if (throws) {
      EXPECT_THROW(run(), std::runtime_error);
    } else {
      run();
    }
    EXPECT_EQ(of_thread<ScopeStack>().path(), "around") << call;
  }
  EXPECT_GE(f.stats().replays, 3u);
  EXPECT_EQ(text_of(log).find("scopes_left_open"), text_of(log).rfind("scopes_left_open"));
}

TEST_P(ScopeTest, AScopeOfAnotherThreadIsNoneOfTheStep) {
  const auto f = compile(context(), "f", [&](Tensor x) {
    std::thread([] {
      const Scope scope("elsewhere");
      close_scope(1);  // closes no scope of this thread
      EXPECT_EQ(of_thread<ScopeStack>().path(), "elsewhere");
    }).join();
    Tensor y = output();
    launch(y);
    return add(x, y);
  });
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({kCount}));
  EXPECT_EQ(expect_paths(), 1u);
}

TEST_P(ScopeTest, ARecordingThatFailsKeepsNoLog) {
  const CapturedLog log;
  bool fails = true;
  const auto f = compile(context(), "f", [&](Tensor x) {
    model_.open("scope");
    Tensor y = output();
    launch(y);
    if (fails && current_stream().is_capturing()) {
      model_.close(0);
      throw std::runtime_error("a library that refuses captures");
    }
    model_.close(0);
    launch(y);
    return add(x, y);
  });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({kCount}));
  EXPECT_EQ(f.stats().recordings, 0u);
  fails = false;
  for (int call = 0; call < 3; ++call)
    (void)f(random_tensor({kCount}));
  EXPECT_EQ(f.stats().recordings, 1u);
  EXPECT_EQ(expect_paths(), 2u);
}

TEST(ScopeStackTest, ClosesScopesInAnyOrder) {
  ScopeStack& stack = of_thread<ScopeStack>();
  const std::uint64_t a = stack.open("a");
  const std::uint64_t b = stack.open("bb");
  const std::uint64_t c = stack.open("ccc");
  EXPECT_EQ(stack.path(), "a/bb/ccc");
  stack.close(b);
  EXPECT_EQ(stack.path(), "a/ccc");
  const std::uint64_t d = stack.open("d");
  stack.close(a);
  EXPECT_EQ(stack.path(), "ccc/d");
  stack.close(a);
  EXPECT_EQ(stack.size(), 2u);
  stack.close(c);
  EXPECT_EQ(stack.path(), "d");
  stack.close(d);
  EXPECT_EQ(stack.path(), "");
}

TEST(ScopeStackTest, AScopeWithoutANameAddsNothingToAPath) {
  ScopeStack& stack = of_thread<ScopeStack>();
  const std::uint64_t first = stack.open("");
  const std::uint64_t a = stack.open("a");
  const std::uint64_t between = stack.open("");
  const std::uint64_t b = stack.open("b");
  EXPECT_EQ(stack.path(), "a/b");
  stack.close(first);
  EXPECT_EQ(stack.path(), "a/b");
  stack.close(a);
  EXPECT_EQ(stack.path(), "b");
  stack.close(between);
  EXPECT_EQ(stack.path(), "b");
  stack.close(b);
  EXPECT_EQ(stack.path(), "");
  EXPECT_EQ(stack.size(), 0u);
}

// Compared with a list of names.
TEST(ScopeStackTest, RandomScopesThatCrossHaveThePathsOfAModel) {
  ScopeStack& stack = of_thread<ScopeStack>();
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::vector<std::pair<std::uint64_t, std::string>> model;
  for (int step = 0; step < 20'000; ++step) {
    if (model.empty() || (model.size() < 20 && random() % 2 == 0)) {
      const std::string name(random() % 4 == 0 ? 0 : random() % 80, 'a' + random() % 26);
      model.emplace_back(stack.open(name), name);
    } else {
      const auto one = model.begin() + random() % model.size();
      stack.close(one->first);
      model.erase(one);
    }
    std::string path;
    for (const auto& [id, name] : model)
      path += path.empty() || name.empty() ? name : "/" + name;
    ASSERT_EQ(stack.path(), path) << step;
    ASSERT_EQ(stack.size(), model.size());
  }
  for (const auto& [id, name] : model)
    stack.close(id);
}

// Python and Prometheus accept only UTF-8, and an event in the log is one line.
TEST(ScopeStackTest, PathsAreTextOfWholeCharactersWhateverNamesAre) {
  ScopeStack& stack = of_thread<ScopeStack>();
  std::string accents;
  for (int i = 0; i < 200; ++i)
    accents += "\u00e9";
  std::uint64_t scope = stack.open(accents);
  EXPECT_EQ(stack.path(), accents.substr(0, 254));
  stack.close(scope);
  scope = stack.open("a\xff\xc3\n\x7f\x1b[1m\"\xf0\x9f\x8c\xb3");
  EXPECT_EQ(stack.path(), "a????\?[1m\"\xf0\x9f\x8c\xb3");
  stack.close(scope);

  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string tree = "\xf0\x9f\x8c\xb3";
  for (int round = 0; round < 50; ++round) {
    std::vector<std::uint64_t> scopes;
    while (scopes.size() < ScopeStack::kMostOpen) {
      std::string name(random() % 4, 'x');
      for (std::size_t i = random() % 40; i > 0; --i)
        name += tree;
      scopes.push_back(stack.open(name));
    }
    std::ranges::shuffle(scopes, random);
    for (const std::uint64_t one : scopes) {
      std::string rest(stack.path());
      EXPECT_LT(rest.size(), ScopeStack::kMostBytes);
      EXPECT_FALSE(rest.ends_with('/')) << rest;
      for (std::size_t at = rest.find(tree); at != std::string::npos; at = rest.find(tree))
        rest.erase(at, tree.size());
      EXPECT_EQ(rest.find_first_not_of("x/"), std::string::npos) << rest;
      stack.close(one);
    }
    ASSERT_EQ(stack.path(), "");
  }
}

TEST(ScopeStackTest, ScopesWithoutEndAreBoundedAndSaid) {
  const CapturedLog log;
  ScopeStack& stack = of_thread<ScopeStack>();
  std::vector<std::uint64_t> scopes;
  for (std::size_t i = 0; i < 3 * ScopeStack::kMostOpen; ++i)
    scopes.push_back(stack.open(std::string(300, 'x')));
  EXPECT_EQ(stack.size(), 3 * ScopeStack::kMostOpen);
  EXPECT_LT(stack.path().size(), ScopeStack::kMostBytes);
  EXPECT_THAT(text_of(log), HasSubstr("scopes_too_deep"));
  for (const std::uint64_t scope : scopes)
    stack.close(scope);
  EXPECT_EQ(stack.size(), 0u);
  EXPECT_EQ(stack.path(), "");
}

}  // namespace
}  // namespace cgtree::testing
