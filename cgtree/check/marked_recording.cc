// Puts marks into the graphs of a recording, and makes executable graphs of them.
#include "cgtree/check/marked_recording.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
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
  marks_ = marks;
  clears_on_stream_ = graphs.front().first.empty();
  std::string& why = audit_of(recording).why_unmarked;
  why = "its graphs have got a part of their marks";
  for (OfGraph& one : graphs)
    put_into(one, *marks, /*clears=*/&one == &graphs.front(), has_times);
  why.clear();
}

void MarkedRecording::put_into(OfGraph& graph, Marks& marks, bool clears, bool has_times) {
  ProgressAPI& progress = *stream_.api().progress();
  std::vector<NodeHandle> in_front;  // of the graph
  NodeHandle made = NodeHandle::kNull;
  if (clears && !graph.first.empty()) {
    check(progress.insert_memset(graph.graph, {}, graph.first, word_of(marks.page_, 0), 0,
                                 marks.page_.bytes(), &made),
          "clear the marks of a recording");
    in_front.push_back(made);
  }
  std::vector<NodeHandle> memsets;  // of the marks of this graph
  for (PlannedMark& mark : graph.marks) {
    if (has_times) {
      std::vector<NodeHandle> behind;
      for (const std::size_t number : mark.behind)
        behind.push_back(memsets[number]);
      Marks::Events& events = marks.events_.emplace_back();
      check(progress.create_timed_event(&events.begin), "make an event");
      check(progress.create_timed_event(&events.end), "make an event");
      check(progress.insert_event(graph.graph, behind.empty() ? in_front : behind, mark.first,
                                  events.begin, &made),
            "add an event to a recording");
      check(progress.insert_event(graph.graph, mark.after, mark.before, events.end, &made),
            "add an event to a recording");
    }
    std::uint32_t* const word = word_of(marks.page_, marks.planned_.size());
    check(
        progress.insert_memset(graph.graph, mark.after, mark.before, word, 1, sizeof(*word), &made),
        "add a mark to a recording");
    memsets.push_back(made);
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
  } catch (const Error&) {  // the next bind() says it
  }
  told.is_known = ok(code);
  std::ranges::copy(node.words(), told.words.begin());
  if (ok(code) || code == Code::kNotReady) return;
  (void)stream_.graphs().take_last_error();
  node.forget_patch();
}

void MarkedRecording::begin_launch(StreamRef stream) const {
  if (!clears_on_stream_ || marks_->planned().empty()) return;
  const DeviceScope current = stream.make_device_current();
  check(
      stream.graphs().memset(stream.handle(), word_of(marks_->page_, 0), 0, marks_->page_.bytes()),
      "clear the marks of a recording");
}

}  // namespace cgtree
