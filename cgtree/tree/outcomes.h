// Outcomes: what is counted, told and remembered of a call that was no usual replay.
#pragma once

#include <optional>
#include <string>

#include "cgtree/record/open_recording.h"
#include "cgtree/tree/call_observer.h"
#include "cgtree/tree/workings.h"
#include "cgtree/values/explanation.h"

namespace cgtree {

// The call has thrown. Requires: that exception is being handled.
void count_failure(Workings& workings, FunctionState& function) noexcept;
void count_warm_up(Workings& workings, FunctionState& function, const KeyState& key,
                   const Stopwatch& stopwatch);
void count_skip(Workings& workings, FunctionState& function, SkipReason reason,
                const AnnouncedSkip& announced) noexcept;
// Tells the log, and events, that the call is about to run eagerly. Throws CaptureError if the
// function requires a graph.
AnnouncedSkip announce_skip(Workings& workings, FunctionState& function, SkipReason reason);
// Throws what a call is refused with.
[[noreturn]] void refuse(Workings& workings, const Decision& decision,
                         const FunctionState& function);

// A capture has failed, and the call is to run eagerly in its place. Throws what it failed with if
// the function requires a graph.
void expect_capture_failure(const CaptureFailure& failure, const FunctionState& function,
                            KeyState& key);
// That has succeeded, so the failure counts: what a step function throws in any case is no matter
// of captures.
void count_capture_failure(Workings& workings, const CaptureFailure& failure,
                           FunctionState& function, KeyState& key);
void forget_capture_failure(Workings& workings, FunctionState& function, KeyState& key);

// Counts the moves of static inputs that have cost a recording for which nothing else called.
void count_static_changes(Workings& workings, FunctionState& function, const Explanation& why);
}  // namespace cgtree
