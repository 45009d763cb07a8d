// Puts marks into the graphs of a recording, and makes executable graphs of them.
#include "cgtree/check/marked_recording.h"

#include <algorithm>
#include <utility>

#include "cgtree/check/audit.h"
#include "cgtree/check/mark_words.h"
#include "interop/device/progress_api.h"

namespace cgtree {
namespace {

// Returns the scope of each node from `first` on; of nothing, if there are none.
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
  if (recording.findings == nullptr) return "the recording was not examined";
  if (recording.share != nullptr) return "recordings share its executable graph (max_switch_nodes)";
  if (std::ranges::any_of(recording.rebinds, &RebindChoice::is_rebound)) {
    return "inputs are rebound in its executable graph";
  }
  return "";
}

Marks::Marks(Tensor page, ContextMemory& memory) noexcept
    : page_(std::move(page)), memory_(memory) {
}

Marks::~Marks() {
  for (const Events& events : events_) {
    for (const EventHandle event : {events.begin, events.end})
      if (event != EventHandle::kNull) (void)memory_.stream().graphs().destroy_event(event);
  }
  release_page(std::move(page_), memory_.stream());
}

bool Marks::is_reached(std::size_t mark) const noexcept {
  return read_word(page_, mark) != 0;
}

std::optional<std::chrono::nanoseconds> Marks::time(std::size_t mark) const noexcept {
  if (mark >= events_.size()) return std::nullopt;
  const StreamRef stream = memory_.stream();
  const RelaxedCapture relaxed(&stream.graphs());
  std::chrono::nanoseconds time{0};
  const Code code = stream.api().progress()->elapsed(events_[mark].begin, events_[mark].end, &time);
  if (ok(code)) return time;
  (void)stream.graphs().take_last_error();
  return std::nullopt;
}

MarkedRecording::MarkedRecording(Recording& recording, ContextMemory& memory, Spent& spent,
                                 bool has_times)
    : stream_(memory.stream()), spent_(spent) {
  GraphAPI& api = stream_.graphs();
  const DeviceScope current = stream_.make_device_current();
  std::vector<OfGraph> graphs;
  std::size_t nodes_before = 0;
  std::size_t count = 0;
  recording.for_each_graph([&](const Graph& graph, GraphExec&) {
    std::vector<NodeContents> nodes;
    std::vector<GraphEdge> edges;
    check(api.read_nodes(graph.handle(), &nodes), "read the nodes of a recording");
    check(api.graph_edges(graph.handle(), &edges), "list the edges of a recording");
    const auto scopes = scopes_of(audit_of(recording).scopes, nodes_before, nodes.size());
    nodes_before += nodes.size();
    graphs.push_back({graph.handle(), first_nodes(nodes, edges), plan_marks(nodes, edges, scopes)});
    count += graphs.back().marks.size();
  });
  Tensor page;
  if (count > 0) {
    page = memory.empty_pinned({static_cast<std::int64_t>(count)}, DType::kInt32);
    for (std::size_t i = 0; i < count; ++i)
      clear_word(page, i);
  }
  const auto marks = std::make_shared<Marks>(std::move(page), memory);
  bool clears = true;  // the first graph that has nodes
  for (OfGraph& one : graphs)
    put_into(one, *marks, std::exchange(clears, clears && one.first.empty()), has_times);
  marks_ = marks;
}

void MarkedRecording::put_into(OfGraph& graph, Marks& marks, bool clears, bool has_times) {
  ProgressAPI& progress = *stream_.api().progress();
  std::vector<NodeHandle> in_front;  // of the graph
  if (clears && !graph.first.empty()) {
    const std::size_t all = static_cast<std::size_t>(marks.page_.elements());
    in_front.push_back(
        insert_write(progress, graph.graph, {}, graph.first, {marks.page_, 0, all}, 0));
  }
  std::vector<NodeHandle> written;  // by the kernels of the marks of this graph
  NodeHandle made = NodeHandle::kNull;
  for (PlannedMark& mark : graph.marks) {
    if (has_times) {
      std::vector<NodeHandle> behind;
      for (const std::size_t number : mark.behind)
        behind.push_back(written[number]);
      Marks::Events& events = marks.events_.emplace_back();
      check(progress.create_timed_event(&events.begin), "make an event");
      check(progress.create_timed_event(&events.end), "make an event");
      check(progress.insert_event(graph.graph, behind.empty() ? in_front : behind, mark.first,
                                  events.begin, &made),
            "add an event to a recording");
      check(progress.insert_event(graph.graph, mark.after, mark.before, events.end, &made),
            "add an event to a recording");
    }
    written.push_back(insert_write(progress, graph.graph, mark.after, mark.before,
                                   {marks.page_, marks.planned_.size()}, 1));
    marks.planned_.push_back(std::move(mark));
  }
}

void MarkedRecording::make_graphs(Recording& recording) {
  const DeviceScope current = stream_.make_device_current();
  const RelaxedCapture relaxed(
      &stream_.graphs());  // It is to be no part of a capture of another thread
  std::vector<GraphExec> execs;
  recording.for_each_graph(
      [&](const Graph& graph, GraphExec&) { execs.push_back(GraphExec(stream_.graphs(), graph)); });
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
  for (std::vector<GatherNode>* const nodes : {&recording.roots, &recording.tails}) {
    for (GatherNode& node : *nodes)
      node.forget_patch();
  }
}

}  // namespace cgtree
