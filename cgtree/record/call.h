// Call: one call of a function, as a value that is computed once and passed to decide, record and
// run; Function: the called function; Signature: the types of its inputs.
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

// A Function is a step function with its name, its options and its dynamic axes. The tree keeps the
// rest of its state (keys, recordings, counters).
struct Function {
  std::uint32_t id = 0;
  std::string name;
  StepFunction step;
  CompileOptions options;
  std::unique_ptr<AxisPlan> axes;  // null if the function has no dynamic axes
  // Static inputs that are copied from now on, because they moved too often
  // (OnStaticChange::kDemote). Inputs beyond the end are not demoted.
  std::vector<bool> demoted;
  InputOptions further_inputs;  // the options of inputs beyond options.inputs
  bool writes_inputs = false;   // true if one of options.inputs is mutated
  // True if the work is the code between begin() and end() of Steps, instead of `step`.
  bool is_callers_work = false;

  const InputOptions& input_options(std::size_t i) const noexcept {
    return i < options.inputs.size() ? options.inputs[i] : further_inputs;
  }
  bool is_demoted(std::size_t i) const noexcept { return i < demoted.size() && demoted[i]; }
};

// Throws InvalidArgument for an alignment that is not a power of two, and for a tolerance that is
// negative or NaN.
void check_options(const std::string& function, const CompileOptions& options);

// A Signature is shared by the calls of one key: one warm-up and its recordings serve them all.
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

// A Treatment is the way in which an input reaches a recording.
enum class Treatment : std::uint8_t {
  kStatic,      // the caller promised the address
  kManaged,     // an output of an earlier call, at the recorded address
  kCopied,      // anywhere on the device; the root node copies it
  kCopiedBack,  // the same, and the tail node copies it back: the function writes it
  kValue,       // in host memory; the root node writes its value
  kBuffer,      // anywhere on the device; the tail node copies an output to it
  kRebound,     // of recordings only: the nodes that use it get its address
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

// A Call is a function with the inputs of one call, the treatment of each input, the hash of their
// signature, and the actual and padded sizes of the dynamic axes. Treatments and hash are computed
// once, at their first use; a predicted replay uses neither.
//
// A context keeps one Call and restarts it at each call, so that a Call does not allocate once it
// has had as many inputs. Inputs, function and memory are borrowed until the call ends.
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
  // The inputs as the step function sees them, buffers included.
  const InputList& inputs() const noexcept { return inputs_; }
  // The caller's key; the key in inputs() may be rounded up.
  std::string_view actual_key() const noexcept { return actual_key_; }
  CallAxes& axes() noexcept { return axes_; }
  const CallAxes& axes() const noexcept { return axes_; }

  // Throws InvalidArgument or StaleTensor for inputs and buffers that no call of the function may
  // have: null or stale inputs, a missing static input, a scalar or read-only input that the
  // function writes; a read-only buffer, a buffer on another device, or one that shares memory with
  // itself, an input or another buffer.
  // All functions below require that check() has returned.
  void check() const;

  // Returns the treatment of input (or buffer) `i` in a recording made now.
  Treatment treatment(std::size_t i) const {
    if (!is_treated_) [[unlikely]] {
      treat();
    }
    return treatments_[i];
  }
  // Returns whether a recording may use the memory of input (or buffer) `i` in place, if that
  // proves possible. kNever for an input that is not copied, is padded, or is not aligned.
  Rebind rebind(std::size_t i) const;
  // Makes this call copy a managed input, and copy it back if the function writes it. Returns
  // false, and changes nothing, if that is forbidden or another input shares its memory.
  bool copy_managed(std::size_t i);
  // Returns a hash of the addresses that must be as recorded.
  std::uint64_t hash_of_places() const;
  // The required alignment in bytes of a rebound input (or buffer).
  std::size_t rebind_alignment(std::size_t i) const noexcept;
  // Returns whether the storage is an input whose address is checked: a recording fits only if it
  // has not moved. The recording need not keep such a storage.
  bool checks_address_of(const StorageRef& storage) const;
  // Signature::hash() of the inputs.
  std::uint64_t signature_hash() const noexcept;

  // Returns two inputs that share memory, of which one is written and one is copied: the copy would
  // miss the write, or the reverse.
  Overlap find_overlap() const;
  // Returns the pairs that must not share memory when a recording of this call is replayed: the
  // pairs of find_overlap(), and each buffer with every other input.
  std::vector<Apart> pairs_apart() const;

  // Returns "input 1 'cache'", for Steps "binding 1 'cache'", or "the buffer of output 0".
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
