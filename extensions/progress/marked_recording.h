// MarkedRecording: executable graphs of a recording that write their progress to memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/recording.h"
#include "cgtree/tree/tree.h"
#include "extensions/progress/mark_plan.h"
#include "extensions/progress/mark_words.h"

namespace cgtree {

// Marks are words that the graphs of a recording write during a launch. The memory is pinned: the
// host reads it while the device works or hangs.
//
// Thread safety: any thread reads them.
class Marks {
 public:
  // `page`: words for the marks, followed by a word for the start of each graph; null without
  // marks. `memory`: borrowed.
  Marks(Tensor page, ContextMemory& memory) noexcept : page_(std::move(page)), memory_(memory) {}
  // All work that wrote them precedes the end of the context's present stream.
  ~Marks() { release_page(std::move(page_), memory_.stream()); }
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // Over all graphs; each mark's number is its word in the page.
  const std::vector<PlannedMark>& planned() const noexcept { return planned_; }
  // In the launch that began last.
  bool is_reached(std::size_t mark) const noexcept { return read_word(page_, mark) != 0; }
  // Returns the time of the stretch of a mark in the last launch, including the mark itself.
  // Requires: the launch has ended, and no other launch was enqueued since.
  std::chrono::nanoseconds time(std::size_t mark) const noexcept;

 private:
  friend class MarkedRecording;  // makes it

  std::vector<PlannedMark> planned_;
  Tensor page_;
  ContextMemory& memory_;
};

// A MarkedRecording belongs to a recording, whose graphs got a kernel at each mark and at the
// start, which write the time. Executable graphs made from the graphs before are unchanged; those
// with marks take as much memory again, and are dropped and made on demand.
//
// Thread safety: used by the thread that is inside the context.
class MarkedRecording {
 public:
  // Returns the reason why a recording cannot leave marks, or an empty text.
  static std::string why_not(const Recording& recording);

  // Has no executable graphs yet. Requires: why_not(recording) is empty. `memory` and `spent`:
  // borrowed. Throws OutOfMemory, DeviceError; the recording can then be replayed as before. If its
  // graphs got a part of the marks, the audit says so permanently.
  MarkedRecording(Recording& recording, ContextMemory& memory, Spent& spent);
  ~MarkedRecording() { drop_graphs(); }
  MarkedRecording(const MarkedRecording&) = delete;
  MarkedRecording& operator=(const MarkedRecording&) = delete;

  bool has_graphs() const noexcept { return !execs_.empty(); }
  // Requires: it has no executable graphs. Throws as the constructor.
  void make_graphs(Recording& recording);
  // Requires: the recording has its own executable graphs.
  void drop_graphs() noexcept;
  // Exchanges the executable graphs of the recording and these, and sets the addresses of inputs in
  // those that the recording gets.
  void exchange(Recording& recording) noexcept;
  // Clears the marks before a launch whose first graph is empty. Throws DeviceError.
  void begin_launch(StreamRef stream) const;

  const std::shared_ptr<const Marks>& marks() const noexcept { return marks_; }

 private:
  // The parameters of a root or tail node in both executable graphs.
  struct Told {
    std::vector<std::uint64_t> words;
    bool is_known = false;
  };

  // `start`: the word of the graph. `cleared`: the number of words that its first node clears.
  void put_into(GraphHandle graph, MarkPlan& plan, Marks& marks, std::size_t start,
                std::size_t cleared);
  void tell(GatherNode& node, const GraphExec& exec, Told& told) const noexcept;

  const StreamRef stream_;
  Spent& spent_;
  std::shared_ptr<const Marks> marks_;
  bool clears_on_stream_ = false;  // the first graph is empty, and a break follows
  std::vector<GraphExec> execs_;   // in the order of the recording's graphs
  std::vector<Told> told_;         // for all nodes, the roots first
  std::size_t bytes_ = 0;          // estimate for these graphs
};

}  // namespace cgtree
