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
// Launches the kernel that sets the condition, before the node. Called after all trials.
using SetCondition = std::function<void(StreamRef, ConditionHandle)>;
// Launches kernels at the end of a body, with its results.
using EndBody = std::function<void(StreamRef, ConditionHandle, std::span<const Tensor>)>;

// Returns whether a recording on this thread captures work on the stream: in a trial, or to be
// replayed. Otherwise the work runs now, and the host reads which body to run. Throws CaptureError,
// which names the `call`, if the stream is captured by other code than a recording of a context.
bool is_captured(std::string_view call, StreamRef stream);

// Returns the stream on which the thread's work is in the order of the step: the step's stream, and
// in a captured body, the body's stream. Returns no stream in a body that runs beside other work of
// the step.
StreamRef ordered_stream(const StepScope& step) noexcept;

// Calls work() while the step is captured, and notes its exceptions (refusal.h): a step function or
// a body that swallows one is not recorded. No exception breaks a capture.
void collect_refusals(const std::function<void()>& work);

// The next three are about a flag: a tensor of one element that selects the body, or ends the loop.

// Throws InvalidArgument, with `what` and the flag, unless it is one element of int32, or of bool
// where that is allowed, on the device of the stream.
void expect_flag(std::string_view what, const Tensor& flag, StreamRef stream,
                 bool may_be_bool = true);
// Returns the address at which kernels read it. Requires: expect_flag() passed.
FlagInMemory flag_of(const Tensor& flag);
// Returns its value when the work of the stream is done. Waits for the stream.
std::int32_t read_flag(const Tensor& flag, StreamRef stream);

// Adds a conditional node with these bodies after the work that current_stream() has captured. Each
// body is captured twice, first in a trial that is not kept, because a failed capture could not be
// taken out of the node (condition.h). In the trial of an enclosing body that is all: no node is
// added, and neither `set` nor `end` is called.
//
// Throws CaptureError where the device has no conditional nodes; InvalidArgument, with the name of
// the body, for forbidden work in a body: host functions, allocation nodes, waiting for the device,
// launches outside of it, keeping its tensors, all other work that cannot be captured, and
// enqueuing other work in its capture than in its trial (body_run.h); and exceptions of the bodies
// and functions.
void add_conditional(std::string_view call, ConditionalKind kind, std::span<const Body> bodies,
                     const TriedBody& tried, const SetCondition& set, const EndBody& end);

}  // namespace cgtree
