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
// the call runs eagerly. Returns nothing for lack of memory, which is asked for first, and for
// exceptions of the call: a wrong use of this library, and messages of other ranks.
std::optional<CaptureResult> failure_of(const std::exception_ptr& thrown, GraphAPI& graphs);
// The call has thrown. Requires: that exception is being handled.
void count_failure(Engine& engine, FunctionState& function) noexcept;
void count_warm_up(Engine& engine, FunctionState& function, const KeyState& key,
                   const Stopwatch& stopwatch);
void count_skip(Engine& engine, FunctionState& function, const AnnouncedSkip& announced) noexcept;
// Tells the log, and events, that the call is about to run eagerly. Throws CaptureError if the
// function requires a graph.
AnnouncedSkip announce_skip(Engine& engine, FunctionState& function, SkipReason reason);
// Adds a recording to the tree, evicts others for it, and counts it.
void add_recording(Engine& engine, KeyState& key, std::unique_ptr<Node> made,
                   const Decision& decision);
// The next four throw InvalidArgument, or CaptureError for a decision. Bindings of an engine are
// declared, and may share no memory if one is written and one copied; a step function's tensors
// may do so by chance, and then it runs eagerly.
void check_apart(const Call& call);
[[noreturn]] void refuse_guest(const Engine& engine, const FunctionState& function);
[[noreturn]] void refuse_end(const FunctionState& function, std::string_view why);
[[noreturn]] void refuse(Engine& engine, const Decision& decision, const FunctionState& function);

// A capture has failed, and the call is to run eagerly in its place. Throws what it failed with if
// the function requires a graph.
void expect_capture_failure(const CaptureFailure& failure, const FunctionState& function,
                            KeyState& key);
// Call this after the eager run succeeded: only then was the capture at fault, and not the step
// function.
void count_capture_failure(Engine& engine, const CaptureFailure& failure, FunctionState& function,
                           KeyState& key);
void forget_capture_failure(Engine& engine, FunctionState& function, KeyState& key);

// Counts the moves of static inputs that have cost a recording for which nothing else called.
void count_static_changes(Engine& engine, FunctionState& function, const Explanation& why);
}  // namespace cgtree
