// Puts marks into the graphs of a recording, and makes executable graphs from them.
#include "extensions/progress/marked_recording.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "extensions/audit/audit.h"
#include "interop/device/device_api.h"

namespace cgtree {
namespace {

// Returns the scope of each node from `first` on; empty without scopes.
std::vector<std::string_view> scopes_of(const NodeScopes& scopes, std::size_t first,
                                        std::size_t count) {
  if (scopes.nodes.size() < first + count) return {};
  std::vector<std::string_view> found;
  for (std::size_t i = first; i < first + count; ++i)
    found.push_back(scopes.paths[scopes.nodes[i].path]);
  return found;
}

}  // namespace

std::string MarkedRecording::why_not(const Recording& recording) {
  if (find_audit(recording) == nullptr) return "the recording was not audited";
  if (recording.share != nullptr) return "recordings share its executable graph (max_switch_nodes)";
  if (std::ranges::any_of(recording.rebinds, &RebindChoice::is_rebound)) {
    return "inputs are rebound in its executable graph";
  }
  if (recording.costs.allocations > 0)
    return "its graph allocates memory, so that there cannot be a second executable graph of it";
  return "";
}

std::chrono::nanoseconds Marks::time(std::size_t mark) const noexcept {
  std::uint64_t begin = 0;
  for (const std::size_t word : planned_[mark].behind)
    begin = std::max(begin, read_word(page_, word));
  const std::uint64_t end = read_word(page_, mark);
  return std::chrono::nanoseconds(end > begin ? end - begin : 0);
}

MarkedRecording::MarkedRecording(Recording& recording, ContextMemory& memory, Spent& spent)
    : stream_(memory.stream()), spent_(spent) {
  GraphAPI& api = stream_.graphs();
  const DeviceScope current = stream_.make_device_current();
  std::vector<std::pair<GraphHandle, MarkPlan>> plans;
  std::size_t nodes_before = 0;
  std::size_t count = 0;
  recording.for_each_graph([&](const Graph& graph, GraphExec&) {
    std::vector<NodeContents> nodes;
    std::vector<GraphEdge> edges;
    check(api.read_nodes(graph.handle(), &nodes), "read the nodes of a recording");
    check(api.graph_edges(graph.handle(), &edges), "list the edges of a recording");
    const auto scopes = scopes_of(audit_of(recording).scopes, nodes_before, nodes.size());
    nodes_before += nodes.size();
    plans.emplace_back(graph.handle(), plan_marks(nodes, edges, scopes));
    count += plans.back().second.marks.size();
  });
  Tensor page;
  const std::size_t words = count + plans.size();
  if (count > 0) {
    page = memory.empty_pinned({static_cast<std::int64_t>(words)}, DType::kInt64);
    for (std::size_t i = 0; i < words; ++i)
      clear_word(page, i);
  }
  const auto marks = std::make_shared<Marks>(std::move(page), memory);
  marks_ = marks;
  clears_on_stream_ = plans.front().second.first.empty();
  std::string& why = audit_of(recording).why_unmarked;
  why = "its graphs have got a part of their marks";
  for (std::size_t i = 0; auto& [graph, plan] : plans) {
    put_into(graph, plan, *marks, count + i, /*cleared=*/i == 0 ? words : 0);
    ++i;
  }
  why.clear();
}

void MarkedRecording::put_into(GraphHandle graph, MarkPlan& plan, Marks& marks, std::size_t start,
                               std::size_t cleared) {
  if (plan.first.empty()) return;
  GraphAPI& graphs = stream_.graphs();
  (void)insert_clock(graphs, graph, {}, plan.first, marks.page_, start, cleared);
  const std::size_t before = marks.planned_.size();  // marks of earlier graphs
  for (PlannedMark& mark : plan.marks) {
    (void)insert_clock(graphs, graph, mark.after, mark.before, marks.page_, marks.planned_.size());
    for (std::size_t& number : mark.behind)
      number += before;
    if (mark.behind.empty()) mark.behind.push_back(start);
    marks.planned_.push_back(std::move(mark));
  }
}

void MarkedRecording::make_graphs(Recording& recording) {
  const DeviceScope current = stream_.make_device_current();
  const RelaxedCapture relaxed(&stream_.graphs());  // other threads may capture
  std::vector<GraphExec> execs;
  recording.for_each_graph(
      [&](const Graph& graph, GraphExec&) { execs.push_back(GraphExec(stream_.graphs(), graph)); });
  told_.clear();
  for (const std::vector<GatherNode>* const nodes : {&recording.roots, &recording.tails}) {
    for (const GatherNode& node : *nodes)
      told_.push_back({node.words()});
  }
  execs_ = std::move(execs);
  bytes_ = recording.costs.graph_bytes;
  spent_.marked_graph_bytes += bytes_;
}

void MarkedRecording::drop_graphs() noexcept {
  execs_.clear();
  spent_.marked_graph_bytes -= std::exchange(bytes_, 0);
}

void MarkedRecording::exchange(Recording& recording) noexcept {
  auto own = execs_.begin();
  recording.for_each_graph([&](const Graph&, GraphExec& exec) { std::swap(exec, *own++); });
  auto told = told_.begin();
  for (GatherNode& node : recording.roots)
    tell(node, recording.exec, *told++);
  for (GatherNode& node : recording.tails)
    tell(node, recording.last_exec(), *told++);
}

void MarkedRecording::tell(GatherNode& node, const GraphExec& exec, Told& told) const noexcept {
  if (told.is_known && told.words == node.words()) return;
  Code code = Code::kUnknown;
  try {
    const DeviceScope current = stream_.make_device_current();
    code = node.tell(exec);
  } catch (const Error&) {  // the next bind() reports it
  }
  told.is_known = ok(code);
  std::ranges::copy(node.words(), told.words.begin());
  if (ok(code) || code == Code::kNotReady) return;
  (void)stream_.graphs().take_last_error();
  node.forget_patch();
}

void MarkedRecording::begin_launch(StreamRef stream) const {
  if (clears_on_stream_ && !marks_->planned().empty()) clear_words(marks_->page_, stream);
}

}  // namespace cgtree
