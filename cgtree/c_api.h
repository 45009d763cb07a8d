// The C ABI: contexts, step functions, calls and tensors for C99 and whatever can call C.
//
//  1. What can fail answers a cgt_status, never throws, and writes its out-parameters on success
//     only. cgt_last_error() says what was wrong on this thread, with both sides.
//  2. Handles are opaque: numbers, not addresses. NULL names nothing. A handle is destroyed once;
//     used after that, or in place of another kind, it is CGT_INVALID_HANDLE. To destroy NULL is
//     nothing. Handles may be destroyed in any order: each keeps what it needs.
//  3. Threads: any, for any handle; but nobody destroys a tensor's handle, or writes it into a
//     cgt_cai, while another thread uses it, and a context serves one call at a time.
//  4. Structs begin with struct_size = sizeof of it, and 0 in a field means the default. A larger
//     one of a later version is taken if what this version does not know is 0.
//  5. Arrays are a pointer and a count; the pointer may be NULL if the count is 0.
//  6. Text goes to a buffer of the caller's: `length` gets the bytes it takes without the final
//     0; CGT_BUFFER_TOO_SMALL where it does not fit. Without a buffer, `length` is all that is
//     asked for.
//  7. What is handed over (an owner, DLPack's struct, a step's user data) is released once, when
//     nobody needs it any more, also if the call fails; on whichever thread that is. In a struct
//     whose struct_size is refused nothing is read, and so nothing handed over.
//  8. Callbacks are called without a lock held. A step function may call anything here but what
//     would need its own context for itself (CGT_CONCURRENT_USE), and leaves by returning; a C++
//     exception becomes CGT_STEP_THREW. After a longjmp out of it neither its thread nor its
//     context can go on, and calls say so (CGT_STEP_ABANDONED) where it is noticed. The same goes
//     for what precapture and suggested buckets call.
//  9. Tensors' handles that are made inside a step function die when it returns; sooner is better,
//     for their memory serves the rest of it.
// 10. A stream and a device are values; streams are borrowed. CUDA's error numbers are the error
//     numbers of all devices.
//
// The library keeps three things that no caller holds, because C has no place for them: the tables
// behind handles, the thread's last error, and which step function the thread is in.
#ifndef CGTREE_C_API_H_
#define CGTREE_C_API_H_

#include <stddef.h>
#include <stdint.h>

#define CGT_ABI_VERSION 1
#define CGT_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

// ---- Status and errors --------------------------------------------------------------------------

typedef int32_t cgt_status;
enum {
  CGT_OK = 0,
  CGT_INVALID_ARGUMENT = 1,
  CGT_INVALID_HANDLE = 2,
  CGT_STALE_TENSOR = 3,  // an output of a generation that cgt_context_mark_step() ended
  CGT_CONCURRENT_USE = 4,
  CGT_OUT_OF_MEMORY = 5,
  CGT_CAPTURE_FAILED = 6,
  CGT_DEVICE_FAILED = 7,
  CGT_MISSING_FIELD = 8,  // these four are of tensors of other libraries
  CGT_WRONG_TYPE = 9,
  CGT_WRONG_VALUE = 10,
  CGT_NOT_SUPPORTED = 11,
  CGT_BUFFER_TOO_SMALL = 12,
  CGT_STEP_FAILED = 13,     // a step function or callback returned a number that is none of these
  CGT_STEP_THREW = 14,      // a C++ exception left it
  CGT_STEP_ABANDONED = 15,  // it was left by longjmp
  CGT_INTERNAL = 16,
  CGT_USER_STATUS = 1000  // numbers from here on are for step functions: calls answer them
};

typedef int32_t cgt_capture_state;
enum { CGT_CAPTURE_NONE = 0, CGT_CAPTURE_ACTIVE = 1, CGT_CAPTURE_INVALIDATED = 2 };

typedef struct cgt_error {
  uint32_t struct_size;
  cgt_status status;  // CGT_OK: nothing has failed on this thread
  int32_t cuda_code;  // cudaError_t; 0: no device was involved
  // Of the thread's current stream, when it failed.
  cgt_capture_state capture;
  // Both until the next failure on this thread; never NULL. `where` is "file:line" or "".
  const char* message;
  const char* where;
} cgt_error;

CGT_API uint32_t cgt_abi_version(void);
CGT_API const char* cgt_status_name(cgt_status status);  // "CGT_OK"
CGT_API cgt_status cgt_last_error(cgt_error* error);
// For step functions: what to say about the status they are about to return. Copied.
CGT_API void cgt_set_error(const char* message);
// Handles that are not destroyed, of all threads. For tests of leaks: it counts them.
CGT_API size_t cgt_live_handles(void);

// ---- Handles and values -------------------------------------------------------------------------

typedef struct cgt_context_handle* cgt_context;
typedef struct cgt_function_handle* cgt_function;
typedef struct cgt_tensor_handle* cgt_tensor;

typedef struct cgt_device {  // lies in memory as a DLDevice, with its numbers
  int32_t type;
  int32_t id;
} cgt_device;
enum { CGT_DEVICE_HOST = 1, CGT_DEVICE_CUDA = 2, CGT_DEVICE_FIRST_USER_TYPE = 64 };

typedef struct cgt_stream {
  cgt_device device;
  uintptr_t native;  // on a GPU a cudaStream_t; 1: legacy, 2: per thread
} cgt_stream;

typedef int32_t cgt_dtype;
enum {
  CGT_BOOL = 1,
  CGT_INT8 = 2,
  CGT_INT16 = 3,
  CGT_INT32 = 4,
  CGT_INT64 = 5,
  CGT_UINT8 = 6,
  CGT_UINT16 = 7,
  CGT_UINT32 = 8,
  CGT_UINT64 = 9,
  CGT_FLOAT16 = 10,
  CGT_BFLOAT16 = 11,
  CGT_FLOAT32 = 12,
  CGT_FLOAT64 = 13
};

// ---- Devices ------------------------------------------------------------------------------------

CGT_API cgt_status cgt_device_best(cgt_device* out);  // a GPU if there is one, else the host
// "auto", "host", "cuda", "cuda:1", or the name of a registered one.
CGT_API cgt_status cgt_device_parse(const char* text, cgt_device* out);

// Writes "" if the device has no such attribute, and integers in decimal. The kinds are those of
// cgtree::DeviceAttribute, which up to 16 are TVM's: 0 whether it exists, 5 its name, ...
CGT_API cgt_status cgt_device_attribute(cgt_device device, int32_t kind, char* buffer,
                                        size_t capacity, size_t* length);

// What a device of the caller's own can do. Functions answer CUDA's numbers (0: success, 2: no
// memory, 600: not ready, 801: not supported), write their results on success only, and may be
// called on any thread. Such a device knows no graphs: step functions run eagerly there.
typedef struct cgt_device_api {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;  // copied
  void* user;        // first argument of all functions; must live as long as the process
  // 1 in *exists if there is a device of this id.
  int32_t (*exists)(void* user, int32_t id, int32_t* exists);
  int32_t (*alloc)(void* user, int32_t id, size_t bytes, void** data);  // aligned to 512 bytes
  int32_t (*free)(void* user, int32_t id, void* data);
  // Between any two of the host's memory and this kind of device's.
  int32_t (*copy)(void* user, uintptr_t stream, void* destination, const void* source,
                  size_t bytes);
  int32_t (*create_stream)(void* user, int32_t id, uintptr_t* stream);
  int32_t (*destroy_stream)(void* user, uintptr_t stream);
  int32_t (*synchronize_stream)(void* user, uintptr_t stream);
  int32_t (*query_stream)(void* user, uintptr_t stream);  // 600 while work is pending
  int32_t (*synchronize_device)(void* user, int32_t id);
} cgt_device_api;

// For `type` from CGT_DEVICE_FIRST_USER_TYPE on; for the rest of the process.
CGT_API cgt_status cgt_device_register(int32_t type, const cgt_device_api* api);

// ---- Streams ------------------------------------------------------------------------------------

CGT_API cgt_status cgt_stream_create(cgt_device device, int32_t is_blocking, cgt_stream* out);
CGT_API cgt_status cgt_stream_destroy(cgt_stream stream);
CGT_API cgt_status cgt_stream_synchronize(cgt_stream stream);
CGT_API cgt_status cgt_stream_capture_state(cgt_stream stream, cgt_capture_state* out);
// Work enqueued on `stream` from now on waits for what is enqueued on `other` so far.
CGT_API cgt_status cgt_stream_wait(cgt_stream stream, cgt_stream other);
// Where a step function is to launch its work. CGT_INVALID_ARGUMENT outside of step functions.
CGT_API cgt_status cgt_current_stream(cgt_stream* out);

typedef struct cgt_dims {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
} cgt_dims;
// arguments[i] points at a copy of argument i, made at the launch. Runs the whole grid.
typedef void (*cgt_host_body)(const cgt_dims* dims, const void* const* arguments);
typedef struct cgt_argument {
  const void* data;
  size_t bytes;
} cgt_argument;
// Launches a C function on a stream of the host device, in order with it; while the stream captures
// it becomes a node. `name`, for messages, stays there for the process. At most 63 arguments.
// On a GPU launch with CUDA, on cgt_stream::native.
CGT_API cgt_status cgt_launch_host(cgt_stream stream, const char* name, cgt_host_body body,
                                   const cgt_dims* dims, const cgt_argument* arguments,
                                   size_t argument_count);

// ---- Tensors ------------------------------------------------------------------------------------

typedef struct cgt_tensor_info {
  uint32_t struct_size;
  cgt_dtype dtype;
  cgt_device device;
  int32_t ndim;
  int32_t is_read_only;
  const int64_t* shape;    // these two as long as the handle
  const int64_t* strides;  // in elements
  int64_t elements;
  size_t bytes;       // of all elements, side by side
  void* data;         // of the first element, on the device
  cgt_stream stream;  // orders the contents; native 0: none
} cgt_tensor_info;

// The contents are not set. Inside a step function `device` is NULL, and the memory the context's.
CGT_API cgt_status cgt_tensor_empty(cgt_dtype dtype, int32_t ndim, const int64_t* shape,
                                    const cgt_device* device, cgt_tensor* out);
// A number that rides along with the call it is an input of; `value` has the size of the type.
CGT_API cgt_status cgt_tensor_scalar(cgt_dtype dtype, const void* value, cgt_tensor* out);
CGT_API cgt_status cgt_tensor_destroy(cgt_tensor tensor);
// Another handle of the same tensor.
CGT_API cgt_status cgt_tensor_share(cgt_tensor tensor, cgt_tensor* out);
CGT_API cgt_status cgt_tensor_describe(cgt_tensor tensor, cgt_tensor_info* info);
// Views: no data moves.
CGT_API cgt_status cgt_tensor_reshape(cgt_tensor tensor, int32_t ndim, const int64_t* shape,
                                      cgt_tensor* out);
CGT_API cgt_status cgt_tensor_slice(cgt_tensor tensor, int32_t axis, int64_t begin, int64_t end,
                                    cgt_tensor* out);
CGT_API cgt_status cgt_tensor_transpose(cgt_tensor tensor, int32_t axis, int32_t other,
                                        cgt_tensor* out);
// Between the host and a dense tensor of as many bytes; they return when the data has arrived.
CGT_API cgt_status cgt_tensor_copy_from_host(cgt_tensor tensor, const void* data, size_t bytes);
CGT_API cgt_status cgt_tensor_copy_to_host(cgt_tensor tensor, void* data, size_t bytes);
// Enqueues a copy on `stream`; NULL: the current one.
CGT_API cgt_status cgt_tensor_copy(cgt_tensor destination, cgt_tensor source,
                                   const cgt_stream* stream);

// ---- Contexts -----------------------------------------------------------------------------------

enum {
  CGT_CONTEXT_CHECKED = 1u << 0,            // ContextOptions::checked
  CGT_CONTEXT_EVENTS_OF_REPLAYS = 1u << 1,  // in event_file too
  // Each pool is one range of addresses to whose end memory is mapped as it is needed: less of it
  // stays unused. For devices that map memory; CGT_INVALID_ARGUMENT elsewhere.
  CGT_CONTEXT_POOLS_GROW_IN_PLACE = 1u << 2
};
typedef int32_t cgt_at_limit;
enum { CGT_RUN_EAGERLY = 0, CGT_EVICT = 1, CGT_REFUSE = 2 };

// Not there: ContextOptions::segments, where pools' memory comes from, which is a C++ class.
typedef struct cgt_context_options {
  uint32_t struct_size;
  uint32_t flags;
  const cgt_stream* stream;  // must outlive the context and its tensors; NULL: its own
  uint64_t max_bytes;        // of device memory for its pools
  uint64_t max_recordings;
  uint64_t max_graph_bytes;
  uint64_t max_recording_microseconds;
  const char* event_file;  // JSON lines are appended; NULL: none
  cgt_at_limit at_limit;
  int32_t reserved;
  // Called when the context and its tensors are gone; it may destroy `stream`. NULL: nothing.
  void (*release)(void* owner);
  void* owner;
} cgt_context_options;

CGT_API cgt_status cgt_context_create(cgt_device device, const cgt_context_options* options,
                                      cgt_context* out);
CGT_API cgt_status cgt_context_destroy(cgt_context context);
// Begins the next generation: outputs of earlier calls may be overwritten from now on.
CGT_API cgt_status cgt_context_mark_step(cgt_context context);
CGT_API cgt_status cgt_context_synchronize(cgt_context context);
CGT_API cgt_status cgt_context_stream(cgt_context context, cgt_stream* out);
CGT_API cgt_status cgt_context_stats_json(cgt_context context, char* buffer, size_t capacity,
                                          size_t* length);
CGT_API cgt_status cgt_context_snapshot_json(cgt_context context, char* buffer, size_t capacity,
                                             size_t* length);

// ---- Step functions and calls -------------------------------------------------------------------

// Launches its work on cgt_current_stream(), makes tensors with cgt_tensor_empty(), and writes a
// handle to each output. The inputs' handles are its own until it returns. After the second call
// with the same shapes it does not run again: its work is replayed.
typedef cgt_status (*cgt_step_body)(void* user, const cgt_tensor* inputs, size_t input_count,
                                    cgt_tensor* outputs, size_t output_count);

typedef struct cgt_step {
  uint32_t struct_size;
  uint32_t output_count;
  cgt_step_body body;
  void* user;
  void (*release)(void* user);  // NULL: nothing to release
} cgt_step;

enum {
  CGT_INPUT_STATIC = 1u << 0,  // stays at its address: it is checked, not copied
  CGT_INPUT_MUTATED = 1u << 1  // the function writes into it
};
// What the function finds beyond the true sizes of an input that was padded.
typedef int32_t cgt_padding;
enum {
  CGT_PAD_ZEROS = 0,
  CGT_PAD_VALUE = 1,
  CGT_PAD_LAST = 2,     // the last valid slice of each axis; zeros where an axis has size 0
  CGT_PAD_ANYTHING = 3  // not written: what happens to be there
};
typedef struct cgt_input_options {
  uint32_t struct_size;  // of an array, the first says it for all
  uint32_t flags;
  const char* name;    // for messages
  uint64_t alignment;  // bytes, of a static one; a power of two
  cgt_padding padding;
  int32_t reserved;
  double padding_value;  // of CGT_PAD_VALUE; one that its type can hold
} cgt_input_options;

enum {
  CGT_FUNCTION_EAGER = 1u << 0,          // never graphed
  CGT_FUNCTION_REQUIRE_GRAPH = 1u << 1,  // an error where it would run eagerly
  CGT_FUNCTION_PINNED = 1u << 2          // its recordings are never evicted
};
// What happens when static inputs have other addresses than recorded.
typedef int32_t cgt_on_static_change;
enum {
  CGT_STATIC_CHANGE_RECORD = 0,  // a recording for these addresses
  CGT_STATIC_CHANGE_DEMOTE = 1,  // the same; after max_static_changes an input is copied
  CGT_STATIC_CHANGE_REFUSE = 2   // CGT_CAPTURE_FAILED, with all that changed
};
// What happens to a call with an eager input that the function writes into, and that is not static.
typedef int32_t cgt_on_mutated_input;
enum {
  CGT_MUTATED_COPY_BACK = 0,  // copied in before the work and back behind it
  CGT_MUTATED_SKIP = 1,       // it runs eagerly
  CGT_MUTATED_SKIP_MANAGED_TOO = 2,
  CGT_MUTATED_REFUSE = 3
};
// What happens to a call whose sizes have no recording that fits, in a function with buckets.
typedef int32_t cgt_while_missing;
enum {
  CGT_MISSING_RECORD = 0,
  // These two record only in cgt_function_precapture().
  CGT_MISSING_NEXT_LARGER = 1,  // padded to the smallest recording that holds it, else eagerly
  CGT_MISSING_RUN_EAGERLY = 2
};
// Not there: CompileOptions::buckets, a short form of `axes`.
typedef struct cgt_function_options {
  uint32_t struct_size;
  uint32_t flags;
  const cgt_input_options* inputs;  // by position; the rest have the defaults
  size_t input_count;
  uint64_t max_recordings;
  cgt_at_limit at_limit;
  int32_t reserved;
  const struct cgt_axis_options* axes;  // cgtree/c_api_axes.h
  size_t axis_count;
  const char* const* output_names;  // for messages: one for each output; it and they may be NULL
  cgt_while_missing while_missing;
  cgt_on_mutated_input on_mutated_input;
  cgt_on_static_change on_static_change;
  int32_t reserved_too;
  uint64_t max_static_changes;
  uint64_t min_graph_nodes;  // with fewer a recording is not worth its launch: it runs eagerly
} cgt_function_options;

CGT_API cgt_status cgt_compile(cgt_context context, const char* name, const cgt_step* step,
                               const cgt_function_options* options, cgt_function* out);
CGT_API cgt_status cgt_function_destroy(cgt_function function);
// If it fails, context and outputs are as before the call.
CGT_API cgt_status cgt_call(cgt_function function, const cgt_tensor* inputs, size_t input_count,
                            cgt_tensor* outputs, size_t output_count);
// The same; but output i is written into buffers[i] where that is not NULL.
CGT_API cgt_status cgt_call_into(cgt_function function, const cgt_tensor* inputs,
                                 size_t input_count, const cgt_tensor* buffers, size_t buffer_count,
                                 cgt_tensor* outputs, size_t output_count);
// What such a call would do now and why, as lines of text.
CGT_API cgt_status cgt_function_explain(cgt_function function, const cgt_tensor* inputs,
                                        size_t input_count, char* buffer, size_t capacity,
                                        size_t* length);
CGT_API cgt_status cgt_function_stats_json(cgt_function function, char* buffer, size_t capacity,
                                           size_t* length);

#ifdef __cplusplus
}
#endif

#include "cgtree/c_api_axes.h"
#include "cgtree/c_api_boundary.h"
#include "cgtree/c_api_random.h"
#include "cgtree/c_api_target.h"

#endif  // CGTREE_C_API_H_
