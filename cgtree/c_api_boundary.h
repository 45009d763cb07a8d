// The C ABI's part about other libraries' tensors: the CUDA Array Interface and DLPack.
//
// Who keeps what alive, who waits for whom: docs/tensor_boundary.md. Include cgtree/c_api.h.
#ifndef CGTREE_C_API_BOUNDARY_H_
#define CGTREE_C_API_BOUNDARY_H_

#include "cgtree/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t cgt_sync_policy;
enum {
  CGT_SYNC_DEFAULT = 0,  // CGT_SYNC_EVENT_WAIT, or what the environment says
  CGT_SYNC_EVENT_WAIT = 1,
  CGT_SYNC_SYNCHRONIZE = 2,
  CGT_SYNC_ENQUEUE = 3,
  CGT_SYNC_IGNORE = 4
};

enum {
  CGT_CAI_READ_ONLY = 1u << 0,
  CGT_CAI_HAS_STREAM = 1u << 1,  // else `stream` must be 0: None
  CGT_CAI_HAS_MASK = 1u << 2,    // refused
  CGT_CAI_HAS_STRIDES = 1u << 3
};
// The CUDA Array Interface, version 3, as a struct; all pointers are borrowed.
typedef struct cgt_cai {
  uint32_t struct_size;
  uint32_t flags;
  int32_t version;
  int32_t ndim;
  const int64_t* shape;
  const int64_t* strides;  // in bytes; read with CGT_CAI_HAS_STRIDES only
  uint64_t data;
  uint64_t stream;
  char typestr[16];  // "<f4"
} cgt_cai;

typedef struct cgt_cai_import_options {
  uint32_t struct_size;
  cgt_sync_policy sync;
  const cgt_stream* consumer;  // where it will be used first; NULL: the current one
  cgt_dtype dtype;             // how to read elements that are opaque bytes; 0: they are refused
  int32_t reserved;
} cgt_cai_import_options;

enum { CGT_CAI_EXPORT_IDLE = 1u << 0, CGT_CAI_EXPORT_HAS_VERSION = 1u << 1 };
typedef struct cgt_cai_export_options {
  uint32_t struct_size;
  uint32_t flags;
  const cgt_stream* pending;  // more streams with work on the tensor
  size_t pending_count;
  int32_t version;
  int32_t reserved;
} cgt_cai_export_options;

// Keeps `owner` until the last handle goes, then calls release(owner). Without `release` the caller
// keeps the memory as long as it may be used.
CGT_API cgt_status cgt_tensor_from_cai(const cgt_cai* array, void* owner, void (*release)(void*),
                                       const cgt_cai_import_options* options, cgt_tensor* out);
// Its pointers are valid until the handle is destroyed. `array->struct_size` is the caller's.
CGT_API cgt_status cgt_tensor_to_cai(cgt_tensor tensor, const cgt_cai_export_options* options,
                                     cgt_cai* array);

// DLPack's own structs, of dlpack/dlpack.h, which is not needed here.
struct DLManagedTensor;
struct DLManagedTensorVersioned;
struct DLPackExchangeAPI;

typedef struct cgt_dlpack_import_options {
  uint32_t struct_size;
  cgt_sync_policy sync;
  const cgt_stream* consumer;
  const cgt_stream* producer;  // where its library works, if it was not told of ours
} cgt_dlpack_import_options;

enum {
  CGT_DLPACK_HAS_STREAM = 1u << 0,  // else None
  CGT_DLPACK_HAS_DEVICE = 1u << 1,  // else the tensor's
  CGT_DLPACK_COPY = 1u << 2,        // always
  CGT_DLPACK_NO_COPY = 1u << 3      // never; with neither, where another device is wanted
};
typedef struct cgt_dlpack_export_options {
  uint32_t struct_size;
  uint32_t flags;
  int64_t stream;  // -1: none; 1: legacy, 2: per thread, else a cudaStream_t
  cgt_device device;
} cgt_dlpack_export_options;

// Take `stolen`.
CGT_API cgt_status cgt_tensor_from_dlpack(struct DLManagedTensorVersioned* stolen,
                                          const cgt_dlpack_import_options* options,
                                          cgt_tensor* out);
CGT_API cgt_status cgt_tensor_from_unversioned_dlpack(struct DLManagedTensor* stolen,
                                                      const cgt_dlpack_import_options* options,
                                                      cgt_tensor* out);
// Keep the memory until the deleter is called.
CGT_API cgt_status cgt_tensor_to_dlpack(cgt_tensor tensor, const cgt_dlpack_export_options* options,
                                        struct DLManagedTensorVersioned** out);
CGT_API cgt_status cgt_tensor_to_unversioned_dlpack(cgt_tensor tensor,
                                                    const cgt_dlpack_export_options* options,
                                                    struct DLManagedTensor** out);

// DLPack's table of conversions that do not wait, for kernel libraries that are told it with a
// tensor. Its objects are handles, a cgt_tensor each: where DLPack says "Python error", it is
// cgt_last_error(). Inside a step function its allocator gives the context's memory, and its
// current stream is cgt_current_stream(). For the rest of the process.
CGT_API const struct DLPackExchangeAPI* cgt_dlpack_exchange_api(void);

#ifdef __cplusplus
}
#endif

#endif  // CGTREE_C_API_BOUNDARY_H_
