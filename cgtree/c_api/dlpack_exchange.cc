// DLPack's exchange table in C: its objects are tensors' handles.
//
// What its allocator gave becomes the same tensor again when it comes back as an object, not one
// that keeps the first: only so may a step function return it.
#include "interop/exchange/dlpack_exchange.h"

#include <cstring>
#include <memory>
#include <utility>

#include "cgtree/c_api/handles.h"
#include "cgtree/c_api/status.h"
#include "interop/exchange/dlpack_tensor.h"
#include "interop/exchange/dlpack.h"

namespace cgtree::capi {
namespace {

const Tensor& tensor_of_object(void* object) {
  return tensor_of(static_cast<cgt_tensor>(object), "the object");
}

int answer(cgt_status status) noexcept {
  return status == CGT_OK ? 0 : -1;
}

dlpack::TensorView view_of(const Tensor& tensor) {
  const bool is_host = tensor.device().type == DeviceType::kHost;
  return {tensor.elements() == 0 ? nullptr : tensor.data(),
          is_host ? dlpack::DeviceRef{dlpack::kCpu, 0} : to_dlpack_device(tensor.device()),
          tensor.rank(),
          to_dlpack_type(tensor.dtype()),
          const_cast<std::int64_t*>(tensor.shape().dims().data()),
          const_cast<std::int64_t*>(tensor.shape().strides().data()),
          0};
}

struct Allocated {
  explicit Allocated(Tensor given) : tensor(std::move(given)) {
    managed = {dlpack::kVersion, this, &drop, 0, view_of(tensor)};
  }
  static void drop(dlpack::ManagedVersioned* managed) {
    delete static_cast<Allocated*>(managed->context);
  }

  Tensor tensor;
  dlpack::ManagedVersioned managed;
};

// Null if it is another library's, or was changed.
std::unique_ptr<Allocated> take_back(dlpack::ManagedVersioned* managed) {
  if (managed == nullptr || managed->deleter != &Allocated::drop) return nullptr;
  auto* const ours = static_cast<Allocated*>(managed->context);
  const dlpack::TensorView made = view_of(ours->tensor);
  if (std::memcmp(&made, &managed->tensor, sizeof(made)) != 0) return nullptr;
  return std::unique_ptr<Allocated>(ours);
}

int allocate(dlpack::TensorView* prototype, dlpack::ManagedVersioned** out, void* error_context,
             dlpack::SetError set_error) noexcept {
  const cgt_status status = guarded([&] {
    required(out, "the place for the DLPack tensor");
    *out = &(new Allocated(empty_like(required(prototype, "the prototype"))))->managed;
  });
  if (status == CGT_OK) return 0;
  if (set_error != nullptr) {
    set_error(error_context, status == CGT_OUT_OF_MEMORY ? "MemoryError" : "BufferError",
              thread_state().error.message.c_str());
  }
  return -1;
}

// The caller asks for the stream that it works on itself.
int from_object(void* object, dlpack::ManagedVersioned** out) noexcept {
  return answer(guarded([&] {
    required(out, "the place for the DLPack tensor");
    const Tensor& tensor = tensor_of_object(object);
    DlpackExportOptions options;
    if (tensor.device().type != DeviceType::kHost) options.stream = -1;
    *out = to_dlpack(tensor, options).release();
  }));
}

int to_object(dlpack::ManagedVersioned* stolen, void** out) noexcept {
  auto* const handle = reinterpret_cast<cgt_tensor*>(out);
  const std::unique_ptr<Allocated> ours = take_back(stolen);
  if (ours == nullptr) {
    auto* const theirs = reinterpret_cast<DLManagedTensorVersioned*>(stolen);
    return answer(cgt_tensor_from_dlpack(theirs, nullptr, handle));
  }
  return answer(guarded([&] {
    required(handle, "the place for the object");
    *handle = make_tensor(std::move(ours->tensor));
  }));
}

// Borrows from the handle.
int view_of_object(void* object, dlpack::TensorView* out) noexcept {
  return answer(guarded([&] {
    const Tensor& tensor = tensor_of_object(object);
    required(out, "the place for the view") = view_of(tensor);
  }));
}

dlpack::Exchange make_table() {
  dlpack::Exchange table = make_exchange(&from_object, &to_object, &view_of_object);
  table.allocate = &allocate;
  return table;
}

}  // namespace
}  // namespace cgtree::capi

extern "C" {

const struct DLPackExchangeAPI* cgt_dlpack_exchange_api(void) {
  static const cgtree::dlpack::Exchange table = cgtree::capi::make_table();
  return reinterpret_cast<const struct DLPackExchangeAPI*>(&table);
}

}  // extern "C"
