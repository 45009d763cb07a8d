// GatherNode: the root node of a recording, which copies inputs to their recorded addresses, and
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

// A GatherNode is one kernel node. Constant data is a table on the device: destinations, sizes and
// strides of copies. Data that changes from call to call is passed as kernel arguments, up to
// kMaxGatherWords words: addresses of inputs, sizes of padded inputs, scalars, positions of
// generators. One driver call patches the node, and only if a word has changed or numbers are
// drawn.
//
// A value of up to kMaxArgumentBytes is passed as kernel arguments. A larger value is copied to
// pinned memory, which the node reads. Each replay takes other pinned memory, which the allocator
// does not reuse until the replay has ended. This forms a ring of slots, as long as the number of
// replays that the device is behind.
class GatherNode {
 public:
  static constexpr std::size_t kMaxArgumentBytes = 1024;

  // A copy between an input of the call, which moves, and its recorded address.
  struct Copy {
    std::uint32_t input;  // its number
    GatherRow row;
  };
  // A value that the node writes: an input passed by value, or the size of an axis of an input.
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
  // The work of one node, or of several.
  struct Work {
    std::vector<Copy> copies;
    std::vector<Value> values;
    std::vector<RecordedDraw> draws;
  };
  static constexpr std::size_t kWordsPerDraw = sizeof(PhiloxPosition) / sizeof(std::uint64_t);

  // Enqueues the write of the table. Requires: no capture is open on the context's stream, and the
  // arguments fit. Throws OutOfMemory, DeviceError.
  GatherNode(ContextMemory& memory, Work work);

  // Represents no node, but the nodes that use inputs in place. `inputs`: in the order of
  // Attachment::bind().
  GatherNode(ContextMemory& memory, std::vector<std::uint32_t> inputs,
             std::unique_ptr<Attachment> rebinding);

  // Adds the node before, or after, all other nodes of the graph, with the present addresses of the
  // inputs. Throws DeviceError.
  void add_as_root(Graph& graph, InputList inputs);
  void add_as_tail(Graph& graph, InputList inputs);

  // Returns the node, or kNull if there is none.
  NodeHandle node() const noexcept { return node_; }
  // Says that the executable graph was made from another graph, in which `node` is this node.
  void stand_for(NodeHandle node) noexcept { patched_ = node; }
  // Says that the executable graph has served another recording since.
  void forget_patch() noexcept { must_patch_ = true; }

  // The rebinding that patches nodes instead of this node, or null, and its inputs.
  Attachment* rebinding() const noexcept { return rebinding_.get(); }
  const std::vector<std::uint32_t>& inputs() const noexcept { return inputs_; }
  // The arguments that the last bind() found.
  const std::vector<std::uint64_t>& words() const noexcept { return words_; }
  // Sets them in another executable graph; kNotReady if the next bind() patches anyway.
  Code tell(const GraphExec& exec) { return must_patch_ ? Code::kNotReady : set(exec); }

  // Must be called once, with the run of copied inputs of the recording.
  void note_copies(const InputRun& copies) noexcept;
  // Writes the present addresses of the inputs to the graph, and moves the generators. have_stayed:
  // the inputs of the run have not moved since the last call. Returns whether the node was patched.
  // Throws DeviceError, OutOfMemory; the generators have then not moved.
  bool bind(const GraphExec& exec, const InputList& inputs, bool have_stayed) {
    const bool patched = (!(have_stayed && has_only_run_) && find(inputs)) || must_patch_;
    if (patched) patch(exec);
    return patched;
  }
  // Must be called after the bound graph was launched on `stream`.
  void launched(StreamRef stream) {
    if (!staged_.empty()) [[unlikely]] {
      let_go_of_slots(stream);
    }
  }
  // Moves the generators back, because the bound graph is not launched. A generator that another
  // thread has used since stays.
  void give_back_draws() noexcept;
  // Calls visit(sequence, first, blocks) for the draws of the last bind().
  template <typename Visit>
  void for_each_draw(Visit&& visit) const {
    for (std::size_t i = 0; i < draws_.size(); ++i)
      visit(draws_[i].sequence, drawn(i), draws_[i].blocks);
  }

 private:
  // A copy whose sizes and strides are kernel arguments.
  struct Padded {
    std::uint32_t input;
    std::uint32_t word;  // the first word
    GatherRow row;
  };
  struct Argument {
    std::uint32_t word;  // the first word
    Value value;
  };
  struct Staged {
    std::uint32_t input;
    std::uint32_t word;
    Tensor slot;  // from bind() to launched()
  };

  // Notes the addresses of the inputs. Returns whether an input has moved, or changed its size.
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
  std::vector<Padded> padded_;         // followed by their words
  std::vector<Argument> values_;       // among these words
  std::vector<Staged> staged_;         // among these words
  bool has_only_copies_ = true;        // true without padded copies and values
  bool has_only_run_ = false;          // and all copies are of the run of copied inputs
  std::vector<RecordedDraw> draws_;    // their positions are the last words
  std::size_t first_draw_ = 0;
  GatherKernel kernel_ = {};
  std::vector<std::uint64_t> words_;  // the kernel's arguments: kernel_.capacity words, then zeros
  Table table_;
  std::uint32_t chunks_ = 0;
  NodeHandle node_ = NodeHandle::kNull;
  NodeHandle patched_ = NodeHandle::kNull;  // its counterpart in the source of the executable graph
  std::unique_ptr<Attachment> rebinding_;   // instead of the node, or null
  bool must_patch_ = false;  // it draws, or the executable graph may have other words
};

// Returns the smallest number of nodes that hold all the work; none if there is none.
std::vector<GatherNode> make_gather_nodes(ContextMemory& memory, GatherNode::Work work);

}  // namespace cgtree
