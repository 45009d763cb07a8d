// Views of tensors, copies between tensors and the host, tensors as text, and overlap of tensors.
#include "interop/tensor/tensor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/device.h"
#include "interop/device/device_api.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/gather_row.h"
#include "interop/tensor/wrong_element_type.h"

namespace cgtree {
namespace {

int checked_axis(const Tensor& tensor, int axis) {
  const int rank = tensor.rank();
  const int positive = axis < 0 ? axis + rank : axis;
  if (positive < 0 || positive >= rank) {
    throw InvalidArgument(str_format("axis {} of a tensor of rank {}", axis, rank));
  }
  return positive;
}

// Returns the function for access to elements of this type, as text.
std::string access_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "call data<bool>()";
    case DType::kFloat32:
      return "call data<float>()";
    case DType::kFloat64:
      return "call data<double>()";
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64:
      return str_format("call data<std::{}_t>()", name(dtype));
    default:
      return "call data(), which takes any type";
  }
}

void expect_copyable(const Tensor& tensor, std::size_t bytes) {
  if (!tensor.is_contiguous()) {
    throw InvalidArgument(
        str_format("{} is not contiguous: copy it to a dense tensor on its device first, with "
                   "copy_elements() of interop/tensor/copy.h",
                   describe(tensor)));
  }
  if (bytes != tensor.bytes()) {
    throw InvalidArgument(
        str_format("{} holds {} bytes, {} given", describe(tensor), tensor.bytes(), bytes));
  }
}

// Enqueues the copy on the stream that orders it after the work on `tensor`, and waits for it.
void copy_and_wait(const Tensor& tensor, StreamRef stream, void* destination, const void* source,
                   std::size_t bytes) {
  const StreamRef order = stream ? stream : tensor.storage()->stream();
  // The stream may be the device's legacy stream.
  const DeviceScope current(order.api(), order.device().id);
  check(order.api().copy(order.handle(), destination, source, bytes), "copy tensor");
  order.synchronize();
}

}  // namespace

std::size_t bytes_of(const Shape& shape, DType dtype) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(shape.elements(), static_cast<std::int64_t>(size_of(dtype)), &bytes)) {
    throw InvalidArgument(
        str_format("{} {} needs more bytes than there are", name(dtype), to_string(shape)));
  }
  return static_cast<std::size_t>(bytes);
}

Tensor::Tensor(StorageRef storage, std::size_t byte_offset, Shape shape, DType dtype)
    : storage_(std::move(storage)),
      byte_offset_(byte_offset),
      shape_(std::move(shape)),
      dtype_(static_cast<std::uint64_t>(dtype)) {
  if (!storage_) throw InvalidArgument("a tensor needs a storage");
  const std::size_t needed = static_cast<std::size_t>(shape_.extent()) * size_of(dtype);
  if (byte_offset_ > storage_->bytes() || needed > storage_->bytes() - byte_offset_) {
    throw InvalidArgument(str_format("{} {} at byte {} needs {} bytes, the storage has {}",
                                     name(dtype), to_string(shape_), byte_offset_, needed,
                                     storage_->bytes()));
  }
}

std::int64_t Tensor::dim(int axis) const {
  return shape_.dim(checked_axis(*this, axis));
}

std::size_t Tensor::bytes() const noexcept {
  return static_cast<std::size_t>(shape_.elements()) * size_of(dtype());
}

void* Tensor::data() const {
  if (!storage_) throw InvalidArgument("this tensor is undefined");
  (void)storage_->data();  // throws StaleTensor
  if (StorageAllocator* const allocator = current_allocator()) (void)allocator->keep(storage_);
  // A storage may begin at 0 and have bytes, as the storage of all memory of a device does.
  return reinterpret_cast<void*>(address());
}

void Tensor::expect_dtype(DType dtype) const {
  if (dtype != this->dtype()) throw WrongElementType(*this, dtype);
}

WrongElementType::WrongElementType(const Tensor& tensor, DType accessed)
    : InvalidArgument(str_format("{} is accessed as {}: {}, or pass a tensor of {}",
                                 describe(tensor), name(accessed), access_of(tensor.dtype()),
                                 name(accessed))),
      address_(tensor.defined() ? tensor.address() : 0) {
}

Tensor Tensor::reshape(Shape shape) const {
  if (!is_contiguous() || !shape.is_contiguous() || shape.elements() != elements()) {
    throw InvalidArgument(str_format(
        "cannot view {} as {}: both must be contiguous and have as many elements ({} and {})",
        describe(*this), to_string(shape), elements(), shape.elements()));
  }
  return Tensor(storage_, byte_offset_, std::move(shape), dtype());
}

Tensor Tensor::slice(int axis, std::int64_t begin, std::int64_t end) const {
  const int at = checked_axis(*this, axis);
  if (begin < 0 || end < begin || end > shape_.dim(at)) {
    throw InvalidArgument(
        str_format("slice [{}, {}) of axis {} of {}", begin, end, axis, describe(*this)));
  }
  std::vector<std::int64_t> dims(shape_.dims().begin(), shape_.dims().end());
  dims[at] = end - begin;
  const std::size_t skipped =
      static_cast<std::size_t>(begin * shape_.stride(at)) * size_of(dtype());
  Shape shape(dims, shape_.strides());
  const std::size_t offset = shape.elements() == 0 ? byte_offset_ : byte_offset_ + skipped;
  return Tensor(storage_, offset, std::move(shape), dtype());
}

Tensor Tensor::transpose(int axis, int other) const {
  const int a = checked_axis(*this, axis);
  const int b = checked_axis(*this, other);
  std::vector<std::int64_t> dims(shape_.dims().begin(), shape_.dims().end());
  std::vector<std::int64_t> strides(shape_.strides().begin(), shape_.strides().end());
  std::swap(dims[a], dims[b]);
  std::swap(strides[a], strides[b]);
  return Tensor(storage_, byte_offset_, Shape(dims, strides), dtype());
}

void Tensor::copy_from_host(const void* source, std::size_t bytes, StreamRef stream) const {
  expect_copyable(*this, bytes);
  if (bytes == 0) return;
  if (source == nullptr) throw InvalidArgument("copy_from_host: the source is null");
  if (storage_->is_read_only()) {
    throw InvalidArgument(str_format("{} is read-only: copy it first", describe(*this)));
  }
  copy_and_wait(*this, stream, data(), source, bytes);
}

void Tensor::copy_to_host(void* destination, std::size_t bytes, StreamRef stream) const {
  expect_copyable(*this, bytes);
  if (bytes == 0) return;
  if (destination == nullptr) throw InvalidArgument("copy_to_host: the destination is null");
  copy_and_wait(*this, stream, destination, data(), bytes);
}

std::string describe(const Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  return str_format("{} {} on {}", name(tensor.dtype()), to_string(tensor.shape()),
                    to_string(tensor.device()));
}

namespace {

constexpr std::int64_t kEdge = 3;  // values shown at either end of a long axis

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  const std::uint32_t word = sign | (wide << 23) | (fraction << 13);
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

float bfloat_to_float(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

std::string element(DType dtype, const std::byte* at) {
  switch (dtype) {
    // clang-format off
    case DType::kBool: return load<std::uint8_t>(at) != 0 ? "true" : "false";
    case DType::kInt8: return str_format("{}", static_cast<int>(load<std::int8_t>(at)));
    case DType::kInt16: return str_format("{}", load<std::int16_t>(at));
    case DType::kInt32: return str_format("{}", load<std::int32_t>(at));
    case DType::kInt64: return str_format("{}", load<std::int64_t>(at));
    case DType::kUInt8: return str_format("{}", static_cast<int>(load<std::uint8_t>(at)));
    case DType::kUInt16: return str_format("{}", load<std::uint16_t>(at));
    case DType::kUInt32: return str_format("{}", load<std::uint32_t>(at));
    case DType::kUInt64: return str_format("{}", load<std::uint64_t>(at));
    case DType::kFloat16: return str_format("{}", half_to_float(load<std::uint16_t>(at)));
    case DType::kBFloat16: return str_format("{}", bfloat_to_float(load<std::uint16_t>(at)));
    case DType::kFloat32: return str_format("{}", load<float>(at));
    case DType::kFloat64: return str_format("{}", load<double>(at));
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E4M3FNUZ:
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2FNUZ:
    case DType::kFloat8E8M0FNU: return str_format("0x{:02x}", load<std::uint8_t>(at));
    case DType::kComplex64: return str_format("{}{:+}j", load<float>(at), load<float>(at + 4));
    case DType::kComplex128: return str_format("{}{:+}j", load<double>(at), load<double>(at + 8));
      // clang-format on
  }
  return "?";
}

// Appends the values from `axis` on; `at` is the first of them.
void append(std::string& text, const Tensor& tensor, int axis, const std::byte* at) {
  if (axis == tensor.rank()) {
    text += element(tensor.dtype(), at);
    return;
  }
  const Shape& shape = tensor.shape();
  const std::int64_t count = shape.dim(axis);
  const std::size_t step = static_cast<std::size_t>(shape.stride(axis)) * size_of(tensor.dtype());
  text += '[';
  for (std::int64_t i = 0; i < count; ++i) {
    if (i > 0) text += ", ";
    if (i == kEdge && count > 2 * kEdge) {
      text += "..., ";
      i = count - kEdge;
    }
    append(text, tensor, axis + 1, at + static_cast<std::size_t>(i) * step);
  }
  text += ']';
}

}  // namespace

std::string to_string(const Tensor& tensor) {
  std::string text = describe(tensor);
  if (!tensor.defined()) return text;
  const std::size_t bytes = extent_bytes(tensor);
  std::vector<std::byte> host(bytes);
  // Every element lies within the extent, so one flat copy serves any strides.
  const Tensor flat(tensor.storage(), tensor.byte_offset(), Shape{static_cast<std::int64_t>(bytes)},
                    DType::kUInt8);
  flat.copy_to_host(host.data(), bytes);
  text += ' ';
  append(text, tensor, 0, host.data());
  return text;
}

namespace {

// ---- Overlap: compares ranges first, and then the runs that repeat with the strides. ----

// A Comb is the length of a tensor's runs, and the greatest common divisor of the distances between
// them; 0 if there is only one run.
struct Comb {
  std::uint64_t run = 0;
  std::uint64_t step = 0;
};

Comb comb_of(const Tensor& tensor) noexcept {
  const Shape& shape = tensor.shape();
  const GatherRow row = strided_row(GatherDirection::kIn, 0, shape.dims(), shape.strides(),
                                    shape.strides(), size_of(tensor.dtype()));
  Comb comb{row.element, 0};
  for (std::uint32_t axis = 0; axis < row.rank; ++axis)
    comb.step = std::gcd(comb.step, static_cast<std::uint64_t>(row.strides[axis]));
  return comb;
}

}  // namespace

std::size_t extent_bytes(const Tensor& tensor) noexcept {
  return static_cast<std::size_t>(tensor.shape().extent()) * size_of(tensor.dtype());
}

bool may_overlap(const Tensor& a, const Tensor& b) noexcept {
  const std::uintptr_t at_a = a.address();
  const std::uintptr_t at_b = b.address();
  if (a.device() != b.device()) return false;
  if (at_a + extent_bytes(a) <= at_b || at_b + extent_bytes(b) <= at_a) return false;
  if (a.elements() == 0 || b.elements() == 0) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  const Comb comb_a = comb_of(a);
  const Comb comb_b = comb_of(b);
  const std::uint64_t step = std::gcd(comb_a.step, comb_b.step);
  if (step == 0) return true;
  // Modulo `step`, all runs of a tensor begin at the same offset.
  const std::uint64_t from_a_to_b = (at_b % step + step - at_a % step) % step;
  return from_a_to_b < comb_a.run || step - from_a_to_b < comb_b.run;
}

bool may_overlap_itself(const Shape& shape) noexcept {
  std::array<std::pair<std::int64_t, std::int64_t>, Shape::kMaxRank> axes;  // stride, dim
  std::size_t count = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape.dim(axis) == 0) return false;
    if (shape.dim(axis) > 1) axes[count++] = {shape.stride(axis), shape.dim(axis)};
  }
  // Not sort(): GCC 14 warns that its code for more than 16 elements exceeds the array.
  std::partial_sort(axes.begin(), axes.begin() + count, axes.begin() + count);
  std::int64_t reach = 0;  // of the axes with smaller strides
  for (std::size_t i = 0; i < count; ++i) {
    if (axes[i].first <= reach) return true;
    reach += axes[i].first * (axes[i].second - 1);
  }
  return false;
}

}  // namespace cgtree
