// Dynamic axes in C: actual sizes, histograms, suggested buckets and precapture.

#include "cgtree/values/axes.h"
#include "base/format.h"
#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "bindings/c/sized_struct.h"

namespace cgtree::capi {
namespace {

std::string_view axis_of_c(const char* axis) {
  return &required(axis, "the axis");
}

// `kept` lives as long as the result.
MakeInputs make_inputs_of_c(const CompiledObject& function, cgt_make_inputs make, void* user,
                            std::size_t count, std::shared_ptr<void> kept = nullptr) {
  required(make, "make_inputs");
  return [&function, make, user, count, kept = std::move(kept)](const CallSizes& sizes) {
    std::vector<cgt_axis_size> told;
    for (const std::string& axis : function.axes)
      told.push_back({axis.c_str(), sizes[axis]});
    std::vector<cgt_tensor> made(count, nullptr);
    const Callback callback(str_format("make_inputs of '{}'", function.core.name()));
    callback.call([&] { return make(user, told.data(), told.size(), made.data(), made.size()); });
    return tensors_of(made, "precaptured input", function.core.name());
  };
}

std::size_t held_outputs_of_c(std::uint64_t given) {
  if (given == 0) return 1;
  return given == CGT_HOLDS_NONE ? 0 : given;
}

LearnOptions learn_options(const cgt_learn_options& given) {
  LearnOptions options{.held_outputs = held_outputs_of_c(given.held_outputs)};
  read_count(given.max_sizes, options.max_sizes);
  read_count(given.max_bytes, options.max_bytes);
  read_number(given.busy_fraction, options.busy_fraction);
  options.generators = generators_of(given.generators, given.generator_count);
  return options;
}

Sizes sizes_of_c(const cgt_precapture_values& given, std::string_view function) {
  if (given.text_count > 0) {
    throw InvalidArgument(
        str_format("precapture of '{}': axis '{}' is to have texts", function, given.name));
  }
  const auto sizes = span_of_c(given.numbers, given.number_count, "cgt_precapture_values::numbers");
  for (const std::int64_t size : sizes) {
    if (size < 0) {
      throw InvalidArgument(str_format("precapture of '{}': axis '{}' is to have size {}", function,
                                       given.name, size));
    }
  }
  return {sizes.begin(), sizes.end()};
}

std::pair<std::string, KeyValues> key_values_of_c(const cgt_precapture_values& given) {
  KeyValues values;
  for (const std::int64_t number :
       span_of_c(given.numbers, given.number_count, "cgt_precapture_values::numbers"))
    values.emplace_back(number);
  for (const char* const text :
       span_of_c(given.texts, given.text_count, "cgt_precapture_values::texts"))
    values.emplace_back(std::string(&required(text, "a text of the key")));
  return {given.name, std::move(values)};
}

PrecaptureOptions precapture_options(const CompiledObject& function,
                                     const cgt_precapture_options& given) {
  constexpr std::string_view kWhat = "cgt_precapture_values";
  PrecaptureOptions options;
  for_each_struct(given.sizes, given.size_count, kWhat, [&](const cgt_precapture_values& axis) {
    required(axis.name, "the axis");
    options.sizes[axis.name] = sizes_of_c(axis, function.core.name());
  });
  for_each_struct(given.key, given.key_size, kWhat, [&](const cgt_precapture_values& part) {
    required(part.name, "the name of a part of the key");
    options.key.push_back(key_values_of_c(part));
  });
  if (given.max_microseconds != 0) options.max_time = microseconds_of_c(given.max_microseconds);
  options.held_outputs = held_outputs_of_c(given.held_outputs);
  if (given.progress != nullptr) {
    options.progress = [&function, &given](const Precaptured& entry) {
      const std::string text = to_json(entry);
      const Callback callback(str_format("progress of '{}'", function.core.name()));
      callback.call([&] {
        given.progress(given.user, text.c_str());
        return CGT_OK;
      });
    };
  }
  return options;
}

using Precapture = PrecaptureReport (*)(const CompiledCore&, const PrecaptureOptions&,
                                        const MakeInputs&);

// `report` may be NULL.
cgt_status precapture_with(Precapture run, cgt_function handle,
                           const cgt_precapture_options* options, const char** report) {
  return guarded([&] {
    const cgt_precapture_options given =
        read_struct(&required(options, "the options"), "cgt_precapture_options");
    const FunctionTable::Pin pin = FunctionTable::pin(handle);
    CompiledObject& function = pin->compiled();
    const PrecaptureReport made =
        run(function.core, precapture_options(function, given),
            make_inputs_of_c(function, given.make_inputs, given.user, given.input_count));
    if (report != nullptr) *report = keep_text(to_json(made));
  });
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_axis_length(const char* axis, cgt_tensor* out) {
  return write_result(out, [&] { return make_tensor(axis_length(axis_of_c(axis))); });
}

cgt_status cgt_function_histogram_json(cgt_function function, const char* axis, const char** text) {
  return write_text(text, [&] {
    return to_json(FunctionTable::pin(function)->compiled().core.histogram(axis_of_c(axis)));
  });
}

cgt_status cgt_function_suggest_buckets_json(cgt_function function, size_t max_combinations,
                                             const char** text) {
  return write_text(text, [&] {
    return to_json(suggest_buckets(FunctionTable::pin(function)->compiled().core,
                                   {.max_combinations = max_combinations}));
  });
}

cgt_status cgt_function_precapture(cgt_function function, const cgt_precapture_options* options,
                                   const char** report) {
  return precapture_with(precapture, function, options, report);
}

cgt_status cgt_function_predict_memory(cgt_function function, const cgt_precapture_options* options,
                                       const char** report) {
  return precapture_with(predict_memory, function, options, report);
}

cgt_status cgt_function_learn(cgt_function function, const cgt_learn_options* options) {
  return guarded([&] {
    const cgt_learn_options given =
        read_struct(&required(options, "the options"), "cgt_learn_options");
    // From here on, the user data is released in any case.
    std::shared_ptr<void> kept = take_over(given.user, given.release);
    const auto pin = FunctionTable::pin(function);
    CompiledObject& object = pin->compiled();
    if (object.learner != nullptr) {
      throw InvalidArgument(str_format("'{}' learns sizes already", object.core.name()));
    }
    object.learner = std::make_unique<SizeLearner>(
        object.core,
        make_inputs_of_c(object, given.make_inputs, given.user, given.input_count, std::move(kept)),
        learn_options(given));
  });
}

cgt_status cgt_function_idle(cgt_function function, uint64_t max_microseconds,
                             cgt_learner_step* step) {
  return guarded([&] {
    expect_room(step, "cgt_learner_step");
    const auto pin = FunctionTable::pin(function);
    const CompiledObject& object = pin->compiled();
    if (object.learner == nullptr) {
      throw InvalidArgument(
          str_format("'{}' learns no sizes: cgt_function_learn() comes first", object.core.name()));
    }
    const LearnerStep done = max_microseconds == CGT_BETWEEN_CALLS
                                 ? object.learner->between_calls()
                                 : object.learner->idle(microseconds_of_c(max_microseconds));
    write_struct(cgt_learner_step{.struct_size = 0,
                                  .outcome = static_cast<cgt_learner_outcome>(done.kind),
                                  .size = done.sizes.empty() ? 0 : done.sizes[0],
                                  .evicted = done.evicted.empty() ? -1 : done.evicted[0],
                                  .gain_microseconds = done.gain_us,
                                  .microseconds = static_cast<std::uint64_t>(done.time.count()),
                                  .bytes = done.bytes},
                 step, "cgt_learner_step");
  });
}

}  // extern "C"
