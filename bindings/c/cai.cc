// The CUDA Array Interface in C: imports and exports.

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "interop/exchange/cuda_array_interface.h"

namespace cgtree::capi {
namespace {

constexpr std::uint32_t kFlags =
    CGT_CAI_READ_ONLY | CGT_CAI_HAS_STREAM | CGT_CAI_HAS_MASK | CGT_CAI_HAS_STRIDES;

[[noreturn]] void refuse(BoundaryFault fault, const std::string& what) {
  throw BoundaryError(fault, what);
}

std::vector<std::int64_t> numbers(const std::int64_t* from, std::int32_t count,
                                  std::string_view field) {
  if (count > 0 && from == nullptr) {
    refuse(BoundaryFault::kMissing, str_format("'{}' is NULL: expected {} numbers", field, count));
  }
  return count == 0 ? std::vector<std::int64_t>() : std::vector<std::int64_t>(from, from + count);
}

void check_fields(const cgt_cai& array) {
  check_flags(array.flags, kFlags, "cgt_cai");
  // This check comes before any array is read, because a wrong rank may exceed the array's length.
  if (array.ndim < 0 || array.ndim > Shape::kMaxRank) {
    refuse(array.ndim < 0 ? BoundaryFault::kWrongValue : BoundaryFault::kNotSupported,
           str_format("'ndim' is {}: expected 0 to {}", array.ndim,
                      static_cast<int>(Shape::kMaxRank)));
  }
  if ((array.flags & CGT_CAI_HAS_MASK) != 0) {
    refuse(BoundaryFault::kNotSupported, "'mask' is there: masked arrays are not supported");
  }
  if ((array.flags & CGT_CAI_HAS_STREAM) == 0 && array.stream != 0) {
    refuse(BoundaryFault::kWrongValue,
           str_format("'stream' is {:#x}, but CGT_CAI_HAS_STREAM is not set", array.stream));
  }
  if (std::memchr(array.typestr, '\0', sizeof(array.typestr)) == nullptr) {
    refuse(BoundaryFault::kWrongValue,
           str_format("'typestr' is '{}...': no final 0 within {} bytes",
                      std::string_view(array.typestr, 8), sizeof(array.typestr)));
  }
}

TypeString type_of_c(const cgt_cai& array, std::optional<DType> dtype) {
  if (array.typestr[0] != '\0') return parse_type_string(array.typestr);
  if (dtype) return type_string_of(*dtype);
  refuse(BoundaryFault::kMissing, "'typestr' is empty: expected a string, as '<f4', or a dtype");
}

CudaArrayInterface array_of_c(const cgt_cai& array, std::optional<DType> dtype) {
  check_fields(array);
  CudaArrayInterface made;
  made.version = array.version;
  made.shape = numbers(array.shape, array.ndim, "shape");
  if ((array.flags & CGT_CAI_HAS_STRIDES) != 0) {
    made.strides = numbers(array.strides, array.ndim, "strides");
  }
  made.type = type_of_c(array, dtype);
  made.data = array.data;
  made.read_only = (array.flags & CGT_CAI_READ_ONLY) != 0;
  if ((array.flags & CGT_CAI_HAS_STREAM) != 0) made.stream = array.stream;
  return made;
}

ImportOptions import_options(const cgt_cai_import_options* given) {
  const cgt_cai_import_options read = read_struct(given, "cgt_cai_import_options");
  ImportOptions options;
  options.consumer = stream_of_c(read.consumer);
  options.sync = sync_of_c(read.sync);
  if (read.dtype != 0) options.dtype = dtype_of_c(read.dtype);
  return options;
}

cgt_cai array_to_c(const CudaArrayInterface& array, TensorObject& object) {
  cgt_cai made = {};
  made.version = static_cast<std::int32_t>(array.version);
  made.ndim = static_cast<std::int32_t>(array.shape.size());
  made.shape = object.tensor.shape().dims().data();
  if (array.strides) {
    made.flags |= CGT_CAI_HAS_STRIDES;
    if (object.byte_strides == nullptr) {
      object.byte_strides = std::make_unique<std::int64_t[]>(array.strides->size());
    }
    std::copy(array.strides->begin(), array.strides->end(), object.byte_strides.get());
    made.strides = object.byte_strides.get();
  }
  if (array.read_only) made.flags |= CGT_CAI_READ_ONLY;
  if (array.stream) made.flags |= CGT_CAI_HAS_STREAM;
  made.stream = array.stream.value_or(0);
  made.data = array.data;
  const std::string& type = array.type.text;
  std::memcpy(made.typestr, type.data(), std::min(type.size(), sizeof(made.typestr) - 1));
  return made;
}

CudaArrayInterface export_array(const Tensor& tensor, const cgt_cai_export_options* given) {
  constexpr std::string_view kWhat = "cgt_cai_export_options";
  const cgt_cai_export_options read = read_struct(given, kWhat);
  check_flags(read.flags, CGT_CAI_EXPORT_IDLE | CGT_CAI_EXPORT_HAS_VERSION, kWhat);
  ExportOptions options;
  std::vector<StreamRef> pending;
  for (const cgt_stream stream :
       span_of_c(read.pending, read.pending_count, "the array of pending streams"))
    pending.push_back(stream_of_c(stream));
  options.pending = pending;
  options.is_idle = (read.flags & CGT_CAI_EXPORT_IDLE) != 0;
  if ((read.flags & CGT_CAI_EXPORT_HAS_VERSION) != 0) options.version = read.version;
  return to_cuda_array_interface(tensor, options);
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_tensor_from_cai(const cgt_cai* array, void* owner, void (*release)(void*),
                               const cgt_cai_import_options* options, cgt_tensor* out) {
  return guarded([&] {
    std::shared_ptr<void> kept = take_over(owner, release);
    required(out, "the place for the result");
    const cgt_cai read = read_struct(&required(array, "the array"), "cgt_cai");
    const ImportOptions how = import_options(options);
    *out =
        make_tensor(from_cuda_array_interface(array_of_c(read, how.dtype), std::move(kept), how));
  });
}

cgt_status cgt_tensor_to_cai(cgt_tensor tensor, const cgt_cai_export_options* options,
                             cgt_cai* array) {
  return guarded([&] {
    TensorObject& object = TensorTable::get(tensor);
    write_struct(array_to_c(export_array(object.tensor, options), object), array, "cgt_cai");
  });
}

}  // extern "C"
