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

// What kBuckets and kBucketBump find beyond the true rows.
inline constexpr float kPaddingValue = 3;
// The rows that these two see of a call with so many, at most 40.
std::int64_t bucket_of(std::int64_t rows);

// What kFlow does with a tensor of so many elements.
Flow flow_of(std::int64_t elements);

// Thrown by a step function that was told to.
struct InjectedFault : std::runtime_error {
  InjectedFault() : std::runtime_error("injected fault") {}
};

// A view that both sides can take: a slice, a transposition, or the tensor itself.
Tensor view_of(const Tensor& x, int which);

class StepContext {
 public:
  using Function = CompiledFunction<std::vector<Tensor>(std::span<const Tensor>)>;

  StepContext(Device device, bool enabled);
  StepContext(const StepContext&) = delete;
  StepContext& operator=(const StepContext&) = delete;

  Context& context() { return *context_; }
  // `fault`: see Operation; `buffers`: for outputs. Throws what the call throws.
  std::vector<Tensor> call(Action action, std::span<const Tensor> inputs, int fault,
                           std::span<const Tensor> buffers = {});
  // Ends functions and context; returns how many segments are left.
  int end();

 private:
  std::vector<Tensor> step(Action action, std::span<const Tensor> inputs);
  std::vector<Tensor> outputs_of(Action action, std::span<const Tensor> inputs);

  CountingSegments segments_;
  Stream side_;
  std::vector<Stream> sides_;  // of kFlow
  std::optional<Context> context_;
  std::vector<Function> functions_;  // by Action
  int fault_ = 0;
};

// What a call returns, and what it writes, in plain arithmetic. `pads`: kBuckets sees a bucket.
std::vector<ModelTensor> model_call(Action action, const ModelTensor& x, const ModelTensor& y,
                                    int context, bool pads);

}  // namespace cgtree::testing
