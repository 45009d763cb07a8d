// ForeignArray: an array of another library, read from either protocol; the importer that makes a
// tensor of it, and the stream synchronization that exports share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "interop/device/device.h"
#include "interop/device/stream.h"
#include "interop/tensor/dtype.h"
#include "interop/tensor/shape.h"
#include "interop/tensor/stream_synchronization.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// The options of an import, whatever the protocol.
struct ImportOptions {
  // The stream on which the tensor is used first. The default is the thread's current stream, else
  // the legacy stream of the device that the memory lies on. A producer of DLPack was told of this
  // stream when it was asked for the tensor, and has ordered its work before this stream.
  StreamRef consumer = {};
  // The stream of the producer's work, if the array names none and the producer was not told of
  // ours. Then both directions are synchronized, as with an array that names its stream.
  StreamRef producer = {};
  // The default is kEventWait. For a CUDA array interface it is kIgnore if
  // CGTREE_CUDA_ARRAY_INTERFACE_SYNC=0 is in the environment.
  std::optional<SyncPolicy> sync = {};
  // The type of elements of an array interface that have no DType, such as "<V2", as which bfloat16
  // appears, and times, of which only the numbers are kept. The type must have as many bytes.
  std::optional<DType> dtype = {};
  // The device of memory that a CUDA array interface names. The default is the consumer's.
  std::optional<Device> device = {};
  // The memory may lie on another device than the consumer's stream.
  bool on_any_device = false;
};

// A ForeignArray is memory of another library with a layout, whatever protocol describes it.
struct ForeignArray {
  std::optional<Device> device = {};  // if there is none, the driver is queried
  bool is_machine_memory = false;     // host memory that may be unknown to any driver
  void* data = nullptr;               // the first element; meaningless without elements
  Shape shape;
  DType dtype = DType::kUInt8;
  bool is_read_only = false;
  std::optional<StreamHandle> stream = {};  // the stream of the library's work, if the array names
                                            // it
  std::shared_ptr<void> owner;              // may be null
};

// Makes a tensor of the array, which keeps the owner until its last reference is released. Work
// enqueued on the consumer's stream from now on waits for work of the producer that is pending on
// its stream. When the last reference is released, the producer's stream waits for our work
// (foreign_memory.h). If the tensor is used on other streams than the consumer's, note_use() must
// be called for them. Inside a step function, memory that one of our tensors has lent to the
// library (lent_memory.h) returns as a tensor of that storage, and the owner is released at once.
//
// Throws BoundaryError for a null address, memory that the device does not reach, memory of another
// device than the consumer's stream, and unaligned memory. Throws InvalidArgument if the device
// does not exist; CaptureError, DeviceError as order_import().
Tensor import_array(ForeignArray&& array, const ImportOptions& options);

// Makes a tensor of the array without checks. `producer`, which may be null, is the stream of the
// library's work, and `order` orders the contents for us (foreign_memory.h). Requires a device.
Tensor wrap_array(ForeignArray&& array, StreamRef producer, StreamRef order);

// Describes the memory of a tensor, which the array does not keep. Throws StaleTensor.
ForeignArray array_of(const Tensor& tensor);

// Throws BoundaryError unless the address is aligned for elements of this type.
void check_alignment(std::uintptr_t address, DType dtype);

// The unit of the strides of a layout.
enum class StrideUnit { kBytes, kElements };

// Returns the shape of a layout, row-major if the strides are null. Strides of axes with less than
// two indices, and of tensors without elements, are ignored. Throws BoundaryError for a negative
// dimension, for more bytes than an int64 counts, and for layouts that a Shape does not support:
// negative strides, strides of partial elements, too many dimensions.
Shape shape_of_layout(std::span<const std::int64_t> dims, const std::int64_t* strides,
                      StrideUnit unit, DType dtype);

// PendingStreams are the streams on which work on a tensor may be pending when it is exported.
struct PendingStreams {
  std::vector<StreamRef> streams;    // each once
  std::vector<StreamRef> capturing;  // the capturing ones among them
};

// Returns first the stream that orders the contents, then the given streams, and the thread's
// current one if it is of the tensor's device.
PendingStreams pending_streams(const Tensor& tensor, std::span<const StreamRef> given = {});

// Throws InvalidArgument for a null stream or one of another device than the tensor.
void expect_same_device(const Tensor& tensor, StreamRef stream);

// Returns a tensor of the same memory whose contents `stream` orders; `stream` lives as long as the
// new tensor's storage. `stream` waits for the stream that ordered the contents so far, and that
// stream waits for `stream` when the last reference is released. Throws InvalidArgument for a
// stream of another device, and for a tensor of a context, which may invalidate the memory.
Tensor on_stream(const Tensor& tensor, std::shared_ptr<const Stream> stream);

}  // namespace cgtree
