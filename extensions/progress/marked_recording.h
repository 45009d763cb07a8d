// MarkedRecording: executable graphs of a recording that write down how far they have come.
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
  // `page`: words for the marks, and behind them one for the start of each graph; null without
  // marks. `memory`: borrowed.
  Marks(Tensor page, ContextMemory& memory) noexcept : page_(std::move(page)), memory_(memory) {}
  // All that has written them is in front of the end of the stream where the context works now.
  ~Marks() { release_page(std::move(page_), memory_.stream()); }
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;

  // Over all graphs; each is behind words of the page.
  const std::vector<PlannedMark>& planned() const noexcept { return planned_; }
  // As of the launch that has begun last.
  bool is_reached(std::size_t mark) const noexcept { return read_word(page_, mark) != 0; }
  // Returns the time of the stretch of a mark in the last launch, with that of the mark itself.
  // Requires: the launch has ended, and no other one was enqueued since.
  std::chrono::nanoseconds time(std::size_t mark) const noexcept;

 private:
  friend class MarkedRecording;  // makes it

  std::vector<PlannedMark> planned_;
  Tensor page_;
  ContextMemory& memory_;
};

// A MarkedRecording belongs to a recording, whose graphs have got a kernel at each mark and one in
// front, which write the time. Executable graphs that were made of the graphs before are as they
// were; those with marks take as much memory again, and are dropped and made as wanted.
//
// Thread safety: used by the thread that is inside the context.
class MarkedRecording {
 public:
  // Returns why a recording cannot leave marks, or an empty text.
  static std::string why_not(const Recording& recording);

  // Has no executable graphs yet. Requires: why_not(recording) is empty. `memory` and `spent`:
  // borrowed. Throws OutOfMemory, DeviceError; the recording can be replayed as before then.
  // If its graphs have got a part of the marks, the audit says so for good.
  MarkedRecording(Recording& recording, ContextMemory& memory, Spent& spent);
  ~MarkedRecording() { drop_graphs(); }
  MarkedRecording(const MarkedRecording&) = delete;
  MarkedRecording& operator=(const MarkedRecording&) = delete;

  bool has_graphs() const noexcept { return !execs_.empty(); }
  // Requires: there are none. Throws as the constructor.
  void make_graphs(Recording& recording);
  // Requires: the recording has its own executable graphs.
  void drop_graphs() noexcept;
  // Exchanges the executable graphs of the recording and these, and tells those that it gets where
  // the inputs are.
  void exchange(Recording& recording) noexcept;
  // Clears the marks in front of a launch whose first graph is empty. Throws DeviceError.
  void begin_launch(StreamRef stream) const;

  const std::shared_ptr<const Marks>& marks() const noexcept { return marks_; }

 private:
  // The parameters of a root or tail node in both executable graphs.
  struct Told {
    std::vector<std::uint64_t> words;
    bool is_known = false;
  };

  // `start`: the word of the graph. `cleared`: words, by its first node.
  void put_into(GraphHandle graph, MarkPlan& plan, Marks& marks, std::size_t start,
                std::size_t cleared);
  void tell(GatherNode& node, const GraphExec& exec, Told& told) const noexcept;

  const StreamRef stream_;
  Spent& spent_;
  std::shared_ptr<const Marks> marks_;
  bool clears_on_stream_ = false;  // the first graph is empty, and a break comes next
  std::vector<GraphExec> execs_;   // in the order of the recording's graphs
  std::vector<Told> told_;         // of all nodes, the roots first
  std::size_t bytes_ = 0;          // of these, an estimate
};

}  // namespace cgtree
