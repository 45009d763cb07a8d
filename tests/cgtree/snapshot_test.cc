// The snapshot: every field of docs/snapshot.md, and the reason for each recording.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "cgtree/record/attachment.h"
#include "cgtree/record/examination.h"
#include "cgtree/tree/extension.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/monitor.h"
#include "tests/support/tree_fixture.h"

namespace cgtree::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class SnapshotTest : public TreeTest {
 protected:
  json snapshot() { return json::parse(snapshot_json(context())); }
  static std::string hex(const Tensor& tensor) { return fmt::format("{:#x}", tensor.address()); }
};
CGTREE_ON_ALL_DEVICES(SnapshotTest);

TEST_P(SnapshotTest, NamesItsSchemaAndVersion) {
  EXPECT_EQ(snapshot()["schema"], "cgtree.snapshot");
  EXPECT_EQ(snapshot()["version"], 1);
}

TEST_P(SnapshotTest, ANodeSaysWhatItIsKeyedByAndWhatItCosts) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x, Tensor w) { return affine(add(x, w), 2, 0); },
              {.inputs = {{}, {.is_static = true, .is_mutated = true}}});
  const Tensor weights = random_tensor({2, 4});
  for (int call = 0; call < 4; ++call)
    (void)f(random_tensor({2, 4}), weights);

  const json node = snapshot()["nodes"][0];
  EXPECT_EQ(node["function"], "f");
  EXPECT_EQ(node["signature"], "float32 {2, 4}, float32 {2, 4}");
  EXPECT_EQ(node["replays"], 2);
  EXPECT_EQ(node["graph_nodes"], 3);
  EXPECT_EQ(node["kernel_nodes"], 3);
  EXPECT_EQ(node["estimated_graph_bytes"], 114688 + 3 * 2304);
  EXPECT_GE(node["footprint_bytes"], 3 * 32);
  EXPECT_GT(node["record_us"], 0);
}

TEST_P(SnapshotTest, InputsSayTypeTreatmentAndAddress) {
  CompiledFunction f = compile(context(), "f", [](Tensor x, Tensor w) { return add(x, w); },
                               {.inputs = {{}, {.is_static = true, .is_mutated = true}}});
  const Tensor weights = random_tensor({4, 2}).transpose(0, 1);
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({2, 4}), weights);

  const json inputs = snapshot()["nodes"][0]["inputs"];
  EXPECT_EQ(inputs[0]["dtype"], "float32");
  EXPECT_EQ(inputs[0]["shape"], json({2, 4}));
  EXPECT_FALSE(inputs[0].contains("strides"));
  EXPECT_EQ(inputs[0]["treatment"], "copied");
  EXPECT_EQ(inputs[0]["mutated"], false);
  EXPECT_EQ(inputs[1]["strides"], json({1, 2}));
  EXPECT_EQ(inputs[1]["treatment"], "static");
  EXPECT_EQ(inputs[1]["mutated"], true);
  EXPECT_EQ(inputs[1]["address"], weights.address());
}

TEST_P(SnapshotTest, OutputsSayWhoseMemoryTheyAreAndWhetherItIsLive) {
  CompiledFunction f = compile(context(), "f",
                               [](Tensor w) {
                                 const Tensor y = affine(w, 2, 0);
                                 return std::tuple<Tensor, Tensor, Tensor>(y, y, w);
                               },
                               {.inputs = {{.is_static = true}}});
  const Tensor weights = random_tensor({4});
  (void)f(weights);
  auto held = f(weights);

  json outputs = snapshot()["nodes"][0]["outputs"];
  EXPECT_EQ(outputs[0]["kind"], "slot");
  EXPECT_EQ(outputs[0]["address"], std::get<0>(held).address());
  EXPECT_EQ(outputs[0]["live"], true);
  EXPECT_EQ(outputs[0]["holds"], json({{"function", "f"}, {"output", 0}}));
  EXPECT_EQ(outputs[1]["kind"], "same_as_output");
  EXPECT_EQ(outputs[1]["index"], 0);
  EXPECT_EQ(outputs[2]["kind"], "input");

  held = {};
  outputs = snapshot()["nodes"][0]["outputs"];
  EXPECT_EQ(outputs[0]["live"], false);
  EXPECT_FALSE(outputs[0].contains("holds"));
}

// In random sequences of recordings and held outputs: each slot of an output is listed once, inside
// a segment of its pool, and is live if and only if its output is held.
TEST_P(SnapshotTest, EverySlotIsListedAndLiesInASegmentOfItsPool) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  std::vector<Tensor> held;
  for (int call = 0; call < 40; ++call) {
    held.push_back(f(random_tensor({1 + static_cast<std::int64_t>(random_() % 3)})));
    if (random_() % 3 == 0) held.erase(held.begin(), held.begin() + random_() % held.size());

    const json now = snapshot();
    std::map<std::uint64_t, json> slots;
    for (const json& slot : now["slots"]) {
      EXPECT_TRUE(slots.emplace(slot["slot"], slot).second) << slot;
      const std::uint64_t begin = slot["address"], end = begin + slot["bytes"].get<std::uint64_t>();
      EXPECT_TRUE(std::ranges::any_of(now["pools"][slot["region"].get<std::string>()]["segments"],
                                      [&](const json& segment) {
                                        const std::uint64_t at = segment["address"];
                                        return at <= begin &&
                                               end <= at + segment["bytes"].get<std::uint64_t>();
                                      }))
          << slot;
    }
    std::size_t live = 0;
    for (const auto& [number, slot] : slots) {
      live += slot["live"].get<bool>();
      EXPECT_EQ(slot.contains("holds"), slot["live"].get<bool>());
    }
    EXPECT_EQ(live, now["live_outputs"]);
    for (const json& node : now["nodes"]) {
      const json& output = node["outputs"][0];
      if (output["kind"] == "copied") continue;  // has no slot
      EXPECT_EQ(slots.at(output["slot"])["address"], output["address"]);
    }
  }
}

TEST_P(SnapshotTest, AWorkspaceThatAStepFunctionKeepsIsASlotThatSaysSo) {
  Tensor workspace;
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    if (!workspace.storage()) workspace = affine(x, 3, 0);
    return add(x, workspace);
  });
  const Tensor y = f(random_tensor({4}));

  const json slots = snapshot()["slots"];
  std::vector<std::uint64_t> workspaces;
  for (const json& slot : slots) {
    if (slot["workspace"]) workspaces.push_back(slot["address"]);
  }
  EXPECT_THAT(workspaces, ::testing::ElementsAre(workspace.address()));
}

TEST_P(SnapshotTest, TheFootprintIsTheRangesThatTheRecordingWrites) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({4}));

  const json node = snapshot()["nodes"][0];
  std::uint64_t bytes = 0, end = 0;
  const auto covers = [&](std::uint64_t address) {
    return std::ranges::any_of(node["footprint"], [&](const json& range) {
      const std::uint64_t begin = range["address"];
      return begin <= address && address < begin + range["bytes"].get<std::uint64_t>();
    });
  };
  for (const json& range : node["footprint"]) {
    EXPECT_GT(range["address"], end);
    end = range["address"].get<std::uint64_t>() + range["bytes"].get<std::uint64_t>();
    bytes += range["bytes"].get<std::uint64_t>();
  }
  EXPECT_EQ(bytes, node["footprint_bytes"]);
  EXPECT_TRUE(covers(node["inputs"][0]["address"])) << node;
  EXPECT_TRUE(covers(node["outputs"][0]["address"])) << node;
}

TEST_P(SnapshotTest, TimesSayWhenARecordingWasMadeAndWhatAllOfThemTook) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  const json before = snapshot();
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({4}));

  const json after = snapshot();
  const json& node = after["nodes"][0];
  EXPECT_LE(before["time_us"], node["recorded_at_us"]);
  EXPECT_LE(node["recorded_at_us"], after["time_us"]);
  EXPECT_LE(node["record_us"], after["recording_us"]);
}

TEST_P(SnapshotTest, AFunctionCountsItsEvictions) {
  make_context({.max_recordings = 1, .at_limit = AtLimit::kEvict});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (const std::int64_t size : {2, 2, 3, 3, 4, 4})
    (void)f(random_tensor({size}));

  EXPECT_EQ(snapshot()["functions"][0]["evictions"], 2);
}

TEST_P(SnapshotTest, AnAxisSaysItsPolicyAndWhichSizesCame) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); },
                               {.inputs = {{.dynamic = {{0, "rows"}}}},
                                .buckets = {{"rows", {4, 8}}},
                                .outputs = {{.dynamic = {{0, "rows"}}}}});
  for (const std::int64_t rows : {3, 3, 7, 9})
    (void)f(random_tensor({rows}));

  const json all = snapshot();
  EXPECT_EQ(all["functions"][0]["axes"], json::array({{{"axis", "rows"},
                                                       {"of_key", false},
                                                       {"policy", "buckets"},
                                                       {"buckets", {4, 8}},
                                                       {"sizes", {{3, 2}, {7, 1}, {9, 1}}},
                                                       {"actual", 22},
                                                       {"padded", 25},
                                                       {"uncounted", 0}}}));
  EXPECT_EQ(all["nodes"][0]["padded"], json({{"rows", 4}}));
}

TEST_P(SnapshotTest, TheFirstRecordingOfAFunctionWasComparedWithNothing) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({4}));

  EXPECT_EQ(snapshot()["nodes"][0]["cause"], json({{"nearest", 0}, {"changes", json::array()}}));
}

TEST_P(SnapshotTest, ASiblingNamesEveryChangedInputWithBothAddresses) {
  CompiledFunction f =
      compile(context(), "f", [](Tensor x, Tensor y, Tensor z) { return add(add(x, y), z); },
              {.inputs = {{.is_static = true}, {.is_static = true}, {.is_static = true}}});
  const Tensor x[] = {random_tensor({4}), random_tensor({4})};
  const Tensor y = random_tensor({4});
  const Tensor z[] = {random_tensor({4}), random_tensor({4})};
  (void)f(x[0], y, z[0]);
  (void)f(x[0], y, z[0]);  // node 1
  (void)f(x[1], y, z[1]);  // node 2

  const json cause = snapshot()["nodes"][1]["cause"];
  EXPECT_EQ(cause["nearest"], 1);
  ASSERT_EQ(cause["changes"].size(), 2u);
  for (int i = 0; i < 2; ++i) {
    const Tensor* const given = i == 0 ? x : z;
    const json& change = cause["changes"][i];
    EXPECT_EQ(change["kind"], "static_address");
    EXPECT_EQ(change["input"], 2 * i);
    EXPECT_EQ(change["recorded"], hex(given[0]));
    EXPECT_EQ(change["given"], hex(given[1]));
    EXPECT_EQ(change["text"], fmt::format("static input {}: {} recorded, {} given", 2 * i,
                                          hex(given[0]), hex(given[1])));
  }
}

TEST_P(SnapshotTest, AManagedInputThatIsNoOutputAnyMoreSaysSo) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  CompiledFunction g = compile(context(), "g", [](Tensor x) { return affine(x, 1, 1); });
  (void)f(random_tensor({4}));
  const Tensor managed = f(random_tensor({4}));
  (void)g(managed);
  (void)g(managed);

  const Tensor eager = random_tensor({4});
  (void)g(eager);

  const json change = snapshot()["nodes"].back()["cause"]["changes"][0];
  EXPECT_EQ(change["kind"], "managed_address");
  EXPECT_EQ(change["recorded"], hex(managed));
  EXPECT_EQ(change["given"], hex(eager) + ", not an output of this context");
}

TEST_P(SnapshotTest, ARecordingInTheWayOfAHeldOutputNamesThatOutput) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  (void)f(random_tensor({4}));
  const Tensor held = f(random_tensor({4}));  // node 1; its output is held
  (void)f(random_tensor({4}));                // node 2, since node 1 would overwrite it

  const json cause = snapshot()["nodes"][1]["cause"];
  EXPECT_EQ(cause["nearest"], 1);
  ASSERT_EQ(cause["changes"].size(), 1u);
  EXPECT_EQ(cause["changes"][0]["kind"], "footprint");
  EXPECT_FALSE(cause["changes"][0].contains("input"));
  EXPECT_EQ(cause["changes"][0]["recorded"].get<std::string>().rfind("[" + hex(held), 0), 0u)
      << cause.dump(1);
  EXPECT_EQ(cause["changes"][0]["given"],
            fmt::format("output 0 of 'f' at [{:#x}, {:#x})", held.address(), held.address() + 16));
}

TEST_P(SnapshotTest, AnotherShapeIsComparedWithTheShapeThatWasThere) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (const std::int64_t size : {5, 7}) {
    for (int call = 0; call < 2; ++call)
      (void)f(random_tensor({size}));
  }

  const std::string device = to_string(context().device());
  const json change = snapshot()["nodes"][1]["cause"]["changes"][0];
  EXPECT_EQ(change["kind"], "signature");
  EXPECT_EQ(change["recorded"], "float32 {5} on " + device);
  EXPECT_EQ(change["given"], "float32 {7} on " + device);
}

// In random sequences of held outputs and moving inputs: each further recording of a function has a
// reason.
TEST_P(SnapshotTest, EveryFurtherRecordingHasAReason) {
  CompiledFunction f = compile(context(), "f", [](Tensor x, Tensor w) { return add(x, w); },
                               {.inputs = {{}, {.is_static = true}}});
  const Tensor weights[] = {random_tensor({4}), random_tensor({4})};
  std::vector<Tensor> held;
  for (int call = 0; call < 60; ++call) {
    const Tensor x = held.empty() || random_() % 3 == 0 ? random_tensor({4}) : held.back();
    held.push_back(f(x, weights[random_() % 2]));
    if (random_() % 3 == 0) held.erase(held.begin(), held.begin() + random_() % held.size());
  }

  const json nodes = snapshot()["nodes"];
  ASSERT_GT(nodes.size(), 1u);
  EXPECT_EQ(nodes[0]["cause"]["nearest"], 0);
  for (std::size_t i = 1; i < nodes.size(); ++i) {
    EXPECT_LT(nodes[i]["cause"]["nearest"], nodes[i]["id"]);
    EXPECT_GT(nodes[i]["cause"]["changes"].size(), 0u) << nodes[i].dump(1);
  }
}

// Row 4.3 graph_debugdump: a graph with work on two streams.
// Acceptance: graphs graph_debugdump.
TEST_P(SnapshotTest, TheGraphOfANodeIsDrawnForGraphviz) {
  const Stream side(device());
  CompiledFunction f = compile(context(), "f", [&](Tensor x) {
    const StreamRef main = current_stream();
    side.ref().wait_for(main);
    Tensor tripled;
    {
      const StreamScope scope(side.ref());
      tripled = affine(x, 3, 0);
    }
    const Tensor doubled = affine(x, 2, 0);
    main.wait_for(side.ref());
    return add(doubled, tripled);
  });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({4}));
  const std::string path = ::testing::TempDir() + "/" + GetParam().name + "_node.dot";

  context().write_dot(1, path);

  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(text, HasSubstr("digraph"));
  std::size_t edges = 0;
  for (std::size_t at = text.find("->"); at != std::string::npos; at = text.find("->", at + 1))
    ++edges;
  // From the root to both kernels, and from both to the sum.
  EXPECT_EQ(edges, 4u) << text;
}

TEST_P(SnapshotTest, ANodeThatIsNotThereIsNotDrawn) {
  EXPECT_THAT([&] { context().write_dot(1, "unused.dot"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("there is no node 1")));
}

TEST_P(SnapshotTest, AGraphThatCannotBeWrittenNamesTheFile) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({4}));

  EXPECT_THAT([&] { context().write_dot(1, "/no/such/folder/node.dot"); },
              ThrowsMessage<DeviceError>(HasSubstr("/no/such/folder/node.dot")));
}

TEST_P(SnapshotTest, ANameThatIsNotUtf8IsStillJson) {
  CompiledFunction f = compile(context(), "caf\xe9", [](Tensor x) { return affine(x, 2, 0); });

  EXPECT_EQ(snapshot()["functions"][0]["name"], "caf\xef\xbf\xbd");
}

TEST_P(SnapshotTest, AFunctionThatCannotBeCapturedSaysWhy) {
  CompiledFunction f = compile(context(), "f", [](Tensor x) {
    current_stream().synchronize();
    return affine(x, 2, 0);
  });
  for (int call = 0; call < 2; ++call)
    (void)f(random_tensor({4}));

  const json function = snapshot()["functions"][0];
  EXPECT_EQ(function["skips"], json({{"capture_failed", 1}}));
  EXPECT_NE(function.value("capture_failure", "").find("capture of 'f' failed"), std::string::npos);
}

// Findings of a class other than the audit's.
struct OtherFindings final : Attachment {};

class OtherExamination final : public Examination {
 public:
  void examine(CapturedStep& step) override { step_ = &step; }
  Exec share() override { return Exec::kOwn; }
  std::size_t prepare() override { return 0; }
  bool may_refuse() const noexcept override { return false; }
  void finish() override { step_->recording.findings = std::make_unique<OtherFindings>(); }
  void give_up() noexcept override {}
  bool never_patch() override { return false; }

 private:
  CapturedStep* step_ = nullptr;
};

class OtherExaminer final : public Extension {
 public:
  int order() const noexcept override { return -1000; }
  std::unique_ptr<Examination> examine(const Call&, const std::vector<std::uint32_t>&) override {
    return std::make_unique<OtherExamination>();
  }
};

TEST_P(SnapshotTest, ARecordingThatAnotherExtensionHasExaminedHasAnEmptyAudit) {
  make_context({.extensions = {[](Engine&) { return std::make_unique<OtherExaminer>(); },
                               verify({.every = 2})}});
  CompiledFunction f = compile(context(), "f", [](Tensor x) { return affine(x, 2, 0); });
  for (int call = 0; call < 4; ++call)
    (void)f(random_tensor({4}));

  EXPECT_EQ(f.stats().verified, 1u);
  EXPECT_EQ(snapshot()["nodes"][0]["function"], "f");
  const auto watch =
      std::make_shared<ProgressWatch>(ProgressOptions{.time_limit = std::chrono::milliseconds(0)});
  watch_progress(context(), watch);
  (void)f(random_tensor({4}));
  context().synchronize();
  EXPECT_EQ(watch->report().at(0).replays.at(0).why_unmarked, "the recording was not audited");
}

}  // namespace
}  // namespace cgtree::testing
