// Call: one call of a function, as a value that is worked out once and passed to decide, record and
// run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cgtree/axes/axis_plan.h"
#include "cgtree/input_list.h"
#include "cgtree/record/function.h"
#include "cgtree/record/input_record.h"

namespace cgtree {

class ContextMemory;

// Two inputs that share memory, or must not, by number.
struct Overlap {
  std::uint32_t first = 0;
  std::uint32_t second = 0;

  explicit operator bool() const noexcept { return first != second; }
};

// Two inputs that must not share memory, and the bytes from the first to the last of each.
struct Apart {
  Overlap pair;
  std::size_t first_bytes = 0;
  std::size_t second_bytes = 0;
};

// A Call is a function with the inputs of one call, how each of them is treated, the hash of their
// signature, and the actual and padded sizes of the dynamic axes. Treatments and hash are worked
// out when they are first asked for, and once; a replay that was predicted asks for neither.
//
// A context keeps one Call and begins it anew at each call, so that a Call does not allocate once
// it has seen as many inputs. Inputs, function and memory are borrowed until the call ends.
class Call {
 public:
  Call() = default;
  Call(const Function& function, const ContextMemory& memory, InputList inputs) {
    begin(function, memory, inputs);
  }

  void begin(const Function& function, const ContextMemory& memory, InputList inputs) noexcept {
    function_ = &function;
    memory_ = &memory;
    set_inputs(inputs);
  }
  // Replaces the inputs by the same tensors with other padded sizes.
  void set_inputs(InputList inputs) noexcept {
    inputs_ = inputs;
    is_treated_ = false;
    hash_.reset();
  }

  const Function& function() const noexcept { return *function_; }
  // As the step function is to see them; buffers included.
  const InputList& inputs() const noexcept { return inputs_; }
  CallAxes& axes() noexcept { return axes_; }
  const CallAxes& axes() const noexcept { return axes_; }

  // Throws InvalidArgument or StaleTensor for inputs and buffers that no call of the function may
  // have: null or stale inputs, a static input that was not given, a scalar or a read-only input
  // that the function writes into; a read-only buffer, a buffer on another device, or one that
  // shares memory with itself, an input or another buffer.
  // Everything below requires that check() has returned.
  void check() const;

  // How input `i` (or buffer) would be brought to a recording made now.
  Treatment treatment(std::size_t i) const {
    if (!is_treated_) [[unlikely]] {
      treat();
    }
    return treatments_[i];
  }
  // Signature::hash() of the inputs.
  std::uint64_t signature_hash() const noexcept;

  // Returns the first input that the function writes into although
  // CompileOptions::on_mutated_input forbids it.
  std::optional<std::uint32_t> find_unwanted_write() const;
  // Returns two inputs that share memory, one of which is written and one of which would be copied,
  // so that the copy would miss the write, or the other way round.
  Overlap find_overlap() const;
  // Returns the pairs that must not share memory when a recording of this call is replayed: those
  // that find_overlap() looks at, and each buffer with every other input.
  std::vector<Apart> pairs_apart() const;
  // Returns one line for each copy that costs more than patching an address would.
  std::vector<std::string> notes_on_copies() const;

  // Returns "input 1 'cache'", or "the buffer of output 0".
  std::string describe(std::size_t i) const;

 private:
  void treat() const;
  Treatment work_out_treatment(std::size_t i) const;
  bool any_mutated() const noexcept;
  bool would_tear(std::size_t i, std::size_t j) const;
  void check_buffer(std::size_t i) const;

  const Function* function_ = nullptr;
  const ContextMemory* memory_ = nullptr;
  InputList inputs_;
  CallAxes axes_;
  // Memoized.
  mutable bool is_treated_ = false;
  mutable std::vector<Treatment> treatments_;
  mutable std::optional<std::uint64_t> hash_;
};

}  // namespace cgtree
