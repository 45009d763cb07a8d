// The objects behind the handles of the C ABI, and Callback: calls of C functions, whose handles
// end with the call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/format.h"
#include "bindings/c/c_api.h"
#include "bindings/c/handle_table.h"
#include "bindings/c/status.h"
#include "cgtree/compile.h"
#include "cgtree/context.h"
#include "cgtree/steps.h"
#include "extensions/flow/loop_stream.h"
#include "extensions/progress/progress_watch.h"
#include "extensions/sizes/size_learner.h"
#include "interop/random/generator.h"
#include "interop/tensor/tensor.h"

namespace cgtree::capi {

// The next four are the objects behind handles that need more than the C++ object.
struct CompiledObject {
  CompiledCore core;
  std::size_t outputs;
  std::vector<std::string> axes;         // their names, in the order of the options
  std::unique_ptr<SizeLearner> learner;  // null: nothing is learned
};

struct StepsObject {
  Steps steps;
  std::thread::id thread = {};  // of the open step
  std::optional<Step> open = {};
  std::vector<Binding> bindings = {};  // of the last call
};

struct FunctionObject {
  std::variant<CompiledObject, StepsObject> kind;

  // Returns the base that both kinds share.
  const FunctionHandle& handle() const noexcept {
    if (const auto* const compiled = std::get_if<CompiledObject>(&kind)) return compiled->core;
    return std::get_if<StepsObject>(&kind)->steps;
  }
  // The next two throw InvalidArgument for a function of the other kind.
  CompiledObject& compiled() { return as<CompiledObject>("cgt_steps_create()", "cgt_compile()"); }
  StepsObject& steps() { return as<StepsObject>("cgt_compile()", "cgt_steps_create()"); }
  // Throws InvalidArgument, which names the function that makes this kind and the function that
  // makes `Kind`.
  template <typename Kind>
  Kind& as(std::string_view other, std::string_view expected) {
    if (auto* const found = std::get_if<Kind>(&kind)) [[likely]]
      return *found;
    throw InvalidArgument(str_format("'{}' was made by {}: expected a function made by {}",
                                     handle().name(), other, expected));
  }
};

struct TensorObject {
  Tensor tensor;
  const CallbackFrame* frame = nullptr;               // the callback that made it
  std::unique_ptr<std::int64_t[]> byte_strides = {};  // handed out by an export
};

// The next six are the tables of all handles. Those of tensors are not pinned, because each call
// reads many.
using ContextTable = HandleTable<Context, cgt_context, HandleKind::kContext, Keeping::kPins>;
using FunctionTable =
    HandleTable<FunctionObject, cgt_function, HandleKind::kFunction, Keeping::kPins>;
using TensorTable = HandleTable<TensorObject, cgt_tensor, HandleKind::kTensor, Keeping::kHandle>;
using GeneratorTable =
    HandleTable<Generator, cgt_generator, HandleKind::kGenerator, Keeping::kPins>;
using WatchTable = HandleTable<std::shared_ptr<ProgressWatch>, cgt_progress_watch,
                               HandleKind::kProgressWatch, Keeping::kPins>;
using LoopStreamTable =
    HandleTable<LoopStream, cgt_loop_stream, HandleKind::kLoopStream, Keeping::kPins>;

// Throws HandleError; `what` is as for throw_bad_handle().
inline const Tensor& tensor_of(cgt_tensor handle, std::string_view what = {}) {
  return TensorTable::get(handle, what).tensor;
}

// Throws HandleError that names the first wrong handle: "generator 1".
std::vector<Generator> generators_of(const cgt_generator* generators, std::size_t count);

// Leaves the open step, if there is one. Throws InvalidArgument on another thread than the step's.
void leave(StepsObject& object);

// Makes a handle. Inside a callback, the handle ends with it. Throws OutOfMemory.
cgt_tensor make_tensor(Tensor&& tensor);
// Throws HandleError. Inside a step function, a tensor that may be an input of a caller stays until
// the callers' calls return. The body of a branch or loop is part of its caller.
void destroy_tensor(cgt_tensor handle);

// Makes handles of all these tensors, or of none. Throws OutOfMemory.
void give_out(std::span<Tensor> made, cgt_tensor* outputs);

// A Callback is a call of a C function that makes handles and returns a status. While it lives, the
// thread is inside the function; handles that the function makes end with it.
class Callback {
 public:
  // `name` names the function in messages: "step function 'decode'". `is_body`: of a branch or
  // loop.
  explicit Callback(std::string name, bool is_body = false);
  ~Callback();
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;

  // Calls function(), which returns a cgt_status. A status other than CGT_OK is thrown as the
  // exception that it stands for, with the name before its message. Throws StatusError for an
  // exception that leaves the function.
  template <typename Function>
  void call(const Function& function) const {
    cgt_status status = CGT_OK;
    try {
      status = function();
    } catch (...) {
      rethrow_thrown();
    }
    if (status != CGT_OK) fail(status);
  }

 private:
  [[noreturn]] void rethrow_thrown() const;
  [[noreturn]] void fail(cgt_status status) const;

  CallbackFrame frame_;
  const std::uint64_t failures_before_;
};

// Returns the tensors of handles that a callback wrote. Throws HandleError that names the first
// wrong handle: "output 1 of 'decode'".
std::vector<Tensor> tensors_of(std::span<const cgt_tensor> handles, std::string_view what,
                               std::string_view function);

// Takes over `owner`: the last copy of the result calls release(owner), and logs its exceptions.
// Returns null if `release` is NULL.
std::shared_ptr<void> take_over(void* owner, void (*release)(void*));

}  // namespace cgtree::capi
