// Looks at the inputs of a call, one by one and in pairs.
#include "cgtree/record/treatment.h"

#include <fmt/format.h>

#include <bit>

#include "base/error.h"
#include "interop/exchange/stream_synchronization.h"
#include "interop/tensor/overlap.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

// To patch a node costs at most 1.6 us, with 4 KB of arguments; in that time so much is copied, at
// 2 TB/s read and as much written. Source: measured, one H200: 256 MiB take 135 us (copy_bench).
constexpr std::size_t kLargeCopyBytes = 3'200'000;

bool any_mutated(const FunctionState& function) {
  for (const InputOptions& options : function.options.inputs) {
    if (options.is_mutated) return true;
  }
  return false;
}

// Whether a replay would tear two inputs apart that share memory.
bool would_tear(const FunctionState& function, std::size_t i, Treatment treatment_i, std::size_t j,
                Treatment treatment_j) {
  if (treatment_i == Treatment::kValue || treatment_j == Treatment::kValue) return false;
  if (!function.input_options(i).is_mutated && !function.input_options(j).is_mutated) return false;
  return is_copied(treatment_i) || is_copied(treatment_j);
}

void check_buffer(const FunctionState& function, const ContextMemory& memory, InputList inputs,
                  std::size_t i) {
  const Tensor& buffer = inputs[i];
  if (buffer.device() != memory.device()) {
    throw InvalidArgument(fmt::format("{} of '{}' is {}, the context's device is {}",
                                      describe_input(function, inputs, i), function.name,
                                      describe(buffer), to_string(memory.device())));
  }
  if (is_read_only(buffer)) {
    throw InvalidArgument(fmt::format("{} of '{}' is {}, which is read-only",
                                      describe_input(function, inputs, i), function.name,
                                      describe(buffer)));
  }
  if (may_overlap_itself(buffer.shape())) {
    throw InvalidArgument(fmt::format(
        "{} of '{}' is {}, whose elements lie over each other: pass one with a place for each",
        describe_input(function, inputs, i), function.name, describe(buffer)));
  }
  for (std::size_t j = 0; j < i; ++j) {
    if (!inputs[j].defined() || !may_overlap(inputs[j], buffer)) continue;
    throw InvalidArgument(fmt::format(
        "{} of '{}', {} at {:#x}, shares memory with {}, {} at {:#x}: pass tensors that lie apart",
        describe_input(function, inputs, i), function.name, describe(buffer), buffer.address(),
        describe_input(function, inputs, j), describe(inputs[j]), inputs[j].address()));
  }
}

}  // namespace

std::string describe_input(const FunctionState& function, InputList inputs, std::size_t i) {
  if (inputs.is_buffer(i)) return fmt::format("the buffer of output {}", i - inputs.step_size());
  const std::string& given = function.input_options(i).name;
  return given.empty() ? fmt::format("input {}", i) : fmt::format("input {} '{}'", i, given);
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
  }
  return "unknown";
}

void check_alignments(const std::string& function, const CompileOptions& options) {
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    const InputOptions& input = options.inputs[i];
    if (std::has_single_bit(input.alignment)) continue;
    throw InvalidArgument(
        fmt::format("input {} '{}' of '{}' is to be aligned to {} bytes: give a power of two", i,
                    input.name, function, input.alignment));
  }
}

Treatment treat(const FunctionState& function, const ContextMemory& memory, InputList inputs,
                std::size_t i) {
  const Tensor& input = inputs[i];
  if (inputs.is_buffer(i)) return input.defined() ? Treatment::kBuffer : Treatment::kNoBuffer;
  if (memory.manages(*input.storage()) && inputs.in_place(i)) return Treatment::kManaged;
  if (input.device() != memory.device() && is_scalar(input)) return Treatment::kValue;
  const InputOptions& options = function.input_options(i);
  const bool is_aligned = input.address() % options.alignment == 0;
  if (options.is_static && is_aligned && !function.is_demoted(i)) return Treatment::kStatic;
  return options.is_mutated ? Treatment::kCopiedBack : Treatment::kCopied;
}

std::optional<std::uint32_t> find_unwanted_write(const FunctionState& function,
                                                 const ContextMemory& memory, InputList inputs) {
  const OnMutatedInput policy = function.options.on_mutated_input;
  if (policy == OnMutatedInput::kCopyBack) return std::nullopt;
  for (std::uint32_t i = 0; i < inputs.step_size(); ++i) {
    const Treatment treatment = treat(function, memory, inputs, i);
    if (treatment == Treatment::kCopiedBack) return i;
    if (policy == OnMutatedInput::kSkipManagedToo && treatment == Treatment::kManaged &&
        function.input_options(i).is_mutated) {
      return i;
    }
  }
  return std::nullopt;
}

Overlap find_overlap(const FunctionState& function, const ContextMemory& memory, InputList inputs) {
  if (!any_mutated(function)) return {};
  for (std::uint32_t i = 0; i < inputs.step_size(); ++i) {
    const Treatment treatment = treat(function, memory, inputs, i);
    for (std::uint32_t j = i + 1; j < inputs.step_size(); ++j) {
      if (would_tear(function, i, treatment, j, treat(function, memory, inputs, j)) &&
          may_overlap(inputs[i], inputs[j])) {
        return {i, j};
      }
    }
  }
  return {};
}

std::vector<Apart> pairs_apart(const FunctionState& function,
                               const std::vector<InputRecord>& inputs) {
  const bool mutates = any_mutated(function);
  const auto bytes = [&](std::uint32_t i) {
    return static_cast<std::size_t>(inputs[i].shape.extent()) * size_of(inputs[i].dtype);
  };
  std::vector<Apart> pairs;
  for (std::uint32_t j = 0; j < inputs.size(); ++j) {
    const Treatment treatment = inputs[j].treatment;
    if (treatment == Treatment::kNoBuffer) continue;
    const bool is_buffer = treatment == Treatment::kBuffer;
    for (std::uint32_t i = 0; i < j; ++i) {
      const Treatment other = inputs[i].treatment;
      if (is_buffer ? other != Treatment::kNoBuffer && other != Treatment::kValue
                    : mutates && would_tear(function, i, other, j, treatment)) {
        pairs.push_back({{i, j}, bytes(i), bytes(j)});
      }
    }
  }
  return pairs;
}

std::vector<std::string> notes_on_copies(const FunctionState& function, const ContextMemory& memory,
                                         InputList inputs) {
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < inputs.step_size(); ++i) {
    const Treatment treatment = treat(function, memory, inputs, i);
    if (!is_copied(treatment) || inputs[i].bytes() <= kLargeCopyBytes) continue;
    const bool is_back = treatment == Treatment::kCopiedBack;
    notes.push_back(
        fmt::format("{}: {} bytes are copied {}at each call, more than is worth it ({}): declare "
                    "it static, and "
                    "keep it where it is",
                    describe_input(function, inputs, i), inputs[i].bytes(),
                    is_back ? "in and back " : "", kLargeCopyBytes));
  }
  return notes;
}

void check_inputs(const FunctionState& function, const ContextMemory& memory, InputList inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    if (!input.defined()) {
      if (inputs.is_buffer(i)) continue;
      throw InvalidArgument(fmt::format("input {} of '{}' holds nothing", i, function.name));
    }
    (void)input.data();  // throws StaleTensor
    if (inputs.is_buffer(i)) {
      check_buffer(function, memory, inputs, i);
    } else if (function.input_options(i).is_mutated &&
               treat(function, memory, inputs, i) == Treatment::kValue) {
      throw InvalidArgument(fmt::format(
          "{} of '{}' is a scalar of the host's, and the function writes into it: pass a tensor on "
          "{}",
          describe_input(function, inputs, i), function.name, to_string(memory.device())));
    } else if (function.input_options(i).is_mutated && is_read_only(input)) {
      throw InvalidArgument(fmt::format(
          "{} of '{}' is {}, which is read-only, and the function writes into it: pass a copy",
          describe_input(function, inputs, i), function.name, describe(input)));
    }
  }
  for (std::size_t i = inputs.step_size(); i < function.options.inputs.size(); ++i) {
    if (!function.options.inputs[i].is_static) continue;
    throw InvalidArgument(fmt::format("static {} of '{}' was not given: {} inputs are",
                                      text_of_input(i, function.options.inputs[i].name),
                                      function.name, inputs.step_size()));
  }
}

}  // namespace cgtree
