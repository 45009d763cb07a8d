// Walks the nodes of a snapshot from the root down.
#include "examples/branching/tree_text.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

namespace cgtree::branching {
namespace {

using nlohmann::json;

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
    if (children_.count(node["id"]) > 0) return text;  // the lines below show a way on
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

}  // namespace

std::string tree_text(const std::string& snapshot_json) {
  const json snapshot = json::parse(snapshot_json);
  Printer printer(snapshot["nodes"]);
  printer.print_below(0, 0);
  return printer.take();
}

}  // namespace cgtree::branching
