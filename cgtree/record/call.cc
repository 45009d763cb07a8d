// Checks the inputs of a call, singly and in pairs, and compares and hashes their signatures.
#include "cgtree/record/call.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/format.h"
#include "cgtree/memory/context_memory.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/stream_synchronization.h"
#include "interop/tensor/tensor.h"

namespace cgtree {
void check_options(const std::string& function, const CompileOptions& options) {
  const auto check_tolerance = [&](const std::string& tensor, double tolerance) {
    if (tolerance >= 0) return;
    throw InvalidArgument(str_format(
        "{} of '{}' is to be verified with tolerance {}: give 0 for bit for bit, or more", tensor,
        function, tolerance));
  };
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    const InputOptions& input = options.inputs[i];
    check_tolerance(text_of_input(i, input.name), input.tolerance);
    if (std::has_single_bit(input.alignment)) continue;
    throw InvalidArgument(
        str_format("input {} '{}' of '{}' is to be aligned to {} bytes: give a power of two", i,
                   input.name, function, input.alignment));
  }
  for (std::size_t i = 0; i < options.outputs.size(); ++i)
    check_tolerance(text_of_output(i, options.outputs[i].name), options.outputs[i].tolerance);
}

std::string_view name(Treatment treatment) noexcept {
  switch (treatment) {
    case Treatment::kStatic:
      return "static";
    case Treatment::kManaged:
      return "managed";
    case Treatment::kCopied:
      return "copied";
    case Treatment::kCopiedBack:
      return "copied_back";
    case Treatment::kValue:
      return "value";
    case Treatment::kBuffer:
      return "buffer";
    case Treatment::kNoBuffer:
      return "no_buffer";
    case Treatment::kRebound:
      return "rebound";
  }
  return "unknown";
}

Signature::Signature(InputList inputs) : key_(inputs.key()), buffers_(inputs.buffers()) {
  entries_.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    entries_.push_back({inputs.shape(i), inputs[i].dtype(), inputs[i].defined()});
  }
}

bool Signature::matches(InputList inputs) const noexcept {
  if (inputs.size() != entries_.size() || inputs.buffers() != buffers_) return false;
  if (inputs.key() != key_) return false;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Entry& entry = entries_[i];
    if (inputs[i].dtype() != entry.dtype || inputs.shape(i) != entry.shape ||
        inputs[i].defined() != entry.is_defined) {
      return false;
    }
  }
  return true;
}

std::string Signature::type(std::size_t i) const {
  const Entry& entry = entries_[i];
  if (!entry.is_defined) return "nothing";
  return str_format("{} {}", name(entry.dtype), cgtree::to_string(entry.shape));
}

std::string Signature::to_string() const {
  std::string text = key_.empty() ? "" : str_format("[{}]", key_);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const bool is_buffer = i >= entries_.size() - buffers_;
    text += i > 0 ? ", " : key_.empty() ? "" : " ";
    if (is_buffer) text += "into ";
    text += type(i);
  }
  return text;
}

std::uint64_t Signature::hash(InputList inputs) noexcept {
  std::uint64_t hash = inputs.size() ^ inputs.buffers() << 32;
  if (!inputs.key().empty()) hash ^= std::hash<std::string_view>()(inputs.key());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::uint64_t word =
        inputs.shape(i).hash() + static_cast<std::uint64_t>(inputs[i].dtype());
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

void Call::treat() const {
  treatments_.resize(inputs_.size());
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    treatments_[i] = work_out_treatment(i);
  is_treated_ = true;
}

Treatment Call::work_out_treatment(std::size_t i) const {
  const Tensor& input = inputs_[i];
  if (inputs_.is_buffer(i)) return input.defined() ? Treatment::kBuffer : Treatment::kNoBuffer;
  if (memory_->manages(*input.storage()) && inputs_.in_place(i)) return Treatment::kManaged;
  if (is_by_value(input)) return Treatment::kValue;
  const InputOptions& options = function_->input_options(i);
  const bool is_aligned = input.address() % options.alignment == 0;
  if (options.is_static && is_aligned && !function_->is_demoted(i)) return Treatment::kStatic;
  return options.is_mutated ? Treatment::kCopiedBack : Treatment::kCopied;
}

Rebind Call::rebind(std::size_t i) const {
  if (i >= inputs_.size()) return Rebind::kNever;  // the copy of an output
  if (!may_move(treatment(i)) || inputs_.is_padded(i) || inputs_[i].elements() == 0 ||
      inputs_[i].address() % rebind_alignment(i) != 0) {
    return Rebind::kNever;
  }
  if (!inputs_.is_buffer(i)) return function_->input_options(i).rebind;
  const std::vector<OutputOptions>& outputs = function_->options.outputs;
  const std::size_t output = i - inputs_.step_size();
  return output < outputs.size() ? outputs[output].rebind : Rebind::kNever;
}

bool Call::copy_managed(std::size_t i) {
  if (treatment(i) != Treatment::kManaged) return false;
  const bool is_mutated = function_->input_options(i).is_mutated;
  treatments_[i] = is_mutated ? Treatment::kCopiedBack : Treatment::kCopied;
  if (!find_overlap()) return true;
  treatments_[i] = Treatment::kManaged;
  return false;
}

std::uint64_t Call::hash_of_places() const {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (treatment(i) != Treatment::kStatic && treatment(i) != Treatment::kManaged) continue;
    hash = (hash ^ inputs_[i].address()) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  }
  return hash;
}

bool Call::checks_address_of(const StorageRef& storage) const {
  for (std::size_t i = 0; i < inputs_.step_size(); ++i) {
    const bool is_checked =
        treatment(i) == Treatment::kManaged || treatment(i) == Treatment::kStatic;
    if (is_checked && inputs_[i].storage() == storage) return true;
  }
  return false;
}

std::size_t Call::rebind_alignment(std::size_t i) const noexcept {
  return inputs_.is_buffer(i) ? InputOptions().alignment : function_->input_options(i).alignment;
}

std::uint64_t Call::signature_hash() const noexcept {
  if (!hash_) hash_ = Signature::hash(inputs_);
  return *hash_;
}

bool Call::any_mutated() const noexcept {
  for (const InputOptions& options : function_->options.inputs) {
    if (options.is_mutated) return true;
  }
  return false;
}

// Returns whether a copy of one input would miss writes to the other, if the two share memory.
bool Call::would_tear(std::size_t i, std::size_t j) const {
  const Treatment first = treatment(i);
  const Treatment second = treatment(j);
  if (first == Treatment::kValue || second == Treatment::kValue) return false;
  if (!function_->input_options(i).is_mutated && !function_->input_options(j).is_mutated) {
    return false;
  }
  return is_copied(first) || is_copied(second);
}

// Finds a pair of which one input is written. The written inputs are sorted by address, so that
// each input is compared only with those that reach it.
Overlap Call::find_overlap() const {
  struct Written {
    std::uintptr_t begin;
    std::uintptr_t furthest;  // the largest end of this input and those before it
    std::uint32_t input;
  };
  const auto end_of = [&](std::uint32_t i) {
    const auto elements = static_cast<std::size_t>(inputs_[i].shape().extent());
    return inputs_[i].address() + elements * size_of(inputs_[i].dtype());
  };
  std::vector<Written> written;
  for (std::uint32_t i = 0; i < inputs_.step_size(); ++i) {
    if (!function_->input_options(i).is_mutated || treatment(i) == Treatment::kValue) continue;
    written.push_back({inputs_[i].address(), end_of(i), i});
  }
  std::sort(written.begin(), written.end(),
            [](const Written& a, const Written& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < written.size(); ++i)
    written[i].furthest = std::max(written[i].furthest, written[i - 1].furthest);

  for (std::uint32_t i = 0; i < inputs_.step_size() && !written.empty(); ++i) {
    auto behind = std::lower_bound(
        written.begin(), written.end(), end_of(i),
        [](const Written& one, std::uintptr_t address) { return one.begin < address; });
    while (behind != written.begin() && (--behind)->furthest > inputs_[i].address()) {
      const std::uint32_t j = behind->input;
      if (j == i || !would_tear(i, j) || !may_overlap(inputs_[i], inputs_[j])) continue;
      return {std::min(i, j), std::max(i, j)};
    }
  }
  return {};
}

std::vector<Apart> Call::pairs_apart() const {
  const bool mutates = any_mutated();
  const auto bytes = [&](std::uint32_t i) {
    if (inputs_.is_padded(i)) return Apart::kUnknownBytes;
    return static_cast<std::size_t>(inputs_.shape(i).extent()) * size_of(inputs_[i].dtype());
  };
  std::vector<Apart> pairs;
  for (std::uint32_t j = 0; j < inputs_.size(); ++j) {
    if (treatment(j) == Treatment::kNoBuffer) continue;
    const bool is_buffer = treatment(j) == Treatment::kBuffer;
    for (std::uint32_t i = 0; i < j; ++i) {
      const Treatment other = treatment(i);
      if (is_buffer ? other != Treatment::kNoBuffer && other != Treatment::kValue
                    : mutates && would_tear(i, j)) {
        pairs.push_back({{i, j}, bytes(i), bytes(j)});
      }
    }
  }
  return pairs;
}

std::string Call::describe(std::size_t i) const {
  if (i < inputs_.size() && inputs_.is_buffer(i)) {
    return str_format("the buffer of output {}", i - inputs_.step_size());
  }
  const std::string& name = function_->input_options(i).name;
  return function_->is_callers_work ? text_of_binding(i, name) : text_of_input(i, name);
}

void Call::check_buffer(std::size_t i) const {
  const Tensor& buffer = inputs_[i];
  if (buffer.device() != memory_->device()) {
    throw InvalidArgument(str_format("{} of '{}' is {}, the context's device is {}", describe(i),
                                     function_->name, cgtree::describe(buffer),
                                     to_string(memory_->device())));
  }
  if (is_read_only(buffer)) {
    throw InvalidArgument(str_format("{} of '{}' is {}, which is read-only", describe(i),
                                     function_->name, cgtree::describe(buffer)));
  }
  if (may_overlap_itself(buffer.shape())) {
    throw InvalidArgument(str_format(
        "{} of '{}' is {}, whose elements share memory: pass one with memory of its own for each",
        describe(i), function_->name, cgtree::describe(buffer)));
  }
  for (std::size_t j = 0; j < i; ++j) {
    if (!inputs_[j].defined() || !may_overlap(inputs_[j], buffer)) continue;
    throw InvalidArgument(str_format(
        "{} of '{}', {} at {:#x}, shares memory with {}, {} at {:#x}: pass tensors that lie apart",
        describe(i), function_->name, cgtree::describe(buffer), buffer.address(), describe(j),
        cgtree::describe(inputs_[j]), inputs_[j].address()));
  }
}

// The step function gets its bytes unchanged.
void Call::check_value(std::size_t i) const {
  const auto refuse = [&](std::string_view why) {
    throw InvalidArgument(str_format("{} of '{}' is passed by value, and {}: pass a tensor on {}",
                                     describe(i), function_->name, why,
                                     to_string(memory_->device())));
  };
  if (function_->input_options(i).is_mutated) refuse("the function writes into it");
  if (function_->axes != nullptr && function_->axes->pads(i)) refuse("it would be padded");
  if (!inputs_[i].is_contiguous()) refuse("does not lie in one piece");
}

void Call::check() const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].defined()) {
      (void)inputs_[i].data();  // throws StaleTensor
    } else if (!inputs_.is_buffer(i)) {
      throw InvalidArgument(str_format("input {} of '{}' is a null tensor", i, function_->name));
    }
  }
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_.is_buffer(i)) {
      if (inputs_[i].defined()) check_buffer(i);
      continue;
    }
    if (treatment(i) == Treatment::kValue) check_value(i);
    if (function_->input_options(i).require_contiguous && !inputs_[i].is_contiguous()) {
      refuse_gaps(function_->name, describe(i), cgtree::describe(inputs_[i]));
    }
    if (function_->input_options(i).is_mutated && is_read_only(inputs_[i])) {
      throw InvalidArgument(str_format(
          "{} of '{}' is {}, which is read-only, and the function writes into it: pass a copy",
          describe(i), function_->name, cgtree::describe(inputs_[i])));
    }
  }
  const std::vector<InputOptions>& declared = function_->options.inputs;
  for (std::size_t i = declared.size(); i-- > inputs_.step_size();) {
    if (!declared[i].is_static) continue;
    throw InvalidArgument(str_format(
        "static {} of '{}' was not given: {}, and at least {} are expected; pass it, or do not "
        "declare it",
        describe(i), function_->name,
        text_of_given(inputs_.step_size(), function_->is_callers_work ? "binding" : "input"),
        i + 1));
  }
}

}  // namespace cgtree
