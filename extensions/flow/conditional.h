// Conditional nodes on the stream of a step that is recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "extensions/flow/body.h"
#include "extensions/flow/condition_kernels.h"
#include "interop/device/condition.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Called with the results of a body in its trial.
using TriedBody = std::function<void(const Body&, std::span<const Tensor>)>;
// Launches the kernel that sets the condition, in front of the node. Called after all trials.
using SetCondition = std::function<void(StreamRef, ConditionHandle)>;
// Launches kernels at the end of a body, with its results.
using EndBody = std::function<void(StreamRef, ConditionHandle, std::span<const Tensor>)>;

// Returns whether work on the stream is captured by a recording on this thread: in a trial, or to
// be replayed. It runs now otherwise, and the host reads which way to go. Throws CaptureError,
// which names the `call`, if the stream is captured by other code than a recording of a context.
bool is_captured(std::string_view call, StreamRef stream);

// Returns the stream on which work of the step that the thread runs is in the step's order: its
// own, and in a body that is captured, that of the body. Returns no stream in a body that runs
// beside other work of the step.
StreamRef ordered_stream(const StepScope& step) noexcept;

// Calls work() while the step is captured, and notes its exceptions (refusal.h): a step function or
// a body that swallows one is not recorded. No exception breaks a capture.
void collect_refusals(const std::function<void()>& work);

// The next three are of a flag: a tensor of one element that says which way to go.

// Throws InvalidArgument, with `what` and the flag, unless it is one element of int32, or of bool
// where that may be, on the device of the stream.
void expect_flag(std::string_view what, const Tensor& flag, StreamRef stream,
                 bool may_be_bool = true);
// Returns where kernels read it. Requires: expect_flag() has passed it.
FlagInMemory flag_of(const Tensor& flag);
// Returns the value that it has when the work of the stream is done. Waits for the stream.
std::int32_t read_flag(const Tensor& flag, StreamRef stream);

// Adds a conditional node behind the work that current_stream() has captured, with these bodies.
// Each is captured twice, first in a trial that is not kept, because a capture that fails could not
// be taken out of the node (condition.h). In the trial of a body around, all ends with that:
// no node is added, and neither `set` nor `end` is called.
//
// Throws CaptureError where the device has no conditional nodes; InvalidArgument, with the name of
// the body, for what a body may not do: host functions, allocation nodes, waiting for the device,
// launches outside of it, keeping its tensors, all else that cannot be captured, and enqueuing
// other work in its capture than in its trial (body_run.h); and exceptions of the bodies and
// functions.
void add_conditional(std::string_view call, ConditionalKind kind, std::span<const Body> bodies,
                     const TriedBody& tried, const SetCondition& set, const EndBody& end);

}  // namespace cgtree
