// compile(): wraps a step function so that calls replay a recorded graph whenever one fits.
//
//   cgtree::CompiledFunction decode = cgtree::compile(context, "decode",
//       [&](cgtree::Tensor tokens, cgtree::Tensor kv_cache) { ...; return logits; },
//       {.inputs = {{}, {.is_static = true, .is_mutated = true}}});
//   cgtree::Tensor logits = decode(tokens, kv_cache);
//
// A step function takes tensors, launches its work on current_stream(), allocates with empty() and
// returns tensors. Its type is `R(Tensor, Tensor, ...)`, where R is void, Tensor,
// std::array<Tensor, N>, std::tuple or std::pair of Tensor, or std::vector<Tensor>; or
// `R(std::span<const Tensor>)`.
//
// The first call with given shapes runs the function eagerly (warm up), the second records it, and
// later calls replay the recording. A replay does not run the C++ code of the function: effects
// other than the work on the stream happen in the first two calls only.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "cgtree/context.h"
#include "cgtree/function_handle.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/input_list.h"
#include "cgtree/values/key.h"
#include "cgtree/values/options.h"
#include "cgtree/values/stats.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// A FunctionRef calls a compiled function that another object owns. It stays valid when that object
// is moved. Requires: the function exists.
class FunctionRef {
 public:
  // Borrows both. Made by CompiledCore::ref().
  FunctionRef(Engine& engine, FunctionState& function) noexcept
      : engine_(&engine), function_(&function) {}

  // The next three functions are those of CompiledCore.
  void call(const InputList& inputs, TensorList& outputs) const;
  Explanation explain(InputList inputs) const;
  FunctionRef ref() const noexcept { return *this; }

 private:
  Engine* engine_;
  FunctionState* function_;
};

// A CompiledCore is a compiled function without the types of its arguments. It owns the recordings
// of the function. Thread safety: as its context; explain() and histograms are for monitors, too.
class CompiledCore : public FunctionHandle {
 public:
  // Throws InvalidArgument for an empty name or function, and for options that contradict each
  // other. Functions of one context may share a name: metrics then show their sum.
  CompiledCore(Context& context, std::string name, StepFunction function, CompileOptions options);

  // Calls the function. If the list has buffers, the graph writes output i into buffer i, and
  // returns that buffer as the output. A buffer may be at another address in each call.
  //
  // Throws any exception of the step function, InvalidArgument, StaleTensor, ConcurrentUse,
  // OutOfMemory, CaptureError and DeviceError; the tree, the pool and the stream are then as
  // before. A verified replay whose results differ throws VerifyError; its effects stay. For a
  // buffer with another shape or type than its output, InvalidArgument comes after the step
  // function has run, because the shape of the output is unknown before.
  void call(const InputList& inputs, TensorList& outputs) const;

  // Returns the outcome that call() would have with these inputs now, and why, without calling.
  // Waits for a call in progress on another thread. Throws as call() does for inputs that it
  // refuses.
  Explanation explain(InputList inputs) const;

  // Valid while the function exists, here or where it is moved to.
  FunctionRef ref() const noexcept { return {*engine_, *function_}; }

  // Returns how often calls gave a dynamic axis each size, up to 4,096 different sizes. Calls of
  // precapture() are not counted. Throws InvalidArgument for an unknown axis.
  std::map<std::int64_t, std::uint64_t> histogram(std::string_view axis) const;
  // Returns how often each combination of sizes occurred, up to 4,096 combinations: first the
  // dynamic axes in the order in which inputs name them, then CompileOptions::keys. Empty without
  // these.
  std::map<Sizes, std::uint64_t> histogram() const;
};

// Throws InvalidArgument for options that CompiledCore refuses on any context. It lets a caller
// check options before it has a device, and so a context.
void check_compile_options(const std::string& name, const CompileOptions& options);

namespace detail {

// Throws InvalidArgument, with both counts, if they differ.
void check_input_count(std::size_t given, std::size_t expected);
[[noreturn]] void refuse_output_count(std::size_t given, std::size_t expected);
inline void check_output_count(std::size_t given, std::size_t expected) {
  if (given != expected) [[unlikely]] {
    refuse_output_count(given, expected);
  }
}

// Results<R> converts results: collect(run) calls run() and returns its results as a list;
// take(outputs) moves a list into an R.
template <typename R>
struct Results {
  static_assert(sizeof(R) == 0,
                "a step function returns void, Tensor, std::vector<Tensor>, or std::array, "
                "std::pair or std::tuple of Tensor: return the tensors of a struct as a tuple");
};

template <>
struct Results<void> {
  template <typename Run>
  static std::vector<Tensor> collect(Run&& run) {
    run();
    return {};
  }
  static void take(TensorList& outputs) { check_output_count(outputs.tensors().size(), 0); }
};

template <>
struct Results<Tensor> {
  template <typename Run>
  static std::vector<Tensor> collect(Run&& run) {
    std::vector<Tensor> outputs;
    outputs.push_back(run());
    return outputs;
  }
  static Tensor take(TensorList& outputs) {
    check_output_count(outputs.tensors().size(), 1);
    return std::move(outputs.tensors()[0]);
  }
};

template <>
struct Results<std::vector<Tensor>> {
  template <typename Run>
  static std::vector<Tensor> collect(Run&& run) {
    return run();
  }
  static std::vector<Tensor> take(TensorList& outputs) { return outputs.take(); }
};

// std::array, std::pair and std::tuple of Tensor.
template <typename R>
requires requires {
  std::tuple_size<R>::value;
}
struct Results<R> {
  static constexpr std::size_t kCount = std::tuple_size_v<R>;

  template <typename Run>
  static std::vector<Tensor> collect(Run&& run) {
    return std::apply(
        [](auto&&... tensor) {
          std::vector<Tensor> outputs;
          outputs.reserve(kCount);
          (outputs.push_back(std::forward<decltype(tensor)>(tensor)), ...);
          return outputs;
        },
        run());
  }
  static R take(TensorList& outputs) {
    check_output_count(outputs.tensors().size(), kCount);
    return take(outputs.tensors(), std::make_index_sequence<kCount>{});
  }

 private:
  template <std::size_t... I>
  static R take(std::span<Tensor> outputs, std::index_sequence<I...>) {
    return R{std::move(outputs[I])...};
  }
};

}  // namespace detail

template <typename Signature>
class CompiledFunction;

// A FunctionWith is a compiled function together with buffers for its outputs, a key, or both.
// into() and keyed() make it. Function is FunctionRef, which requires that the compiled function
// outlives it, or CompiledCore, which owns the function.
template <typename Signature, std::size_t Buffers, typename Function>
class FunctionWith;

template <typename R, typename... Inputs, std::size_t Buffers, typename Function>
class FunctionWith<R(Inputs...), Buffers, Function> {
 public:
  // Made by into() and keyed(). An undefined buffer asks for an ordinary output.
  FunctionWith(Function function, const Key& key, std::array<Tensor, Buffers> buffers)
      : function_(std::move(function)), key_(key), buffers_(std::move(buffers)) {}

  // Calls the function with the key and the buffers. Throws as CompiledCore::call().
  R operator()(const std::type_identity_t<Inputs>&... inputs) const {
    TensorList outputs;
    function_.call(List(buffers_, inputs...).inputs(key_), outputs);
    return detail::Results<R>::take(outputs);
  }
  // As CompiledCore::explain(), for a call with the key and the buffers.
  Explanation explain(const std::type_identity_t<Inputs>&... inputs) const {
    return function_.explain(List(buffers_, inputs...).inputs(key_));
  }

  // The next four functions are those of CompiledFunction.
  template <std::same_as<Tensor>... New>
  auto into(const New&... buffers) const& {
    return FunctionWith<R(Inputs...), sizeof...(New), FunctionRef>(function_.ref(), key_,
                                                                   {buffers...});
  }
  template <std::same_as<Tensor>... New>
  auto into(const New&... buffers) && {
    return FunctionWith<R(Inputs...), sizeof...(New), Function>(std::move(function_), key_,
                                                                {buffers...});
  }
  auto keyed(const Key& key) const& {
    return FunctionWith<R(Inputs...), Buffers, FunctionRef>(function_.ref(), key, buffers_);
  }
  auto keyed(const Key& key) && {
    return FunctionWith(std::move(function_), key, std::move(buffers_));
  }

 private:
  struct List {
    template <typename... Tensors>
    explicit List(const std::array<Tensor, Buffers>& buffers, const Tensors&... inputs)
        : addresses{&inputs...} {
      std::size_t i = sizeof...(Inputs);
      for (const Tensor& buffer : buffers)
        addresses[i++] = &buffer;
    }
    InputList inputs(const Key& key) const {
      return InputList(addresses, Buffers).with_key(key.text());
    }

    std::array<const Tensor*, sizeof...(Inputs) + Buffers> addresses;
  };

  Function function_;
  Key key_;
  std::array<Tensor, Buffers> buffers_;
};

template <typename R, typename Function>
class FunctionWith<R(std::span<const Tensor>), std::dynamic_extent, Function> {
 public:
  // Made by into() and keyed(). An undefined buffer asks for an ordinary output.
  FunctionWith(Function function, const Key& key, std::vector<Tensor> buffers)
      : function_(std::move(function)), key_(key), buffers_(std::move(buffers)) {}

  // As above. Used by one thread at a time, explain() included: both fill the same list.
  R operator()(std::span<const Tensor> inputs) const {
    TensorList outputs;
    function_.call(list(inputs), outputs);
    return detail::Results<R>::take(outputs);
  }
  // As above.
  Explanation explain(std::span<const Tensor> inputs) const {
    return function_.explain(list(inputs));
  }

  // The next four functions are those of CompiledFunction.
  auto into(std::span<const Tensor> buffers) const& {
    return With<FunctionRef>(function_.ref(), key_, {buffers.begin(), buffers.end()});
  }
  auto into(std::span<const Tensor> buffers) && {
    return FunctionWith(std::move(function_), key_, {buffers.begin(), buffers.end()});
  }
  auto keyed(const Key& key) const& { return With<FunctionRef>(function_.ref(), key, buffers_); }
  auto keyed(const Key& key) && {
    return FunctionWith(std::move(function_), key, std::move(buffers_));
  }

 private:
  template <typename Other>
  using With = FunctionWith<R(std::span<const Tensor>), std::dynamic_extent, Other>;

  // Valid until the next call.
  InputList list(std::span<const Tensor> inputs) const {
    addresses_.clear();
    for (const std::span<const Tensor> part : {inputs, std::span<const Tensor>(buffers_)}) {
      for (const Tensor& tensor : part)
        addresses_.push_back(&tensor);
    }
    return InputList(addresses_, buffers_.size()).with_key(key_.text());
  }

  Function function_;
  Key key_;
  std::vector<Tensor> buffers_;
  mutable std::vector<const Tensor*> addresses_;
};

// A compiled function with typed arguments.
template <typename R, typename... Inputs>
class CompiledFunction<R(Inputs...)> : public CompiledCore {
 public:
  // Takes a core whose step function has these inputs and results. Made by compile().
  explicit CompiledFunction(CompiledCore core) : CompiledCore(std::move(core)) {}

  // Calls the function. Throws as CompiledCore::call().
  R operator()(const std::type_identity_t<Inputs>&... inputs) const {
    const Tensor* const list[sizeof...(Inputs) + 1] = {&inputs..., nullptr};
    TensorList outputs;
    call(std::span<const Tensor* const>(list, sizeof...(Inputs)), outputs);
    return detail::Results<R>::take(outputs);
  }

  // Returns a function that does the same, but writes output i into buffers[i] and returns that
  // buffer as the output. An undefined or missing buffer asks for an ordinary output. A buffer has
  // the shape and the element type of the output, may have any strides, and shares no memory with
  // inputs and other buffers:
  //   decode.into(logits)(tokens, kv_cache);
  // Requires: this function outlives the returned one, here or where it is moved to.
  template <std::same_as<Tensor>... Buffers>
  auto into(const Buffers&... buffers) const& {
    return keyed({}).into(buffers...);
  }
  // The same for an rvalue: the returned function owns it.
  template <std::same_as<Tensor>... Buffers>
  auto into(const Buffers&... buffers) && {
    return std::move(*this).keyed({}).into(buffers...);
  }

  // Returns a function that makes its calls with this key. It combines with into() in either order:
  //   decode.keyed({{"draft", 2}}).into(logits)(tokens, kv_cache);
  auto keyed(const Key& key) const& {
    return FunctionWith<R(Inputs...), 0, FunctionRef>(ref(), key, {});
  }
  auto keyed(const Key& key) && {
    return FunctionWith<R(Inputs...), 0, CompiledCore>(std::move(*this), key, {});
  }

  // As CompiledCore::explain().
  Explanation explain(const std::type_identity_t<Inputs>&... inputs) const {
    const Tensor* const list[sizeof...(Inputs) + 1] = {&inputs..., nullptr};
    return CompiledCore::explain(std::span<const Tensor* const>(list, sizeof...(Inputs)));
  }
};

// A compiled function with any number of inputs.
template <typename R>
class CompiledFunction<R(std::span<const Tensor>)> : public CompiledCore {
 public:
  // Takes a core whose step function has these results. Made by compile().
  explicit CompiledFunction(CompiledCore core) : CompiledCore(std::move(core)) {}

  // Calls the function with any number of inputs; recordings are kept for each number.
  R operator()(std::span<const Tensor> inputs) const {
    TensorList outputs;
    call(inputs, outputs);
    return detail::Results<R>::take(outputs);
  }

  // The next four functions are as above. The functions that they return hold the buffers.
  auto into(std::span<const Tensor> buffers) const& { return keyed({}).into(buffers); }
  auto into(std::span<const Tensor> buffers) && { return std::move(*this).keyed({}).into(buffers); }
  auto keyed(const Key& key) const& {
    return FunctionWith<R(std::span<const Tensor>), std::dynamic_extent, FunctionRef>(ref(), key,
                                                                                      {});
  }
  auto keyed(const Key& key) && {
    return FunctionWith<R(std::span<const Tensor>), std::dynamic_extent, CompiledCore>(
        std::move(*this), key, {});
  }

  // As CompiledCore::explain().
  Explanation explain(std::span<const Tensor> inputs) const {
    return CompiledCore::explain(inputs);
  }
};

namespace detail {

// Step functions are shared, because a StepFunction is copyable and a lambda need not be.

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
    return [function = std::make_shared<F>(std::move(function))](std::span<const Tensor> inputs) {
      return Results<R>::collect([&] { return (*function)(inputs); });
    };
  }
};

template <typename R, typename... Inputs>
struct Adapter<R(Inputs...)> {
  static_assert((std::is_same_v<Inputs, Tensor> && ...),
                "a step function takes tensors: write cgtree::Tensor for each parameter, and pass "
                "a number as cgtree::scalar(x) and a struct as cgtree::step_block(x), or put it "
                "into the key");

  template <typename F>
  static StepFunction wrap(F function) {
    return [function = std::make_shared<F>(std::move(function))](std::span<const Tensor> inputs) {
      check_input_count(inputs.size(), sizeof...(Inputs));
      return run(*function, inputs, std::index_sequence_for<Inputs...>{});
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

// Compiles a step function; `name` is its name in messages. The context may be moved, and may be
// destroyed before the compiled function, because recordings live as long as either. Throws
// InvalidArgument for an empty name and for options that contradict each other.
template <typename F>
auto compile(Context& context, std::string name, F function, CompileOptions options = {}) {
  static_assert(
      std::is_pointer_v<F> || requires { &F::operator(); },
      "a step function has one signature: write cgtree::Tensor in place of auto");
  using Signature = typename detail::SignatureOf<F>::Type;
  return CompiledFunction<Signature>(
      CompiledCore(context, std::move(name), detail::Adapter<Signature>::wrap(std::move(function)),
                   std::move(options)));
}

}  // namespace cgtree
