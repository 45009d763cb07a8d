// A CUDA graph around the work that an engine enqueues, in C99.
//
// An engine's step runs directly the first time (warm-up), is captured the second time, and is
// replayed from then on, as long as its key, sizes and checked addresses are those of a recording:
//
//   static const cgs_binding bindings[] = {
//       {"tokens", CGS_COPIED, 0}, {"kv", CGS_WRITTEN, 0}, {"weights", 0, 0}};
//   cgs_steps* decode;
//   if (cgs_open(&decode, "decode", device, bindings, 3, NULL) != CGS_DONE) fail(cgs_why(NULL));
//   ...
//   const cgs_range memory[] = {{tokens, token_bytes}, {kv, kv_bytes}, {weights, weight_bytes}};
//   int run = cgs_begin(decode, &shape, sizeof shape, memory, 3, stream);
//   for (; run == CGS_RUN; run = cgs_end(decode))
//     forward(cgs_address(decode, 0), stream);
//   if (run != CGS_DONE) fail(cgs_why(decode));
//
// Nothing is replayed with an address, a size or a key that does not fit. Work that cannot be
// captured runs directly, and cgs_why() has the reason.
//
// Each function returns CGS_DONE, CGS_RUN, or a negative number; then cgs_why() has the message,
// and nothing has changed, except by cgs_end(). Threads: one thread at a time uses a cgs_steps, and
// a step ends on the thread that began it; a thread that ends abandons it. Any thread may call
// cgs_get_stats() at any time.
#ifndef CGTREE_STEPS_H
#define CGTREE_STEPS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;  // cudaStream_t is a pointer to it.

typedef struct cgs_steps cgs_steps;

enum {
  CGS_DONE = 0,            // nothing is left to run
  CGS_RUN = 1,             // the work must be enqueued, and then cgs_end() called
  CGS_INVALID = -1,        // an argument that the caller can correct
  CGS_OUT_OF_MEMORY = -2,  // of the device, or of the host
  CGS_DEVICE = -3,         // CUDA returned an error
  CGS_BUSY = -4,           // another thread is inside the cgs_steps, or has a step open:
                           // cgs_why(NULL) has the message on this thread
  CGS_FAILED = -5          // anything else
};

// The flags of a binding. Without flags the address is checked: another address is recorded, too.
enum {
  CGS_COPIED = 1,   // its address may change: the graph copies the bytes to cgs_address() first
  CGS_WRITTEN = 2,  // the work writes there; if it is copied, the graph copies back
  CGS_HOST = 4,     // a struct in host memory, which cgs_begin() copies to cgs_address()
  CGS_SESSION = 8  // memory of a session, such as its KV cache: the first two sessions of a key are
                   // captured and compared, and if all words that differ are addresses of it, one
                   // recording serves every session. Use it with CGS_WRITTEN or alone
};

typedef struct {
  const char* name;  // in messages
  unsigned flags;
  size_t host_bytes;  // of CGS_HOST, the size of the struct; else 0
} cgs_binding;

// The memory of one binding in one call.
typedef struct {
  const void* address;
  size_t bytes;
} cgs_range;

// A field of 0 means its default, except struct_size.
typedef struct {
  size_t struct_size;      // sizeof(cgs_options)
  const char* key_names;   // "batch draft": then a key is an int64_t for each name, and messages
                           // have the names
  size_t max_recordings;   // 0: 128. At the limit the recording used longest ago is dropped
  size_t max_graph_bytes;  // limit of the device memory for graphs; 0: no limit
  int captures_strictly;   // 0: captures are relaxed, because other modes forbid calls that the
                           // work may make, such as cudaMalloc
  int runs_eagerly;        // no graph is made: for comparisons
  int keeps_allocations;   // the work may leave memory of cudaMallocAsync() allocated. Memory that
                           // a graph leaves must not be freed by the caller: it is valid until the
                           // graph is launched again or dropped. After a step that was captured but
                           // counted in cgs_stats.eager, as after any step without a graph, the
                           // caller must free it
} cgs_options;

typedef struct {
  size_t struct_size;    // sizeof(cgs_stats)
  uint64_t calls;        // ended calls: warm_ups + recordings + replays + eager + failures
  uint64_t warm_ups;     // first calls of a key
  uint64_t recordings;   // calls that were captured
  uint64_t replays;      // calls that launched an earlier recording
  uint64_t eager;        // calls that ran without a graph: see cgs_why()
  uint64_t failures;     // calls that ended with an error, or were abandoned
  uint64_t evictions;    // recordings that were dropped at a limit
  uint64_t kept;         // present recordings
  uint64_t graph_bytes;  // device memory of the present recordings
} cgs_stats;

// Makes a cgs_steps for CUDA device `device`. Bindings beyond `count` have no flags. `options` may
// be null. If it fails, `*steps` is null, and cgs_why(NULL) has the message on this thread.
int cgs_open(cgs_steps** steps, const char* name, int device, const cgs_binding* bindings,
             size_t count, const cgs_options* options);

// Replays the recording of this key and these bindings on `stream`, or returns CGS_RUN. The key is
// up to 56 bytes of all values, other than bindings, that the work depends on, or as
// cgs_options.key_names describes. Ranges of 0 bytes are ignored. Memory that a graph uses must
// stay until the last replay, and `stream` until cgs_close(); see cgs_invalidate() and
// cgs_retire_stream().
int cgs_begin(cgs_steps* steps, const void* key, size_t key_bytes, const cgs_range* ranges,
              size_t count, struct CUstream_st* stream);
// Returns the address of binding `i` for the work, which may differ in the next run, or null.
void* cgs_address(cgs_steps* steps, size_t i);
// Returns whether the work is being captured, so that it must not wait for the device.
int cgs_is_captured(const cgs_steps* steps);
// Call this when the work is enqueued on the stream. CGS_RUN: it could not be captured, and must be
// enqueued once more. If it fails, the step has ended, and the work may have run.
int cgs_end(cgs_steps* steps);
// Abandons the step: nothing is recorded, captured work never runs. Does nothing without a step.
int cgs_leave(cgs_steps* steps);
// Inside a step, captured or not: says that this work cannot be captured; from now on calls with
// this key and these sizes run without a graph.
int cgs_refuse(cgs_steps* steps, const char* why);
// Inside a step, captured or not: calls `ask(data)`, a decision of the host that the work uses. A
// recording keeps both, and later calls ask before they replay the recording: calls with another
// answer run and record. `ask` must not call functions cgs_*; `data` must stay until cgs_release()
// or cgs_close(). A recording whose `data` belongs to a session serves only that session:
// CGS_SESSION needs the same `data` for all.
int cgs_guard(cgs_steps* steps, const char* name, int64_t (*ask)(void* data), void* data,
              int64_t* answer);

// Call this before the memory is freed or reused, but not inside a step: drops all recordings,
// except proved recordings of CGS_SESSION whose graphs contain no address of the memory.
int cgs_invalidate(cgs_steps* steps, const void* address, size_t bytes);
// Call this before destroying a stream of `device` on which any open cgs_steps ran: CUDA must not
// be asked about the stream afterwards. Pending work of the stream stays in order with later steps.
// cgs_why(NULL) has the message of its failure. Not while a step is open on it.
int cgs_retire_stream(int device, struct CUstream_st* stream);
// `on`: nothing is recorded, or dropped at a limit, any more; calls without a recording run without
// a graph.
int cgs_freeze(cgs_steps* steps, int on);
// Drops all recordings, and gives their memory back, for a process that goes idle. The next call of
// each is recorded at once, even while frozen. Waits for the device. Not inside a step.
int cgs_release(cgs_steps* steps);

// Returns in one line the outcome of the last call, and why it was not a replay; or the message of
// the last failure. Valid until the next call with this cgs_steps. Null: the message of this
// thread's last failure of cgs_open(), or of a later CGS_BUSY, cgs_get_stats() or
// cgs_retire_stream().
const char* cgs_why(cgs_steps* steps);
int cgs_get_stats(const cgs_steps* steps, cgs_stats* stats);
// Abandons an open step, and waits for the work of the replays. Null: does nothing.
int cgs_close(cgs_steps* steps);

#ifdef __cplusplus
}
#endif

#endif
