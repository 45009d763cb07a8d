// StepContext: a context with one compiled step function per kind of call of a StepProgram.
#pragma once

#include <optional>
#include <stdexcept>
#include <vector>

#include "cgtree/cgtree.h"
#include "tests/support/counting_segments.h"
#include "tests/support/flow_steps.h"
#include "tests/system/model_tensor.h"
#include "tests/system/step_program.h"

namespace cgtree::testing {

inline constexpr int kCallActions = 13;

// The value that kBuckets and kBucketBump see in padded rows.
inline constexpr float kPaddingValue = 3;
// Returns the number of rows that these two see for a call with `rows` rows, at most 40.
std::int64_t bucket_of(std::int64_t rows);

// Returns the flow that kFlow runs on a tensor of so many elements.
Flow flow_of(std::int64_t elements);

// Thrown by a step function with an injected fault.
struct InjectedFault : std::runtime_error {
  InjectedFault() : std::runtime_error("injected fault") {}
};

// A view that both sides can make: a slice, a transposition, or the tensor itself.
Tensor view_of(const Tensor& x, int which);

class StepContext {
 public:
  using Function = CompiledFunction<std::vector<Tensor>(std::span<const Tensor>)>;

  StepContext(Device device, bool enabled);
  StepContext(const StepContext&) = delete;
  StepContext& operator=(const StepContext&) = delete;

  Context& context() { return *context_; }
  // `fault`: see Operation; `buffers`: for outputs. Throws the exceptions of the call.
  std::vector<Tensor> call(Action action, std::span<const Tensor> inputs, int fault,
                           std::span<const Tensor> buffers = {});
  // Destroys functions and context. Returns the number of segments that are left.
  int end();

 private:
  std::vector<Tensor> step(Action action, std::span<const Tensor> inputs);
  std::vector<Tensor> outputs_of(Action action, std::span<const Tensor> inputs);

  CountingSegments segments_;
  Stream side_;
  std::vector<Stream> sides_;  // for kFlow
  std::optional<Context> context_;
  std::vector<Function> functions_;  // by number of the Action
  int fault_ = 0;
};

// Returns the results of a call in plain arithmetic, and applies its writes. `pads`: kBuckets sees
// a bucket.
std::vector<ModelTensor> model_call(Action action, const ModelTensor& x, const ModelTensor& y,
                                    int context, bool pads);

}  // namespace cgtree::testing
