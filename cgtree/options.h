// Options of a context and of a compiled function: structs with defaults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "allocator/segment_source.h"
#include "interop/stream.h"

namespace cgtree {

struct ContextOptions {
  // Where calls launch their work; must outlive the context. Default: a blocking stream of the
  // context's own, which is ordered with the legacy stream, and so with Tensor's host copies.
  std::optional<StreamRef> stream;
  // Bytes of device memory the context may take for its pools. Going over is OutOfMemory.
  std::size_t max_bytes = SIZE_MAX;
  // Where the pools' memory comes from; must outlive the context and its tensors. Default: the
  // device.
  SegmentSource* segments = nullptr;
  // Recordings the context keeps at most; a call that would need one more runs eagerly.
  std::size_t max_recordings = 1024;
  // Makes two mistakes of step functions errors instead of work that is silently missing from
  // the recording: launching on the legacy stream, and on the context's stream in place of
  // current_stream(). Costs nothing at replay; but while a call records, no other thread may use
  // the legacy stream or the context's.
  bool checked = false;
};

// What the caller promises about one input.
struct InputOptions {
  // The address stays the same from call to call (weights, a KV cache): it is checked, not copied.
  // Another address gets a recording of its own.
  bool is_static = false;
  // The function writes into it.
  bool is_mutated = false;
};

struct CompileOptions {
  // By position; inputs beyond the end have the defaults.
  std::vector<InputOptions> inputs;
  // False: always run eagerly.
  bool enabled = true;
  // Throw instead of running eagerly when a call cannot be graphed.
  bool require_graph = false;
  // Recordings of this function at most; a call that would need one more runs eagerly.
  std::size_t max_recordings = 128;
};

}  // namespace cgtree
