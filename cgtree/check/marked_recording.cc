// Puts marks into the graphs of a recording, and makes executable graphs of them.
#include "cgtree/check/marked_recording.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log_event.h"
#include "cgtree/check/audit.h"
#include "interop/device/progress_api.h"

namespace cgtree {
namespace {

std::uint32_t* word_of(const Tensor& page, std::size_t word) noexcept {
  return reinterpret_cast<std::uint32_t*>(page.address()) + word;
}

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

std::uint32_t read_word(const Tensor& page, std::size_t word) noexcept {
  return std::atomic_ref(*word_of(page, word)).load(std::memory_order_acquire);
}

void clear_word(const Tensor& page, std::size_t word) noexcept {
  std::atomic_ref(*word_of(page, word)).store(0, std::memory_order_release);
}

void release_page(Tensor page, StreamRef stream) noexcept {
  if (!page.defined()) return;
  try {
    page.storage()->owner().used(*page.storage(), stream);
  } catch (const std::exception& error) {
    log_event(LogLevel::kError, "marks_use_not_noted error=\"{}\"", error.what());
  }
}

std::string MarkedRecording::why_not(const Recording& recording) {
  if (recording.findings == nullptr) return "the recording was not examined";
  if (recording.share != nullptr) return "recordings share its executable graph (max_switch_nodes)";
  if (std::ranges::any_of(recording.rebinds, &RebindChoice::is_rebound)) {
    return "inputs are rebound in its executable graph";
  }
  return "";
}

Marks::Marks(std::vector<PlannedMark> planned, Tensor page, ContextMemory& memory) noexcept
    : planned_(std::move(planned)), page_(std::move(page)), memory_(memory) {
}

Marks::~Marks() {
  release_page(std::move(page_), memory_.stream());
}

bool Marks::is_reached(std::size_t mark) const noexcept {
  return read_word(page_, mark) != 0;
}

MarkedRecording::MarkedRecording(Recording& recording, ContextMemory& memory, Spent& spent)
    : stream_(memory.stream()), spent_(spent) {
  GraphAPI& api = stream_.graphs();
  ProgressAPI& progress = *stream_.api().progress();
  const DeviceScope current = stream_.make_device_current();
  struct OfGraph {
    GraphHandle graph;
    std::vector<NodeHandle> first;
    std::vector<PlannedMark> marks;
  };
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
  std::vector<PlannedMark> planned;
  NodeHandle unused = NodeHandle::kNull;
  for (OfGraph& one : graphs) {
    if (&one == &graphs.front() && count > 0 && !one.first.empty()) {
      check(progress.insert_memset(one.graph, {}, one.first, word_of(page, 0), 0,
                                   count * sizeof(std::uint32_t), &unused),
            "clear the marks of a recording");
    }
    for (PlannedMark& mark : one.marks) {
      std::uint32_t* const word = word_of(page, planned.size());
      check(progress.insert_memset(one.graph, mark.after, mark.before, word, 1, sizeof(*word),
                                   &unused),
            "add a mark to a recording");
      planned.push_back(std::move(mark));
    }
  }
  marks_ = std::make_shared<const Marks>(std::move(planned), std::move(page), memory);
}

void MarkedRecording::make_graphs(Recording& recording) {
  const DeviceScope current = stream_.make_device_current();
  const RelaxedCapture relaxed(
      &stream_.graphs());  // it is to be no part of a capture of another thread
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
