// Contexts, step functions and calls in C.

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "extensions/inspect/inspect.h"
#include "extensions/scopes/scope.h"
#include "extensions/watch/monitor.h"
#include "extensions/watch/recent_events.h"
#include "extensions/watch/spelling.h"
#include "interop/tensor/tensor.h"

namespace cgtree::capi {
namespace {

// A CStep is a C function as a step function.
struct CStep {
  // Throws as Callback::call().
  std::vector<Tensor> run(std::span<const Tensor> inputs) const;

  const std::string name;
  const cgt_step step;
  const std::shared_ptr<void> user;  // keeps the user data
};

std::vector<Tensor> CStep::run(std::span<const Tensor> inputs) const {
  thread_state().step_capture = CGT_CAPTURE_NONE;
  const Callback callback("step function '" + name + "'");
  std::vector<cgt_tensor> given;
  given.reserve(inputs.size());
  for (const Tensor& input : inputs)
    given.push_back(make_tensor(Tensor(input)));
  std::vector<cgt_tensor> made(step.output_count, nullptr);
  try {
    callback.call(
        [&] { return step.body(step.user, given.data(), given.size(), made.data(), made.size()); });
    return tensors_of(made, "output", name);
  } catch (...) {
    thread_state().step_capture = capture_state_now();
    throw;
  }
}

cgt_function compile(cgt_context context, const std::shared_ptr<const CStep>& step,
                     const cgt_function_options* options) {
  const auto pin = ContextTable::pin(context);
  const std::size_t outputs = step->step.output_count;
  FunctionOptions read = function_options(options, outputs);
  for (const std::size_t bytes : read.host_bytes) {
    if (bytes == 0) continue;
    throw InvalidArgument(
        "cgt_input_options::host_bytes is for cgt_steps_create(): make a function's input with "
        "cgt_tensor_by_value()");
  }
  if (std::ranges::find(read.copied, true) != read.copied.end()) {
    throw InvalidArgument(str_format(
        "CGT_INPUT_COPIED is for cgt_steps_create(): an input of '{}' is copied unless it has "
        "CGT_INPUT_STATIC",
        step->name));
  }
  if (std::ranges::find(read.per_session, true) != read.per_session.end())
    throw InvalidArgument("CGT_INPUT_SESSION is for cgt_steps_create(): see cgt_rebind");
  CompiledCore core(
      *pin, step->name, [step](std::span<const Tensor> inputs) { return step->run(inputs); },
      std::move(read.compile));
  return FunctionTable::make(
      CompiledObject{std::move(core), outputs, std::move(read.axes), nullptr});
}

// Stands for an output without a buffer.
const Tensor& no_buffer() {
  static const Tensor none;
  return none;
}

// Arguments are the addresses of the tensors of a call. Up to 512 are on the stack.
class Arguments {
 public:
  Arguments(const cgt_tensor* inputs, std::size_t input_count, const cgt_tensor* buffers = nullptr,
            std::size_t buffer_count = 0)
      : buffers_(buffer_count) {
    const auto given = span_of_c(inputs, input_count, "the array of inputs");
    const auto to_write = span_of_c(buffers, buffer_count, "the array of buffers");
    const std::size_t count = input_count + buffer_count;
    const Tensor** to = few_.data();
    if (count > few_.size()) {
      many_.reset(new const Tensor*[count]);
      to = many_.get();
    }
    list_ = {to, count};
    const std::size_t found =
        TensorTable::find_all(given, to, [](const TensorObject& object) { return &object.tensor; });
    if (found < input_count) throw_bad_tensor(inputs[found], "input", found);
    to += input_count;
    for (std::size_t i = 0; i < buffer_count; ++i)
      *to++ = to_write[i] == nullptr ? &no_buffer() : &buffer_at(to_write[i], i);
  }

  InputList list() const noexcept { return {list_, buffers_}; }

 private:
  [[noreturn]] static void throw_bad_tensor(cgt_tensor handle, std::string_view what,
                                            std::size_t i) {
    throw_bad_handle(number_of(handle), HandleKind::kTensor, str_format("{} {}", what, i));
  }
  static const Tensor& buffer_at(cgt_tensor handle, std::size_t i) {
    if (const TensorObject* const object = TensorTable::find(handle)) [[likely]] {
      return object->tensor;
    }
    throw_bad_tensor(handle, "buffer", i);
  }

  std::array<const Tensor*, 512> few_;  // is not initialized
  std::unique_ptr<const Tensor*[]> many_;
  std::span<const Tensor* const> list_;
  std::size_t buffers_;
};

void call(cgt_function function, const Arguments& arguments, cgt_tensor* outputs,
          std::size_t output_count, const Key& key = {}) {
  const FunctionTable::Pin pin = FunctionTable::pin(function);
  const CompiledObject& compiled = pin->compiled();
  if (output_count != compiled.outputs) {
    throw InvalidArgument(str_format("'{}' has {} outputs, but there is room for {}",
                                     compiled.core.name(), compiled.outputs, output_count));
  }
  if (output_count > 0) required(outputs, "the array of outputs");
  TensorList made;
  compiled.core.call(arguments.list().with_key(key.text()), made);
  give_out(made.tensors(), outputs);
}

// Returns look(core, inputs) for a call with these inputs, as text.
template <typename Look>
std::string text_of_call(cgt_function function, const Arguments& arguments, const Key& key,
                         const Look& look) {
  const auto pin = FunctionTable::pin(function);
  const InputList inputs = arguments.list().with_key(key.text());
  return spelled(to_string(look(pin->compiled().core, inputs)), Spelling::kC);
}

}  // namespace

Key key_of(const cgt_key_part* parts, std::size_t count) {
  constexpr std::string_view kWhat = "cgt_key_part";
  std::vector<Key::Part> key;
  key.reserve(count);
  for_each_struct(parts, count, kWhat, [&](const cgt_key_part& part) {
    check_flags(part.flags, CGT_KEY_UNSIGNED, kWhat);
    const char* const name =
        &required(part.name, str_format("the name of key part {}", key.size()));
    if (part.text != nullptr) {
      key.emplace_back(name, part.text_bytes > 0 ? std::string_view(part.text, part.text_bytes)
                                                 : std::string_view(part.text));
    } else if ((part.flags & CGT_KEY_UNSIGNED) != 0) {
      key.emplace_back(name, static_cast<std::uint64_t>(part.number));
    } else {
      key.emplace_back(name, part.number);
    }
  });
  return Key(std::span<const Key::Part>(key));
}

}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

// ---- Contexts ----

cgt_status cgt_context_create(cgt_device device, const cgt_context_options* options,
                              cgt_context* out) {
  return guarded([&] {
    ContextOptions read = context_options(options);
    required(out, "the place for the result");
    *out = ContextTable::make(Context(device_of_c(device), std::move(read)));
  });
}

cgt_status cgt_context_destroy(cgt_context context) {
  return guarded([&] { ContextTable::destroy(context); });
}

cgt_status cgt_context_mark_step(cgt_context context) {
  return guarded([&] { ContextTable::pin(context)->mark_step(); });
}

cgt_status cgt_tensor_keep(cgt_tensor output, cgt_context context) {
  return guarded([&] { ContextTable::pin(context)->keep(tensor_of(output)); });
}

cgt_status cgt_context_release_captured(cgt_context context, uint64_t capture, size_t* released) {
  return write_count(released, [&] {
    return ContextTable::pin(context)->release_captured(capture != 0 ? std::optional(capture)
                                                                     : std::nullopt);
  });
}

cgt_status cgt_context_trim(cgt_context context, size_t* bytes) {
  return write_count(bytes, [&] { return ContextTable::pin(context)->trim(); });
}

cgt_status cgt_context_release_memory(cgt_context context, size_t* bytes) {
  return write_count(bytes, [&] { return ContextTable::pin(context)->release_memory(); });
}

cgt_status cgt_context_declare(cgt_context context, const char* name, const void* address,
                               size_t bytes) {
  return guarded([&] {
    ContextTable::pin(context)->declare(&required(name, "the name of the memory"), address, bytes);
  });
}

cgt_status cgt_context_undeclare(cgt_context context, const char* name) {
  return guarded(
      [&] { ContextTable::pin(context)->undeclare(&required(name, "the name of the memory")); });
}

cgt_status cgt_context_invalidate(cgt_context context, const void* address, size_t bytes,
                                  size_t* dropped) {
  return write_count(dropped,
                     [&] { return ContextTable::pin(context)->invalidate(address, bytes); });
}

cgt_status cgt_context_synchronize(cgt_context context) {
  return guarded([&] { ContextTable::pin(context)->synchronize(); });
}

cgt_status cgt_context_stream(cgt_context context, cgt_stream* out) {
  return write_result(out, [&] { return to_c(ContextTable::pin(context)->stream()); });
}

cgt_status cgt_context_stats_json(cgt_context context, const char** text) {
  return write_text(text, [&] { return to_json(ContextTable::pin(context)->stats()); });
}

cgt_status cgt_context_snapshot_json(cgt_context context, const char** text) {
  return write_text(text, [&] { return snapshot_json(*ContextTable::pin(context)); });
}

cgt_status cgt_metrics_text(const cgt_context* contexts, size_t count, const char** text) {
  return write_text(text, [&] {
    std::vector<ContextMetrics> all;
    for (const cgt_context context : span_of_c(contexts, count, "the array of contexts"))
      all.push_back(metrics_of(*ContextTable::pin(context)));
    return metrics_text(std::span<const ContextMetrics>(all));
  });
}

cgt_status cgt_context_recent_events(cgt_context context, const char** text) {
  return write_text(text, [&] { return recent_events(*ContextTable::pin(context)); });
}

cgt_status cgt_context_dump_events(cgt_context context, const char* path) {
  return guarded([&] { dump_events(*ContextTable::pin(context), &required(path, "the path")); });
}

cgt_status cgt_dump_events_on_signal(const char* path, const int* signals, size_t count) {
  return guarded([&] {
    dump_events_on_signal(&required(path, "the path"), span_of_c(signals, count, "the signals"));
  });
}

cgt_status cgt_scope_open(const char* name, uint64_t* scope) {
  return write_result(scope, [&] { return open_scope(&required(name, "the name of the scope")); });
}

cgt_status cgt_scope_close(uint64_t scope) {
  return guarded([&] { close_scope(scope); });
}

// ---- Step functions ----

cgt_status cgt_compile(cgt_context context, const char* name, const cgt_step* step,
                       const cgt_function_options* options, cgt_function* out) {
  return guarded([&] {
    const cgt_step read = read_struct(&required(step, "the step"), "cgt_step");
    // From here on, the user data is released in any case.
    std::shared_ptr<void> user = take_over(read.user, read.release);
    required(name, "the function's name");
    required(read.body, "cgt_step::body");
    required(out, "the place for the result");
    *out = compile(context, std::make_shared<const CStep>(CStep{name, read, std::move(user)}),
                   options);
  });
}

cgt_status cgt_function_destroy(cgt_function function) {
  return guarded([&] {
    if (function == nullptr) return;
    {
      const auto pin = FunctionTable::pin(function);
      if (StepsObject* const steps = std::get_if<StepsObject>(&pin->kind)) leave(*steps);
    }
    FunctionTable::destroy(function);
  });
}

cgt_status cgt_call(cgt_function function, const cgt_tensor* inputs, size_t input_count,
                    cgt_tensor* outputs, size_t output_count) {
  return guarded([&] { call(function, Arguments(inputs, input_count), outputs, output_count); });
}

cgt_status cgt_call_keyed(cgt_function function, const cgt_key_part* key, size_t key_size,
                          const cgt_tensor* inputs, size_t input_count, const cgt_tensor* buffers,
                          size_t buffer_count, cgt_tensor* outputs, size_t output_count) {
  return guarded([&] {
    call(function, Arguments(inputs, input_count, buffers, buffer_count), outputs, output_count,
         key_of(key, key_size));
  });
}

cgt_status cgt_current_key_number(const char* name, int64_t* out) {
  return write_result(out, [&] { return current_key().number(&required(name, "the name")); });
}

cgt_status cgt_current_key_text(const char* name, const char** text) {
  return write_text(text, [&] {
    const Key key = current_key();
    return std::string(key.string(&required(name, "the name")));
  });
}

cgt_status cgt_function_explain(cgt_function function, const cgt_key_part* key, size_t key_size,
                                const cgt_tensor* inputs, size_t input_count, const char** text) {
  return write_text(text, [&] {
    return text_of_call(
        function, Arguments(inputs, input_count), key_of(key, key_size),
        [](const CompiledCore& core, const InputList& list) { return core.explain(list); });
  });
}

cgt_status cgt_function_inspect(cgt_function function, const cgt_key_part* key, size_t key_size,
                                const cgt_tensor* inputs, size_t input_count, const char** text) {
  return write_text(text, [&] {
    return text_of_call(
        function, Arguments(inputs, input_count), key_of(key, key_size),
        [](const CompiledCore& core, const InputList& list) { return inspect(core, list); });
  });
}

cgt_status cgt_function_compare_captures(cgt_function function, const cgt_key_part* key,
                                         size_t key_size, const cgt_tensor* inputs,
                                         size_t input_count, const char** text) {
  return write_text(text, [&] {
    return text_of_call(function, Arguments(inputs, input_count), key_of(key, key_size),
                        [](const CompiledCore& core, const InputList& list) {
                          return compare_captures(core, list);
                        });
  });
}

cgt_status cgt_function_compare_runs(cgt_function function, const cgt_key_part* key,
                                     size_t key_size, const cgt_tensor* inputs, size_t input_count,
                                     const char** text) {
  return write_text(text, [&] {
    return text_of_call(
        function, Arguments(inputs, input_count), key_of(key, key_size),
        [](const CompiledCore& core, const InputList& list) { return compare_runs(core, list); });
  });
}

cgt_status cgt_function_stats_json(cgt_function function, const char** text) {
  return write_text(text, [&] { return to_json(FunctionTable::pin(function)->handle().stats()); });
}

cgt_status cgt_function_freeze(cgt_function function, cgt_when_frozen when) {
  return guarded([&] {
    FunctionTable::pin(function)->handle().freeze(
        choice_of_c(when, WhenFrozen::kThrow, "when", "CGT_FROZEN_REFUSE"));
  });
}

cgt_status cgt_function_unfreeze(cgt_function function) {
  return guarded([&] { FunctionTable::pin(function)->handle().unfreeze(); });
}

cgt_status cgt_function_last_outcome(cgt_function function, cgt_outcome* outcome,
                                     const char** skip_reason) {
  return write_result(outcome, [&] {
    const std::optional<CallOutcome> last = FunctionTable::pin(function)->handle().last_outcome();
    const bool is_skipped = last && last->skip_reason;
    if (skip_reason != nullptr) *skip_reason = is_skipped ? name(*last->skip_reason).data() : "";
    return last ? static_cast<cgt_outcome>(last->outcome) + 1 : CGT_NO_CALL;
  });
}

}  // extern "C"
