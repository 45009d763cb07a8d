// The step functions, twice: on a device, and in plain arithmetic.
#include "tests/system/step_context.h"

#include <algorithm>

#include "base/error.h"
#include "tests/support/steps.h"

namespace cgtree::testing {
namespace {

const std::vector<std::int64_t>& buckets() {
  static const std::vector<std::int64_t> kSizes = {2, 4, 8, 40};
  return kSizes;
}

void add_buckets(CompileOptions& options) {
  options.inputs.resize(1);
  options.inputs[0].dynamic = {{0, "rows"}};
  options.inputs[0].padding = Padding::of(kPaddingValue);
  options.buckets = {{"rows", buckets()}};
  options.outputs = {{.name = "sliced", .dynamic = {{0, "rows"}}}};
}

// Uses two inputs and an output in place if possible, in every action.
void rebind(CompileOptions& options, Rebind choice) {
  options.inputs.resize(2);
  options.outputs.resize(1);
  for (InputOptions& input : options.inputs)
    input.rebind = choice;
  options.outputs[0].rebind = choice;
}

// Returns x in the first rows of a bucket.
ModelTensor model_padded(const ModelTensor& x, int context) {
  std::vector<std::int64_t> dims(x.shape.dims().begin(), x.shape.dims().end());
  dims[0] = bucket_of(dims[0]);
  const ModelTensor y = ModelTensor::make(Shape(dims), context);
  std::ranges::fill(y.buffer->values, kPaddingValue);
  model_copy({y.buffer, 0, Shape(x.shape.dims())}, x);
  return y;
}

}  // namespace

Flow flow_of(std::int64_t elements) {
  std::mt19937 random(static_cast<unsigned>(elements));
  return draw_flow(random);
}

std::int64_t bucket_of(std::int64_t rows) {
  return *std::ranges::lower_bound(buckets(), rows);
}

Tensor view_of(const Tensor& x, int which) {
  const std::int64_t first = x.dim(0);
  if (which % 3 == 0 && first > 1) return x.slice(0, 1, first);
  if (which % 3 == 1 && first > 1) return x.slice(0, 0, first - 1);
  return x.rank() == 2 ? x.transpose(0, 1) : x;
}

StepContext::StepContext(Device device, bool enabled)
    : segments_(device),
      side_(device),
      sides_(flow_sides(device)),
      context_(std::in_place, device, ContextOptions{.segments = &segments_}) {
  constexpr const char* kNames[kCallActions] = {
      "chain",  "alias", "sum",  "accumulate", "bump",        "fork", "views",
      "nested", "blend", "into", "buckets",    "bucket_bump", "flow"};
  for (int i = 0; i < kCallActions; ++i) {
    const auto action = static_cast<Action>(i);
    CompileOptions options{.enabled = enabled};
    if (i % 3 != 0) options.max_switch_nodes = 4;
    if (action == Action::kBump || action == Action::kBlend)
      options.inputs = {{.is_mutated = true}};
    if (action == Action::kAccumulate)
      options.inputs = {{}, {.is_static = true, .is_mutated = true}};
    if (action == Action::kBucketBump) options.inputs = {{.is_mutated = true}};
    if (action == Action::kBuckets || action == Action::kBucketBump) add_buckets(options);
    if (i % 2 == 1 || action == Action::kFlow)
      rebind(options, i % 4 == 1 ? Rebind::kAlways : Rebind::kAuto);
    functions_.push_back(compile(
        *context_, kNames[i],
        [this, action](std::span<const Tensor> inputs) { return step(action, inputs); }, options));
  }
}

std::vector<Tensor> StepContext::call(Action action, std::span<const Tensor> inputs, int fault,
                                      std::span<const Tensor> buffers) {
  fault_ = fault;
  try {
    const Function& function = functions_[static_cast<std::size_t>(action)];
    std::vector<Tensor> outputs =
        buffers.empty() ? function(inputs) : function.into(buffers)(inputs);
    fault_ = 0;
    return outputs;
  } catch (...) {
    fault_ = 0;
    throw;
  }
}

int StepContext::end() {
  functions_.clear();
  context_.reset();
  return segments_.held();
}

std::vector<Tensor> StepContext::step(Action action, std::span<const Tensor> inputs) {
  if (fault_ == 1) throw InjectedFault();
  std::vector<Tensor> outputs = outputs_of(action, inputs);
  if (fault_ == 2) throw InjectedFault();
  return outputs;
}

std::vector<Tensor> StepContext::outputs_of(Action action, std::span<const Tensor> inputs) {
  const Tensor& x = inputs[0];
  switch (action) {
    case Action::kAlias:
      return {x, affine(x, 2, 0)};
    case Action::kSum:
      return {add(affine(x, 0.5f, 0), inputs[1])};
    case Action::kAccumulate:
      update(inputs[1], 0.5f, 1);
      return {add(x, inputs[1])};
    case Action::kBump:
    case Action::kBucketBump:
      update(x, 0.5f, 1);
      return {affine(x, -1, 0)};
    case Action::kBuckets:
      return {affine(x, 0.5f, 1), affine(x, 2, 1)};
    case Action::kBlend:
      update(x, 0.5f, 1);
      return {add(x, inputs[1])};
    case Action::kFork: {
      side_.ref().wait_for(current_stream());
      Tensor left;
      {
        const StreamScope scope(side_);
        left = affine(x, 0.25f, 0);
      }
      const Tensor right = affine(x, 0.5f, 2);
      current_stream().wait_for(side_);
      return {add(left, right), left};
    }
    case Action::kViews: {
      const Tensor y = affine(x, -0.5f, 3);
      return {view_of(y, 0), y};
    }
    case Action::kNested: {
      const Tensor y = affine(x, 1, 1);
      return functions_[static_cast<std::size_t>(Action::kChain)]({&y, 1});
    }
    case Action::kFlow: {
      const Tensor y = affine(x, 0.5f, 0);
      run_flow(flow_of(y.elements()), y, sides_);
      return {y};
    }
    default:
      return {affine(affine(x, 0.5f, 1), -1, 0)};
  }
}

std::vector<ModelTensor> model_call(Action action, const ModelTensor& x, const ModelTensor& y,
                                    int context, bool pads) {
  const auto affine = [&](const ModelTensor& of, float scale, float shift) {
    return model_affine(of, scale, shift, context);
  };
  switch (action) {
    case Action::kAlias:
      return {x, affine(x, 2, 0)};
    case Action::kSum:
      return {model_add(affine(x, 0.5f, 0), y, context)};
    case Action::kAccumulate:
      model_update(y, 0.5f, 1);
      return {model_add(x, y, context)};
    case Action::kBump:
    case Action::kBucketBump:
      model_update(x, 0.5f, 1);
      return {affine(x, -1, 0)};
    case Action::kBuckets:
      return {affine(x, 0.5f, 1), affine(pads ? model_padded(x, context) : x, 2, 1)};
    case Action::kBlend:
      model_update(x, 0.5f, 1);
      return {model_add(x, y, context)};
    case Action::kFork: {
      const ModelTensor left = affine(x, 0.25f, 0);
      return {model_add(left, affine(x, 0.5f, 2), context), left};
    }
    case Action::kViews: {
      const ModelTensor whole = affine(x, -0.5f, 3);
      ModelTensor view = whole;
      if (x.shape.dim(0) > 1) {
        std::vector<std::int64_t> dims(x.shape.dims().begin(), x.shape.dims().end());
        --dims[0];
        view.shape = Shape(dims, whole.shape.strides());
        view.offset += whole.shape.stride(0);
      } else if (x.shape.rank() == 2) {
        view.shape = Shape(std::array{x.shape.dim(1), x.shape.dim(0)},
                           std::array{whole.shape.stride(1), whole.shape.stride(0)});
      }
      return {view, whole};
    }
    case Action::kNested:
      return {affine(affine(affine(x, 1, 1), 0.5f, 1), -1, 0)};
    case Action::kFlow: {
      const ModelTensor result = affine(x, 0.5f, 0);
      run_flow(flow_of(x.shape.elements()), result.buffer->values);
      return {result};
    }
    default:
      return {affine(affine(x, 0.5f, 1), -1, 0)};
  }
}

}  // namespace cgtree::testing
