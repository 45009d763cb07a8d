// Sessions: one recording for all calls of a key that differ only in the memory of their session.
//
// Example: a key is recorded with the KV cache of session A, and captured again when session B
// comes. find_addresses() compares the two captures: a word that differs pointed into A's cache,
// and differs by the distance from there to B's. Then A's recording serves all sessions: each
// replay patches the words, and B's graph is dropped before an executable graph is made from it.
#pragma once

#include <string>

#include "cgtree/record/examination.h"
#include "cgtree/tree/engine.h"

namespace cgtree {

// Returns whether a binding of the function is per session.
bool has_sessions(const Function& function) noexcept;

// Compares a captured step, whose graph has its root and tail nodes, with an earlier recording that
// differs from it only in the memory of sessions. Returns whether that recording serves the call
// from now on, or was dropped, so that the call is decided again; otherwise the step's own
// recording has the reason. `obstacle`: the reason why nothing may be patched, or "". Throws
// std::bad_alloc, DeviceError; then nothing has changed.
bool serve_by_earlier(Engine& engine, CapturedStep& step, std::string obstacle);

// Makes an extension for contexts that have no audit: it lets recordings serve all sessions.
ExtensionFactory serve_sessions();

inline constexpr const char* kPatchWasRefused =
    "the device has refused to change an address in a node of the function";

}  // namespace cgtree
