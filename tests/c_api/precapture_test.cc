// Precapture through C: the recorded sizes, the report, and callbacks that fail.
#include <stdexcept>

#include "tests/c_api/axis_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CApiPrecaptureTest : public CAxisTest {
 protected:
  using Sizes = std::vector<std::int64_t>;
  using Make = std::function<cgt_status(std::int64_t, cgt_tensor*)>;

  // Options with make_inputs: the callback makes the inputs, or calls `make_`.
  cgt_precapture_options options() {
    cgt_precapture_options options = {.struct_size = sizeof(options)};
    options.input_count = 1;
    options.user = this;
    options.make_inputs = [](void* user, const cgt_axis_size* sizes, std::size_t count,
                             cgt_tensor* inputs, std::size_t input_count) {
      auto& self = *static_cast<CApiPrecaptureTest*>(user);
      EXPECT_EQ(count, 1u);
      EXPECT_EQ(input_count, 1u);
      EXPECT_STREQ(sizes[0].axis, "n");
      self.asked_.push_back(sizes[0].size);
      return self.make_(sizes[0].size, inputs);
    };
    return options;
  }
  // Options with the same inputs.
  cgt_learn_options learn_options(void (*release)(void*)) {
    cgt_learn_options made = {.struct_size = sizeof(made)};
    made.input_count = 1;
    made.user = this;
    made.make_inputs = options().make_inputs;
    made.release = release;
    return made;
  }
  // Precaptures, or predicts. Returns the report.
  nlohmann::json report(cgt_function function, const cgt_precapture_options& options,
                        decltype(&cgt_function_precapture) run = cgt_function_precapture) {
    return nlohmann::json::parse(text_of(run, function, &options));
  }
  static std::vector<std::string> outcomes(const nlohmann::json& report) {
    std::vector<std::string> outcomes;
    for (const auto& entry : report["entries"])
      outcomes.push_back(entry["sizes"].dump() + " " + std::string(entry["outcome"]));
    return outcomes;
  }

  Make make_ = [this](std::int64_t size, cgt_tensor* inputs) {
    const cgt_device where = c_device(device());
    return cgt_tensor_empty(CGT_FLOAT32, 1, &size, &where, &inputs[0]);
  };
  Sizes asked_;
};
CGTREE_ON_ALL_DEVICES(CApiPrecaptureTest);

TEST_P(CApiPrecaptureTest, EveryBucketIsRecordedTheLargestFirstAndReported) {
  const OwnedFunction function = compile_affine(OneAxis({2, 4, 8}));
  const cgt_precapture_options options = this->options();

  const nlohmann::json told = report(function, options);

  EXPECT_THAT(asked_, ElementsAre(8, 4, 2));
  EXPECT_THAT(outcomes(told),
              ElementsAre(R"({"n":8} recorded)", R"({"n":4} recorded)", R"({"n":2} recorded)"));
  EXPECT_GT(told["bytes"], 0);
  for (std::int64_t size = 1; size <= 8; ++size)
    expect_affine(function, size);
  EXPECT_EQ(stats(function)["replays"], 8);
  EXPECT_EQ(stats(function)["recordings"], 6);  // two places for each size
  EXPECT_EQ(outcomes(report(function, options))[0], R"({"n":8} already_there)");
}

TEST_P(CApiPrecaptureTest, SizesAreLearnedInIdleMoments) {
  static int released = 0;
  released = 0;
  OwnedFunction function = compile_affine(OneAxis({}, CGT_AXIS_LEARNED));
  const cgt_learn_options options = learn_options([](void*) { ++released; });
  cgt_learner_step step = {.struct_size = sizeof(step), .outcome = 9};
  EXPECT_FAILS(cgt_function_idle(function, 1000000, &step), CGT_INVALID_ARGUMENT, "comes first");
  EXPECT_EQ(step.outcome, 9);
  EXPECT_DONE(cgt_function_learn(function, &options));
  EXPECT_FAILS(cgt_function_learn(function, &options), CGT_INVALID_ARGUMENT, "already");
  EXPECT_EQ(released, 1);
  EXPECT_DONE(cgt_function_idle(function, 100000000, &step));
  EXPECT_EQ(step.outcome, CGT_LEARNED_NOTHING);
  expect_affine(function, 5);
  EXPECT_EQ(skips(function, "not_recorded"), 1u);
  EXPECT_DONE(cgt_function_idle(function, 0, &step));
  EXPECT_EQ(step.outcome, CGT_LEARNED_NOTHING);

  EXPECT_DONE(cgt_function_idle(function, 100000000, &step));
  EXPECT_EQ(step.outcome, CGT_LEARNED_SIZE);
  EXPECT_EQ(step.size, 5);
  EXPECT_EQ(step.evicted, -1);
  EXPECT_GT(step.microseconds, 0u);
  for (std::int64_t size = 1; size <= 5; ++size)
    expect_affine(function, size);
  EXPECT_EQ(skips(function, "not_recorded"), 1u);
  EXPECT_EQ(released, 1);
  function = OwnedFunction();
  EXPECT_EQ(released, 2);
}

TEST_P(CApiPrecaptureTest, ALearnerThatIsCalledBackRefusesAndItsFunctionMayBeDestroyed) {
  static int released = 0;
  released = 0;
  OwnedFunction function = compile_affine(OneAxis({}, CGT_AXIS_LEARNED));
  const cgt_function handle = function;
  const Make make = make_;
  cgt_learner_step step = {.struct_size = sizeof(step)};
  make_ = [&](std::int64_t size, cgt_tensor* inputs) {
    if (size == 7) {
      function.reset();
    } else {
      EXPECT_FAILS(cgt_function_idle(handle, 1, &step), CGT_CONCURRENT_USE, "'decode' is busy");
    }
    return make(size, inputs);
  };
  const cgt_learn_options options = learn_options([](void*) { ++released; });
  EXPECT_DONE(cgt_function_learn(function, &options));
  expect_affine(function, 5);
  EXPECT_DONE(cgt_function_idle(function, 100000000, &step));
  EXPECT_EQ(step.size, 5);
  for (int call = 0; call < 20; ++call)
    expect_affine(function, 7);
  EXPECT_EQ(released, 0);
  EXPECT_DONE(cgt_function_idle(handle, 100000000, &step));
  EXPECT_EQ(released, 1);
  EXPECT_FAILS(cgt_function_idle(handle, 1, &step), CGT_INVALID_HANDLE, "destroyed");
}

TEST_P(CApiPrecaptureTest, WrongLearnOptionsAreRefused) {
  const OwnedFunction function = compile_affine(OneAxis({2, 4}));
  cgt_learn_options options = {.struct_size = sizeof(options), .input_count = 1};
  cgt_learner_step step = {.struct_size = sizeof(step)};
  EXPECT_FAILS(cgt_function_learn(function, nullptr), CGT_INVALID_ARGUMENT, "options");
  EXPECT_FAILS(cgt_function_learn(function, &options), CGT_INVALID_ARGUMENT, "make_inputs");
  options.make_inputs = this->options().make_inputs;
  EXPECT_FAILS(cgt_function_learn(function, &options), CGT_INVALID_ARGUMENT, "CGT_AXIS_LEARNED");
  const OwnedFunction learned = compile_affine(OneAxis({}, CGT_AXIS_LEARNED));
  options.busy_fraction = 2;
  EXPECT_FAILS(cgt_function_learn(learned, &options), CGT_INVALID_ARGUMENT, "busy_fraction = 2");
  options.busy_fraction = 0;
  options.generator_count = 1;
  EXPECT_FAILS(cgt_function_learn(learned, &options), CGT_INVALID_ARGUMENT, "generators");
  EXPECT_FAILS(cgt_function_learn(nullptr, &options), CGT_INVALID_HANDLE, "NULL");
  EXPECT_FAILS(cgt_function_idle(nullptr, 1, &step), CGT_INVALID_HANDLE, "NULL");
  EXPECT_FAILS(cgt_function_idle(learned, 1, nullptr), CGT_INVALID_ARGUMENT, "NULL");
}

TEST_P(CApiPrecaptureTest, MemoryIsPredicted) {
  const OwnedFunction function = compile_affine(OneAxis({2, 4, 8}));
  const cgt_precapture_options options = this->options();

  const nlohmann::json predicted = report(function, options, cgt_function_predict_memory);

  EXPECT_EQ(outcomes(predicted)[0], R"({"n":8} predicted)");
  EXPECT_EQ(stats(function)["recordings"], 0);
  const nlohmann::json made = report(function, options);
  EXPECT_EQ(made["graph_bytes"], predicted["graph_bytes"]);
  EXPECT_GT(predicted["graph_bytes"], 0);
  EXPECT_EQ(made["bytes"], predicted["bytes"]);
}

TEST_P(CApiPrecaptureTest, PartsOfTheKeyAreCombinedWithTheSizes) {
  const OwnedFunction function = compile_affine(OneAxis({2, 4}));
  cgt_precapture_options options = this->options();
  const char* const adapters[] = {"en", "de"};
  const std::int64_t drafts[] = {3};
  const cgt_precapture_values key[] = {{sizeof(key[0]), "adapter", nullptr, 0, adapters, 2},
                                       {sizeof(key[0]), "draft", drafts, 1, nullptr, 0}};
  options.key = key;
  options.key_size = 2;

  EXPECT_EQ(report(function, options)["entries"][1]["key"], "adapter=\"de\" draft=3");
  EXPECT_THAT(asked_, ElementsAre(4, 4, 2, 2));
}

TEST_P(CApiPrecaptureTest, EachSizeIsRecordedOnceForCallersThatHoldNothing) {
  const OwnedFunction function = compile_affine(OneAxis({2, 4, 8}));
  cgt_precapture_options options = this->options();
  options.held_outputs = CGT_HOLDS_NONE;
  EXPECT_DONE(cgt_function_precapture(function, &options, nullptr));
  EXPECT_EQ(stats(function)["recordings"], 3);

  options.held_outputs = 0;
  EXPECT_DONE(cgt_function_precapture(function, &options, nullptr));
  EXPECT_EQ(stats(function)["recordings"], 6);
}

TEST_P(CApiPrecaptureTest, HandlesMadeInTheCallbackEndWithItAndOthersStay) {
  const OwnedFunction function = compile_affine(OneAxis({2, 4}));
  const OwnedTensor kept = make_tensor(device(), {4});
  std::vector<cgt_tensor> made;
  make_ = [&](std::int64_t size, cgt_tensor* inputs) {
    EXPECT_DONE(cgt_tensor_slice(kept, 0, 0, size, &inputs[0]));
    made.push_back(inputs[0]);
    if (size == 4) inputs[0] = kept;
    return CGT_OK;
  };
  const cgt_precapture_options options = this->options();
  const std::size_t live = cgt_live_handles();

  EXPECT_DONE(cgt_function_precapture(function, &options, nullptr));

  EXPECT_EQ(cgt_live_handles(), live);
  EXPECT_EQ(made.size(), 2u);
  for (const cgt_tensor tensor : made)
    EXPECT_FAILS(cgt_tensor_destroy(tensor), CGT_INVALID_HANDLE, "destroyed");
  EXPECT_EQ(info_of(kept).elements, 4);
}

TEST_P(CApiPrecaptureTest, ProgressIsTold) {
  const OwnedFunction function = compile_affine(OneAxis({2, 4, 8}));
  static std::vector<std::string> told;
  told.clear();
  cgt_precapture_options options = this->options();
  options.progress = [](void*, const char* entry) {
    told.push_back(nlohmann::json::parse(entry)["outcome"]);
  };

  EXPECT_DONE(cgt_function_precapture(function, &options, nullptr));

  EXPECT_THAT(told, ElementsAre("recorded", "recorded", "recorded"));
}

TEST_P(CApiPrecaptureTest, ACallbackThatFailsIsNamedAndWhatIsDoneStays) {
  const OwnedFunction function = compile_affine(OneAxis({2, 4}));
  const Make make = make_;
  cgt_status (*fail)(cgt_tensor*) = nullptr;
  make_ = [&](std::int64_t size, cgt_tensor* inputs) {
    const cgt_status status = make(size, inputs);
    return size == 2 ? fail(inputs) : status;
  };
  cgt_precapture_options options = this->options();
  const std::size_t live = cgt_live_handles();
  const auto precapture_with = [&](cgt_status (*how)(cgt_tensor*)) {
    fail = how;
    return cgt_function_precapture(function, &options, nullptr);
  };

  EXPECT_FAILS(
      precapture_with([](cgt_tensor*) -> cgt_status { throw std::runtime_error("empty"); }),
      CGT_STEP_THREW, "make_inputs of 'decode' threw: empty");
  EXPECT_FAILS(precapture_with([](cgt_tensor*) -> cgt_status {
                 cgt_set_error("told to fail");
                 return CGT_USER_STATUS + 1;
               }),
               CGT_USER_STATUS + 1, "make_inputs of 'decode': told to fail");
  EXPECT_FAILS(precapture_with([](cgt_tensor*) -> cgt_status { return 77; }), CGT_STEP_FAILED,
               "make_inputs of 'decode': returned status 77");
  EXPECT_FAILS(precapture_with([](cgt_tensor*) { return cgt_tensor_share(nullptr, nullptr); }),
               CGT_INVALID_ARGUMENT, "make_inputs of 'decode'");
  EXPECT_FAILS(precapture_with([](cgt_tensor* inputs) -> cgt_status {
                 inputs[0] = nullptr;
                 return CGT_OK;
               }),
               CGT_INVALID_HANDLE, "precaptured input 0 of 'decode' is NULL");
  EXPECT_FAILS(precapture_with([](cgt_tensor* inputs) { return cgt_tensor_destroy(inputs[0]); }),
               CGT_INVALID_HANDLE, "precaptured input 0 of 'decode' is 0x");
  options.progress = [](void*, const char*) { throw std::runtime_error("no screen"); };
  EXPECT_FAILS(cgt_function_precapture(function, &options, nullptr), CGT_STEP_THREW,
               "progress of 'decode' threw: no screen");

  EXPECT_EQ(cgt_live_handles(), live);
  expect_affine(function, 3);
  EXPECT_EQ(stats(function)["replays"], 1);
}

TEST_P(CApiPrecaptureTest, ImpossiblePrecapturesAreRefusedByName) {
  const OwnedFunction exact = compile_affine(OneAxis({}, CGT_AXIS_EXACT));
  const OwnedFunction without = compile(affine_step);
  cgt_precapture_options options = this->options();
  const std::int64_t wanted[] = {3, -1};
  cgt_precapture_values sizes = {sizeof(sizes), "n", wanted, 1, nullptr, 0};
  const auto refused = [&](const char* says) {
    EXPECT_FAILS(cgt_function_precapture(exact, &options, nullptr), CGT_INVALID_ARGUMENT, says);
  };
  refused("axis 'n' has neither buckets nor a list of sizes");
  options.size_count = 1;
  refused("the array of cgt_precapture_values is NULL");
  options.sizes = &sizes;
  EXPECT_DONE(cgt_function_precapture(exact, &options, nullptr));
  sizes.number_count = 2;
  refused("axis 'n' is to have size -1");
  sizes.numbers = nullptr;
  refused("cgt_precapture_values::numbers is NULL");
  sizes.text_count = 1;
  refused("axis 'n' is to have texts");
  sizes = {sizeof(sizes), "m", wanted, 1, nullptr, 0};
  refused("'m'");
  sizes.name = nullptr;
  refused("the axis is NULL");
  sizes.struct_size = 8;
  refused("cgt_precapture_values: struct_size is 8");
  cgt_precapture_values key = {sizeof(key), "adapter", nullptr, 0, nullptr, 1};
  options.size_count = 0;
  options.key = &key;
  options.key_size = 1;
  refused("cgt_precapture_values::texts is NULL");
  key.name = nullptr;
  refused("the name of a part of the key is NULL");
  options.key_size = 0;
  options.size_count = 0;
  options.make_inputs = nullptr;
  refused("make_inputs is NULL");
  options.struct_size = 12;
  refused("cgt_precapture_options: struct_size is 12");
  EXPECT_FAILS(cgt_function_precapture(exact, nullptr, nullptr), CGT_INVALID_ARGUMENT,
               "options is NULL");
  options = this->options();
  EXPECT_FAILS(cgt_function_precapture(without, &options, nullptr), CGT_INVALID_ARGUMENT,
               "which has no dynamic axes");
  EXPECT_FAILS(cgt_function_precapture(nullptr, &options, nullptr), CGT_INVALID_HANDLE,
               "the function is NULL");
}

TEST_P(CApiPrecaptureTest, TheCallbackMayDestroyTheFunctionAndItsContext) {
  OwnedFunction function = compile_affine(OneAxis({2, 4}));
  const Make make = make_;
  make_ = [&](std::int64_t size, cgt_tensor* inputs) {
    if (size == 4) {
      function.reset();
      context_.reset();
    }
    return make(size, inputs);
  };
  const cgt_precapture_options options = this->options();
  EXPECT_DONE(cgt_function_precapture(function, &options, nullptr));
  EXPECT_THAT(asked_, ElementsAre(4, 2));
}

}  // namespace
}  // namespace cgtree::testing
