// Classifies outputs by whose storage they are, and rebuilds them.
#include "cgtree/record/outputs.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cgtree/record/output_slices.h"

namespace cgtree {
namespace {

OutputRecord record_of(const std::string& function, const ContextMemory& memory,
                       std::span<const Tensor> outputs, std::size_t i, std::span<const Tensor> seen,
                       const std::vector<InputRecord>& inputs, InputList given) {
  const Tensor& output = outputs[i];
  OutputRecord record;
  record.byte_offset = output.byte_offset();
  record.shape = output.shape();
  record.dtype = output.dtype();
  for (std::size_t j = 0; j < seen.size(); ++j) {
    const bool is_given = inputs[j].treatment != Treatment::kValue && given.in_place(j);
    if (is_given && seen[j].storage() == output.storage()) {
      record.kind = OutputRecord::Kind::kInput;
      record.index = static_cast<std::uint32_t>(j);
      // Relative to the input, which may be another view of its storage next time.
      record.byte_offset = output.byte_offset() - seen[j].byte_offset();
      return record;
    }
  }
  for (std::size_t j = 0; j < i; ++j) {
    if (!given.has_buffer(j) && outputs[j].storage() == output.storage()) {
      record.kind = OutputRecord::Kind::kSame;
      record.index = static_cast<std::uint32_t>(j);
      return record;
    }
  }
  if (memory.in_step(*output.storage())) return record;  // its own, or the copy of a scalar
  if (memory.manages(*output.storage())) {
    throw InvalidArgument(fmt::format(
        "output {} of '{}' is an output of an earlier call that was not passed in: pass it as an "
        "input",
        i, function));
  }
  record.kind = OutputRecord::Kind::kConstant;
  record.constant = output.storage();
  return record;
}

}  // namespace

void check_outputs(const std::string& function, std::span<const Tensor> outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined()) {
      throw InvalidArgument(fmt::format("output {} of '{}' holds nothing", i, function));
    }
    (void)outputs[i].data();  // a stale tensor names itself
  }
}

std::vector<OutputRecord> understand_outputs(const std::string& function, const ContextMemory& memory,
                                             std::span<const Tensor> outputs,
                                             std::span<const Tensor> seen,
                                             const std::vector<InputRecord>& inputs,
                                             InputList given) {
  std::vector<OutputRecord> records;
  records.reserve(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    records.push_back(record_of(function, memory, outputs, i, seen, inputs, given));
  }
  return records;
}

OutputRecord record_of_buffer(InputList given, std::size_t i) {
  OutputRecord record;
  record.kind = OutputRecord::Kind::kInput;
  record.index = static_cast<std::uint32_t>(given.step_size() + i);
  record.shape = given.buffer(i).shape();
  record.dtype = given.buffer(i).dtype();
  return record;
}

Tensor input_output(OutputRecord& record, InputList inputs) {
  const Tensor& input = inputs[record.index];
  if (inputs.is_buffer(record.index)) return input;
  const Shape& shape = record.slices.empty() ? record.shape : sliced(record, inputs);
  return Tensor(input.storage(), input.byte_offset() + record.byte_offset, shape, record.dtype);
}

void make_outputs(Recording& recording, std::uint32_t function, ContextMemory& memory,
                  InputList inputs, std::span<Tensor> outputs) {
  for (std::uint32_t i = 0; i < recording.outputs.size(); ++i) {
    OutputRecord& record = recording.outputs[i];
    StorageRef storage;
    switch (record.kind) {
      case OutputRecord::Kind::kSlot:
        storage = memory.revive(*record.slot, function, i);
        break;
      case OutputRecord::Kind::kSame:
        storage = outputs[record.index].storage();
        break;
      case OutputRecord::Kind::kInput:
        outputs[i] = input_output(record, inputs);
        continue;
      case OutputRecord::Kind::kConstant:
        storage = record.constant;
        break;
    }
    const Shape& shape = record.slices.empty() ? record.shape : sliced(record, inputs);
    outputs[i] = Tensor::known_to_fit(std::move(storage), record.byte_offset, shape, record.dtype);
  }
}

}  // namespace cgtree
