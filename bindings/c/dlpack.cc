// DLPack in C: imports, exports, and the exchange table, whose objects are handles of tensors.

#include <cstring>
#include <memory>
#include <utility>

#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "interop/exchange/dlpack.h"
#include "interop/exchange/dlpack_exchange.h"
#include "interop/exchange/dlpack_tensor.h"

namespace cgtree::capi {
namespace {

ImportOptions import_options(const cgt_dlpack_import_options* given) {
  const cgt_dlpack_import_options read = read_struct(given, "cgt_dlpack_import_options");
  return {stream_of_c(read.consumer), stream_of_c(read.producer), sync_of_c(read.sync)};
}

DlpackExportOptions export_options(const cgt_dlpack_export_options* given) {
  constexpr std::string_view kWhat = "cgt_dlpack_export_options";
  const cgt_dlpack_export_options read = read_struct(given, kWhat);
  constexpr std::uint32_t kCopies = CGT_DLPACK_COPY | CGT_DLPACK_NO_COPY;
  check_flags(read.flags, CGT_DLPACK_HAS_STREAM | CGT_DLPACK_HAS_DEVICE | kCopies, kWhat);
  if ((read.flags & kCopies) == kCopies) {
    throw InvalidArgument("cgt_dlpack_export_options: a copy is asked for and forbidden");
  }
  DlpackExportOptions options;
  if ((read.flags & CGT_DLPACK_HAS_STREAM) != 0) options.stream = read.stream;
  if ((read.flags & CGT_DLPACK_HAS_DEVICE) != 0) options.device = device_of_c(read.device);
  if ((read.flags & kCopies) != 0) options.copy = (read.flags & CGT_DLPACK_COPY) != 0;
  return options;
}

// ---- The exchange table ----

const Tensor& tensor_of_object(void* object) {
  return tensor_of(static_cast<cgt_tensor>(object), "the object");
}

int to_result(cgt_status status) noexcept {
  return status == CGT_OK ? 0 : -1;
}

// A tensor from the allocator of the exchange table. When it comes back as an object, it becomes
// the same tensor again, not a tensor that keeps it: only then may a step function return it.
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

// Returns null if another library made it, or if it was changed.
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
    required(out, "the place for the result");
    *out = &(new Allocated(empty_like(required(prototype, "the prototype"))))->managed;
  });
  if (status == CGT_OK) return 0;
  if (set_error != nullptr) {
    set_error(error_context, status == CGT_OUT_OF_MEMORY ? "MemoryError" : "BufferError",
              thread_state().error.message.c_str());
  }
  return -1;
}

// Exports without a stream, because the caller orders its own work.
int from_object(void* object, dlpack::ManagedVersioned** out) noexcept {
  return to_result(
      write_result(out, [&] { return to_unordered_dlpack(tensor_of_object(object)).release(); }));
}

int to_object(dlpack::ManagedVersioned* stolen, void** out) noexcept {
  auto* const handle = reinterpret_cast<cgt_tensor*>(out);
  const std::unique_ptr<Allocated> ours = take_back(stolen);
  if (ours == nullptr) {
    auto* const theirs = reinterpret_cast<DLManagedTensorVersioned*>(stolen);
    return to_result(cgt_tensor_from_dlpack(theirs, nullptr, handle));
  }
  return to_result(write_result(handle, [&] { return make_tensor(std::move(ours->tensor)); }));
}

// The view is valid as long as the handle.
int view_of_object(void* object, dlpack::TensorView* out) noexcept {
  return to_result(write_result(out, [&] { return view_of(tensor_of_object(object)); }));
}

dlpack::Exchange make_table() {
  dlpack::Exchange table = make_exchange(&from_object, &to_object, &view_of_object);
  table.allocate = &allocate;
  return table;
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_tensor_from_dlpack(struct DLManagedTensorVersioned* stolen,
                                  const cgt_dlpack_import_options* options, cgt_tensor* out) {
  return guarded([&] {
    auto* const tensor =
        reinterpret_cast<dlpack::ManagedVersioned*>(&required(stolen, "the DLPack tensor"));
    // From here on, the deleter is called in any case.
    const auto drop = [](dlpack::ManagedVersioned* unused) {
      if (unused->deleter != nullptr) unused->deleter(unused);
    };
    std::unique_ptr<dlpack::ManagedVersioned, decltype(drop)> taken(tensor, drop);
    required(out, "the place for the result");
    const ImportOptions read = import_options(options);
    *out = make_tensor(from_dlpack(taken.release(), read));
  });
}

cgt_status cgt_tensor_to_dlpack(cgt_tensor tensor, const cgt_dlpack_export_options* options,
                                struct DLManagedTensorVersioned** out) {
  return write_result(out, [&] {
    return reinterpret_cast<DLManagedTensorVersioned*>(
        to_dlpack(tensor_of(tensor), export_options(options)).release());
  });
}

const struct DLPackExchangeAPI* cgt_dlpack_exchange_api(void) {
  static const dlpack::Exchange table = make_table();
  return reinterpret_cast<const struct DLPackExchangeAPI*>(&table);
}

}  // extern "C"
