// Steps of an engine in C.
#include "cgtree/steps.h"

#include <fmt/format.h>

#include <cmath>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "cgtree/axes/axis_layout.h"
#include "cgtree/c_api/convert.h"
#include "cgtree/c_api/handles.h"

namespace cgtree::capi {
namespace {

static_assert(CGT_CAPTURE_MODE_GLOBAL == static_cast<int>(CaptureMode::kGlobal));
static_assert(CGT_CAPTURE_MODE_THREAD_LOCAL == static_cast<int>(CaptureMode::kThreadLocal));
static_assert(CGT_CAPTURE_MODE_RELAXED == static_cast<int>(CaptureMode::kRelaxed));

StepsTable::Pin steps_of(cgt_steps handle) {
  return StepsTable::pin(number_of(handle), "the steps");
}

StepsOptions steps_options(const cgt_function_options* given, cgt_capture_mode mode) {
  if (mode < CGT_CAPTURE_MODE_GLOBAL || mode > CGT_CAPTURE_MODE_RELAXED) {
    throw InvalidArgument(
        fmt::format("capture mode is {}: expected 0 to 2 (CGT_CAPTURE_MODE_RELAXED)", mode));
  }
  const FunctionOptions read = function_options(given, /*outputs=*/0);
  if (!read.compile.axes.empty()) {
    throw InvalidArgument(
        fmt::format("axis '{}' of steps of an engine: there are no axes, put sizes into the key",
                    read.axes[0]));
  }
  StepsOptions options;
  for (std::size_t i = 0; i < read.compile.inputs.size(); ++i) {
    const InputOptions& input = read.compile.inputs[i];
    if (input.is_static || input.require_contiguous) {
      throw InvalidArgument(fmt::format(
          "{} has {}, which is for functions: a binding is checked unless it has CGT_INPUT_COPIED",
          text_of_binding(i, input.name),
          input.is_static ? "CGT_INPUT_STATIC" : "CGT_INPUT_CONTIGUOUS"));
    }
    const bool is_compared = input.tolerance == 0;
    if (!is_compared && input.tolerance != HUGE_VAL) {
      throw InvalidArgument(fmt::format(
          "{} has tolerance {}, and bytes have none: give 0 to have them compared, or INFINITY",
          text_of_binding(i, input.name), input.tolerance));
    }
    options.bindings.push_back({.name = input.name,
                                .is_copied = read.copied[i],
                                .is_mutated = input.is_mutated,
                                .host_bytes = read.host_bytes[i],
                                .is_compared = is_compared});
  }
  options.capture_mode = static_cast<CaptureMode>(mode);
  detail::copy_shared_options(read.compile, options);
  return options;
}

// Returns the bindings, valid until the next call of this. Does not allocate if there were as many
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
  throw InvalidArgument(fmt::format(
      "{} of '{}', of which no step is open: it was replayed, has ended, or was not begun",
      function, object.steps.name()));
}

void leave(StepsObject& object) {
  if (object.open && object.thread != std::this_thread::get_id()) {
    throw InvalidArgument(fmt::format(
        "a step of '{}' is open on another thread: end or leave it there", object.steps.name()));
  }
  object.open.reset();
}

// Returns whether the work must be enqueued. The functions of breaks may have left the step.
bool must_run(StepsObject& object) {
  const bool must = object.open && object.open->must_run();
  if (!must) object.open.reset();
  return must;
}

}  // namespace

extern "C" {

cgt_status cgt_steps_create(cgt_context context, const char* name,
                            const cgt_function_options* options, cgt_capture_mode mode,
                            cgt_steps* out) {
  return guarded([&] {
    required(name, "the name of the steps");
    required(out, "the place for the steps");
    Steps steps(*context_of(context), name, steps_options(options, mode));
    *out = handle_of<cgt_steps>(StepsTable::make(std::move(steps)));
  });
}

cgt_status cgt_steps_destroy(cgt_steps steps) {
  return guarded([&] {
    if (steps == nullptr) return;
    leave(*steps_of(steps));
    StepsTable::destroy(number_of(steps), "the steps");
  });
}

cgt_status cgt_step_begin(cgt_steps steps, const cgt_key_part* key, size_t key_size,
                          const cgt_binding* bindings, size_t binding_count,
                          const cgt_stream* stream, int32_t* must_run) {
  return guarded([&] {
    required(must_run, "the place for must_run");
    const auto pin = steps_of(steps);
    if (pin->open) {
      throw InvalidArgument(
          fmt::format("cgt_step_begin() of '{}', of which a step is open: end "
                      "or leave that one first",
                      pin->steps.name()));
    }
    const Key read = key_of(key, key_size);
    pin->open.emplace(
        pin->steps.begin(read, bindings_of(*pin, bindings, binding_count), stream_of_c(stream)));
    pin->thread = std::this_thread::get_id();
    *must_run = capi::must_run(*pin);
  });
}

cgt_status cgt_step_address(cgt_steps steps, size_t i, void** out) {
  return guarded([&] {
    required(out, "the place for the address");
    *out = open_step(*steps_of(steps), "cgt_step_address()").address(i);
  });
}

cgt_status cgt_step_end(cgt_steps steps, int32_t* must_run) {
  return guarded([&] {
    required(must_run, "the place for must_run") = 0;
    const auto pin = steps_of(steps);
    Step& step = open_step(*pin, "cgt_step_end()");
    try {
      step.end();
    } catch (...) {
      *must_run = capi::must_run(*pin);
      throw;
    }
    *must_run = capi::must_run(*pin);
  });
}

cgt_status cgt_step_leave(cgt_steps steps) {
  return guarded([&] {
    const auto pin = steps_of(steps);
    (void)open_step(*pin, "cgt_step_leave()");
    leave(*pin);
  });
}

cgt_status cgt_steps_invalidate(cgt_steps steps, const void* address, size_t bytes,
                                size_t* dropped) {
  return guarded([&] {
    const std::size_t count = steps_of(steps)->steps.invalidate(address, bytes);
    if (dropped != nullptr) *dropped = count;
  });
}

cgt_status cgt_steps_explain(cgt_steps steps, const cgt_key_part* key, size_t key_size,
                             const cgt_binding* bindings, size_t binding_count, char* buffer,
                             size_t capacity, size_t* length) {
  return guarded([&] {
    const auto pin = steps_of(steps);
    const Explanation why =
        pin->steps.explain(key_of(key, key_size), bindings_of(*pin, bindings, binding_count));
    write_text(to_string(why), buffer, capacity, length);
  });
}

cgt_status cgt_steps_stats_json(cgt_steps steps, char* buffer, size_t capacity, size_t* length) {
  return guarded(
      [&] { write_text(to_json(steps_of(steps)->steps.stats()), buffer, capacity, length); });
}

cgt_status cgt_steps_freeze(cgt_steps steps, cgt_when_frozen when) {
  return guarded([&] { steps_of(steps)->steps.freeze(when_frozen_of_c(when)); });
}

cgt_status cgt_steps_unfreeze(cgt_steps steps) {
  return guarded([&] { steps_of(steps)->steps.unfreeze(); });
}

cgt_status cgt_steps_last_outcome(cgt_steps steps, cgt_outcome* outcome, const char** skip_reason) {
  return guarded([&] {
    required(outcome, "the place for the outcome");
    write_outcome(steps_of(steps)->steps.last_outcome(), outcome, skip_reason);
  });
}

}  // extern "C"
}  // namespace cgtree::capi
