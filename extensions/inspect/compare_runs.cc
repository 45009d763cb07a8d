// Runs the nodes of a recording and those of a new capture one by one, from equal memory, and finds
// the first node after which memory differs.
#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "extensions/inspect/found_recording.h"
#include "extensions/inspect/inspect.h"
#include "extensions/inspect/node_runs.h"
#include "extensions/inspect/recording_facts.h"
#include "extensions/inspect/trial_capture.h"
#include "extensions/rebind/read_graph.h"
#include "interop/device/code.h"
#include "interop/tensor/copy.h"

namespace cgtree {
namespace {

// The memory from an address of a node on, after the node.
struct Window {
  std::size_t word = 0;  // index in InspectedNode::words
  Range range;
  std::vector<std::size_t> hashes = {};  // one for each kBlockAlignment bytes
};

std::vector<std::size_t> hashes_of(StreamRef stream, Range range) {
  if (range.bytes == 0) return {};
  std::vector<char> bytes(range.bytes);
  const auto* const from = reinterpret_cast<const void*>(range.address);
  check(stream.api().copy(stream.handle(), bytes.data(), from, bytes.size()), "read memory");
  stream.synchronize();
  std::vector<std::size_t> hashes;
  for (std::string_view rest(bytes.data(), bytes.size()); !rest.empty();) {
    const std::size_t chunk = std::min(kBlockAlignment, rest.size());
    hashes.push_back(std::hash<std::string_view>()(rest.substr(0, chunk)));
    rest.remove_prefix(chunk);
  }
  return hashes;
}

// Returns whole blocks, filled with zeros.
std::vector<Range> cleared(StreamRef stream, std::vector<Range> ranges) {
  for (Range& range : ranges) {
    range.bytes = round_up(range.bytes, kBlockAlignment);
    void* const to = reinterpret_cast<void*>(range.address);
    check(stream.graphs().memset(stream.handle(), to, 0, range.bytes), "clear memory");
  }
  return ranges;
}

// Returns the part from the address on of the shortest range that contains it, or an empty range.
Range rest_of(std::span<const Range> ranges, std::uintptr_t address) {
  Range found{address, 0};
  for (const Range& range : ranges) {
    if (address < range.address || address >= range.end()) continue;
    const std::size_t rest = range.end() - address;
    found.bytes = found.bytes == 0 ? rest : std::min(found.bytes, rest);
  }
  return found;
}

class TwoRuns {
 public:
  // All are borrowed. Throws OutOfMemory, DeviceError.
  TwoRuns(FoundRecording& found, const RecordingFacts& facts, CaptureComparison& comparison)
      : call_(found.call()),
        facts_(facts),
        comparison_(comparison),
        recording_(found.node->recording),
        stream_(found.engine.memory->stream()) {
    for (std::size_t i = 0; i < call_.inputs().step_size(); ++i) {
      const Tensor& input = call_.inputs()[i];
      const bool is_written = call_.function().input_options(i).is_mutated &&
                              call_.treatment(i) != Treatment::kValue && input.elements() > 0;
      if (!is_written) continue;
      Tensor saved(found.engine.memory->allocate_value(input.bytes()), 0,
                   Shape(input.shape().dims()), input.dtype());
      copy_elements(stream_, saved, input);
      saved_.emplace_back(input, std::move(saved));
      written_.push_back({input.address(), extent_bytes(input)});
    }
  }

  ~TwoRuns() {
    try {
      put_back();
    } catch (const std::exception&) {  // an error of the device that is already reported
      (void)stream_.graphs().take_last_error();
    }
  }
  TwoRuns(const TwoRuns&) = delete;
  TwoRuns& operator=(const TwoRuns&) = delete;

  // Called twice: a capture is compared with a recording that agrees with itself.
  void run_recording(FoundRecording& found) {
    const bool is_again = !windows_.empty();
    std::optional<std::size_t> changing;
    const auto look = [&](std::size_t i) {
      for (Window& window : windows_[i]) {
        std::vector<std::size_t> hashes = hashes_of(stream_, window.range);
        if (is_again && hashes != window.hashes && !changing) changing = i;
        window.hashes = std::move(hashes);
      }
    };
    InspectionReport report;
    must_put_back_ = true;
    run_as_replay(found, facts_, report,
                  {.before = [&] { find_windows(cleared(stream_, recording_.footprint.ranges())); },
                   .after = look});
    end_run(report, "the recording");
    if (!changing || !comparison_.why_not.empty()) return;
    comparison_.why_not = str_format(
        "two runs of the recording differ behind node {}: the step writes memory that is no input, "
        "or has sums in no fixed order",
        *changing);
  }
  // Must be called while the memory of the capture is allocated. `inputs`: of its step.
  void run_capture(const Recording& made, std::span<const Tensor> inputs) {
    const GraphContents now = read_graph(stream_.api(), made.graph);
    comparison_.why_not = difference_of_forms(now);
    if (!comparison_.why_not.empty()) return;
    const DeviceScope current = stream_.make_device_current();
    const RelaxedCapture relaxed(&stream_.graphs());  // other threads may capture
    must_put_back_ = true;
    std::vector<Range> ranges = cleared(stream_, StepScope::current()->allocations().ranges);
    ranges.insert(ranges.end(), written_.begin(), written_.end());
    fill(inputs);
    stream_.synchronize();
    std::vector<std::size_t> order = facts_.order();
    std::erase_if(order, [&](std::size_t i) { return facts_.is_own(i); });
    const GraphExec exec(stream_.graphs(), made.graph);
    InspectionReport report;
    run_nodes(
        exec.handle(), now.nodes, order, facts_, stream_, report,
        {.before = nullptr, .after = [&](std::size_t i) { compare(i, now.nodes[i], ranges); }});
    end_run(report, "a new capture");
  }

 private:
  // The memory of a word ends where the next word's memory begins.
  void find_windows(std::vector<Range> ranges) {
    if (!windows_.empty()) return;
    ranges.insert(ranges.end(), written_.begin(), written_.end());
    windows_.resize(facts_.nodes().size());
    std::set<std::uintptr_t> begins;
    for (std::size_t i = 0; i < windows_.size(); ++i) {
      const std::vector<InspectedWord> words = facts_.describe(i).words;
      for (std::size_t k = 0; k < words.size(); ++k) {
        const Range range = rest_of(ranges, words[k].value);
        if (words[k].memory.empty() || range.bytes == 0) continue;
        windows_[i].push_back({.word = k, .range = range});
        begins.insert(range.address);
      }
    }
    for (std::vector<Window>& windows : windows_) {
      for (Window& window : windows) {
        const auto next = begins.upper_bound(window.range.address);
        if (next == begins.end()) continue;
        window.range.bytes = std::min(window.range.bytes, *next - window.range.address);
      }
    }
  }
  void end_run(const InspectionReport& report, std::string_view of) {
    comparison_.why_not = report.why_not;
    if (report.has_failed()) {
      comparison_.why_not = str_format("node {} of {} has failed: {}; inspect() says more",
                                       report.failed->number, of, report.error);
      return;
    }
    put_back();
  }
  void put_back() {
    for (const auto& [input, saved] : saved_)
      if (must_put_back_) copy_elements(stream_, input, saved);
    must_put_back_ = false;
  }
  std::string difference_of_forms(const GraphContents& now) const {
    const std::size_t count = recording_.costs.step_nodes;
    if (now.nodes.size() != count)
      return str_format("it has {} nodes of the step, and a new capture {}", count,
                        now.nodes.size());
    for (std::size_t i = 0; i < count; ++i)
      if (!are_of_one_form(facts_.nodes()[i], now.nodes[i]))
        return str_format("node {} is another one in a new capture", i);
    return "";
  }
  // As the root node does. Values are in host memory.
  void fill(std::span<const Tensor> inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor& from = call_.inputs()[i];
      void* const to = reinterpret_cast<void*>(inputs[i].address());
      if (call_.treatment(i) == Treatment::kValue) {
        check(stream_.api().copy(stream_.handle(), to,
                                 reinterpret_cast<const void*>(from.address()), from.bytes()),
              "copy a value");
      } else if (inputs[i].address() != from.address() && from.elements() > 0) {
        copy_elements(stream_, inputs[i], from);
      }
    }
  }
  // `ranges`: the memory of the capture.
  void compare(std::size_t i, const NodeContents& now, std::span<const Range> ranges) {
    ++comparison_.nodes;
    if (comparison_.recorded) return;
    const InspectedNode node = facts_.describe(i);
    for (const Window& window : windows_[i]) {
      const InspectedWord& word = node.words[window.word];
      Range range = rest_of(ranges, value_of(now, word));
      range.bytes = std::min(range.bytes, window.range.bytes);
      const std::vector<std::size_t> hashes = hashes_of(stream_, range);
      const bool is_whole = range.bytes == window.range.bytes;
      const std::size_t chunks = is_whole ? hashes.size() : range.bytes / kBlockAlignment;
      std::size_t same = 0;
      while (same < chunks && hashes[same] == window.hashes[same])
        ++same;
      if (same == chunks) continue;
      comparison_.recorded = node;
      comparison_.difference = str_format(
          "node {} of {}: the memory of {}, {}, differs behind it, between bytes {} and {}", i,
          recording_.costs.step_nodes, place_of(node, word), word.memory, same * kBlockAlignment,
          std::min(range.bytes, (same + 1) * kBlockAlignment));
      return;
    }
  }

  const Call& call_;
  const RecordingFacts& facts_;
  CaptureComparison& comparison_;
  Recording& recording_;
  const StreamRef stream_;
  std::vector<std::pair<Tensor, Tensor>> saved_;  // mutated inputs, and their earlier contents
  bool must_put_back_ = false;
  std::vector<Range> written_;                // by them
  std::vector<std::vector<Window>> windows_;  // by node
};

// Returns why two runs cannot be compared, or "".
std::string obstacle_of(const FoundRecording& found, const RecordingFacts& facts) {
  if (found.function.is_callers_work)
    return "its work is enqueued by the caller, and nothing shows what it writes";
  if (found.node->recording.draws_numbers()) return "it draws random numbers";
  const AxisPlan* const plan = found.function.axes.get();
  for (std::size_t axis = 0; plan != nullptr && axis < plan->size(); ++axis)
    if (!plan->rule(axis).is_of_key()) return "it has dynamic axes";
  return facts.why_not();
}

void compare(FoundRecording& found, const RecordingFacts& facts, CaptureComparison& comparison) {
  wait_for_others(found);  // before memory is saved
  TwoRuns runs(found, facts, comparison);
  for (int run = 0; run < 2 && comparison.why_not.empty(); ++run)
    runs.run_recording(found);
  if (!comparison.why_not.empty()) return;
  const std::string failure = capture_trial(
      found, CaptureMode::kThreadLocal,
      [&](std::span<const Tensor> step_inputs) { return run_captured(found.call(), step_inputs); },
      [&](const Recording& made, std::span<const Tensor> step_inputs) {
        runs.run_capture(made, step_inputs);
      });
  if (!failure.empty()) comparison.why_not = "a new capture has failed: " + failure;
}

}  // namespace

CaptureComparison compare_runs(const FunctionHandle& function, const InputList& inputs) {
  FoundRecording found(function, inputs, "compare_runs()");
  CaptureComparison comparison;
  comparison.function = function.name();
  comparison.why_not = found.why_not;
  if (found.node == nullptr) return comparison;
  comparison.recording = found.node->id;
  found.engine.gate.keep_context();
  const HeldInputs held(found.call().inputs());
  found.call().hold(held);
  const RecordingFacts facts(found.node->recording, found.call(),
                             found.engine.memory->stream().api());
  comparison.why_not = obstacle_of(found, facts);
  if (!comparison.why_not.empty()) return comparison;
  compare(found, facts, comparison);
  found.entry.finish();
  return comparison;
}

}  // namespace cgtree
