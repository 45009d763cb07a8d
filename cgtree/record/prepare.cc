// Allocates copies of inputs, makes the rows that fill them, and converts padding values.
#include "cgtree/record/prepare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/format.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"

namespace cgtree {
namespace {

template <typename T>
ElementBytes bytes_of(T value) {
  ElementBytes bytes = {};
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

[[noreturn]] void refuse(double value, DType dtype) {
  throw InvalidArgument(
      str_format("padding with {}: {} cannot hold it; choose another value, or "
                 "Padding::last()",
                 value, name(dtype)));
}

template <typename T>
ElementBytes integer(double value, DType dtype) {
  // 2^digits is exact as a double, unlike the largest value.
  const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
  const double begin = std::numeric_limits<T>::is_signed ? -end : 0;
  if (!(value >= begin && value < end) || value != std::trunc(value)) refuse(value, dtype);
  return bytes_of(static_cast<T>(value));
}

// Returns the value in a floating type of 16 bits, `fraction` of them after the point, rounded to
// nearest, ties to even.
ElementBytes half(double value, DType dtype, int fraction) {
  const int exponent_bits = 15 - fraction;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const int infinity = ((1 << exponent_bits) - 1) << fraction;
  if (std::isnan(value))
    return bytes_of(static_cast<std::uint16_t>(infinity | 1 << (fraction - 1)));
  if (std::isinf(value)) return bytes_of(static_cast<std::uint16_t>(sign | infinity));
  if (value == 0) return bytes_of(sign);
  const int exponent = std::max(std::ilogb(value), 1 - bias);
  // In units of the last place; carries into the exponent are correct.
  const auto units =
      static_cast<int>(std::nearbyint(std::ldexp(std::abs(value), fraction - exponent)));
  const int bits = ((exponent + bias - 1) << fraction) + units;
  if (bits >= infinity) refuse(value, dtype);
  return bytes_of(static_cast<std::uint16_t>(sign | bits));
}

GatherFill fill_of(Padding::Kind kind) {
  switch (kind) {
    case Padding::Kind::kUnset:
    case Padding::Kind::kZeros:
      return GatherFill::kZero;
    case Padding::Kind::kValue:
      return GatherFill::kValue;
    case Padding::Kind::kLast:
      return GatherFill::kLast;
    case Padding::Kind::kAnything:
      break;
  }
  return GatherFill::kAny;
}

// Returns input `i` in its own memory, with the shape that the step function sees.
Tensor as_it_lies(InputList inputs, std::size_t i) {
  if (!inputs.is_padded(i)) return inputs[i];
  return Tensor(inputs[i].storage(), inputs[i].byte_offset(), inputs.shape(i), inputs[i].dtype());
}

// Returns the copy between the padded input `i` and its bucket of `dims` at `fixed`.
GatherRow padded_row_of(const Call& call, std::size_t i, GatherDirection direction,
                        std::uintptr_t fixed, std::span<const std::int64_t> dims) {
  const DType dtype = call.inputs()[i].dtype();
  const Padding& padding = call.function().axes->padding(i);
  ElementBytes value = {};
  if (padding.kind == Padding::Kind::kValue) {
    try {
      value = padding_value(padding.value, dtype);
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(
          str_format("{} of '{}': {}", call.describe(i), call.function().name, error.what()));
    }
  }
  return padded_row(direction, fixed, dims, size_of(dtype), fill_of(padding.kind),
                    std::span(value).first(size_of(dtype)));
}

// Returns the copy between input `i` and `fixed`, in the direction of a root or a tail.
GatherRow row_of(const Call& call, std::uint32_t i, GatherDirection direction,
                 std::uintptr_t fixed) {
  if (call.inputs().is_padded(i))
    return padded_row_of(call, i, direction, fixed, call.inputs().shape(i).dims());
  const Tensor& input = call.inputs()[i];
  const Shape& shape = input.shape();
  return strided_row(direction, fixed, shape.dims(), shape.strides(), shape.strides(),
                     size_of(input.dtype()));
}

void prepare(const Call& call, std::uint32_t i, ContextMemory& memory, PreparedInputs& prepared) {
  InputRecord& record = prepared.records.back();
  const std::size_t extent =
      static_cast<std::size_t>(record.shape.extent()) * size_of(record.dtype);
  const bool needs_memory = is_copied(record.treatment) || record.treatment == Treatment::kValue;
  if (!needs_memory || extent == 0) {
    prepared.step_inputs.push_back(as_it_lies(call.inputs(), i));
    return;
  }
  std::vector<StorageRef> too_near;  // at the same distance from its input as another copy
  StorageRef copy = memory.allocate_input_copy(extent);
  if (call.rebind(i) != Rebind::kNever) {
    const auto distance = [&] { return copy->address() - record.address; };
    while (std::ranges::find(prepared.distances, distance()) != prepared.distances.end()) {
      too_near.push_back(std::move(copy));
      copy = memory.allocate_input_copy(extent);
    }
    prepared.distances.push_back(distance());
  }
  prepared.step_inputs.push_back({std::move(copy), 0, record.shape, record.dtype});
  record.address = prepared.step_inputs.back().address();
  if (record.treatment == Treatment::kValue) {
    prepared.root.values.push_back({i, record.address, extent});
    return;
  }
  prepared.root.copies.push_back({i, row_of(call, i, GatherDirection::kIn, record.address)});
  if (record.treatment == Treatment::kCopiedBack) {
    prepared.tail.copies.push_back({i, row_of(call, i, GatherDirection::kOut, record.address)});
  }
}

// Enqueues the copy between the padded input `i` and its bucket.
void copy_padded(const Call& call, ContextMemory& memory, std::size_t i, GatherDirection direction,
                 const Tensor& bucket) {
  const Tensor& input = call.inputs()[i];
  if (bucket.elements() == 0) return;
  const GatherRow row = padded_row_of(call, i, direction, bucket.address(), bucket.shape().dims());
  std::array<std::uint64_t, kMaxRowWords> list;
  const std::span<std::uint64_t> words(list.data(), row.words());
  write_words(row, input.address(), input.shape().dims(), input.shape().strides(), words);
  copy_row(memory.stream(), row, words);
}

}  // namespace

PreparedInputs prepare_inputs(const Call& call, ContextMemory& memory) {
  const InputList& inputs = call.inputs();
  PreparedInputs prepared;
  for (std::uint32_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    const bool is_own = input.defined() && input.storage()->domain() == &memory;
    prepared.records.emplace_back(inputs.shape(i), input.dtype(), call.treatment(i),
                                  input.defined() ? input.address() : 0,
                                  is_own ? &memory : nullptr);
    if (!inputs.is_buffer(i)) prepare(call, i, memory, prepared);
  }
  return prepared;
}

void copy_to_buffers(std::span<const Tensor> outputs, InputList inputs, GatherNode::Work& tail) {
  for (std::size_t i = 0; i < inputs.buffers(); ++i) {
    if (!inputs.has_buffer(i)) continue;
    const Tensor& output = outputs[i];
    const auto number = static_cast<std::uint32_t>(inputs.step_size() + i);
    if (inputs.is_padded(number)) {
      CGTREE_CHECK(output.is_contiguous());  // see make_row_major()
      tail.copies.push_back({number, padded_row(GatherDirection::kOut, output.address(),
                                                output.shape().dims(), size_of(output.dtype()))});
      continue;
    }
    tail.copies.push_back(
        {number, strided_row(GatherDirection::kOut, output.address(), output.shape().dims(),
                             output.shape().strides(), inputs.buffer(i).shape().strides(),
                             size_of(output.dtype()))});
  }
}

Tensor pad_input(const Call& call, ContextMemory& memory, std::size_t i) {
  const InputList& inputs = call.inputs();
  const Shape& shape = inputs.shape(i);
  if (inputs.in_place(i) || shape.elements() == 0) return as_it_lies(inputs, i);
  const DType dtype = inputs[i].dtype();
  Tensor copy(memory.allocate_input_copy(bytes_of(shape, dtype)), 0, shape, dtype);
  copy_padded(call, memory, i, GatherDirection::kIn, copy);
  return copy;
}

Tensor pad_nested_input(const Call& call, std::size_t i, const Tensor& input,
                        std::span<const std::uint64_t> sizes) {
  const std::span<const std::int64_t> dims = input.shape().dims();
  const Tensor copy = empty(Shape(dims), input.dtype());
  const GatherRow row = padded_row_of(call, i, GatherDirection::kIn, copy.address(), dims);
  std::array<std::uint64_t, kMaxRowWords> list;
  const std::span<std::uint64_t> words(list.data(), row.words());
  write_words(row, input.address(), dims, input.shape().strides(), words);
  copy_measured_row(current_stream(), row, words, sizes.first(dims.size()));
  return copy;
}

Tensor pad_nested_output(const Tensor& output, std::span<const std::int64_t> dims) {
  const Tensor copy = empty(Shape(dims), output.dtype());
  const GatherRow row =
      padded_row(GatherDirection::kIn, copy.address(), dims, size_of(output.dtype()));
  std::array<std::uint64_t, kMaxRowWords> list;
  const std::span<std::uint64_t> words(list.data(), row.words());
  write_words(row, output.address(), output.shape().dims(), output.shape().strides(), words);
  copy_row(current_stream(), row, words);
  return copy;
}

void copy_back_mutated(const Call& call, ContextMemory& memory,
                       std::span<const Tensor> step_inputs) {
  for (std::size_t i = 0; i < call.inputs().step_size(); ++i) {
    if (call.inputs().in_place(i) || !call.function().input_options(i).is_mutated) continue;
    copy_padded(call, memory, i, GatherDirection::kOut, step_inputs[i]);
  }
}

ElementBytes padding_value(double value, DType dtype) {
  switch (dtype) {
    case DType::kBool:
      if (value != 0 && value != 1) refuse(value, dtype);
      return bytes_of(static_cast<std::uint8_t>(value));
    case DType::kInt8:
      return integer<std::int8_t>(value, dtype);
    case DType::kInt16:
      return integer<std::int16_t>(value, dtype);
    case DType::kInt32:
      return integer<std::int32_t>(value, dtype);
    case DType::kInt64:
      return integer<std::int64_t>(value, dtype);
    case DType::kUInt8:
      return integer<std::uint8_t>(value, dtype);
    case DType::kUInt16:
      return integer<std::uint16_t>(value, dtype);
    case DType::kUInt32:
      return integer<std::uint32_t>(value, dtype);
    case DType::kUInt64:
      return integer<std::uint64_t>(value, dtype);
    case DType::kFloat16:
      return half(value, dtype, 10);
    case DType::kBFloat16:
      return half(value, dtype, 7);
    case DType::kFloat32:
      if (std::isfinite(value) && !std::isfinite(static_cast<float>(value))) refuse(value, dtype);
      return bytes_of(static_cast<float>(value));
    case DType::kFloat64:
    case DType::kComplex128:  // the imaginary part is 0
      return bytes_of(value);
    case DType::kComplex64:
      return padding_value(value, DType::kFloat32);
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2FNUZ:
    case DType::kFloat8E8M0FNU:
      break;  // moved, not converted
  }
  refuse(value, dtype);
}

}  // namespace cgtree
