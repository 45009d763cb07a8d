// Copies between tensors of any layout, and from and to the host.
#include "python/extension/tensor.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "interop/device/code.h"
#include "interop/device/device.h"
#include "interop/device/stream.h"
#include "interop/tensor/copy.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/outside_of_steps.h"
#include "interop/tensor/stream_synchronization.h"
#include "python/extension/import.h"
#include "python/extension/stream.h"

namespace cgtree::python {
namespace {

// Returns the stream for work on the tensor: the current stream if it is on the tensor's device.
StreamRef stream_for(const Tensor& tensor) {
  const StreamRef current = current_stream_or_none();
  if (current && current.device() == tensor.device()) return current;
  const StreamRef own = tensor.storage()->stream();
  return own ? own : StreamRef(tensor.device(), StreamHandle::kLegacy);
}

// Makes a row-major tensor on the tensor's device, outside of any pool.
Tensor dense_like(const Tensor& tensor) {
  const OutsideOfSteps outside;
  return empty(Shape(tensor.shape().dims()), tensor.dtype(), tensor.device());
}

void expect_no_capture(StreamRef stream, const Tensor& tensor) {
  if (!stream.is_capturing()) return;
  throw CaptureError(static_cast<int>(Code::kStreamCaptureUnsupported),
                     str_format("{} cannot be copied from or to the host while the step function "
                                "is recorded: do it before or after the call",
                                describe(tensor)));
}

void check_pair(const Tensor& destination, const Tensor& source) {
  if (destination.dtype() != source.dtype() ||
      !std::ranges::equal(destination.shape().dims(), source.shape().dims())) {
    throw InvalidArgument(
        str_format("copy_from(): {} cannot take {}: shape and dtype must be the same",
                   describe(destination), describe(source)));
  }
  if (is_read_only(destination)) {
    throw InvalidArgument(str_format("copy_from(): {} is read-only", describe(destination)));
  }
}

// Copies from memory of the host to a GPU.
void upload(const Tensor& destination, const Tensor& source) {
  const StreamRef host(source.device(), StreamHandle::kLegacy);
  Tensor dense = source;
  if (!source.is_contiguous()) {
    dense = dense_like(source);
    copy_elements(host, dense, source);
    host.synchronize();
  }
  const StreamRef stream = stream_for(destination);
  expect_no_capture(stream, destination);
  if (destination.is_contiguous()) {
    return destination.copy_from_host(dense.data(), dense.bytes(), stream);
  }
  const Tensor staged = dense_like(destination);
  staged.copy_from_host(dense.data(), dense.bytes(), stream);
  copy_elements(stream, destination, staged);
  stream.synchronize();
}

// Copies into row-major memory, which has room for tensor.bytes(), and waits for the copy.
void download(const Tensor& tensor, void* destination) {
  (void)tensor.data();
  if (tensor.elements() == 0) return;
  const StreamRef stream = stream_for(tensor);
  expect_no_capture(stream, tensor);
  const StreamRef own = tensor.storage()->stream();
  if (own) stream.wait_for(own);
  Tensor dense = tensor;
  if (!tensor.is_contiguous()) {
    dense = dense_like(tensor);
    copy_elements(stream, dense, tensor);
  }
  dense.copy_to_host(destination, dense.bytes(), stream);
}

void copy_tensor(const Tensor& destination, const Tensor& source) {
  if (source.elements() == 0) return;
  if (source.device() == destination.device()) {
    const StreamRef stream = stream_for(destination);
    const StreamRef other = source.storage()->stream();
    if (other && !stream.is_capturing() && !other.is_capturing()) stream.wait_for(other);
    copy_elements(stream, destination, source);
    note_use(destination.storage(), stream);
    return note_use(source.storage(), stream);
  }
  if (source.device().type == DeviceType::kHost) return upload(destination, source);
  if (destination.device().type == DeviceType::kHost && destination.is_contiguous()) {
    return download(source, destination.data());
  }
  throw InvalidArgument(str_format("copy_from(): {} cannot take {}: copy through the host",
                                   describe(destination), describe(source)));
}

void copy_from(const Tensor& destination, PyObject* source) {
  const Tensor from = import_object(source, {});
  (void)destination.data();
  check_pair(destination, from);
  const GilRelease released;
  copy_tensor(destination, from);
}

Reference to_bytes(const Tensor& tensor) {
  Reference bytes =
      checked(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(tensor.bytes())));
  char* const data = PyBytes_AsString(bytes.get());
  without_gil([&] { download(tensor, data); });
  return bytes;
}

void note_use_on(const Tensor& tensor, PyObject* object) {
  const StreamRef stream = to_stream(object, tensor.device());
  without_gil([&] { note_use(tensor.storage(), stream); });
}

}  // namespace

std::vector<Method> copy_methods() {
  return {bind<&copy_from>("copy_from"), bind<&to_bytes>("tobytes"),
          bind<&note_use_on>("note_use")};
}

}  // namespace cgtree::python
