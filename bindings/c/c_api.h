// The C ABI of cgtree, for C99 programs and for languages that can call C.
//
// Conventions:
//
//  1. A function that can fail returns a cgt_status. It never throws, and it writes its
//     out-parameters only when it returns CGT_OK. cgt_last_error() describes the thread's failure.
//  2. A handle (cgt_context, cgt_function, cgt_tensor, ...) is an opaque number, not an address.
//     Handles may be destroyed in any order, each once: objects keep others that they need. Using a
//     handle after that, or instead of a handle of another kind, is CGT_INVALID_HANDLE. A null
//     handle is refused too, except that destroying it does nothing.
//  3. Thread safety: functions may be called on any thread. The caller ensures that no thread
//     destroys a tensor's handle, or exports it as a cgt_cai, while another thread uses it, and
//     that a context serves one call at a time (otherwise CGT_CONCURRENT_USE).
//  4. A struct starts with struct_size, its sizeof; in an array, the first element states it for
//     all. A field that is 0 means its default. A struct of an earlier version of this header is
//     accepted, and so is a longer struct of a later version if all fields that this library does
//     not know are 0. The library fills a struct that it writes up to its size; fields of a longer
//     struct that this library does not know become 0. Plain values have no size and never grow:
//     cgt_device, cgt_stream, cgt_dims, cgt_argument, cgt_body and cgt_axis_use are complete,
//     cgt_philox_range is passed to kernels that were compiled with it, and the library passes an
//     array of cgt_axis_size to a callback, which was compiled with the element's size.
//  5. An array is a pointer and a count. The pointer may be NULL if the count is 0.
//  6. Text that a function writes is valid until the thread's next call that writes text.
//  7. An object that a function takes over (an owner, a DLPack struct, the user data of a step
//     function) is released exactly once, on any thread, also when the call fails. Nothing is taken
//     over from a struct whose struct_size is refused, because nothing in it is read.
//  8. Callbacks are called without a lock. A callback must return: it must not be left by longjmp.
//     A C++ exception that leaves it becomes CGT_STEP_THREW. A step function may call any function
//     of this header, but functions that need exclusive use of its context return
//     CGT_CONCURRENT_USE.
//  9. Handles of tensors that are made inside a callback end when it returns. Destroy them earlier
//     to let the rest of the callback use their memory.
// 10. Devices and streams are values, and streams are borrowed. Error numbers of all devices are
//     those of CUDA.
// 11. Functions, options and choices have the names of C++, whose headers explain them: "refuse" is
//     kThrow. This header names the differences. The pointer for a count or a report may be NULL.
//
// The library's hidden state is the tables behind the handles and, for each thread, the last error,
// the last text, and the current step function. docs/c_api.md lists the parts of C++ that are
// missing here.
#ifndef CGTREE_C_API_H_
#define CGTREE_C_API_H_

#include <stddef.h>
#include <stdint.h>

// The next two are the version of this header, 10,000 for a major version, 100 for a minor one, 1
// for a patch, and the version of the ABI, which is also the number in the library's soname. A
// program runs with each library whose cgt_abi_version() is the CGT_ABI_VERSION that it was
// compiled with.
#define CGT_VERSION 200
#define CGT_ABI_VERSION 2
// Exports a function from libcgtree.so, which hides all other symbols.
#define CGT_API __attribute__((visibility("default")))
#ifdef __CUDACC__
// Marks functions of this header that kernels may call, too.
#define CGT_HOST_DEVICE __host__ __device__
#else
#define CGT_HOST_DEVICE
#endif

#ifdef __cplusplus
extern "C" {
#endif

// ---- Status and errors --------------------------------------------------------------------------

// The result of a call: one of these numbers, or a number that a step function returned.
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
  // The next four concern tensors of other libraries.
  CGT_MISSING_FIELD = 8,
  CGT_WRONG_TYPE = 9,
  CGT_WRONG_VALUE = 10,
  CGT_NOT_SUPPORTED = 11,
  // A replay was verified and differs from an eager run. Memory that the call writes is as the
  // replay left it, and no output is returned.
  CGT_VERIFY_FAILED = 12,
  CGT_STEP_FAILED = 13,   // a callback returned a number that is not a cgt_status
  CGT_STEP_THREW = 14,    // a C++ exception left a callback
  CGT_GROUP_FAILED = 15,  // the ranks do different things, or a rank cannot be reached
  CGT_INTERNAL = 16,
  CGT_USER_STATUS = 1000  // step functions may return numbers from here on; their calls return them
};

// The capture state of a stream. An invalidated capture is still open, and fails when it ends.
typedef int32_t cgt_capture_state;
enum { CGT_CAPTURE_NONE = 0, CGT_CAPTURE_ACTIVE = 1, CGT_CAPTURE_INVALIDATED = 2 };

// The last failure on a thread.
typedef struct cgt_error {
  uint32_t struct_size;
  cgt_status status;          // CGT_OK if nothing failed on this thread
  int32_t cuda_code;          // a cudaError_t, or 0 if no device was involved
  cgt_capture_state capture;  // the state of the thread's current stream at the failure
  // Both are valid until the next failure on this thread, and never NULL. `where` is "file:line" or
  // "".
  const char* message;
  const char* where;
} cgt_error;

// Returns the CGT_ABI_VERSION of the library.
CGT_API uint32_t cgt_abi_version(void);
// Returns the name of a status, such as "CGT_OK".
CGT_API const char* cgt_status_name(cgt_status status);
// Writes the last failure on the calling thread; calls that succeed do not change it.
// CGT_INVALID_ARGUMENT if struct_size is wrong; this failure is not kept as the last one.
CGT_API cgt_status cgt_last_error(cgt_error* error);
// Sets the message for the status that the current step function returns next. The text is copied.
// Outside of step functions it does nothing.
CGT_API void cgt_set_error(const char* message);
// Returns the number of handles that exist, of all threads. It counts them one by one, for tests of
// leaks.
CGT_API size_t cgt_live_handles(void);

// ---- Handles and values -------------------------------------------------------------------------

// The next six are handles.
typedef struct cgt_context_handle* cgt_context;
typedef struct cgt_function_handle* cgt_function;
typedef struct cgt_tensor_handle* cgt_tensor;
typedef struct cgt_generator_handle* cgt_generator;
typedef struct cgt_progress_watch_handle* cgt_progress_watch;
typedef struct cgt_loop_stream_handle* cgt_loop_stream;

// The layout and the numbers of DLPack's DLDevice.
typedef struct cgt_device {
  int32_t type;
  int32_t id;
} cgt_device;
enum { CGT_DEVICE_HOST = 1, CGT_DEVICE_CUDA = 2 };

// A stream, borrowed from the library that made it.
typedef struct cgt_stream {
  cgt_device device;
  // A cudaStream_t on a GPU: 0 and 1 are the legacy stream, 2 is the per-thread stream.
  uintptr_t native;
} cgt_stream;

// An element type.
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
  CGT_FLOAT64 = 13,
  CGT_FLOAT8_E4M3FN = 14,
  CGT_FLOAT8_E4M3FNUZ = 15,
  CGT_FLOAT8_E5M2 = 16,
  CGT_FLOAT8_E5M2FNUZ = 17,
  CGT_FLOAT8_E8M0FNU = 18,
  CGT_COMPLEX64 = 19,
  CGT_COMPLEX128 = 20
};

// ---- Devices ------------------------------------------------------------------------------------

// Parses "host", "cuda", "cuda:1" or "auto": the first GPU if this program can use it, and the host
// device otherwise.
CGT_API cgt_status cgt_device_parse(const char* text, cgt_device* out);

// ---- Streams ------------------------------------------------------------------------------------

// Makes a stream. A blocking stream is ordered with the legacy stream; on the host device, too.
CGT_API cgt_status cgt_stream_create(cgt_device device, int32_t is_blocking, cgt_stream* out);
// Retires a stream made by cgt_stream_create(), and destroys it without waiting for its work. Does
// nothing if `native` is 0.
CGT_API cgt_status cgt_stream_destroy(cgt_stream stream);
// Must be called before a stream of another library is destroyed, if calls were made on it:
// contexts stop using it.
CGT_API cgt_status cgt_stream_retire(cgt_stream stream);
// Waits, on the calling thread, until all work on the stream is done.
CGT_API cgt_status cgt_stream_synchronize(cgt_stream stream);
// Makes later work on `stream` wait for all work that was enqueued on `other` so far.
CGT_API cgt_status cgt_stream_wait(cgt_stream stream, cgt_stream other);
// The next two make `stream` the current stream of this thread until the matching cgt_stream_pop():
// calls launch their work there. Pairs nest. A step begun in between keeps its stream until it
// ends. Streams that a callback does not pop are popped when it returns.
CGT_API cgt_status cgt_stream_push(cgt_stream stream);
CGT_API cgt_status cgt_stream_pop(void);
// Returns the stream on which a step function must launch its work. CGT_INVALID_ARGUMENT outside of
// step functions, unless a stream was pushed.
CGT_API cgt_status cgt_current_stream(cgt_stream* out);

// The dimensions of a launch, as CUDA has them: x, y and z, and the bytes of dynamic shared memory.
typedef struct cgt_dims {
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t shared_bytes;
} cgt_dims;
// Runs a whole grid. arguments[i] points to a copy of argument i, made at the launch.
typedef void (*cgt_host_body)(const cgt_dims* dims, const void* const* arguments);
// An argument of a launch. The launch copies it.
typedef struct cgt_argument {
  const void* data;
  size_t bytes;
} cgt_argument;
// Launches a C function on a stream of the host device, in stream order. While the stream captures,
// the launch becomes a graph node. `name` appears in messages and must stay valid until the process
// ends. There may be up to 63 arguments. On a GPU, launch kernels with CUDA on cgt_stream::native.
CGT_API cgt_status cgt_launch_host(cgt_stream stream, const char* name, cgt_host_body body,
                                   const cgt_dims* dims, const cgt_argument* arguments,
                                   size_t argument_count);

// ---- Tensors ------------------------------------------------------------------------------------

// The layout of a tensor, and the address of its data.
typedef struct cgt_tensor_info {
  uint32_t struct_size;
  cgt_dtype dtype;
  cgt_device device;
  int32_t ndim;
  int32_t is_read_only;
  const int64_t* shape;    // valid as long as the handle
  const int64_t* strides;  // in elements; valid as long as the handle
  int64_t elements;
  size_t bytes;       // of all elements without gaps
  void* data;         // the address of the first element, on the device
  cgt_stream stream;  // the stream that orders the contents; native is 0 if there is none
} cgt_tensor_info;

// Makes a tensor without setting its contents. Inside a step function `device` is NULL, and the
// memory comes from the context.
CGT_API cgt_status cgt_tensor_empty(cgt_dtype dtype, int32_t ndim, const int64_t* shape,
                                    const cgt_device* device, cgt_tensor* out);
// Makes a tensor on the host with a copy of these values, which calls pass by value: the step
// function gets it on its own device. It is a number, of any type but CGT_COMPLEX128, or a step
// block: a struct, as uint8 {its size}.
CGT_API cgt_status cgt_tensor_by_value(cgt_dtype dtype, int32_t ndim, const int64_t* shape,
                                       const void* values, cgt_tensor* out);
// Releases the handle. The memory is released with the last handle and the work that uses it.
CGT_API cgt_status cgt_tensor_destroy(cgt_tensor tensor);
// Makes another handle of the same tensor.
CGT_API cgt_status cgt_tensor_share(cgt_tensor tensor, cgt_tensor* out);
// Writes the layout of a tensor and the address of its data. CGT_STALE_TENSOR for an output that
// has ended.
CGT_API cgt_status cgt_tensor_describe(cgt_tensor tensor, cgt_tensor_info* info);
// The next three make views, which move no data.
CGT_API cgt_status cgt_tensor_reshape(cgt_tensor tensor, int32_t ndim, const int64_t* shape,
                                      cgt_tensor* out);
CGT_API cgt_status cgt_tensor_slice(cgt_tensor tensor, int32_t axis, int64_t begin, int64_t end,
                                    cgt_tensor* out);
CGT_API cgt_status cgt_tensor_transpose(cgt_tensor tensor, int32_t axis, int32_t other,
                                        cgt_tensor* out);
// The next two copy between the host and a dense tensor of `bytes` bytes. They return when the copy
// is complete.
CGT_API cgt_status cgt_tensor_copy_from_host(cgt_tensor tensor, const void* data, size_t bytes);
CGT_API cgt_status cgt_tensor_copy_to_host(cgt_tensor tensor, void* data, size_t bytes);
// Enqueues a copy on `stream`, or on the current stream if `stream` is NULL.
CGT_API cgt_status cgt_tensor_copy(cgt_tensor destination, cgt_tensor source,
                                   const cgt_stream* stream);
// Must be called after work that uses the tensor was enqueued on another stream than that of the
// calls: the memory is not used again before that work is done. NULL: the current stream.
CGT_API cgt_status cgt_tensor_note_use(cgt_tensor tensor, const cgt_stream* stream);

// ---- Contexts -----------------------------------------------------------------------------------

enum {
  CGT_CONTEXT_CHECKED = 1u << 0,
  CGT_CONTEXT_EVENTS_OF_REPLAYS = 1u << 1,  // event_file_has_replays
  CGT_CONTEXT_POOLS_GROW_IN_PLACE = 1u << 2,
  CGT_CONTEXT_OUTPUTS_LIE_APART = 1u << 3
};
// The action when a recording refers to memory that is not known to live as long as it does.
typedef int32_t cgt_on_foreign_pointer;
enum {
  CGT_FOREIGN_POINTER_RECORD = 0,
  CGT_FOREIGN_POINTER_WARN = 1,
  CGT_FOREIGN_POINTER_REFUSE = 2
};
// The action when a call needs one recording more than a limit allows.
typedef int32_t cgt_at_limit;
enum { CGT_RUN_EAGERLY = 0, CGT_EVICT = 1, CGT_REFUSE = 2 };

// The ranks that decide together: see Group in extensions/ranks/group.h.
typedef struct cgt_group {
  uint32_t struct_size;
  int32_t rank;  // in [0, size)
  int32_t size;
  // Replaces each word by its minimum over all ranks, and returns when all ranks have called it. A
  // status other than CGT_OK, for a rank that does not come, fails the call.
  cgt_status (*minimum)(void* user, uint64_t* words, size_t count);
  void* user;  // must outlive the context
} cgt_group;

// Options of a context; NULL instead of them means the defaults.
typedef struct cgt_context_options {
  uint32_t struct_size;
  uint32_t flags;
  const cgt_stream* stream;  // outlives the context and its tensors; NULL: a new stream
  uint64_t max_bytes;
  uint64_t max_recordings;
  uint64_t max_graph_bytes;
  uint64_t max_recording_microseconds;
  const char* event_file;
  cgt_at_limit at_limit;
  cgt_on_foreign_pointer on_foreign_pointer;
  // Called when the context and its tensors are released; it may destroy `stream`. May be NULL.
  void (*release)(void* owner);
  void* owner;
  const cgt_group* group;  // NULL: the context decides alone
  uint64_t verify_every;
  const char* name;
  uint64_t verify_first;
  uint64_t time_every_nth_replay;
} cgt_context_options;

// Makes a context on a device. `options` may be NULL.
CGT_API cgt_status cgt_context_create(cgt_device device, const cgt_context_options* options,
                                      cgt_context* out);
// Releases the handle. Functions and steps of the context may still be called.
CGT_API cgt_status cgt_context_destroy(cgt_context context);
// The next ten are functions of Context, and write how much they drop or free. `capture` 0: all.
CGT_API cgt_status cgt_context_mark_step(cgt_context context);
CGT_API cgt_status cgt_tensor_keep(cgt_tensor output, cgt_context context);
CGT_API cgt_status cgt_context_release_captured(cgt_context context, uint64_t capture,
                                                size_t* released);
CGT_API cgt_status cgt_context_trim(cgt_context context, size_t* bytes);
CGT_API cgt_status cgt_context_release_memory(cgt_context context, size_t* bytes);
CGT_API cgt_status cgt_context_declare(cgt_context context, const char* name, const void* address,
                                       size_t bytes);
CGT_API cgt_status cgt_context_undeclare(cgt_context context, const char* name);
CGT_API cgt_status cgt_context_invalidate(cgt_context context, const void* address, size_t bytes,
                                          size_t* dropped);
CGT_API cgt_status cgt_context_synchronize(cgt_context context);
CGT_API cgt_status cgt_context_stream(cgt_context context, cgt_stream* out);
// Writes the counters of ContextStats by name, and skips by reason. Any thread.
CGT_API cgt_status cgt_context_stats_json(cgt_context context, const char** text);
// Writes functions, recordings and pools (docs/snapshot.md), from which the program `cgtree_report`
// makes a report. Any thread.
CGT_API cgt_status cgt_context_snapshot_json(cgt_context context, const char** text);
// Writes the metrics of these contexts for Prometheus (docs/metrics.md). Any thread.
// CGT_INVALID_ARGUMENT if two of them have the same name.
CGT_API cgt_status cgt_metrics_text(const cgt_context* contexts, size_t count, const char** text);
// The next three are those of extensions/watch/recent_events.h (docs/events.md). `count` 0 stands
// for the signals of a crash.
CGT_API cgt_status cgt_context_recent_events(cgt_context context, const char** text);
CGT_API cgt_status cgt_context_dump_events(cgt_context context, const char* path);
CGT_API cgt_status cgt_dump_events_on_signal(const char* path, const int* signals, size_t count);

// ---- Watches of progress ------------------------------------------------------------------------

enum {
  CGT_PROGRESS_BEHIND_LIMIT_ALONE = 1u << 0,  // every_nth_replay = 0
  CGT_PROGRESS_NO_TIME_LIMIT = 1u << 1,
  CGT_PROGRESS_TIMES_SCOPES = 1u << 2
};

// Options of a watch; NULL instead of them means the defaults.
typedef struct cgt_progress_options {
  uint32_t struct_size;
  uint32_t flags;
  uint64_t every_nth_replay;         // n to mark every n-th replay; 0: every replay
  uint64_t time_limit_milliseconds;  // 0: 30,000
  void (*on_timeout)(void* user, const char* text);
  void* user;  // must outlive the watch and the contexts that have it
} cgt_progress_options;

// Makes a ProgressWatch (docs/hangs.md). `options` may be NULL.
CGT_API cgt_status cgt_progress_watch_create(const cgt_progress_options* options,
                                             cgt_progress_watch* out);
// Releases the handle. Contexts that have the watch keep it.
CGT_API cgt_status cgt_progress_watch_destroy(cgt_progress_watch watch);
// NULL: replays leave no marks any more.
CGT_API cgt_status cgt_context_watch_progress(cgt_context context, cgt_progress_watch watch);
// The next two write the progress of the replays that have not ended, as text and as JSON for the
// program `cgtree_report`. Any thread.
CGT_API cgt_status cgt_progress_watch_report(cgt_progress_watch watch, const char** text);
CGT_API cgt_status cgt_progress_watch_json(cgt_progress_watch watch, const char** text);

// ---- Step functions -----------------------------------------------------------------------------

// A step function launches its work on cgt_current_stream(), makes tensors with cgt_tensor_empty()
// and writes a handle to each output. The handles of the inputs belong to it until it returns.
// After the second call with the same shapes it is not called again: its work is replayed.
// If it returns the status of a failed function of this header, the message gets its name in front.
typedef cgt_status (*cgt_step_body)(void* user, const cgt_tensor* inputs, size_t input_count,
                                    cgt_tensor* outputs, size_t output_count);

// A step function: its body, and user data that this library takes over. `body` and `user` serve
// all calls of the function.
typedef struct cgt_step {
  uint32_t struct_size;
  uint32_t output_count;
  cgt_step_body body;
  void* user;
  void (*release)(void* user);  // may be NULL
} cgt_step;

enum {
  CGT_INPUT_STATIC = 1u << 0,      // for functions
  CGT_INPUT_MUTATED = 1u << 1,     // the function, or the work of the steps, writes the input
  CGT_INPUT_CONTIGUOUS = 1u << 2,  // for functions
  CGT_INPUT_COPIED = 1u << 3,      // for steps: BindingOptions::is_copied
  CGT_INPUT_SESSION = 1u << 4      // for steps: BindingOptions::is_per_session
};
// The values beyond the actual sizes of a padded input; see Padding::Kind.
typedef int32_t cgt_padding;
enum {
  CGT_PAD_UNSET = 0,
  CGT_PAD_ZEROS = 1,
  CGT_PAD_VALUE = 2,
  CGT_PAD_LAST = 3,
  CGT_PAD_ANYTHING = 4
};
// A cgt_rebind lets a graph use an input at its address instead of a copy. Steps of an engine copy.
typedef int32_t cgt_rebind;
enum { CGT_REBIND_NEVER = 0, CGT_REBIND_AUTO = 1, CGT_REBIND_ALWAYS = 2 };
// Options of one input of a function, or of one binding of steps.
typedef struct cgt_input_options {
  uint32_t struct_size;
  uint32_t flags;
  const char* name;
  uint64_t alignment;
  cgt_padding padding;
  cgt_rebind rebind;
  double padding_value;  // for CGT_PAD_VALUE
  // Only for cgt_steps_create(): BindingOptions::host_bytes. cgt_step_begin() reads the struct.
  uint64_t host_bytes;
  double tolerance;  // for steps: 0, or INFINITY for a binding that is not compared
} cgt_input_options;

// Options of one output of a function.
typedef struct cgt_output_options {
  uint32_t struct_size;
  cgt_rebind rebind;
  const char* name;
  double tolerance;
} cgt_output_options;

// The policy for the sizes that calls give an axis; docs/dynamic_shapes.md compares the policies.
typedef int32_t cgt_axis_policy;
enum {
  CGT_AXIS_EXACT = 0,
  CGT_AXIS_ALLOW_LIST = 1,
  CGT_AXIS_SKIP = 2,
  CGT_AXIS_BUCKETS = 3,
  CGT_AXIS_MULTIPLES = 4,
  CGT_AXIS_POWERS_OF_TWO = 5,
  CGT_AXIS_LEARNED = 6  // learned by cgt_function_idle()
};
// The action when a call brings a size beyond max_sizes.
typedef int32_t cgt_at_max_sizes;
enum { CGT_MAX_SIZES_RUN_EAGERLY = 0, CGT_MAX_SIZES_NEXT_LARGER = 1, CGT_MAX_SIZES_EVICT = 2 };
// The action for a call with a size above the largest bucket.
typedef int32_t cgt_above_largest;
enum { CGT_ABOVE_LARGEST_RUN_EAGERLY = 0, CGT_ABOVE_LARGEST_REFUSE = 1 };

// Names axis `axis` of input or output number `tensor`; both count from 0. Inputs are below 65536.
typedef struct cgt_axis_use {
  uint32_t tensor;
  int32_t axis;
} cgt_axis_use;

// One dynamic axis of a function, or one integer of its key, whose values are its sizes. A function
// has up to eight of both.
typedef struct cgt_axis_options {
  uint32_t struct_size;
  cgt_axis_policy policy;
  const char* name;
  const cgt_axis_use* inputs;  // none for a key
  size_t input_count;
  const cgt_axis_use* outputs;
  size_t output_count;
  const int64_t* sizes;
  size_t size_count;
  uint64_t max_sizes;
  cgt_at_max_sizes at_max_sizes;
  cgt_above_largest above_largest;
  uint64_t multiple_of;
  uint64_t largest;
} cgt_axis_options;

enum {
  CGT_FUNCTION_EAGER = 1u << 0,  // not `enabled`
  CGT_FUNCTION_REQUIRE_GRAPH = 1u << 1,
  // The step may leave stream-ordered memory allocated, which then belongs to the recording: it is
  // valid until the recording is replayed again or dropped.
  CGT_FUNCTION_KEEPS_ALLOCATIONS = 1u << 2
};
// The action for a call whose static inputs have other addresses than recorded.
typedef int32_t cgt_on_static_change;
enum { CGT_STATIC_CHANGE_RECORD = 0, CGT_STATIC_CHANGE_DEMOTE = 1, CGT_STATIC_CHANGE_REFUSE = 2 };
// The action for a call whose padded sizes have no recording, in a function with buckets.
typedef int32_t cgt_while_missing;
enum { CGT_MISSING_RECORD = 0, CGT_MISSING_NEXT_LARGER = 1, CGT_MISSING_RUN_EAGERLY = 2 };

// Options of a function, or of steps. CompileOptions::buckets, a short form of `axes`, has no
// field.
typedef struct cgt_function_options {
  uint32_t struct_size;
  uint32_t flags;
  const cgt_input_options* inputs;  // by position; other inputs have the defaults
  size_t input_count;
  uint64_t max_recordings;
  const cgt_output_options* outputs;  // by position; other outputs have the defaults
  size_t output_count;
  const cgt_axis_options* axes;
  size_t axis_count;
  cgt_at_limit at_limit;
  cgt_while_missing while_missing;
  cgt_on_static_change on_static_change;
  uint64_t max_static_changes;
  const cgt_axis_options* keys;
  size_t key_count;
  double max_waste;
  uint64_t verify_first;
  uint64_t max_switch_nodes;
} cgt_function_options;

// A value that a call depends on, beside its tensors or bindings. Calls whose keys differ never
// share a recording.
typedef struct cgt_key_part {
  uint32_t struct_size;
  uint32_t flags;
  const char* name;  // letters, digits and '_'
  const char* text;  // NULL: the part is `number`
  int64_t number;
  size_t text_bytes;  // 0: the text is terminated by a 0
} cgt_key_part;
enum { CGT_KEY_UNSIGNED = 1u << 0 };  // `number` holds an uint64_t
// The next two initialize a cgt_key_part.
#define CGT_KEY_NUMBER(name, number) \
  { sizeof(cgt_key_part), 0, (name), NULL, (number), 0 }
#define CGT_KEY_TEXT(name, text) \
  { sizeof(cgt_key_part), 0, (name), (text), 0, 0 }

// Makes a function from a step function; `name` is its name in messages. `options` may be NULL.
// CGT_INVALID_ARGUMENT for options that contradict each other.
CGT_API cgt_status cgt_compile(cgt_context context, const char* name, const cgt_step* step,
                               const cgt_function_options* options, cgt_function* out);
// Releases the handle, and drops the recordings. Outputs stay valid. An open step is left first, as
// by cgt_step_leave(); that is CGT_INVALID_ARGUMENT on another thread.
CGT_API cgt_status cgt_function_destroy(cgt_function function);
// If a call fails, the context and the outputs are as before the call.
CGT_API cgt_status cgt_call(cgt_function function, const cgt_tensor* inputs, size_t input_count,
                            cgt_tensor* outputs, size_t output_count);
// As cgt_call(), with a key, which may have no parts. Output i is written into buffers[i] where
// that is not NULL. A buffer has the shape and type of its output, and shares no memory with an
// input or another buffer.
CGT_API cgt_status cgt_call_keyed(cgt_function function, const cgt_key_part* key, size_t key_size,
                                  const cgt_tensor* inputs, size_t input_count,
                                  const cgt_tensor* buffers, size_t buffer_count,
                                  cgt_tensor* outputs, size_t output_count);
// The next two write a part of the key of the thread's current call, with the value that the work
// must use: a number, or a text. CGT_INVALID_ARGUMENT if there is no part of that name and type,
// and outside of step functions and of steps.
CGT_API cgt_status cgt_current_key_number(const char* name, int64_t* out);
CGT_API cgt_status cgt_current_key_text(const char* name, const char** text);
// Writes the predicted outcome of a call with these arguments, and the reason, as lines of text.
CGT_API cgt_status cgt_function_explain(cgt_function function, const cgt_key_part* key,
                                        size_t key_size, const cgt_tensor* inputs,
                                        size_t input_count, const char** text);
// The next three are inspect(), compare_captures() and compare_runs() of
// extensions/inspect/inspect.h. For the recording that a call with these arguments would replay,
// they write the node that fails when each runs alone, the node at which a new capture differs, and
// the node that leaves different memory. The first does the work of a replay; after a device error
// the process cannot use the device any more. The second launches nothing, and the third puts
// mutated inputs back.
CGT_API cgt_status cgt_function_inspect(cgt_function function, const cgt_key_part* key,
                                        size_t key_size, const cgt_tensor* inputs,
                                        size_t input_count, const char** text);
CGT_API cgt_status cgt_function_compare_captures(cgt_function function, const cgt_key_part* key,
                                                 size_t key_size, const cgt_tensor* inputs,
                                                 size_t input_count, const char** text);
CGT_API cgt_status cgt_function_compare_runs(cgt_function function, const cgt_key_part* key,
                                             size_t key_size, const cgt_tensor* inputs,
                                             size_t input_count, const char** text);
// Writes the counters of FunctionStats by name, and skips by reason; "last_failure" is the text of
// the last call that failed, if any did. Any thread.
CGT_API cgt_status cgt_function_stats_json(cgt_function function, const char** text);
// The outcome of an ended call.
typedef int32_t cgt_outcome;
enum {
  CGT_NO_CALL = 0,  // there was no call yet
  CGT_REPLAYED = 1,
  CGT_RECORDED = 2,
  CGT_WARMED_UP = 3,
  CGT_RAN_EAGERLY = 4,
  CGT_FAILED = 5
};
// The action for a call of a frozen function that no recording fits.
typedef int32_t cgt_when_frozen;
enum { CGT_FROZEN_RUN_EAGERLY = 0, CGT_FROZEN_REFUSE = 1 };
// The next two begin and end the frozen state of a function, in which nothing is warmed up,
// recorded or evicted. Any thread.
CGT_API cgt_status cgt_function_freeze(cgt_function function, cgt_when_frozen when);
CGT_API cgt_status cgt_function_unfreeze(cgt_function function);
// Writes the outcome of the last ended call and, unless `skip_reason` is NULL, why it ran eagerly:
// a name as in cgt_function_stats_json(), which is never freed, or "".
CGT_API cgt_status cgt_function_last_outcome(cgt_function function, cgt_outcome* outcome,
                                             const char** skip_reason);

// ---- Steps of an engine -------------------------------------------------------------------------

// A graph around work that the caller enqueues itself, in the caller's memory: docs/adopting.md has
// the rules for the work, and the loop. Steps are a function, which one thread at a time may use,
// and each step is a call of it: cgt_function_destroy(), _stats_json(), _freeze(), _unfreeze() and
// _last_outcome() are as for others; an abandoned step is CGT_FAILED. Passing a function of one
// kind where the other is expected is CGT_INVALID_ARGUMENT.

// A range of memory that the work of a step uses in this call.
typedef struct cgt_binding {
  uint32_t struct_size;
  uint32_t flags;       // 0: no flags exist yet
  const void* address;  // of device memory, or of a step block, which cgt_step_begin() reads
  size_t bytes;
} cgt_binding;
// Initializes a cgt_binding.
#define CGT_BINDING(address, bytes) \
  { sizeof(cgt_binding), 0, (address), (bytes) }
// The threads on which a capture forbids calls that may break it: all, the capturing one, or none.
typedef int32_t cgt_capture_mode;
enum {
  CGT_CAPTURE_MODE_GLOBAL = 0,
  CGT_CAPTURE_MODE_THREAD_LOCAL = 1,
  CGT_CAPTURE_MODE_RELAXED = 2
};

// In the options, `inputs` are the bindings, by position: a binding with CGT_INPUT_COPIED may be at
// another address at each call, and is copied to cgt_step_address(); the addresses of all others
// are checked, also of bindings beyond `inputs`. There are no axes and no outputs;
// CGT_STATIC_CHANGE_DEMOTE and CGT_INPUT_STATIC are CGT_INVALID_ARGUMENT.
CGT_API cgt_status cgt_steps_create(cgt_context context, const char* name,
                                    const cgt_function_options* options, cgt_capture_mode mode,
                                    cgt_function* out);
// Begins a call on `stream`; NULL: the thread's current stream, or the context's. Replays if it
// can, and then writes 0 into `must_run`. If it fails, no step is open.
CGT_API cgt_status cgt_step_begin(cgt_function steps, const cgt_key_part* key, size_t key_size,
                                  const cgt_binding* bindings, size_t binding_count,
                                  const cgt_stream* stream, int32_t* must_run);
// Writes the address of binding `i` for the work. Requires: a step is open and must run.
CGT_API cgt_status cgt_step_address(cgt_function steps, size_t i, void** out);
// Call this when the work is enqueued. Writes 1 into `must_run` if the work must be enqueued once
// more. If it fails, the call has ended and 0 is written, with two exceptions: on another thread
// than that of cgt_step_begin(), and inside a function that the step calls, such as that of an
// eager break, the step stays open, and 1 is written.
CGT_API cgt_status cgt_step_end(cgt_function steps, int32_t* must_run);
// Abandons an open step whose work was not enqueued, or only in part. The call has no effect.
// Inside a function that the step calls, the step is no longer open, and is abandoned when the
// function returns.
CGT_API cgt_status cgt_step_leave(cgt_function steps);
// Drops the recordings that have an address in this range, which the caller gives away.
CGT_API cgt_status cgt_steps_invalidate(cgt_function steps, const void* address, size_t bytes,
                                        size_t* dropped);
// Writes the predicted outcome of a call with these arguments, and the reason, as lines of text.
CGT_API cgt_status cgt_steps_explain(cgt_function steps, const cgt_key_part* key, size_t key_size,
                                     const cgt_binding* bindings, size_t binding_count,
                                     const char** text);
// Enqueues the work of a step. `addresses`: cgt_step_address() of each binding.
typedef cgt_status (*cgt_step_work)(void* user, void* const* addresses, size_t count);
// The next two are cgt_function_inspect() and cgt_function_compare_captures() for a call with these
// arguments. The second captures `work` on the stream of the call, which is then
// cgt_current_stream().
CGT_API cgt_status cgt_steps_inspect(cgt_function steps, const cgt_key_part* key, size_t key_size,
                                     const cgt_binding* bindings, size_t binding_count,
                                     const cgt_stream* stream, const char** text);
CGT_API cgt_status cgt_steps_compare_captures(cgt_function steps, const cgt_key_part* key,
                                              size_t key_size, const cgt_binding* bindings,
                                              size_t binding_count, const cgt_stream* stream,
                                              cgt_step_work work, void* user, const char** text);

// ---- Eager breaks -------------------------------------------------------------------------------

// The by-value inputs or bindings of the present call. Valid while the function of the break runs.
typedef struct cgt_step_values cgt_step_values;
// Enqueues its work on cgt_current_stream(), and may wait for the device.
typedef cgt_status (*cgt_break_body)(void* user, const cgt_step_values* values);

// As eager_break() of cgtree/values/eager_break.h. `release` may be NULL; it is called when `body`
// will not be called any more, also if this function fails.
CGT_API cgt_status cgt_eager_break(cgt_break_body body, void* user, void (*release)(void* user));
// Says that the step's work cannot be captured: if this thread is capturing it, the capture fails
// with this reason, and the work runs once more, without a graph.
CGT_API cgt_status cgt_refuse_capture(const char* why);
// A decision of the host. It must not call functions of this header.
typedef int64_t (*cgt_guard)(void* user);
// As decide() of extensions/guards/guard.h: writes the result of `ask`, for the work of the step. A
// recording keeps `ask`, and later calls ask before they replay the recording. `release` may be
// NULL; it is called when `ask` will not be called any more, also if this function fails.
CGT_API cgt_status cgt_decide(const char* name, cgt_guard ask, void* user,
                              void (*release)(void* user), int64_t* answer);
// Opens a scope on the calling thread, which names the nodes that are captured until the scope is
// closed (docs/scopes.md). The end of a step closes scopes that the step left open.
CGT_API cgt_status cgt_scope_open(const char* name, uint64_t* scope);
// Does nothing for a closed scope, or a scope of another thread.
CGT_API cgt_status cgt_scope_close(uint64_t scope);
// Writes the address of the value of input, or binding, `i` in the present call, and its size.
CGT_API cgt_status cgt_step_value(const cgt_step_values* values, size_t i, const void** data,
                                  size_t* bytes);

// ---- Branches and loops -------------------------------------------------------------------------

// Enqueues the work of a body on cgt_current_stream(), and writes a handle to each result. It may
// be called several times, and must enqueue the same work each time. Handles that it makes end when
// it returns, with their memory.
typedef cgt_status (*cgt_enqueue)(void* user, cgt_tensor* results, size_t result_count);
// The body of a branch, or of a loop's round. Borrowed for the call.
typedef struct cgt_body {
  cgt_enqueue enqueue;
  void* user;
} cgt_body;

// The next three are those of extensions/flow/control_flow.h; docs/control_flow.md has the rules
// for bodies. If a body fails, so does the call, with its status. They write a handle to a copy of
// each result of the body that ran. `generators` are those that bodies may draw from.
//
// Runs `then` if the predicate, CGT_INT32 or CGT_BOOL, is not 0, and else `otherwise`, which may be
// NULL if there are no results.
CGT_API cgt_status cgt_branch(cgt_tensor predicate, const cgt_body* then, const cgt_body* otherwise,
                              const cgt_generator* generators, size_t generator_count,
                              cgt_tensor* results, size_t result_count);
// Runs the body whose number is the value of `index`, CGT_INT32. If no body has that number, no
// body runs or, if there are results, the last body.
CGT_API cgt_status cgt_choose(cgt_tensor index, const cgt_body* bodies, size_t body_count,
                              const cgt_generator* generators, size_t generator_count,
                              cgt_tensor* results, size_t result_count);
// Runs the body until its one result, CGT_INT32 or CGT_BOOL, is 0, or for `max_rounds` rounds, at
// most 2^31 - 1. Writes the number of rounds, a CGT_INT32 on the device, unless `rounds` is NULL.
CGT_API cgt_status cgt_loop(int64_t max_rounds, const cgt_body* body,
                            const cgt_generator* generators, size_t generator_count,
                            cgt_tensor* rounds);

// The next five are a LoopStream of extensions/flow/loop_stream.h: rows that a loop on the device
// hands out while it runs, one each round. Loops of one stream must not run at the same time.
//
// Makes a stream of rows of up to `row_bytes`, a multiple of 4, which keeps them while the host is
// up to `rows` rows behind.
CGT_API cgt_status cgt_loop_stream_create(cgt_device device, size_t row_bytes, size_t rows,
                                          cgt_loop_stream* out);
// Releases the handle. Recordings keep the parts of the stream that they use.
CGT_API cgt_status cgt_loop_stream_destroy(cgt_loop_stream stream);
// As cgt_loop(), with a body of two results, the flag and the row of the round: contiguous on the
// device, a multiple of 4 bytes.
CGT_API cgt_status cgt_loop_rows(int64_t max_rounds, cgt_loop_stream stream, const cgt_body* body,
                                 const cgt_generator* generators, size_t generator_count,
                                 cgt_tensor* rounds);

// A row that was handed out.
typedef struct cgt_loop_row {
  uint32_t struct_size;
  int32_t round;    // from 0 on
  uint64_t loop;    // its number, from 1 on, among all loops with this stream
  size_t bytes;     // of the row
  int32_t is_last;  // of its loop
} cgt_loop_row;
// Waits for the next row, for `max_microseconds` at most, and copies it to the front of `buffer`.
// If there is no row by then, all fields are 0. CGT_INVALID_ARGUMENT once for lost rows, and for a
// row larger than `capacity`, which stays.
CGT_API cgt_status cgt_loop_stream_next(cgt_loop_stream stream, void* buffer, size_t capacity,
                                        uint64_t max_microseconds, cgt_loop_row* row);
// Any thread. Ends the loop of the next row with its present round, or if it has not begun, with
// its first.
CGT_API cgt_status cgt_loop_stream_stop(cgt_loop_stream stream);

// ---- Dynamic axes -------------------------------------------------------------------------------

// Returns the actual size of an axis in a step function: an int64 without dimensions, on the
// device, for kernels on cgt_current_stream(). Each replay sees the size of its call. It cannot be
// an output.
CGT_API cgt_status cgt_axis_length(const char* axis, cgt_tensor* out);

// Writes the sizes that calls gave an axis, ascending: [{"size": 3, "count": 17}, ...].
CGT_API cgt_status cgt_function_histogram_json(cgt_function function, const char* axis,
                                               const char** text);
// Writes the buckets with the least total cost for all axes and for cgt_function_options::keys, as
// {"batch": [1, 4], "length": [128]}, with at most `max_combinations` combinations of one bucket of
// each. The cost of a call is the product of its sizes. Without axes the result is {}.
CGT_API cgt_status cgt_function_suggest_buckets_json(cgt_function function, size_t max_combinations,
                                                     const char** text);

// The size of one axis of a call, or the value of an integer of its key.
typedef struct cgt_axis_size {
  const char* axis;
  int64_t size;
} cgt_axis_size;
// Writes a handle to each input of a call with these sizes, in the order of
// cgt_function_options::axes, followed by `keys`. It returns a status as a step function does, and
// handles that it makes end when it returns; there is no current stream.
typedef cgt_status (*cgt_make_inputs)(void* user, const cgt_axis_size* sizes, size_t size_count,
                                      cgt_tensor* inputs, size_t input_count);

// The sizes of one axis to precapture, which are numbers, or the values of a part of the key:
// numbers or texts.
typedef struct cgt_precapture_values {
  uint32_t struct_size;
  const char* name;
  const int64_t* numbers;
  size_t number_count;
  const char* const* texts;
  size_t text_count;
} cgt_precapture_values;

// The combinations to record, and the limits of recording them.
typedef struct cgt_precapture_options {
  uint32_t struct_size;
  uint32_t input_count;
  cgt_make_inputs make_inputs;
  void* user;
  const cgt_precapture_values* sizes;
  size_t size_count;
  uint64_t max_microseconds;
  void (*progress)(void* user, const char* entry_json);  // an entry of the report; may be NULL
  uint64_t held_outputs;                                 // 0: one; CGT_HOLDS_NONE: none
  const cgt_precapture_values* key;
  size_t key_size;
} cgt_precapture_options;
// For cgt_precapture_options::held_outputs, where 0 means the default.
#define CGT_HOLDS_NONE UINT64_MAX

// The next two are precapture() and predict_memory() of extensions/sizes/precapture.h. They write a
// report, unless `report` is NULL: {"entries": [{"sizes": {"batch": 8}, "outcome": "recorded",
// "bytes": 0, "graph_bytes": 119296, "microseconds": 12}, ...], "bytes": 0, "graph_bytes": 119296,
// "microseconds": 12}. An entry of a call with a key has it as text: "key": "draft=2
// adapter=\"en\"". Outcomes are "recorded", "already_there", "predicted", and "left_out", which
// also has "why".
CGT_API cgt_status cgt_function_precapture(cgt_function function,
                                           const cgt_precapture_options* options,
                                           const char** report);
CGT_API cgt_status cgt_function_predict_memory(cgt_function function,
                                               const cgt_precapture_options* options,
                                               const char** report);

// LearnOptions of extensions/sizes/size_learner.h; 0 means the default.
typedef struct cgt_learn_options {
  uint32_t struct_size;
  uint32_t input_count;
  cgt_make_inputs make_inputs;  // called by cgt_function_idle()
  void* user;
  void (*release)(void* user);  // called once, when the function is destroyed; may be NULL
  uint64_t max_sizes;
  uint64_t max_bytes;
  double busy_fraction;
  uint64_t held_outputs;  // as cgt_precapture_options::held_outputs
  const cgt_generator* generators;
  size_t generator_count;
} cgt_learn_options;
// Lets cgt_function_idle() learn the sizes of the function. CGT_INVALID_ARGUMENT unless an axis or
// an integer of the key is learned, and for a second call.
CGT_API cgt_status cgt_function_learn(cgt_function function, const cgt_learn_options* options);
// LearnerStep::Kind.
typedef int32_t cgt_learner_outcome;
enum {
  CGT_LEARNED_NOTHING = 0,
  CGT_LEARNED_SIZE = 1,
  CGT_LEARNING_FAILED = 2,
  CGT_LEARNER_VERIFIED = 3,
  CGT_LEARNER_GAVE_BACK = 4
};
// LearnerStep. Without an outcome all other fields are 0, except `evicted`, which is -1.
typedef struct cgt_learner_step {
  uint32_t struct_size;
  cgt_learner_outcome outcome;
  int64_t size;
  int64_t evicted;  // -1: none
  double gain_microseconds;
  uint64_t microseconds;
  uint64_t bytes;
} cgt_learner_step;
// For cgt_function_idle(): within cgt_learn_options::busy_fraction of the time.
#define CGT_BETWEEN_CALLS UINT64_MAX
// Does the most useful task, if it is expected to take no longer than this; returns at once if
// there is none. Used by one thread at a time, as calls are; in a group by all ranks.
CGT_API cgt_status cgt_function_idle(cgt_function function, uint64_t max_microseconds,
                                     cgt_learner_step* step);

// ---- Random numbers -----------------------------------------------------------------------------

// A generator is a seed and a count of used blocks of four 32-bit words (Philox4x32-10): see
// interop/random/generator.h. Calls draw the same numbers whether they run eagerly or are replayed.

// Makes a generator at the first block of the sequence of `seed`.
CGT_API cgt_status cgt_generator_create(uint64_t seed, cgt_generator* out);
// Releases the handle. Recordings that draw from the generator can still be replayed.
CGT_API cgt_status cgt_generator_destroy(cgt_generator generator);
// Begins the sequence of `seed` at the next draw or replay. CGT_INVALID_ARGUMENT while a step
// function is recorded.
CGT_API cgt_status cgt_generator_set_seed(cgt_generator generator, uint64_t seed);

// A position in the sequence of a seed.
typedef struct cgt_generator_state {
  uint32_t struct_size;
  uint64_t seed;
  uint64_t offset;  // the number of blocks used so far
  // Not 0 for a state taken inside a step function while it was recorded. Then the numbers above
  // are not those of later replays, and the state can be set on this thread until the function
  // returns.
  uint64_t recording;
} cgt_generator_state;
// Writes the position of the next draw. In a step function that is being recorded, see
// cgt_generator_state::recording.
CGT_API cgt_status cgt_generator_get_state(cgt_generator generator, cgt_generator_state* state);
// Continues from `state` at the next draw or replay. Inside a step function that is being recorded,
// only a state that was taken in the same call can be set.
CGT_API cgt_status cgt_generator_set_state(cgt_generator generator,
                                           const cgt_generator_state* state);

// Blocks that are reserved for a kernel, to be passed as a kernel argument. If `origin` is NULL,
// they are the blocks of `seed` from `offset` on. In recorded work `origin` is device memory that
// each replay fills before any kernel runs: origin[0] is the seed, and the blocks begin at
// origin[1] + offset.
typedef struct cgt_philox_range {
  const uint64_t* origin;
  uint64_t seed;
  uint64_t offset;
} cgt_philox_range;
// Reserves the next `blocks` blocks for kernels on cgt_current_stream(). CGT_INVALID_ARGUMENT if
// that stream is captured by another library, whose graph would repeat the numbers.
CGT_API cgt_status cgt_generator_reserve(cgt_generator generator, uint64_t blocks,
                                         cgt_philox_range* out);

// The next three fill a contiguous tensor on the stream's device: uniform numbers in [0, 1) and
// normal numbers for CGT_FLOAT32, four to a block; integers in [low, high) for CGT_INT64, two to a
// block. Values depend only on the generator and on the row-major number of the element. If
// `stream` is NULL, the current stream is used. A fill that fails does not advance the generator.
CGT_API cgt_status cgt_fill_uniform(cgt_generator generator, cgt_tensor tensor,
                                    const cgt_stream* stream);
CGT_API cgt_status cgt_fill_normal(cgt_generator generator, cgt_tensor tensor, float mean,
                                   float deviation, const cgt_stream* stream);
CGT_API cgt_status cgt_fill_integers(cgt_generator generator, cgt_tensor tensor, int64_t low,
                                     int64_t high, const cgt_stream* stream);

// Computes block `index` of a range, in C and in CUDA. Requires: index < blocks; for a range of
// recorded work, the call is made on the device. cgt_fill_uniform() makes (word >> 8) * 2^-24 of a
// word.
//
// Source: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1,
// 2, 3" (SC 2011).
CGT_HOST_DEVICE static inline void cgt_philox_block(const cgt_philox_range* range, uint64_t index,
                                                    uint32_t words[4]) {
  const uint64_t seed = range->origin != NULL ? range->origin[0] : range->seed;
  const uint64_t number = (range->origin != NULL ? range->origin[1] : 0) + range->offset + index;
  uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
  uint32_t c0 = (uint32_t)number, c1 = (uint32_t)(number >> 32), c2 = 0, c3 = 0;
  int round;
  for (round = 0; round < 10; ++round) {
    const uint64_t product0 = (uint64_t)0xD2511F53u * c0;
    const uint64_t product1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(product1 >> 32) ^ c1 ^ key0;
    c1 = (uint32_t)product1;
    c2 = (uint32_t)(product0 >> 32) ^ c3 ^ key1;
    c3 = (uint32_t)product0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

// ---- Tensors of other libraries -----------------------------------------------------------------

// docs/tensor_boundary.md lists the side that keeps each object alive, and the side that waits.

// The way in which an import orders the first use behind the producer's work.
typedef int32_t cgt_sync_policy;
enum {
  CGT_SYNC_DEFAULT = 0,  // CGT_SYNC_EVENT_WAIT, unless the environment says otherwise
  CGT_SYNC_EVENT_WAIT = 1,
  CGT_SYNC_SYNCHRONIZE = 2,
  CGT_SYNC_ENQUEUE = 3,
  CGT_SYNC_IGNORE = 4
};

enum {
  CGT_CAI_READ_ONLY = 1u << 0,
  CGT_CAI_HAS_STREAM = 1u << 1,  // otherwise `stream` must be 0, and means None
  CGT_CAI_HAS_MASK = 1u << 2,    // is refused
  CGT_CAI_HAS_STRIDES = 1u << 3
};
// The CUDA Array Interface, version 3, as a struct. All pointers are borrowed.
typedef struct cgt_cai {
  uint32_t struct_size;
  uint32_t flags;
  int32_t version;
  int32_t ndim;
  const int64_t* shape;
  const int64_t* strides;  // in bytes; read only with CGT_CAI_HAS_STRIDES
  uint64_t data;
  uint64_t stream;
  char typestr[16];  // "<f4"
} cgt_cai;

// Options of an import; NULL instead of them means the defaults.
typedef struct cgt_cai_import_options {
  uint32_t struct_size;
  cgt_sync_policy sync;
  const cgt_stream* consumer;  // the stream of the first use; NULL: the current stream
  cgt_dtype dtype;             // of elements that are opaque bytes, or where typestr is empty
} cgt_cai_import_options;

enum { CGT_CAI_EXPORT_IDLE = 1u << 0, CGT_CAI_EXPORT_HAS_VERSION = 1u << 1 };
// Options of an export; NULL instead of them means the defaults.
typedef struct cgt_cai_export_options {
  uint32_t struct_size;
  uint32_t flags;
  const cgt_stream* pending;  // other streams with work on the tensor
  size_t pending_count;
  int32_t version;
} cgt_cai_export_options;

// Keeps `owner` until the last handle of the tensor is destroyed, then calls release(owner). If
// `release` is NULL, the caller keeps the memory alive as long as it may be used.
CGT_API cgt_status cgt_tensor_from_cai(const cgt_cai* array, void* owner, void (*release)(void*),
                                       const cgt_cai_import_options* options, cgt_tensor* out);
// The pointers in `array` are valid until the handle is destroyed. Requires: the caller set
// array->struct_size.
CGT_API cgt_status cgt_tensor_to_cai(cgt_tensor tensor, const cgt_cai_export_options* options,
                                     cgt_cai* array);

// The structs of dlpack/dlpack.h, which need not be included.
struct DLManagedTensorVersioned;
struct DLPackExchangeAPI;

// Options of an import; NULL instead of them means the defaults.
typedef struct cgt_dlpack_import_options {
  uint32_t struct_size;
  cgt_sync_policy sync;
  const cgt_stream* consumer;  // the stream of the first use; NULL: the current stream
  const cgt_stream* producer;  // the stream of the producer's library, if it is another
} cgt_dlpack_import_options;

enum {
  CGT_DLPACK_HAS_STREAM = 1u << 0,  // otherwise None
  CGT_DLPACK_HAS_DEVICE = 1u << 1,  // otherwise the tensor's device
  CGT_DLPACK_COPY = 1u << 2,        // always copy
  CGT_DLPACK_NO_COPY = 1u << 3      // never copy; with neither flag, copy to another device only
};
// The arguments of __dlpack__(); NULL instead of them means None for each.
typedef struct cgt_dlpack_export_options {
  uint32_t struct_size;
  uint32_t flags;
  int64_t stream;  // -1: none; 1: legacy; 2: per thread; otherwise a cudaStream_t
  cgt_device device;
} cgt_dlpack_export_options;

// Takes `stolen` over.
CGT_API cgt_status cgt_tensor_from_dlpack(struct DLManagedTensorVersioned* stolen,
                                          const cgt_dlpack_import_options* options,
                                          cgt_tensor* out);
// Keeps the memory until the deleter is called.
CGT_API cgt_status cgt_tensor_to_dlpack(cgt_tensor tensor, const cgt_dlpack_export_options* options,
                                        struct DLManagedTensorVersioned** out);

// Returns DLPack's table of conversions that do not wait, for kernel libraries. It is valid until
// the process ends. Its objects are handles, a cgt_tensor each; its "Python error" is in
// cgt_last_error(). Inside a step function its allocator uses the memory of the context, and its
// current stream is cgt_current_stream().
CGT_API const struct DLPackExchangeAPI* cgt_dlpack_exchange_api(void);

#ifdef __cplusplus
}
#endif

#endif  // CGTREE_C_API_H_
