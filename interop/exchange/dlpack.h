// The C structs of DLPack, with their memory layout, and their types of elements and devices. The
// structs are declared here, because only their layout is needed.
//
// Source: DLPack 1.3, include/dlpack/dlpack.h. Numbers and layout are frozen there for major 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "interop/device/device.h"
#include "interop/tensor/dtype.h"

namespace cgtree::dlpack {

struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};

inline constexpr Version kVersion{1, 3};  // the version of this file

// The device types that cgtree names; DLPack has more (DLDeviceType).
inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCuda = 2;
inline constexpr std::int32_t kCudaHost = 3;      // pinned
inline constexpr std::int32_t kCudaManaged = 13;  // moves to its user

struct DeviceRef {  // DLDevice
  std::int32_t type;
  std::int32_t id;
};

// DLDataTypeCode.
inline constexpr std::uint8_t kInt = 0;
inline constexpr std::uint8_t kUInt = 1;
inline constexpr std::uint8_t kFloat = 2;
inline constexpr std::uint8_t kOpaque = 3;
inline constexpr std::uint8_t kBfloat = 4;
inline constexpr std::uint8_t kComplex = 5;
inline constexpr std::uint8_t kBool = 6;
inline constexpr std::uint8_t kFloat8E4M3FN = 10;
inline constexpr std::uint8_t kFloat8E4M3FNUZ = 11;
inline constexpr std::uint8_t kFloat8E5M2 = 12;
inline constexpr std::uint8_t kFloat8E5M2FNUZ = 13;
inline constexpr std::uint8_t kFloat8E8M0FNU = 14;

struct DataType {  // DLDataType
  std::uint8_t code;
  std::uint8_t bits;  // of one lane
  std::uint16_t lanes;
};

struct TensorView {  // DLTensor
  void* data;
  DeviceRef device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;      // in elements; null: row-major, before 1.2
  std::uint64_t byte_offset;  // from `data` to the first element
};

struct Managed {  // DLManagedTensor: without a version
  TensorView tensor;
  void* context;
  void (*deleter)(Managed* self);  // may be null
};

inline constexpr std::uint64_t kReadOnly = 1u << 0;
inline constexpr std::uint64_t kIsCopied = 1u << 1;  // the consumer is its only owner

struct ManagedVersioned {  // DLManagedTensorVersioned
  Version version;         // if the major differs, nothing below `deleter` may be read
  void* context;
  void (*deleter)(ManagedVersioned* self);  // may be null
  std::uint64_t flags;                      // unknown flags are ignored
  TensorView tensor;
};

// DLPackExchangeAPI: conversions without Python's part of the protocol. None of them synchronizes.
// Each returns 0, or -1 with an error set. A Python object is passed as its address.
using SetError = void (*)(void* error_context, const char* kind, const char* message);
using Allocator = int (*)(TensorView* prototype, ManagedVersioned** out, void* error_context,
                          SetError set_error);
using FromObject = int (*)(void* object, ManagedVersioned** out);
using ToObject = int (*)(ManagedVersioned* stolen, void** out_object);
using ViewOfObject = int (*)(void* object, TensorView* out);
using CurrentStream = int (*)(std::int32_t device_type, std::int32_t device_id, void** out);

struct ExchangeHeader {
  Version version;
  ExchangeHeader* previous;  // an older one, or null
};

struct Exchange {
  ExchangeHeader header;
  Allocator allocate;
  FromObject from_object;
  ToObject to_object;
  ViewOfObject view_of_object;  // may be null
  CurrentStream current_stream;
};

static_assert(sizeof(TensorView) == 48 && offsetof(TensorView, byte_offset) == 40);
static_assert(offsetof(TensorView, dtype) == 20 && offsetof(TensorView, shape) == 24);
static_assert(sizeof(Managed) == 64 && offsetof(Managed, deleter) == 56);
static_assert(sizeof(ManagedVersioned) == 80 && offsetof(ManagedVersioned, tensor) == 32);
static_assert(sizeof(Exchange) == 56 && offsetof(Exchange, allocate) == 16);

}  // namespace cgtree::dlpack

namespace cgtree {

// Throws BoundaryError for elements that tensors do not support: more than one lane, fewer than
// eight bits, opaque.
DType from_dlpack_type(dlpack::DataType type);

dlpack::DataType to_dlpack_type(DType dtype) noexcept;

// Returns "float16", "complex64", "float8_e4m3fn" and the like, for messages.
std::string to_string(dlpack::DataType type);

// Returns "CUDA 1" and the like, for messages.
std::string to_string(dlpack::DeviceRef device);

// The numbers of DeviceType are DLPack's own.
constexpr dlpack::DeviceRef to_dlpack_device(Device device) noexcept {
  return {static_cast<std::int32_t>(device.type), device.id};
}

}  // namespace cgtree
