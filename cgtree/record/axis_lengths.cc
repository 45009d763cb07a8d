// Makes tensors that hold sizes.
#include "cgtree/record/axis_lengths.h"

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "cgtree/axes.h"
#include "interop/device/stream.h"
#include "interop/tensor/copy.h"

namespace cgtree {
namespace {

thread_local AxisLengths* t_current = nullptr;

// Enqueues a launch that writes `value`, as the padding of a row without elements.
void write(StreamRef stream, const Tensor& tensor, std::int64_t value) {
  const std::int64_t one = 1;
  const std::int64_t none = 0;
  const GatherRow row =
      padded_row(GatherDirection::kIn, tensor.address(), std::span(&one, 1), sizeof(value),
                 GatherFill::kValue, std::as_bytes(std::span(&value, 1)));
  std::array<std::uint64_t, kMaxRowWords> list;
  const std::span<std::uint64_t> words(list.data(), row.words());
  write_words(row, tensor.address(), std::span(&none, 1), std::span(&one, 1), words);
  copy_row(stream, row, words);
}

}  // namespace

AxisLengths::AxisLengths(const Call& call, ContextMemory& memory, bool records) noexcept
    : call_(call), memory_(memory), records_(records), previous_(t_current) {
  t_current = this;
}

AxisLengths::~AxisLengths() {
  t_current = previous_;
}

AxisLengths* AxisLengths::current() noexcept {
  return t_current;
}

Tensor AxisLengths::length(std::string_view name) {
  const AxisPlan* const plan = call_.function().axes.get();
  if (plan == nullptr) {
    throw InvalidArgument(
        fmt::format("axis_length(\"{}\") in a step function without dynamic axes", name));
  }
  const std::size_t axis = plan->find(name);
  lengths_.resize(plan->size());
  std::optional<Tensor>& known = lengths_[axis];
  if (!known) {
    Tensor made(memory_.allocate_value(sizeof(std::int64_t)), 0, Shape(), DType::kInt64);
    if (!records_) write(current_stream(), made, call_.axes().actual[axis]);
    known = std::move(made);
  }
  return *known;
}

void AxisLengths::check_not_returned(std::span<const Tensor> outputs) const {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t axis = 0; axis < lengths_.size(); ++axis) {
      if (!lengths_[axis] || !outputs[i].defined() ||
          outputs[i].storage() != lengths_[axis]->storage())
        continue;
      throw InvalidArgument(
          fmt::format("output {} of '{}' is axis_length(\"{}\"), which a later replay overwrites: "
                      "copy it",
                      i, call_.function().name, call_.function().axes->rule(axis).name()));
    }
  }
}

std::vector<GatherNode::Value> AxisLengths::values() const {
  std::vector<GatherNode::Value> values;
  for (std::uint32_t axis = 0; axis < lengths_.size(); ++axis) {
    if (!lengths_[axis]) continue;
    const AxisUse& use = first_input_with(call_.function().axes->layout(), axis);
    values.push_back(
        {use.tensor, lengths_[axis]->address(), sizeof(std::int64_t), static_cast<int>(use.dim)});
  }
  return values;
}

std::vector<StorageRef> AxisLengths::take() {
  std::vector<StorageRef> storages;
  for (const std::optional<Tensor>& length : lengths_) {
    if (length) storages.push_back(length->storage());
  }
  lengths_.clear();
  return storages;
}

Tensor axis_length(std::string_view axis) {
  AxisLengths* const lengths = AxisLengths::current();
  if (lengths == nullptr) {
    throw InvalidArgument(fmt::format("axis_length(\"{}\") outside of a step function", axis));
  }
  return lengths->length(axis);
}

}  // namespace cgtree
