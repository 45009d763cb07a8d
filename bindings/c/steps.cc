// Steps of an engine in C.
#include "cgtree/steps.h"

#include <cmath>
#include <span>
#include <thread>
#include <utility>

#include "base/format.h"
#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "cgtree/axes/axis_layout.h"
#include "extensions/inspect/inspect.h"
#include "extensions/watch/spelling.h"

namespace cgtree::capi {
namespace {

StepsOptions steps_options(const cgt_function_options* given, cgt_capture_mode mode) {
  const FunctionOptions read = function_options(given, /*outputs=*/0);
  if (!read.compile.axes.empty()) {
    throw InvalidArgument(
        str_format("axis '{}' of steps of an engine: there are no axes, put sizes into the key",
                   read.axes[0]));
  }
  StepsOptions options;
  for (std::size_t i = 0; i < read.compile.inputs.size(); ++i) {
    const InputOptions& input = read.compile.inputs[i];
    if (input.is_static || input.require_contiguous) {
      throw InvalidArgument(str_format(
          "{} has {}, which is for functions: a binding is checked unless it has CGT_INPUT_COPIED",
          text_of_binding(i, input.name),
          input.is_static ? "CGT_INPUT_STATIC" : "CGT_INPUT_CONTIGUOUS"));
    }
    const bool is_compared = input.tolerance == 0;
    if (!is_compared && input.tolerance != HUGE_VAL) {
      throw InvalidArgument(str_format(
          "{} has tolerance {}, and bytes have none: give 0 to have them compared, or INFINITY",
          text_of_binding(i, input.name), input.tolerance));
    }
    options.bindings.push_back({.name = input.name,
                                .is_copied = read.copied[i],
                                .is_mutated = input.is_mutated,
                                .host_bytes = read.host_bytes[i],
                                .is_compared = is_compared,
                                .is_per_session = read.per_session[i]});
  }
  options.capture_mode =
      choice_of_c(mode, CaptureMode::kRelaxed, "capture mode", "CGT_CAPTURE_MODE_RELAXED");
  detail::copy_shared_options(read.compile, options);
  return options;
}

// Returns the bindings, valid until the next call of this. Allocates only for more bindings than
// before.
std::span<const Binding> bindings_of(StepsObject& object, const cgt_binding* bindings,
                                     std::size_t count) {
  constexpr std::string_view kWhat = "cgt_binding";
  object.bindings.clear();
  for_each_struct(bindings, count, kWhat, [&](const cgt_binding& binding) {
    check_flags(binding.flags, 0, kWhat);
    object.bindings.push_back({binding.address, binding.bytes});
  });
  return object.bindings;
}

Step& open_step(StepsObject& object, std::string_view function) {
  if (object.open) return *object.open;
  throw InvalidArgument(str_format(
      "{} of '{}', of which no step is open: it was replayed, has ended, or was not begun",
      function, object.steps.name()));
}

// Returns whether the work must be enqueued. The functions of breaks may have abandoned the step.
bool must_run(StepsObject& object) {
  const bool must = object.open && object.open->must_run();
  if (!must) object.open.reset();
  return must;
}

}  // namespace

void leave(StepsObject& object) {
  if (object.open && object.thread != std::this_thread::get_id()) {
    throw InvalidArgument(str_format(
        "a step of '{}' is open on another thread: end or leave it there", object.steps.name()));
  }
  object.open.reset();
}

extern "C" {

cgt_status cgt_steps_create(cgt_context context, const char* name,
                            const cgt_function_options* options, cgt_capture_mode mode,
                            cgt_function* out) {
  return write_result(out, [&] {
    required(name, "the name of the steps");
    Steps steps(*ContextTable::pin(context), name, steps_options(options, mode));
    return FunctionTable::make(StepsObject{std::move(steps)});
  });
}

cgt_status cgt_step_begin(cgt_function steps, const cgt_key_part* key, size_t key_size,
                          const cgt_binding* bindings, size_t binding_count,
                          const cgt_stream* stream, int32_t* must_run) {
  return guarded([&] {
    required(must_run, "the place for must_run");
    const auto pin = FunctionTable::pin(steps);
    StepsObject& object = pin->steps();
    if (object.open) {
      throw InvalidArgument(
          str_format("cgt_step_begin() of '{}', of which a step is open: end "
                     "or leave that one first",
                     object.steps.name()));
    }
    const Key read = key_of(key, key_size);
    object.open.emplace(object.steps.begin(read, bindings_of(object, bindings, binding_count),
                                           stream_of_c(stream)));
    object.thread = std::this_thread::get_id();
    *must_run = capi::must_run(object);
  });
}

cgt_status cgt_step_address(cgt_function steps, size_t i, void** out) {
  return write_result(out, [&] {
    return open_step(FunctionTable::pin(steps)->steps(), "cgt_step_address()").address(i);
  });
}

cgt_status cgt_step_end(cgt_function steps, int32_t* must_run) {
  return guarded([&] {
    required(must_run, "the place for must_run") = 0;
    const auto pin = FunctionTable::pin(steps);
    StepsObject& object = pin->steps();
    Step& step = open_step(object, "cgt_step_end()");
    try {
      step.end();
    } catch (...) {
      *must_run = capi::must_run(object);
      throw;
    }
    *must_run = capi::must_run(object);
  });
}

cgt_status cgt_step_leave(cgt_function steps) {
  return guarded([&] {
    const auto pin = FunctionTable::pin(steps);
    StepsObject& object = pin->steps();
    (void)open_step(object, "cgt_step_leave()");
    leave(object);
  });
}

cgt_status cgt_steps_invalidate(cgt_function steps, const void* address, size_t bytes,
                                size_t* dropped) {
  return write_count(
      dropped, [&] { return FunctionTable::pin(steps)->steps().steps.invalidate(address, bytes); });
}

cgt_status cgt_steps_explain(cgt_function steps, const cgt_key_part* key, size_t key_size,
                             const cgt_binding* bindings, size_t binding_count, const char** text) {
  return write_text(text, [&] {
    const auto pin = FunctionTable::pin(steps);
    StepsObject& object = pin->steps();
    const Explanation why =
        object.steps.explain(key_of(key, key_size), bindings_of(object, bindings, binding_count));
    return spelled(to_string(why), Spelling::kC);
  });
}

cgt_status cgt_steps_inspect(cgt_function steps, const cgt_key_part* key, size_t key_size,
                             const cgt_binding* bindings, size_t binding_count,
                             const cgt_stream* stream, const char** text) {
  return write_text(text, [&] {
    const auto pin = FunctionTable::pin(steps);
    StepsObject& object = pin->steps();
    return spelled(
        to_string(inspect(object.steps, key_of(key, key_size),
                          bindings_of(object, bindings, binding_count), stream_of_c(stream))),
        Spelling::kC);
  });
}

cgt_status cgt_steps_compare_captures(cgt_function steps, const cgt_key_part* key, size_t key_size,
                                      const cgt_binding* bindings, size_t binding_count,
                                      const cgt_stream* stream, cgt_step_work work, void* user,
                                      const char** text) {
  return write_text(text, [&] {
    required(work, "the work of a step");
    const auto pin = FunctionTable::pin(steps);
    StepsObject& object = pin->steps();
    const auto enqueue = [&](std::span<void* const> addresses) {
      const Callback callback(str_format("the work of '{}'", object.steps.name()));
      callback.call([&] { return work(user, addresses.data(), addresses.size()); });
    };
    return spelled(to_string(compare_captures(object.steps, key_of(key, key_size),
                                              bindings_of(object, bindings, binding_count), enqueue,
                                              stream_of_c(stream))),
                   Spelling::kC);
  });
}

}  // extern "C"
}  // namespace cgtree::capi
