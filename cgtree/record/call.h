// Call: one call of a function, as a value that is worked out once and passed to decide, record and
// run; with the Function that is called, and the Signature of its inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgtree/axes/axis_plan.h"
#include "cgtree/record/apart.h"
#include "cgtree/values/input_list.h"
#include "cgtree/values/key.h"
#include "cgtree/values/options.h"

namespace cgtree {

class ContextMemory;

// A Function is a step function with its name, its options and its dynamic axes. What else a
// context knows of it (keys, recordings, counters) is kept in the tree.
struct Function {
  std::uint32_t id = 0;
  std::string name;
  StepFunction step;
  CompileOptions options;
  std::unique_ptr<AxisPlan> axes;  // null if the function has no dynamic axes
  // Static inputs that are copied from now on, because they have moved too often
  // (OnStaticChange::kDemote). Inputs beyond the end are not.
  std::vector<bool> demoted;
  InputOptions further_inputs;  // the options of inputs beyond options.inputs
  bool writes_inputs = false;   // one of options.inputs is mutated
  // Whether the work is what runs between begin() and end() of Steps, in place of `step`.
  bool is_callers_work = false;

  const InputOptions& input_options(std::size_t i) const noexcept {
    return i < options.inputs.size() ? options.inputs[i] : further_inputs;
  }
  bool is_demoted(std::size_t i) const noexcept { return i < demoted.size() && demoted[i]; }
};

// Throws InvalidArgument for an alignment that is no power of two, and for a tolerance that is
// negative or no number.
void check_options(const std::string& function, const CompileOptions& options);

// A Signature is what the calls of one key share: one warm-up and its recordings serve them all.
class Signature {
 public:
  explicit Signature(InputList inputs);

  bool matches(InputList inputs) const noexcept;
  // Returns "float32 {4, 8}, int32 {4}", after the key if there is one: "[batch=8] int32 {4}".
  std::string to_string() const;

  const std::string& key() const noexcept { return key_; }
  std::size_t size() const noexcept { return entries_.size(); }
  // Returns "float32 {4, 8}", or "nothing" for an output without a buffer.
  std::string type(std::size_t i) const;

  static std::uint64_t hash(InputList inputs) noexcept;

 private:
  struct Entry {
    Shape shape;
    DType dtype;
    bool is_defined;  // false: the caller gave no buffer for this output
  };
  std::string key_;
  std::vector<Entry> entries_;
  std::size_t buffers_;
};

// A Treatment is how an input is brought to a recording.
enum class Treatment : std::uint8_t {
  kStatic,      // the caller promised the address
  kManaged,     // it is an output of an earlier call, at the recorded address
  kCopied,      // it may lie anywhere on the device; the root node copies it
  kCopiedBack,  // the same, and the tail node copies it back: the function writes into it
  kValue,       // it is in host memory; the root node writes its value
  kBuffer,      // it may lie anywhere on the device; the tail node copies an output to it
  kRebound,     // of recordings only: the nodes that use it are told where it is
  kNoBuffer,    // the caller gave no buffer for this output
};

// Returns "static", "copied_back", ...: the name in JSON.
std::string_view name(Treatment treatment) noexcept;

inline bool is_copied(Treatment treatment) noexcept {
  return treatment == Treatment::kCopied || treatment == Treatment::kCopiedBack;
}

// Returns whether the tensor may be at another address at each call.
inline bool may_move(Treatment treatment) noexcept {
  return is_copied(treatment) || treatment == Treatment::kBuffer ||
         treatment == Treatment::kRebound;
}

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
    actual_key_ = inputs.key();
    set_inputs(inputs);
  }
  // Replaces the inputs by other handles to the same tensors, and keeps the caller's key.
  void hold(const HeldInputs& held) noexcept {
    inputs_ = held.list();
    held_key_ = Key::of_text(actual_key_);
    actual_key_ = held_key_.text();
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
  // The key as the caller gave it; that of inputs() may be rounded up.
  std::string_view actual_key() const noexcept { return actual_key_; }
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
  // Whether a recording may use the memory of input `i` (or buffer) where it is, if that proves
  // possible. kNever for one that is not copied, that is padded, or that is not aligned.
  Rebind rebind(std::size_t i) const;
  // Has a managed input copied in this call, and copied back if the function writes into it.
  // Returns false, and changes nothing, if that is forbidden, or another input shares its memory.
  bool copy_managed(std::size_t i);
  // Returns a hash of the addresses that must be as recorded.
  std::uint64_t hash_of_places() const;
  // The alignment in bytes of an input (or buffer) that is rebound.
  std::size_t rebind_alignment(std::size_t i) const noexcept;
  // Whether the storage is an input whose address is checked: it is where it was, or a recording of
  // the call does not fit. So the recording need not keep it.
  bool checks_address_of(const StorageRef& storage) const;
  // Signature::hash() of the inputs.
  std::uint64_t signature_hash() const noexcept;

  // Returns two inputs that share memory, one of which is written and one of which would be copied,
  // so that the copy would miss the write, or the other way round.
  Overlap find_overlap() const;
  // Returns the pairs that must not share memory when a recording of this call is replayed: those
  // that find_overlap() looks at, and each buffer with every other input.
  std::vector<Apart> pairs_apart() const;

  // Returns "input 1 'cache'", of Steps "binding 1 'cache'", or "the buffer of output 0".
  std::string describe(std::size_t i) const;

 private:
  void treat() const;
  Treatment work_out_treatment(std::size_t i) const;
  bool any_mutated() const noexcept;
  bool would_tear(std::size_t i, std::size_t j) const;
  void check_buffer(std::size_t i) const;
  void check_value(std::size_t i) const;

  const Function* function_ = nullptr;
  const ContextMemory* memory_ = nullptr;
  InputList inputs_;
  std::string_view actual_key_;
  Key held_key_;
  CallAxes axes_;
  // Memoized.
  mutable bool is_treated_ = false;
  mutable std::vector<Treatment> treatments_;
  mutable std::optional<std::uint64_t> hash_;
};

}  // namespace cgtree
