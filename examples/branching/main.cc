// Four graphs, and a choice made by data: graph 1, then graph 2 or graph 3, then graph 4.
//
// A recorded graph cannot hold an `if` of the host. Here each side of the choice is a step function
// with its own recording, the choice stays plain C++ between two replays, and the context remembers
// the order of recordings.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cgtree/cgtree.h"
#include "examples/branching/steps.h"
#include "extensions/watch/monitor.h"

namespace cgtree::branching {
namespace {

using nlohmann::json;

constexpr int kSteps = 20;

// A Printer writes one line per recording of a snapshot, indented below the recording after which
// it was made. If a path continues with a recording that was made elsewhere, an arrow leads to it.
class Printer {
 public:
  explicit Printer(const json& nodes) {
    for (const json& node : nodes) {
      nodes_[node["id"]] = &node;
      children_[node["parent"]].push_back(&node);
    }
  }

  void print_below(int parent, int depth) {
    for (const json* node : children_[parent]) {
      const std::string label = fmt::format("{:{}}{}", "", 2 * depth, name_of(*node));
      text_ += fmt::format("{:<20} {:>3} replays{}\n", label, (*node)["replays"].get<int>(),
                           shared_after(*node));
      print_below((*node)["id"], depth + 1);
    }
  }

  std::string take() { return std::move(text_); }

 private:
  static std::string name_of(const json& node) {
    return fmt::format("{} (#{})", node["function"].get<std::string>(), node["id"].get<int>());
  }

  std::string shared_after(const json& node) const {
    std::string text;
    if (children_.count(node["id"]) > 0) return text;  // the lines below show a continuation
    for (const int follower : node["followed_by"]) {
      const json& other = *nodes_.at(follower);
      if (other["parent"] != node["id"]) text += "  -> " + name_of(other);
    }
    return text;
  }

  std::map<int, const json*> nodes_;
  std::map<int, std::vector<const json*>> children_;
  std::string text_;
};

void run(const std::string& device, const std::string& snapshot_file) {
  Context context(parse_device(device));
  const auto one = compile(context, "one", [](Tensor x) { return affine(x, 2, 0); });
  const auto two = compile(context, "two", [](Tensor x) { return affine(x, 1, 10); });
  const auto three = compile(context, "three", [](Tensor x) { return affine(x, 1, -10); });
  const auto four = compile(context, "four", [](Tensor x) { return affine(x, 3, 1); });

  for (int step = 0; step < kSteps; ++step) {
    context.mark_step();  // outputs of the last step may now be overwritten
    const std::vector<float> values(8, step % 4 == 3 ? -1.0f : 1.0f);  // every fourth: graph 3
    const Tensor a = one(from_host<float>({8}, values, context.device()));
    // The host looks at the data, and the graph for it is replayed, not recorded again.
    const Tensor b = a.to_vector<float>()[0] > 0 ? two(a) : three(a);
    const Tensor c = four(b);
    (void)c.to_vector<float>();  // a server would send it
  }

  // Graph 2 and graph 3 are below graph 1, and graph 4 is below graph 2, after which it was
  // recorded. Graph 3 has its output at the same address as graph 2, so the recording of graph 4
  // serves both: an arrow leads from 3 to it, and there are four recordings, not five.
  const std::string snapshot = snapshot_json(context);
  const json tree = json::parse(snapshot);
  Printer printer(tree["nodes"]);
  printer.print_below(0, 0);
  fmt::print("{} steps on {}\n\n{}\n{}\n", kSteps, to_string(context.device()), printer.take(),
             to_string(context.stats()));
  if (snapshot_file.empty()) return;
  std::ofstream file(snapshot_file);
  file << snapshot << '\n';
  file.close();
  if (!file) throw InvalidArgument(fmt::format("cannot write '{}'", snapshot_file));
}

// Returns `path` relative to the caller's folder, which `bazel run` names in the environment.
std::string from_caller(const std::string& path) {
  const char* const folder = std::getenv("BUILD_WORKING_DIRECTORY");
  return folder == nullptr || path.empty() ? path : (std::filesystem::path(folder) / path).string();
}

}  // namespace
}  // namespace cgtree::branching

int main(int argc, char** argv) {
  CLI::App app("Runs graph 1, then graph 2 or 3 by data, then graph 4; prints the tree it grew.");
  std::string device = "auto";
  std::string snapshot;
  app.add_option("--device", device, "auto (a GPU, else the host device), host, cuda or cuda:N");
  app.add_option("--snapshot", snapshot, "also write the tree as JSON, for tools:tree_viewer");
  try {
    app.parse(argc, argv);
    cgtree::branching::run(device, cgtree::branching::from_caller(snapshot));
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const cgtree::Error& error) {
    fmt::print(stderr, "branching: {}\n", error.message());
    return 2;
  }
}
