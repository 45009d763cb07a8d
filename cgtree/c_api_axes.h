// The C ABI's part about dynamic axes: sizes that vary from call to call, and how they are warmed.
//
// Which policy serves which function: docs/dynamic_shapes.md. Include cgtree/c_api.h.
#ifndef CGTREE_C_API_AXES_H_
#define CGTREE_C_API_AXES_H_

#include "cgtree/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t cgt_axis_policy;
enum {
  CGT_AXIS_EXACT = 0,       // each size has recordings of its own, up to max_sizes of them
  CGT_AXIS_ALLOW_LIST = 1,  // as CGT_AXIS_EXACT for `sizes`; calls with others run eagerly
  CGT_AXIS_SKIP = 2,        // calls run eagerly as soon as a second size was seen
  CGT_AXIS_BUCKETS = 3      // the next one of `sizes`: inputs are padded to it, outputs sliced
};
// What happens to a call with a size more than max_sizes.
typedef int32_t cgt_at_max_sizes;
enum {
  CGT_MAX_SIZES_RUN_EAGERLY = 0,
  CGT_MAX_SIZES_NEXT_LARGER = 1,  // padded to the next larger size that is recorded, else eagerly
  CGT_MAX_SIZES_EVICT = 2         // the recordings of the size used longest ago go
};
typedef int32_t cgt_above_largest;
enum { CGT_ABOVE_LARGEST_RUN_EAGERLY = 0, CGT_ABOVE_LARGEST_REFUSE = 1 };

// Axis `axis` of input or output number `tensor`, both from 0; inputs below 65536.
typedef struct cgt_axis_use {
  uint32_t tensor;
  int32_t axis;
} cgt_axis_use;

// An axis of a function, which has up to eight.
typedef struct cgt_axis_options {
  uint32_t struct_size;  // of an array, the first says it for all
  cgt_axis_policy policy;
  const char* name;
  const cgt_axis_use* inputs;  // at least one; in each call they must agree about the size
  size_t input_count;
  const cgt_axis_use* outputs;  // which the function gives the size it sees; sliced to the true
  size_t output_count;
  const int64_t* sizes;  // of CGT_AXIS_ALLOW_LIST and CGT_AXIS_BUCKETS: positive, ascending
  size_t size_count;
  uint64_t max_sizes;               // of CGT_AXIS_EXACT
  cgt_at_max_sizes at_max_sizes;    // of CGT_AXIS_EXACT
  cgt_above_largest above_largest;  // of CGT_AXIS_BUCKETS
} cgt_axis_options;

// Inside a step function: the size that the call gives the axis, as an int64 tensor without
// dimensions on the device, for kernels on cgt_current_stream() to read. Each replay sees that of
// its own call. It cannot be an output.
CGT_API cgt_status cgt_axis_length(const char* axis, cgt_tensor* out);

// The sizes that calls gave an axis, ascending: [{"size": 3, "count": 17}, ...].
CGT_API cgt_status cgt_function_histogram_json(cgt_function function, const char* axis,
                                               char* buffer, size_t capacity, size_t* length);
// What one call costs that is padded to this size; must not fall as sizes grow.
typedef double (*cgt_bucket_cost)(void* user, int64_t size);
// The sizes to pad to that would have cost least for that histogram: at most `max_buckets`, for
// which there is room, ascending; `count` gets how many. Without `cost` it is the size.
CGT_API cgt_status cgt_function_suggest_buckets(cgt_function function, const char* axis,
                                                size_t max_buckets, cgt_bucket_cost cost,
                                                void* user, int64_t* buckets, size_t* count);

typedef struct cgt_axis_size {
  const char* axis;
  int64_t size;
} cgt_axis_size;
// Writes a handle to each input of a call with these sizes, which come in the order of
// cgt_function_options::axes. Like a step function it returns a status, and handles that it makes
// die when it returns, the inputs among them; but no stream is current.
typedef cgt_status (*cgt_make_inputs)(void* user, const cgt_axis_size* sizes, size_t size_count,
                                      cgt_tensor* inputs, size_t input_count);

typedef struct cgt_axis_sizes {
  const char* axis;
  const int64_t* sizes;
  size_t size_count;
} cgt_axis_sizes;

typedef struct cgt_precapture_options {
  uint32_t struct_size;
  uint32_t input_count;
  cgt_make_inputs make_inputs;
  void* user;
  // For axes that have neither buckets nor a list; of the others, in place of all their sizes.
  const cgt_axis_sizes* sizes;
  size_t size_count;
  // What is not begun before this time is over, or when the context's pools hold as much, is left
  // out.
  uint64_t max_microseconds;
  uint64_t max_bytes;
  // Told of each combination when it is done, as one of the report's entries. May be NULL.
  void (*progress)(void* user, const char* entry_json);
} cgt_precapture_options;

// Records each combination of the sizes of the dynamic axes, the largest first, whatever
// cgt_function_options::while_missing says. If it fails, what was recorded until then stays.
CGT_API cgt_status cgt_function_precapture(cgt_function function,
                                           const cgt_precapture_options* options);
// What the last one that did not fail has done: {"entries": [{"sizes": {"batch": 8}, "outcome":
// "recorded", "bytes": 0, "microseconds": 12}, ...], "bytes": 0, "microseconds": 12}. Outcomes:
// "recorded", "already_there", "left_out", which also has "why".
CGT_API cgt_status cgt_function_precapture_json(cgt_function function, char* buffer,
                                                size_t capacity, size_t* length);

#ifdef __cplusplus
}
#endif

#endif  // CGTREE_C_API_AXES_H_
