// A CUDA graph around the work that an engine enqueues, in C99.
//
// An engine's step runs as it is the first time (warm-up), is captured the second time, and is
// replayed from then on, as long as its key, and the sizes and checked addresses of its bindings,
// are those of a recording:
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
// captured runs as it is, and cgs_why() says why.
//
// Each function returns CGS_DONE, CGS_RUN, or a negative number; then cgs_why() has the message,
// and nothing has changed. Threads: a cgs_steps is used by one thread at a time, and a step ends on
// the thread that has begun it; a thread that ends leaves it. cgs_get_stats() may be called on any
// thread at any time.
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
  CGS_DONE = 0,            // all is done: nothing is left to run
  CGS_RUN = 1,             // the work must be enqueued, and then cgs_end() called
  CGS_INVALID = -1,        // an argument that the caller can correct
  CGS_OUT_OF_MEMORY = -2,  // of the device, or of the host
  CGS_DEVICE = -3,         // CUDA has returned an error
  CGS_BUSY = -4,           // another thread is inside the cgs_steps, or has a step open: the
                           // message is that of cgs_why(NULL) on this one
  CGS_FAILED = -5          // anything else
};

// The flags of a binding. Without any, the address is checked: another one is recorded, too.
enum {
  CGS_COPIED = 1,   // its address may change: the graph copies the bytes to cgs_address() first
  CGS_WRITTEN = 2,  // the work writes there; if it is copied, the graph copies back
  CGS_HOST = 4,     // a struct in host memory, which cgs_begin() copies to cgs_address()
  CGS_SESSION = 8  // memory of a session, such as its KV cache: the first two sessions of a key are
                   // captured and compared, and if all words that differ are addresses of it, one
                   // recording serves every session. With CGS_WRITTEN or alone
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

// All 0 but struct_size: the defaults.
typedef struct {
  size_t struct_size;      // sizeof(cgs_options)
  const char* key_names;   // "batch draft": then a key is an int64_t for each name, and messages
                           // have the names
  size_t max_recordings;   // 0: 128. At the limit the recording used longest ago is dropped
  size_t max_graph_bytes;  // of device memory that the graphs take; 0: no limit
  int captures_strictly;   // 0: captures are relaxed, as the work may call what others forbid, such
                           // as cudaMalloc
  int runs_eagerly;        // no graph is made: to compare
  int keeps_allocations;   // the work may leave memory of cudaMallocAsync() allocated. What a graph
                           // has left is not the caller's to free: it is valid until the graph is
                           // launched again or dropped. But of a step that was captured and that
                           // cgs_stats.eager counts it is, as of one that ran without a graph
} cgs_options;

typedef struct {
  size_t struct_size;    // sizeof(cgs_stats)
  uint64_t calls;        // that have ended: warm_ups + recordings + replays + eager + failures
  uint64_t warm_ups;     // first calls of a key
  uint64_t recordings;   // calls that were captured
  uint64_t replays;      // calls that launched an earlier recording
  uint64_t eager;        // calls that ran without a graph: cgs_why()
  uint64_t failures;     // calls that ended with an error, or were left
  uint64_t evictions;    // recordings that were dropped at a limit
  uint64_t kept;         // recordings that there are now
  uint64_t graph_bytes;  // device memory that they take
} cgs_stats;

// Makes a cgs_steps for CUDA device `device`. Bindings beyond `count` have no flags. `options` may
// be null. If it fails, `*steps` is null, and cgs_why(NULL) has the message on this thread.
int cgs_open(cgs_steps** steps, const char* name, int device, const cgs_binding* bindings,
             size_t count, const cgs_options* options);

// Replays the recording of this key and these bindings on `stream`, or returns CGS_RUN. The key is
// up to 56 bytes that say all on which the work depends and that is no binding, or as
// cgs_options.key_names says. Ranges of 0 bytes are not looked at. Memory that a graph uses must
// stay until the last replay, and `stream` until cgs_close(); see cgs_invalidate() and
// cgs_retire_stream().
int cgs_begin(cgs_steps* steps, const void* key, size_t key_bytes, const cgs_range* ranges,
              size_t count, struct CUstream_st* stream);
// Returns the address at which the work finds binding `i`, which may be another one in the next
// run; null after CGS_DONE.
void* cgs_address(cgs_steps* steps, size_t i);
// Returns whether the work is being captured, so that it must not wait for the device.
int cgs_is_captured(const cgs_steps* steps);
// The work is enqueued on the stream. CGS_RUN: it could not be captured, and must be enqueued once
// more. If it fails, the step has ended, and the work may have run.
int cgs_end(cgs_steps* steps);
// The work is given up: the step leaves no trace. Without a step it does nothing.
int cgs_leave(cgs_steps* steps);
// Inside a step, captured or not: this work cannot be captured, and from now on calls with this key
// and these sizes run without a graph.
int cgs_refuse(cgs_steps* steps, const char* why);
// Inside a step, captured or not: calls `ask(data)`, a decision of the host, for the work to use. A
// recording keeps both, and later calls ask before they replay it: with another answer they run and
// record. `ask` must not call functions cgs_*; `data` must stay until cgs_release() or cgs_close().
// A recording with `data` of a session is that session's: CGS_SESSION needs the same for all.
int cgs_guard(cgs_steps* steps, const char* name, int64_t (*ask)(void* data), void* data,
              int64_t* answer);

// The memory goes, or is used for something else: drops the recordings that may use it, which are
// all, as addresses that are in no binding are not known. Not inside a step.
int cgs_invalidate(cgs_steps* steps, const void* address, size_t bytes);
// Before a stream of `device` is destroyed that any open cgs_steps has run on: CUDA must not be
// asked about it afterwards. Work that it still has to do stays in order with later steps. Its
// failure is cgs_why(NULL)'s. Not while a step is open on it.
int cgs_retire_stream(int device, struct CUstream_st* stream);
// `on`: nothing is recorded, or dropped at a limit, any more; calls without a recording run without
// a graph.
int cgs_freeze(cgs_steps* steps, int on);
// Drops all recordings, and gives their memory back; for a sleep. The next call of each is recorded
// at once, also while frozen. Waits for the device. Not inside a step.
int cgs_release(cgs_steps* steps);

// Returns in one line the outcome of the last call, and why it was no replay; or the message of the
// last failure. Valid until the next call with this cgs_steps. Null: the message of this thread's
// last cgs_open(), or of a later CGS_BUSY, cgs_get_stats() or cgs_retire_stream() that has failed.
const char* cgs_why(cgs_steps* steps);
int cgs_get_stats(const cgs_steps* steps, cgs_stats* stats);
// Leaves the step that is open, and waits for the work of the replays. Null: does nothing.
int cgs_close(cgs_steps* steps);

#ifdef __cplusplus
}
#endif

#endif
