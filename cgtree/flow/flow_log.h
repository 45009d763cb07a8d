// FlowLog: notes the conditional nodes of a step that is captured, with their bodies, of which a
// device tells only the one who adds a node.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "interop/device/graph_api.h"
#include "interop/device/stream.h"

namespace cgtree {

// While a FlowLog is open it hears of each conditional node that its thread adds, and of the
// streams on which bodies are captured.
//
// Thread safety: used by the thread that captures.
class FlowLog {
 public:
  // look(stream) is called when the capture of a body is about to end there. It must not throw.
  using Look = std::function<void(StreamRef)>;
  explicit FlowLog(Look look = nullptr) noexcept;
  ~FlowLog() { close(); }
  FlowLog(const FlowLog&) = delete;
  FlowLog& operator=(const FlowLog&) = delete;

  // Hears of no more nodes.
  void close() noexcept;

  // Returns whether there is a conditional node.
  bool any() const noexcept { return !bodies_.empty(); }
  // Returns the bodies of a node; none of one that has not been noted.
  std::span<const GraphHandle> bodies_of(NodeHandle node) const noexcept;

  // Whether a branch or loop is missing, because memory has run out.
  bool has_failed() const noexcept { return has_failed_; }

  // Whether a loop hands out rows, which an eager run beside a replay would hand out again.
  bool hands_out_rows() const noexcept { return hands_out_rows_; }

  // Where bodies are captured on this thread, the innermost last.
  static std::span<const StreamRef> streams() noexcept;

  // While a BodyOn lives, a body is captured there. Throws std::bad_alloc.
  class BodyOn {
   public:
    explicit BodyOn(StreamRef stream);
    ~BodyOn();
    BodyOn(const BodyOn&) = delete;
    BodyOn& operator=(const BodyOn&) = delete;
  };

  // Tells all logs that are open on the thread. Throws std::bad_alloc.
  static void note(NodeHandle node, const std::vector<GraphHandle>& bodies);
  // Tells them that a loop hands out rows.
  static void note_rows() noexcept;
  // Tells them that a node is missing. Returns false if there is none.
  static bool note_failure() noexcept;

 private:
  std::unordered_map<NodeHandle, std::vector<GraphHandle>> bodies_;
  const Look look_;
  FlowLog* next_;  // open on the same thread
  bool is_open_ = true;
  bool has_failed_ = false;
  bool hands_out_rows_ = false;
};

}  // namespace cgtree
