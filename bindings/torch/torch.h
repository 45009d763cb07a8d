// compile() for step functions of PyTorch in C++: at::Tensors in and out.
//
//   cgtree::CompiledTorchFunction decode = cgtree::compile(context, "decode",
//       [&](at::Tensor tokens, at::Tensor cache) { return model.forward(tokens, cache); },
//       {.inputs = {{}, {.is_static = true, .is_mutated = true}}});
//   at::Tensor logits = decode(tokens, cache);
//
// Calls work on PyTorch's current stream. Memory that PyTorch allocates in the step function comes
// from the pool of the context; random numbers of the default generator are those of eager calls.
// An output is memory of the context, which is free again when the last at::Tensor of it is
// released.
//
// Programs that include it need the headers of PyTorch (docs/libtorch.md).
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/torch/step.h"
#include "bindings/torch/tensors.h"
#include "cgtree/compile.h"
#include "cgtree/context.h"
#include "cgtree/values/key.h"
#include "extensions/sizes/precapture.h"
#include "extensions/verify/verification.h"
#include "extensions/watch/metrics.h"

namespace cgtree {

namespace detail {

// A TorchCall is a compiled function for one call, with a key and buffers for its outputs.
struct TorchCall {
  const FunctionRef function;
  TorchStep& step;
  const Key* key = nullptr;
  std::span<const at::Tensor> buffers;

  // Calls use(list) on the stream of the call. `add_all(inputs, stream)` adds the arguments.
  template <typename AddAll, typename Use>
  void with_inputs(std::size_t count, const AddAll& add_all, const Use& use) const {
    step.call([&](StreamRef stream, TorchInputs& inputs) {
      inputs.begin(count + buffers.size());
      add_all(inputs, stream);
      for (std::size_t i = 0; i < buffers.size(); ++i)
        inputs.add(count + i, buffers[i], stream);
      const InputList list = inputs.list(buffers.size());
      use(key == nullptr ? list : list.with_key(key->text()));
    });
  }
  template <typename AddAll>
  std::vector<at::Tensor> run(std::size_t count, const AddAll& add_all) const {
    std::vector<at::Tensor> results;
    if (HostNode::is_running_here()) return run_in_node(count, add_all);
    with_inputs(count, add_all, [&](InputList inputs) {
      TensorList outputs;
      function.call(inputs, outputs);
      for (const Tensor& output : outputs.tensors())
        results.push_back(to_torch(output));
    });
    return results;
  }
  template <typename AddAll>
  std::vector<at::Tensor> run_in_node(std::size_t count, const AddAll& add_all) const {
    TorchInputs inputs;
    inputs.begin(count);
    add_all(inputs, StreamRef());
    const InputList list = inputs.list(0);
    std::vector<Tensor> tensors;
    for (std::size_t i = 0; i < count; ++i)
      tensors.push_back(list[i]);
    std::vector<at::Tensor> results = step.run_in_node(tensors);
    for (std::size_t i = 0; i < std::min(results.size(), buffers.size()); ++i) {
      if (buffers[i].defined()) results[i] = buffers[i].copy_(results[i]);
    }
    return results;
  }
  template <typename AddAll>
  Explanation explain(std::size_t count, const AddAll& add_all) const {
    Explanation explanation;
    with_inputs(count, add_all, [&](InputList inputs) { explanation = function.explain(inputs); });
    return explanation;
  }
};

template <typename T>
T from_input(const Tensor& tensor) {
  if constexpr (std::is_same_v<T, Tensor>) {
    return tensor;
  } else {
    return to_torch(tensor);
  }
}

// TorchResults<R> converts results of a step function to a list, and back.
template <typename R>
struct TorchResults;

template <>
struct TorchResults<void> {
  static void take(std::vector<at::Tensor>&& outputs) { check_output_count(outputs.size(), 0); }
};
template <>
struct TorchResults<at::Tensor> {
  static std::vector<at::Tensor> list(at::Tensor&& result) { return {std::move(result)}; }
  static at::Tensor take(std::vector<at::Tensor>&& outputs) {
    check_output_count(outputs.size(), 1);
    return std::move(outputs[0]);
  }
};
template <>
struct TorchResults<std::vector<at::Tensor>> {
  static std::vector<at::Tensor> list(std::vector<at::Tensor>&& result) {
    return std::move(result);
  }
  static std::vector<at::Tensor> take(std::vector<at::Tensor>&& outputs) {
    return std::move(outputs);
  }
};
// std::array, std::pair and std::tuple of at::Tensor.
template <typename R>
requires requires {
  std::tuple_size<R>::value;
}
struct TorchResults<R> {
  static std::vector<at::Tensor> list(R&& result) {
    return std::apply(
        [](auto&&... tensor) {
          return std::vector<at::Tensor>{std::forward<decltype(tensor)>(tensor)...};
        },
        std::move(result));
  }
  static R take(std::vector<at::Tensor>&& outputs) {
    check_output_count(outputs.size(), std::tuple_size_v<R>);
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return R{std::move(outputs[I])...};
    }
    (std::make_index_sequence<std::tuple_size_v<R>>{});
  }
};

template <typename Signature>
struct TorchAdapter;

template <typename R>
struct TorchAdapter<R(std::span<const at::Tensor>)> {
  static constexpr bool kTakesTorch = true;

  template <typename F>
  static std::vector<at::Tensor> run(F& function, std::span<const Tensor> inputs) {
    std::vector<at::Tensor> given;
    given.reserve(inputs.size());
    for (const Tensor& input : inputs)
      given.push_back(to_torch(input));
    return TorchResults<R>::list(function(std::span<const at::Tensor>(given)));
  }
};

template <typename R, typename... Inputs>
struct TorchAdapter<R(Inputs...)> {
  static constexpr bool kTakesTorch =
      (std::is_same_v<Inputs, at::Tensor> || ...) ||
      (sizeof...(Inputs) == 0 && requires { TorchResults<R>::take; } && !std::is_void_v<R>);
  template <typename F>
  static std::vector<at::Tensor> run(F& function, std::span<const Tensor> inputs) {
    static_assert(((std::is_same_v<Inputs, at::Tensor> || std::is_same_v<Inputs, Tensor>)&&...),
                  "a step function of PyTorch takes at::Tensors, and cgtree::Tensors beside them");
    check_input_count(inputs.size(), sizeof...(Inputs));
    return run(function, inputs, std::index_sequence_for<Inputs...>{});
  }

 private:
  template <typename F, std::size_t... I>
  static std::vector<at::Tensor> run(F& function, std::span<const Tensor> inputs,
                                     std::index_sequence<I...>) {
    if constexpr (std::is_void_v<R>) {
      function(from_input<Inputs>(inputs[I])...);
      return {};
    } else {
      return TorchResults<R>::list(function(from_input<Inputs>(inputs[I])...));
    }
  }
};

template <typename F>
concept StepOfTorch = TorchAdapter<typename SignatureOf<F>::Type>::kTakesTorch;

}  // namespace detail

template <typename Signature>
class CompiledTorchFunction;

// A TorchFunctionWith is a compiled function with buffers for its outputs, or a key, or both.
// Requires: the compiled function outlives it, also after a move.
template <typename R, typename... Inputs>
class TorchFunctionWith {
 public:
  // Made by into() and keyed(). An undefined buffer means an ordinary output.
  TorchFunctionWith(FunctionRef function, std::shared_ptr<detail::TorchStep> step, const Key& key,
                    std::vector<at::Tensor> buffers)
      : function_(function), step_(std::move(step)), key_(key), buffers_(std::move(buffers)) {}

  // Calls the function with the key and the buffers, on PyTorch's current stream.
  R operator()(const std::type_identity_t<Inputs>&... inputs) const {
    return CompiledTorchFunction<R(Inputs...)>::make_call(call(), inputs...);
  }
  // As CompiledCore::explain(), for a call with the key and the buffers.
  Explanation explain(const std::type_identity_t<Inputs>&... inputs) const {
    return CompiledTorchFunction<R(Inputs...)>::make_explanation(call(), inputs...);
  }
  // The next two are those of CompiledFunction. Each keeps the setting of the other.
  template <std::same_as<at::Tensor>... Buffers>
  TorchFunctionWith into(const Buffers&... buffers) const {
    return {function_, step_, key_, {buffers...}};
  }
  TorchFunctionWith keyed(const Key& key) const { return {function_, step_, key, buffers_}; }

 private:
  detail::TorchCall call() const { return {function_, *step_, &key_, buffers_}; }

  FunctionRef function_;
  std::shared_ptr<detail::TorchStep> step_;
  Key key_;
  std::vector<at::Tensor> buffers_;
};

// A CompiledTorchCore is a compiled function of PyTorch without the types of its arguments.
class CompiledTorchCore : public CompiledCore {
 public:
  // The next two are those of CompiledCore, on PyTorch's current stream.
  friend PrecaptureReport precapture(const CompiledTorchCore& function,
                                     const PrecaptureOptions& options,
                                     const MakeInputs& make_inputs) {
    PrecaptureReport report;
    function.step_->call([&](StreamRef, detail::TorchInputs&) {
      report = precapture(static_cast<const CompiledCore&>(function), options, make_inputs);
    });
    return report;
  }
  friend PrecaptureReport predict_memory(const CompiledTorchCore& function,
                                         const PrecaptureOptions& options,
                                         const MakeInputs& make_inputs) {
    PrecaptureReport report;
    function.step_->call([&](StreamRef, detail::TorchInputs&) {
      report = predict_memory(static_cast<const CompiledCore&>(function), options, make_inputs);
    });
    return report;
  }

 protected:
  CompiledTorchCore(CompiledCore core, std::shared_ptr<detail::TorchStep> step)
      : CompiledCore(std::move(core)), step_(std::move(step)) {}

  detail::TorchCall call() const { return {ref(), *step_}; }

  std::shared_ptr<detail::TorchStep> step_;
};

// A compiled function of PyTorch with typed arguments: at::Tensors, and cgtree::Tensors beside
// them, such as scalar().
template <typename R, typename... Inputs>
class CompiledTorchFunction<R(Inputs...)> : public CompiledTorchCore {
 public:
  // Takes a core that calls `step`. Made by compile().
  CompiledTorchFunction(CompiledCore core, std::shared_ptr<detail::TorchStep> step)
      : CompiledTorchCore(std::move(core), std::move(step)) {}

  // Throws as CompiledCore::call(), and BoundaryError for tensors that are not supported.
  R operator()(const std::type_identity_t<Inputs>&... inputs) const {
    return make_call(call(), inputs...);
  }
  // As CompiledCore::explain(), on PyTorch's current stream. Throws as a call for tensors that are
  // not supported.
  Explanation explain(const std::type_identity_t<Inputs>&... inputs) const {
    return make_explanation(call(), inputs...);
  }

  // The next two are those of CompiledFunction.
  template <std::same_as<at::Tensor>... Buffers>
  auto into(const Buffers&... buffers) const& {
    return keyed({}).into(buffers...);
  }
  auto keyed(const Key& key) const& {
    return TorchFunctionWith<R, Inputs...>(ref(), step_, key, {});
  }

 private:
  friend class TorchFunctionWith<R, Inputs...>;

  static auto adder(const Inputs&... given) {
    return [&](detail::TorchInputs& inputs, StreamRef stream) {
      std::size_t i = 0;
      (inputs.add(i++, given, stream), ...);
    };
  }
  static R make_call(const detail::TorchCall& call, const Inputs&... inputs) {
    return detail::TorchResults<R>::take(call.run(sizeof...(Inputs), adder(inputs...)));
  }
  static Explanation make_explanation(const detail::TorchCall& call, const Inputs&... inputs) {
    return call.explain(sizeof...(Inputs), adder(inputs...));
  }
};

// A compiled function of PyTorch with any number of inputs.
template <typename R>
class CompiledTorchFunction<R(std::span<const at::Tensor>)> : public CompiledTorchCore {
 public:
  // Takes a core that calls `step`. Made by compile().
  CompiledTorchFunction(CompiledCore core, std::shared_ptr<detail::TorchStep> step)
      : CompiledTorchCore(std::move(core), std::move(step)) {}

  // As above. The number of inputs may differ from call to call; each number has its own
  // recordings.
  R operator()(std::span<const at::Tensor> inputs) const { return make_call(call(), inputs); }
  // As above.
  Explanation explain(std::span<const at::Tensor> inputs) const {
    return make_explanation(call(), inputs);
  }
  // As that of CompiledFunction.
  auto keyed(const Key& key) const& {
    return TorchFunctionWith<R, std::span<const at::Tensor>>(ref(), step_, key, {});
  }

 private:
  friend class TorchFunctionWith<R, std::span<const at::Tensor>>;

  static auto adder(std::span<const at::Tensor> given) {
    return [given](detail::TorchInputs& inputs, StreamRef stream) {
      for (std::size_t i = 0; i < given.size(); ++i)
        inputs.add(i, given[i], stream);
    };
  }
  static R make_call(const detail::TorchCall& call, std::span<const at::Tensor> inputs) {
    return detail::TorchResults<R>::take(call.run(inputs.size(), adder(inputs)));
  }
  static Explanation make_explanation(const detail::TorchCall& call,
                                      std::span<const at::Tensor> inputs) {
    return call.explain(inputs.size(), adder(inputs));
  }
};

// Compiles a step function of PyTorch; it runs in the thread modes, such as c10::InferenceMode, in
// which compile() was called. Throws as the other compile(); InvalidArgument for a device on which
// PyTorch does not work.
template <detail::StepOfTorch F>
auto compile(Context& context, std::string name, F function, CompileOptions options = {}) {
  using Signature = typename detail::SignatureOf<F>::Type;
  std::vector<bool> is_static;
  for (const InputOptions& input : options.inputs)
    is_static.push_back(input.is_static);
  auto step = std::make_shared<detail::TorchStep>(
      context.stream().device(), std::move(is_static),
      [function = std::make_shared<F>(std::move(function))](std::span<const Tensor> inputs) {
        return detail::TorchAdapter<Signature>::run(*function, inputs);
      });
  CompiledCore core(
      context, std::move(name),
      [step](std::span<const Tensor> inputs) { return step->run(inputs); }, std::move(options));
  return CompiledTorchFunction<Signature>(std::move(core), std::move(step));
}

}  // namespace cgtree
