// DLPack in C.
#include "interop/exchange/dlpack.h"

#include <fmt/format.h>

#include "cgtree/c_api/convert.h"
#include "cgtree/c_api/handles.h"
#include "cgtree/c_api/sized_struct.h"
#include "cgtree/c_api/status.h"
#include "interop/exchange/dlpack_tensor.h"

namespace cgtree::capi {
namespace {

DlpackImportOptions import_options(const cgt_dlpack_import_options* given) {
  const cgt_dlpack_import_options read = read_struct(given, "cgt_dlpack_import_options");
  return {stream_of_c(read.consumer), stream_of_c(read.producer),
          sync_of_c(read.sync).value_or(SyncPolicy::kEventWait)};
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

// `Ours` is how the library sees DLPack's struct.
template <typename Ours, typename Theirs>
cgt_status import_tensor(Theirs* stolen, const cgt_dlpack_import_options* options,
                         cgt_tensor* out) {
  return guarded([&] {
    auto* const tensor = reinterpret_cast<Ours*>(&required(stolen, "the DLPack tensor"));
    // Ours from here on, whatever happens.
    struct Deleter {
      void operator()(Ours* unused) const noexcept {
        if (unused->deleter != nullptr) unused->deleter(unused);
      }
    };
    std::unique_ptr<Ours, Deleter> taken(tensor);
    required(out, "the place for the tensor");
    const DlpackImportOptions read = import_options(options);
    *out = make_tensor(from_dlpack(taken.release(), read));
  });
}

template <typename Theirs, typename Export>
cgt_status export_tensor(cgt_tensor tensor, const cgt_dlpack_export_options* options, Theirs** out,
                         const Export& make) {
  return guarded([&] {
    required(out, "the place for the DLPack tensor");
    *out = reinterpret_cast<Theirs*>(make(tensor_of(tensor), export_options(options)).release());
  });
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_tensor_from_dlpack(struct DLManagedTensorVersioned* stolen,
                                  const cgt_dlpack_import_options* options, cgt_tensor* out) {
  return import_tensor<dlpack::ManagedVersioned>(stolen, options, out);
}

cgt_status cgt_tensor_from_unversioned_dlpack(struct DLManagedTensor* stolen,
                                              const cgt_dlpack_import_options* options,
                                              cgt_tensor* out) {
  return import_tensor<dlpack::Managed>(stolen, options, out);
}

cgt_status cgt_tensor_to_dlpack(cgt_tensor tensor, const cgt_dlpack_export_options* options,
                                struct DLManagedTensorVersioned** out) {
  return export_tensor(tensor, options, out, to_dlpack);
}

cgt_status cgt_tensor_to_unversioned_dlpack(cgt_tensor tensor,
                                            const cgt_dlpack_export_options* options,
                                            struct DLManagedTensor** out) {
  return export_tensor(tensor, options, out, to_unversioned_dlpack);
}

}  // extern "C"
