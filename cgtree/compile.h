// compile(): wraps a step function so that calls replay a recorded graph whenever that is right.
//
//   cgtree::CompiledFunction decode = cgtree::compile(context, "decode",
//       [&](cgtree::Tensor tokens, cgtree::Tensor kv_cache) { ...; return logits; },
//       {.inputs = {{}, {.is_static = true, .is_mutated = true}}});
//   cgtree::Tensor logits = decode(tokens, kv_cache);
//
// A step function takes tensors, launches its work on current_stream(), allocates with empty() and
// returns tensors. Two forms: `R(Tensor, Tensor, ...)`, where R is void, Tensor, std::array<Tensor,
// N>, std::tuple or std::pair of Tensor, or std::vector<Tensor>; and `R(std::span<const Tensor>)`.
//
// The first call with given shapes runs it eagerly (warm up), the second records, later ones
// replay: then the C++ code of the function does not run at all. What it does besides launching
// work on the stream happens only in the first two calls.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cgtree/context.h"
#include "cgtree/explanation.h"
#include "cgtree/options.h"
#include "cgtree/precapture.h"
#include "cgtree/results.h"
#include "cgtree/stats.h"
#include "cgtree/step_function.h"
#include "cgtree/suggest_buckets.h"
#include "cgtree/input_list.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

struct FunctionState;

// The untyped core of CompiledFunction; owns the function's recordings.
class CompiledCore {
 public:
  CompiledCore(Context& context, std::string name, StepFunction function, CompileOptions options);
  ~CompiledCore();
  CompiledCore(CompiledCore&&) noexcept;
  CompiledCore& operator=(CompiledCore&&) noexcept;

  // Where the list has buffers, output i is written into buffer i, in the graph itself, and the
  // buffer is the output: its elements alone; the buffer may be anywhere at each call.
  //
  // Throws what the step function throws, InvalidArgument, StaleTensor, ConcurrentUse, OutOfMemory,
  // CaptureError, DeviceError; then tree, pool and stream are as before. That a buffer has another
  // shape or type than its output is known, and InvalidArgument, only once the step function ran.
  void call(InputList inputs, TensorList& outputs) const;

  // What call() would do with these inputs now, and why. Throws as call() does for inputs that it
  // would not take.
  Explanation explain(InputList inputs) const;

  const std::string& name() const noexcept;
  FunctionStats stats() const;

  // The sizes that calls gave a dynamic axis, ascending, for up to 4,096 different ones. Calls of
  // precapture() do not count. Throws InvalidArgument for an axis that the function does not have.
  std::vector<SizeCount> histogram(std::string_view axis) const;
  // suggest_buckets() for that histogram.
  std::vector<std::int64_t> suggest_buckets(std::string_view axis, std::size_t max_buckets,
                                            const BucketCost& cost = {}) const;
  // Records each combination of the sizes of the dynamic axes (default: all buckets and lists), the
  // largest first, whatever CompileOptions::while_missing says. Throws what make_inputs and call()
  // throw, and InvalidArgument for an axis without sizes; what was recorded until then stays.
  PrecaptureReport precapture(const PrecaptureOptions& options,
                              const MakeInputs& make_inputs) const;

 private:
  std::shared_ptr<TreeManager> manager_;
  FunctionState* function_ = nullptr;  // the manager's
};

template <typename Signature>
class CompiledFunction;

// A compiled function and places for its outputs; what CompiledFunction::into() makes. The compiled
// function must outlive it.
template <typename Signature, std::size_t Buffers>
class IntoBuffers;

template <typename R, typename... Inputs, std::size_t Buffers>
class IntoBuffers<R(Inputs...), Buffers> {
 public:
  IntoBuffers(const CompiledCore& core, std::array<Tensor, Buffers> buffers)
      : core_(core), buffers_(std::move(buffers)) {}

  R operator()(const std::type_identity_t<Inputs>&... inputs) const {
    TensorList outputs;
    core_.call(List(buffers_, inputs...).inputs(), outputs);
    return Results<R>::take(outputs.tensors());
  }
  Explanation explain(const std::type_identity_t<Inputs>&... inputs) const {
    return core_.explain(List(buffers_, inputs...).inputs());
  }

 private:
  struct List {
    template <typename... Tensors>
    explicit List(const std::array<Tensor, Buffers>& buffers, const Tensors&... inputs)
        : addresses{&inputs...} {
      for (std::size_t i = 0; i < Buffers; ++i)
        addresses[sizeof...(Inputs) + i] = &buffers[i];
    }
    InputList inputs() const { return {addresses, Buffers}; }

    std::array<const Tensor*, sizeof...(Inputs) + Buffers> addresses;
  };

  const CompiledCore& core_;
  std::array<Tensor, Buffers> buffers_;
};

template <typename R>
class IntoBuffers<R(std::span<const Tensor>), std::dynamic_extent> {
 public:
  IntoBuffers(const CompiledCore& core, std::span<const Tensor> buffers)
      : core_(core), buffers_(buffers.begin(), buffers.end()) {}

  R operator()(std::span<const Tensor> inputs) const {
    TensorList outputs;
    core_.call({list(inputs), buffers_.size()}, outputs);
    return Results<R>::take(outputs.tensors());
  }
  Explanation explain(std::span<const Tensor> inputs) const {
    return core_.explain({list(inputs), buffers_.size()});
  }

 private:
  // Valid until the next call.
  std::span<const Tensor* const> list(std::span<const Tensor> inputs) const {
    addresses_.clear();
    for (const std::span<const Tensor> part : {inputs, std::span<const Tensor>(buffers_)}) {
      for (const Tensor& tensor : part)
        addresses_.push_back(&tensor);
    }
    return addresses_;
  }

  const CompiledCore& core_;
  std::vector<Tensor> buffers_;
  mutable std::vector<const Tensor*> addresses_;
};

// Typed arguments.
template <typename R, typename... Inputs>
class CompiledFunction<R(Inputs...)> {
 public:
  explicit CompiledFunction(CompiledCore core) : core_(std::move(core)) {}

  R operator()(const std::type_identity_t<Inputs>&... inputs) const {
    const Tensor* const list[sizeof...(Inputs) + 1] = {&inputs..., nullptr};
    TensorList outputs;
    core_.call(std::span<const Tensor* const>(list, sizeof...(Inputs)), outputs);
    return Results<R>::take(outputs.tensors());
  }

  // The same function, writing output i into buffers[i] of the caller's, which is then the output;
  // an undefined tensor means "an output as usual", as does none. A buffer has the output's shape
  // and element type, may have any strides, and shares memory with no input and no other buffer:
  //   decode.into(logits)(tokens, kv_cache);
  template <std::same_as<Tensor>... Buffers>
  auto into(const Buffers&... buffers) const {
    return IntoBuffers<R(Inputs...), sizeof...(Buffers)>(core_, {buffers...});
  }

  // What such a call would do now, and why; nothing is done.
  Explanation explain(const std::type_identity_t<Inputs>&... inputs) const {
    const Tensor* const list[sizeof...(Inputs) + 1] = {&inputs..., nullptr};
    return core_.explain(std::span<const Tensor* const>(list, sizeof...(Inputs)));
  }

  const std::string& name() const noexcept { return core_.name(); }
  FunctionStats stats() const { return core_.stats(); }

  // See CompiledCore.
  std::vector<SizeCount> histogram(std::string_view axis) const { return core_.histogram(axis); }
  std::vector<std::int64_t> suggest_buckets(std::string_view axis, std::size_t max_buckets,
                                            const BucketCost& cost = {}) const {
    return core_.suggest_buckets(axis, max_buckets, cost);
  }
  PrecaptureReport precapture(const PrecaptureOptions& options,
                              const MakeInputs& make_inputs) const {
    return core_.precapture(options, make_inputs);
  }

 private:
  CompiledCore core_;
};

// Any number of inputs.
template <typename R>
class CompiledFunction<R(std::span<const Tensor>)> {
 public:
  explicit CompiledFunction(CompiledCore core) : core_(std::move(core)) {}

  R operator()(std::span<const Tensor> inputs) const {
    TensorList outputs;
    core_.call(inputs, outputs);
    return Results<R>::take(outputs.tensors());
  }

  // As above. The buffers are held until what this returns is gone.
  auto into(std::span<const Tensor> buffers) const {
    return IntoBuffers<R(std::span<const Tensor>), std::dynamic_extent>(core_, buffers);
  }

  Explanation explain(std::span<const Tensor> inputs) const { return core_.explain(inputs); }

  const std::string& name() const noexcept { return core_.name(); }
  FunctionStats stats() const { return core_.stats(); }

  // See CompiledCore.
  std::vector<SizeCount> histogram(std::string_view axis) const { return core_.histogram(axis); }
  std::vector<std::int64_t> suggest_buckets(std::string_view axis, std::size_t max_buckets,
                                            const BucketCost& cost = {}) const {
    return core_.suggest_buckets(axis, max_buckets, cost);
  }
  PrecaptureReport precapture(const PrecaptureOptions& options,
                              const MakeInputs& make_inputs) const {
    return core_.precapture(options, make_inputs);
  }

 private:
  CompiledCore core_;
};

namespace detail {

template <typename F>
struct SignatureOf : SignatureOf<decltype(&F::operator())> {};
template <typename R, typename C, typename... A>
struct SignatureOf<R (C::*)(A...)> {
  using Type = R(std::remove_cvref_t<A>...);
};
template <typename R, typename C, typename... A>
struct SignatureOf<R (C::*)(A...) const> : SignatureOf<R (C::*)(A...)> {};
template <typename R, typename... A>
struct SignatureOf<R (*)(A...)> {
  using Type = R(std::remove_cvref_t<A>...);
};

template <typename Signature>
struct Adapter;

template <typename R>
struct Adapter<R(std::span<const Tensor>)> {
  template <typename F>
  static StepFunction wrap(F function) {
    return [function = std::move(function)](std::span<const Tensor> inputs) mutable {
      return Results<R>::collect([&] { return function(inputs); });
    };
  }
};

template <typename R, typename... Inputs>
struct Adapter<R(Inputs...)> {
  static_assert((std::is_same_v<Inputs, Tensor> && ...), "a step function takes tensors");

  template <typename F>
  static StepFunction wrap(F function) {
    return [function = std::move(function)](std::span<const Tensor> inputs) mutable {
      check_input_count(inputs.size(), sizeof...(Inputs));
      return run(function, inputs, std::index_sequence_for<Inputs...>{});
    };
  }

 private:
  template <typename F, std::size_t... I>
  static std::vector<Tensor> run(F& function, std::span<const Tensor> inputs,
                                 std::index_sequence<I...>) {
    return Results<R>::collect([&] { return function(inputs[I]...); });
  }
};

}  // namespace detail

// Throws InvalidArgument if `name` is empty. The context may be moved, and may be destroyed before
// the compiled function is: recordings live as long as either.
template <typename F>
auto compile(Context& context, std::string name, F function, CompileOptions options = {}) {
  using Signature = typename detail::SignatureOf<F>::Type;
  return CompiledFunction<Signature>(
      CompiledCore(context, std::move(name), detail::Adapter<Signature>::wrap(std::move(function)),
                   std::move(options)));
}

}  // namespace cgtree
