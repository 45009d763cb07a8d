// Dynamic axes in C: actual sizes, histograms, suggested buckets and precapture.
#include <fmt/format.h>

#include <mutex>

#include "bindings/c/convert.h"
#include "bindings/c/handles.h"
#include "bindings/c/sized_struct.h"
#include "cgtree/values/axes.h"

namespace cgtree::capi {

template <>
inline constexpr std::size_t kFirstSize<cgt_precapture_options> = offsetof(cgt_precapture_options,
                                                                           key);
template <>
inline constexpr std::size_t kFirstSize<cgt_learner_step> = offsetof(cgt_learner_step, bytes);

namespace {

std::string_view axis_of_c(const char* axis) {
  return &required(axis, "the axis");
}

BucketCost cost_of_c(const CompiledObject& function, cgt_bucket_cost cost, void* user) {
  if (cost == nullptr) return {};
  return [&function, cost, user](std::int64_t size) {
    const Callback callback(fmt::format("the cost of '{}'", function.core.name()));
    double price = 0;
    callback.call([&] {
      price = cost(user, size);
      return CGT_OK;
    });
    return price;
  };
}

// `user` is kept as long as the result.
MakeInputs make_inputs_of_c(const CompiledObject& function, cgt_make_inputs make,
                            std::shared_ptr<void> user, std::size_t count) {
  required(make, "make_inputs");
  return [&function, make, user = std::move(user), count](const CallSizes& sizes) {
    std::vector<cgt_axis_size> told;
    for (const std::string& axis : function.axes)
      told.push_back({axis.c_str(), sizes[axis]});
    std::vector<cgt_tensor> made(count, nullptr);
    const Callback callback(fmt::format("make_inputs of '{}'", function.core.name()));
    callback.call(
        [&] { return make(user.get(), told.data(), told.size(), made.data(), made.size()); });
    return tensors_of(made, "precaptured input", function.core.name());
  };
}

std::size_t held_outputs_of_c(std::uint64_t given) {
  if (given == 0) return 1;
  return given == CGT_HOLDS_NONE ? 0 : given;
}

LearnOptions learn_options(const cgt_learn_options& given) {
  LearnOptions options{.held_outputs = held_outputs_of_c(given.held_outputs)};
  if (given.max_sizes != 0) options.max_sizes = given.max_sizes;
  if (given.max_bytes != 0) options.max_bytes = given.max_bytes;
  if (given.busy_fraction != 0) options.busy_fraction = given.busy_fraction;
  if (given.generator_count > 0) required(given.generators, "cgt_learn_options::generators");
  for (const cgt_generator generator : std::span(given.generators, given.generator_count))
    options.generators.push_back(*generator_of(generator));
  return options;
}

PrecaptureOptions::KeyValues key_values_of_c(const cgt_key_values& given) {
  check_flags(given.flags, 0, "cgt_key_values");
  PrecaptureOptions::KeyValues part{&required(given.name, "cgt_key_values::name"), {}};
  if (given.number_count > 0) required(given.numbers, "cgt_key_values::numbers");
  if (given.text_count > 0) required(given.texts, "cgt_key_values::texts");
  part.values.assign(given.numbers, given.numbers + given.number_count);
  for (const char* const text : std::span(given.texts, given.text_count))
    part.values.emplace_back(std::string(&required(text, "a text of the key")));
  return part;
}

PrecaptureOptions precapture_options(const CompiledObject& function,
                                     const cgt_precapture_options& given) {
  PrecaptureOptions options;
  constexpr std::string_view kSizes = "cgt_axis_sizes";
  for_each_struct(given.sizes, given.size_count, kSizes, [&](const cgt_axis_sizes& each) {
    check_flags(each.flags, 0, kSizes);
    auto& made = options.sizes.emplace_back();
    made.axis = axis_of_c(each.axis);
    if (each.size_count > 0) required(each.sizes, "cgt_axis_sizes::sizes");
    made.sizes.assign(each.sizes, each.sizes + each.size_count);
    for (const std::int64_t size : made.sizes) {
      if (size < 0) {
        throw InvalidArgument(fmt::format("precapture of '{}': axis '{}' is to have size {}",
                                          function.core.name(), made.axis, size));
      }
    }
  });
  for_each_struct(given.key, given.key_size, "cgt_key_values", [&](const cgt_key_values& part) {
    options.key.push_back(key_values_of_c(part));
  });
  if (given.max_microseconds != 0) {
    options.max_time = microseconds_of_c(given.max_microseconds);
  }
  options.held_outputs = held_outputs_of_c(given.held_outputs);
  if (given.progress != nullptr) {
    options.progress = [&function, &given](const Precaptured& entry) {
      const std::string text = to_json(entry);
      const Callback callback(fmt::format("progress of '{}'", function.core.name()));
      callback.call([&] {
        given.progress(given.user, text.c_str());
        return CGT_OK;
      });
    };
  }
  return options;
}

void precapture(cgt_function handle, const cgt_precapture_options* options, bool only_predicts) {
  const cgt_precapture_options given =
      read_struct(&required(options, "the options"), "cgt_precapture_options");
  const FunctionTable::Pin pin = function_of(handle);
  CompiledObject& function = pin->compiled();
  const MakeInputs make_inputs =
      make_inputs_of_c(function, given.make_inputs, std::shared_ptr<void>(given.user, [](void*) {}),
                       given.input_count);
  const PrecaptureOptions read = precapture_options(function, given);
  const PrecaptureReport report = only_predicts
                                      ? cgtree::predict_memory(function.core, read, make_inputs)
                                      : cgtree::precapture(function.core, read, make_inputs);
  std::string text = to_json(report);
  const std::lock_guard lock(function.mutex);
  function.precaptured = std::move(text);
}

std::string last_report(const CompiledObject& function) {
  const std::lock_guard lock(function.mutex);
  if (!function.precaptured.empty()) return function.precaptured;
  throw InvalidArgument(
      fmt::format("there is no report: no cgt_function_precapture() of '{}' has succeeded yet",
                  function.core.name()));
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

cgt_status cgt_axis_length(const char* axis, cgt_tensor* out) {
  return guarded([&] {
    required(out, "the place for the tensor");
    *out = make_tensor(axis_length(axis_of_c(axis)));
  });
}

cgt_status cgt_function_histogram_json(cgt_function function, const char* axis, char* buffer,
                                       size_t capacity, size_t* length) {
  return guarded([&] {
    const auto pin = function_of(function);
    write_text(to_json(pin->compiled().core.histogram(axis_of_c(axis))), buffer, capacity, length);
  });
}

cgt_status cgt_function_suggest_buckets(cgt_function function, const char* axis, size_t max_buckets,
                                        cgt_bucket_cost cost, void* user, int64_t* buckets,
                                        size_t* count) {
  return guarded([&] {
    required(buckets, "the place for the buckets");
    required(count, "the place for their number");
    const auto pin = function_of(function);
    const std::vector<std::int64_t> suggested = suggest_buckets(
        pin->compiled().core, axis_of_c(axis), max_buckets, cost_of_c(pin->compiled(), cost, user));
    std::copy(suggested.begin(), suggested.end(), buckets);
    *count = suggested.size();
  });
}

cgt_status cgt_function_suggest_all_buckets_json(cgt_function function, size_t max_combinations,
                                                 char* buffer, size_t capacity, size_t* length) {
  return guarded([&] {
    const auto suggested = suggest_buckets(function_of(function)->compiled().core,
                                           {.max_combinations = max_combinations});
    write_text(to_json(suggested), buffer, capacity, length);
  });
}

cgt_status cgt_function_precapture(cgt_function function, const cgt_precapture_options* options) {
  return guarded([&] { precapture(function, options, /*only_predicts=*/false); });
}

cgt_status cgt_function_predict_memory(cgt_function function,
                                       const cgt_precapture_options* options) {
  return guarded([&] { precapture(function, options, /*only_predicts=*/true); });
}

cgt_status cgt_function_precapture_json(cgt_function function, char* buffer, size_t capacity,
                                        size_t* length) {
  return guarded([&] {
    write_text(last_report(function_of(function)->compiled()), buffer, capacity, length);
  });
}

cgt_status cgt_function_learn(cgt_function function, const cgt_learn_options* options) {
  return guarded([&] {
    const cgt_learn_options given =
        read_struct(&required(options, "the options"), "cgt_learn_options");
    // From here on, the user data is released whatever happens.
    const auto release = [release = given.release](void* user) {
      if (release != nullptr) Release{release}(user);
    };
    std::shared_ptr<void> user(given.user, release);
    const auto pin = function_of(function);
    CompiledObject& object = pin->compiled();
    if (object.learner != nullptr) {
      throw InvalidArgument(fmt::format("'{}' learns sizes already", object.core.name()));
    }
    object.learner = std::make_unique<SizeLearner>(
        object.core,
        make_inputs_of_c(object, given.make_inputs, std::move(user), given.input_count),
        learn_options(given));
  });
}

cgt_status cgt_function_idle(cgt_function function, uint64_t max_microseconds,
                             cgt_learner_step* step) {
  return guarded([&] {
    expect_room(step, "cgt_learner_step");
    const auto pin = function_of(function);
    const CompiledObject& object = pin->compiled();
    if (object.learner == nullptr) {
      throw InvalidArgument(fmt::format("'{}' learns no sizes: cgt_function_learn() comes first",
                                        object.core.name()));
    }
    const LearnerStep done = max_microseconds == CGT_BETWEEN_CALLS
                                 ? object.learner->between_calls()
                                 : object.learner->idle(microseconds_of_c(max_microseconds));
    write_struct(cgt_learner_step{.struct_size = 0,
                                  .outcome = static_cast<cgt_learner_outcome>(done.kind),
                                  .size = done.size,
                                  .evicted = done.evicted.value_or(-1),
                                  .gain_microseconds = done.gain_us,
                                  .microseconds = static_cast<std::uint64_t>(done.time.count()),
                                  .bytes = done.bytes},
                 step, "cgt_learner_step");
  });
}

}  // extern "C"
