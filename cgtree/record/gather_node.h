// GatherNode: the root node of a recording, which brings inputs to where they were recorded, and
// the tail node, which copies back.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/attachment.h"
#include "cgtree/record/draws.h"
#include "cgtree/record/gather.h"
#include "cgtree/record/input_run.h"
#include "cgtree/values/input_list.h"
#include "interop/device/device_api.h"
#include "interop/device/graph.h"

namespace cgtree {

// A GatherNode is one kernel node. What stays is a table on the device: where copies go, their
// sizes and strides. What changes from call to call is passed as kernel arguments, up to
// kMaxGatherWords words of them: addresses of inputs, sizes of padded ones, scalars, positions of
// generators. One driver call patches the node, and only if a word has changed or there is
// something to draw.
//
// A value of up to kMaxArgumentBytes is passed as kernel arguments. A larger one is copied to
// pinned memory, which the node reads. Each replay takes other pinned memory, which the allocator
// does not hand out again until the replay is done: that is a ring of slots, as long as the replays
// that the device is behind.
class GatherNode {
 public:
  static constexpr std::size_t kMaxArgumentBytes = 1024;

  // A copy between an input of the call, which moves, and where it was recorded.
  struct Copy {
    std::uint32_t input;  // its number
    GatherRow row;
  };
  // A value that the node writes: an input that is passed by value, or the size of an axis of an
  // input.
  struct Value {
    std::uint32_t input;
    std::uintptr_t address;  // on the device
    std::size_t bytes;
    int axis = kWhole;

    bool is_staged() const noexcept { return bytes > kMaxArgumentBytes; }
    // The number of words among the kernel's arguments.
    std::size_t words() const noexcept {
      return is_staged() ? 1 : (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
    }
  };
  static constexpr int kWhole = -1;
  // All that one node, or several of them, have to do.
  struct Work {
    std::vector<Copy> copies;
    std::vector<Value> values;
    std::vector<RecordedDraw> draws;
  };
  static constexpr std::size_t kWordsPerDraw = sizeof(PhiloxPosition) / sizeof(std::uint64_t);

  // Enqueues the writing of the table. Requires: no capture is open on the context's stream, and
  // the arguments fit. Throws OutOfMemory, DeviceError.
  GatherNode(ContextMemory& memory, Work work);

  // Stands for no node of its own, but for those that use inputs where they are. `inputs`: in the
  // order of Attachment::bind().
  GatherNode(ContextMemory& memory, std::vector<std::uint32_t> inputs,
             std::unique_ptr<Attachment> rebinding);

  // Puts the node in front of, or behind, all other nodes of the graph, with the present addresses
  // of the inputs. Throws DeviceError.
  void add_as_root(Graph& graph, InputList inputs);
  void add_as_tail(Graph& graph, InputList inputs);

  // Returns the node, or kNull if there is none of its own.
  NodeHandle node() const noexcept { return node_; }
  // The executable graph was made from another graph, in which this node stands for it.
  void stand_for(NodeHandle node) noexcept { patched_ = node; }
  // The executable graph has served another recording.
  void forget_patch() noexcept { must_patch_ = true; }

  // The rebinding that patches nodes in place of this one, or null, and the inputs that it knows.
  Attachment* rebinding() const noexcept { return rebinding_.get(); }
  const std::vector<std::uint32_t>& inputs() const noexcept { return inputs_; }
  // The arguments that bind() has found last.
  const std::vector<std::uint64_t>& words() const noexcept { return words_; }
  // Tells them to another executable graph; kNotReady where the next bind() patches in any case.
  Code tell(const GraphExec& exec) { return must_patch_ ? Code::kNotReady : set(exec); }

  // Must be called once with the run of copied inputs of the recording.
  void note_copies(const InputRun& copies) noexcept;
  // Tells the graph where the inputs are now, and moves the generators on. have_stayed: those of
  // the run are where they were when this was called last. Returns whether the node had to be
  // patched. Throws DeviceError, OutOfMemory; then the generators have not moved.
  bool bind(const GraphExec& exec, const InputList& inputs, bool have_stayed) {
    const bool patched = (!(have_stayed && has_only_run_) && find(inputs)) || must_patch_;
    if (patched) patch(exec);
    return patched;
  }
  // Must be called after a launch on `stream` of what was bound.
  void launched(StreamRef stream) {
    if (!staged_.empty()) [[unlikely]] {
      let_go_of_slots(stream);
    }
  }
  // Moves the generators back, because what was bound is not launched. A generator that another
  // thread has drawn from since stays.
  void give_back_draws() noexcept;
  // Calls visit(sequence, first, blocks) for what the last bind() has drawn.
  template <typename Visit>
  void for_each_draw(Visit&& visit) const {
    for (std::size_t i = 0; i < draws_.size(); ++i)
      visit(draws_[i].sequence, drawn(i), draws_[i].blocks);
  }

 private:
  // A copy whose sizes and strides are kernel arguments.
  struct Padded {
    std::uint32_t input;
    std::uint32_t word;  // the first
    GatherRow row;
  };
  struct Argument {
    std::uint32_t word;  // the first
    Value value;
  };
  struct Staged {
    std::uint32_t input;
    std::uint32_t word;
    Tensor slot;  // from bind() to launched()
  };

  // Notes where the inputs are. Returns whether one has moved, or changed its size.
  bool find(const InputList& inputs) {
    bool moved = false;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const std::uint64_t address = inputs[inputs_[i]].address();
      moved = moved || words_[i] != address;
      words_[i] = address;
    }
    return has_only_copies_ ? moved : find_rest(inputs) || moved;
  }
  bool find_rest(const InputList& inputs);
  bool find_value(const Argument& argument, InputList inputs) noexcept;
  void stage(Staged& staged, InputList inputs);
  void let_go_of_slots(StreamRef stream);
  LaunchDims dims() const noexcept;
  // Returns the words that hold the position of draws_[i].
  std::uint64_t* draw_words(std::size_t i) noexcept {
    return words_.data() + first_draw_ + kWordsPerDraw * i;
  }
  PhiloxPosition drawn(std::size_t i) const noexcept;
  void draw() noexcept;
  void patch(const GraphExec& exec);
  Code set(const GraphExec& exec);
  void write_table(ContextMemory& memory, const GatherTable& table);

  ContextMemory* memory_;
  DeviceAPI* api_;
  int device_;                         // its id
  std::vector<std::uint32_t> inputs_;  // word i is the address of input inputs_[i] of the call
  std::vector<Padded> padded_;         // their words follow
  std::vector<Argument> values_;       // of them
  std::vector<Staged> staged_;         // of them
  bool has_only_copies_ = true;        // without padding, or draws alone
  bool has_only_run_ = false;          // and of the run of copied inputs alone
  std::vector<RecordedDraw> draws_;    // their positions follow
  std::size_t first_draw_ = 0;
  GatherKernel kernel_ = {};
  std::vector<std::uint64_t> words_;  // the kernel's arguments: kernel_.capacity, the rest is 0
  Table table_;
  std::uint32_t chunks_ = 0;
  NodeHandle node_ = NodeHandle::kNull;
  NodeHandle patched_ = NodeHandle::kNull;  // what stands for it where executable graphs are made
  std::unique_ptr<Attachment> rebinding_;   // in place of the node, or null
  bool must_patch_ = false;  // it draws; or the executable graph may know other words
};

// Returns as few nodes as hold all the work; none if there is none.
std::vector<GatherNode> make_gather_nodes(ContextMemory& memory, GatherNode::Work work);

}  // namespace cgtree
