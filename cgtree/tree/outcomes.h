// Bookkeeping for calls off the fast path: counters, events, remembered failures.
#pragma once

#include <optional>
#include <string>

#include "cgtree/record/open_recording.h"
#include "cgtree/tree/engine.h"
#include "cgtree/values/explanation.h"
#include "interop/device/graph_api.h"

namespace cgtree {

// Returns an exception from before the launch of a capture as a failure of the capture, after which
// the call runs eagerly. Returns nothing for lack of memory, which is checked first, and for
// exceptions of the call itself: wrong use of this library, and messages of other ranks.
std::optional<CaptureResult> failure_of(const std::exception_ptr& thrown, GraphAPI& graphs);
// Counts a call that threw. Requires: that exception is being handled.
void count_failure(Engine& engine, FunctionState& function) noexcept;
void count_warm_up(Engine& engine, FunctionState& function, const KeyState& key,
                   const Stopwatch& stopwatch);
void count_skip(Engine& engine, FunctionState& function, const AnnouncedSkip& announced) noexcept;
// Reports to the log and to events that the call is about to run eagerly. Throws CaptureError if
// the function requires a graph.
AnnouncedSkip announce_skip(Engine& engine, FunctionState& function, SkipReason reason);
// Adds a recording to the tree, evicts others to make room, and counts it.
void add_recording(Engine& engine, KeyState& key, std::unique_ptr<Node> made,
                   const Decision& decision);
// The next three functions throw InvalidArgument, or CaptureError for a decision. Bindings of an
// engine are declared, so they must not share memory if one is written and one copied. Tensors of a
// step function may share memory by chance; it then runs eagerly.
void check_apart(const Call& call);
[[noreturn]] void refuse_guest(const Engine& engine, const FunctionState& function);
[[noreturn]] void refuse_end(const FunctionState& function, std::string_view why);
[[noreturn]] void refuse(Engine& engine, const Decision& decision, const FunctionState& function);

// Prepares to run the call eagerly after a failed capture. Throws its error if the function
// requires a graph.
void expect_capture_failure(const CaptureFailure& failure, const FunctionState& function,
                            KeyState& key);
// Call this after the eager run succeeded: only then was the capture at fault, not the function.
void count_capture_failure(Engine& engine, const CaptureFailure& failure, FunctionState& function,
                           KeyState& key);
void forget_capture_failure(Engine& engine, FunctionState& function, KeyState& key);

// Counts the moves of static inputs that cost a recording for no other reason.
void count_static_changes(Engine& engine, FunctionState& function, const Explanation& why);
}  // namespace cgtree
