// Cuts an order of a graph into stretches.
#include "extensions/progress/mark_plan.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

#include "interop/device/graph_api.h"

namespace cgtree {
namespace {

// The nodes of a graph by number, and their edges.
struct Links {
  Links(std::span<const NodeContents> nodes, std::span<const GraphEdge> edges)
      : following(nodes.size()), in_front(nodes.size()) {
    std::unordered_map<NodeHandle, std::size_t> numbers;
    for (std::size_t i = 0; i < nodes.size(); ++i)
      numbers[nodes[i].node] = i;
    for (const GraphEdge& edge : edges) {
      const std::size_t to = numbers.at(edge.to);
      following[numbers.at(edge.from)].push_back(to);
      ++in_front[to];
    }
  }

  // Returns the numbers of all nodes, each after its predecessors; otherwise by number.
  std::vector<std::size_t> order() const {
    std::vector<std::size_t> left = in_front;
    std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
    for (std::size_t i = 0; i < left.size(); ++i)
      if (left[i] == 0) ready.push(i);
    std::vector<std::size_t> sorted;
    while (!ready.empty()) {
      sorted.push_back(ready.top());
      ready.pop();
      for (const std::size_t next : following[sorted.back()])
        if (--left[next] == 0) ready.push(next);
    }
    return sorted;
  }

  std::vector<std::vector<std::size_t>> following;
  std::vector<std::size_t> in_front;  // number of predecessors
};

}  // namespace

MarkPlan plan_marks(std::span<const NodeContents> nodes, std::span<const GraphEdge> edges,
                    std::span<const std::string_view> scopes) {
  const Links links(nodes, edges);
  const std::vector<std::size_t> order = links.order();
  std::vector<std::size_t> stretch_of(nodes.size(), 0);
  MarkPlan plan;
  std::vector<PlannedMark>& marks = plan.marks;
  std::size_t length = 0;  // of the last stretch
  for (const std::size_t number : order) {
    if (links.in_front[number] == 0) plan.first.push_back(nodes[number].node);
    const std::string_view scope = scopes.empty() ? std::string_view() : scopes[number];
    const bool collective = is_collective(nodes[number].name());
    const bool goes_on = !marks.empty() && !collective && !marks.back().is_collective &&
                         marks.back().scope == scope && length < kLongestStretch;
    if (!goes_on && marks.size() < kMostMarks) {
      marks.push_back({.scope = std::string(scope), .is_collective = collective});
      length = 0;
    } else if (!goes_on) {  // the last mark follows all remaining nodes
      marks.back().is_collective = false;
      if (marks.back().scope != scope) marks.back().scope = "(more)";
    }
    ++length;
    stretch_of[number] = marks.size() - 1;
    std::vector<std::string>& kernels = marks.back().kernels;
    const std::string kernel = demangled(nodes[number].name());
    if (!kernel.empty() && kernels.size() < kMostKernelNames &&
        std::ranges::find(kernels, kernel) == kernels.end()) {
      kernels.push_back(kernel);
    }
  }
  const auto add_new = [](auto& list, const auto& one) {
    if (std::ranges::find(list, one) == list.end()) list.push_back(one);
  };
  for (const std::size_t number : order) {
    PlannedMark& mark = marks[stretch_of[number]];
    bool is_last = true;
    for (const std::size_t next : links.following[number]) {
      if (stretch_of[next] == stretch_of[number]) {
        is_last = false;
      } else {
        add_new(mark.before, nodes[next].node);
        add_new(marks[stretch_of[next]].behind, stretch_of[number]);
      }
    }
    if (is_last) mark.after.push_back(nodes[number].node);
  }
  return plan;
}

}  // namespace cgtree
