// Options of contexts and functions through C: structs of other versions, and refusals.
#include "interop/device/graph_api.h"
#include "tests/c_api/axis_fixture.h"

namespace cgtree::testing {
namespace {

using ::testing::HasSubstr;

class FunctionOptionsTest : public CAxisTest {};
CGTREE_ON_ALL_DEVICES(FunctionOptionsTest);

TEST_P(FunctionOptionsTest, ALaterStructIsTakenUnlessItSaysWhatIsNotKnown) {
  struct {
    cgt_axis_options known;
    std::uint64_t later;
  } axes[1] = {};
  const OneAxis options({4});
  axes[0].known = options.axis;
  axes[0].known.struct_size = sizeof(axes[0]);
  cgt_function_options function = options.function;
  function.axes = &axes[0].known;
  EXPECT_DONE(try_compile(&function));
  axes[0].later = 1;
  EXPECT_FAILS(try_compile(&function), CGT_INVALID_ARGUMENT, "cgt_axis_options: struct_size is");
  axes[0].known.struct_size = 7;
  EXPECT_FAILS(try_compile(&function), CGT_INVALID_ARGUMENT, "cgt_axis_options: struct_size is 7");
}

TEST_P(FunctionOptionsTest, AxesThatCannotBeAreNamed) {
  const auto refused = [&](const auto& change) {
    OneAxis options({2, 4});
    change(options);
    const std::string told = outcome(try_compile(&options.function));
    EXPECT_THAT(told, HasSubstr("CGT_INVALID_ARGUMENT"));
    return told;
  };
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.policy = 7; }),
              HasSubstr("policy is 7: expected 0 to 6 (CGT_AXIS_LEARNED)"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.policy = -1; }), HasSubstr("policy is -1"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.at_max_sizes = 3; }), HasSubstr("at_max_sizes is 3"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.above_largest = 2; }),
              HasSubstr("above_largest is 2"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.name = nullptr; }), HasSubstr("name is NULL"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.sizes = nullptr; }), HasSubstr("sizes is NULL"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.inputs = nullptr; }), HasSubstr("inputs is NULL"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.outputs = nullptr; }), HasSubstr("outputs is NULL"));
  EXPECT_THAT(refused([](OneAxis& o) { o.use.tensor = 0xffffffff; }),
              HasSubstr("axis 'n' is one of input 4294967295: expected less than 65536"));
  EXPECT_THAT(refused([](OneAxis& o) {
                static const cgt_axis_use second = {1, 0};
                o.axis.outputs = &second;
              }),
              HasSubstr("axis 'n' is one of output 1: expected less than 1"));
  EXPECT_THAT(refused([](OneAxis& o) { o.input.padding = 5; }), HasSubstr("padding is 5"));
  EXPECT_THAT(refused([](OneAxis& o) { o.input.flags = CGT_INPUT_STATIC; }), HasSubstr("static"));
  EXPECT_THAT(refused([](OneAxis& o) { o.function.axes = nullptr; }),
              HasSubstr("the array of cgt_axis_options is NULL"));
  EXPECT_THAT(refused([](OneAxis& o) { o.function.while_missing = 3; }),
              HasSubstr("while_missing is 3"));
  EXPECT_THAT(refused([](OneAxis& o) { o.function.on_static_change = -3; }),
              HasSubstr("on_static_change is -3"));
}

TEST_P(FunctionOptionsTest, AnInputMayBeReboundAndAnUnknownChoiceIsRefused) {
  cgt_input_options input = {.struct_size = sizeof(input), .rebind = CGT_REBIND_ALWAYS};
  const cgt_output_options output = {.struct_size = sizeof(output), .rebind = CGT_REBIND_AUTO};
  cgt_function_options options = {.struct_size = sizeof(options),
                                  .inputs = &input,
                                  .input_count = 1,
                                  .outputs = &output,
                                  .output_count = 1};
  const OwnedFunction function = compile(affine_step, 1, &options);
  for (int i = 0; i < 4; ++i) {
    const OwnedTensor x = make_tensor_of(device(), {1, 2});
    OwnedTensor y;
    EXPECT_DONE(call(function, x, y));
  }
  EXPECT_EQ(stats(function)["replays"], 2);
  input.rebind = 3;
  EXPECT_FAILS(try_compile(&options), CGT_INVALID_ARGUMENT, "rebind");
}

TEST_P(FunctionOptionsTest, TheOwnerOfAContextIsReleasedOnceWithItsTensorsOrIfNoneWasMade) {
  int released = 0;
  cgt_context_options options = {.struct_size = sizeof(options)};
  options.owner = &released;
  options.release = [](void* owner) { ++*static_cast<int*>(owner); };
  OwnedContext none;
  options.flags = 1u << 9;
  EXPECT_FAILS(cgt_context_create(c_device(device()), &options, none.out()), CGT_INVALID_ARGUMENT,
               "flags are");
  options.flags = 0;
  EXPECT_FAILS(cgt_context_create({CGT_DEVICE_HOST, 77}, &options, none.out()),
               CGT_INVALID_ARGUMENT, "host:77 cannot be used");
  EXPECT_EQ(released, 2);
  OwnedTensor y;
  {
    OwnedContext context;
    EXPECT_DONE(cgt_context_create(c_device(device()), &options, context.out()));
    const cgt_step step = {sizeof(step), 1, run_body, new Body(affine_step), drop_body};
    OwnedFunction function;
    EXPECT_DONE(cgt_compile(context, "f", &step, nullptr, function.out()));
    const OwnedTensor x = make_tensor_of(device(), {1, 2});
    EXPECT_DONE(call(function, x, y));
  }
  EXPECT_EQ(released, 2) << "an output is still held";
  y.reset();
  EXPECT_EQ(released, 3);
}

TEST_P(FunctionOptionsTest, ADifferenceOfAVerifiedReplayHasAStatusOfItsOwn) {
  cgt_context_options options = {.struct_size = sizeof(options), .verify_every = 1};
  context_.reset();
  EXPECT_DONE(cgt_context_create(c_device(device()), &options, context_.out()));
  float value = 3;
  const cgt_output_options output = {.struct_size = sizeof(output), .tolerance = 0.25};
  const cgt_function_options of_function = {
      .struct_size = sizeof(of_function), .outputs = &output, .output_count = 1};
  const OwnedFunction function = compile(
      [&value](const cgt_tensor* inputs, std::size_t, cgt_tensor* outputs, std::size_t) {
        const cgt_tensor_info x = info_of(inputs[0]);
        EXPECT_DONE(cgt_tensor_empty(CGT_FLOAT32, x.ndim, x.shape, nullptr, &outputs[0]));
        const StreamRef stream = current();
        check(stream.graphs().launch_kernel(
                  stream.handle(), fill_kernel(), dims_for(x.elements),
                  arguments_of(info_of(outputs[0]).data, value, x.elements)),
              "fill");
        return CGT_OK;
      },
      1, &of_function);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  OwnedTensor y;
  for (int i = 0; i < 4; ++i) {
    EXPECT_DONE(call(function, x, y));
    value = 3.5F;  // within the tolerance of a quarter
    if (i < 2) value = 3;
  }
  EXPECT_THAT(values_of(y), ::testing::ElementsAre(3, 3));
  value = 5;
  EXPECT_FAILS(call(function, x, y), CGT_VERIFY_FAILED, "replayed 3, eager 5");
  EXPECT_STREQ(cgt_status_name(CGT_VERIFY_FAILED), "CGT_VERIFY_FAILED");
  EXPECT_EQ(stats(function)["verified"], 3);
  EXPECT_EQ(stats(function)["differed"], 1);
}

// The group's answer is that of a rank that does something else.
TEST_P(FunctionOptionsTest, AGroupIsAskedByCallsThatAreNoReplays) {
  struct Votes {
    int count = 0;
    std::uint64_t least = UINT64_MAX;
    cgt_status status = CGT_OK;
  } votes;
  cgt_group group = {
      .struct_size = sizeof(group), .rank = 2, .size = 2, .minimum = nullptr, .user = &votes};
  cgt_context_options options = {.struct_size = sizeof(options), .group = &group};
  context_.reset();
  EXPECT_FAILS(cgt_context_create(c_device(device()), &options, context_.out()),
               CGT_INVALID_ARGUMENT, "minimum");
  group.minimum = [](void* user, uint64_t* words, size_t count) {
    Votes& v = *static_cast<Votes*>(user);
    ++v.count;
    for (size_t i = 0; i < count; ++i)
      words[i] = std::min(words[i], v.least);
    return v.status;
  };
  EXPECT_FAILS(cgt_context_create(c_device(device()), &options, context_.out()),
               CGT_INVALID_ARGUMENT, "rank 2 of 2 does not exist");
  group.rank = 1;
  EXPECT_DONE(cgt_context_create(c_device(device()), &options, context_.out()));
  const OwnedFunction function = compile(affine_step);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  for (int i = 0; i < 4; ++i) {
    OwnedTensor y;
    EXPECT_DONE(call(function, x, y));
  }
  EXPECT_EQ(stats(function)["replays"], 2);
  EXPECT_EQ(votes.count, 6) << "the options, two of the warm-up, and three of the recording";
  const OwnedTensor other = make_tensor_of(device(), {1, 2, 3});
  OwnedTensor y;
  votes.status = CGT_GROUP_FAILED;
  EXPECT_FAILS(call(function, other, y), CGT_GROUP_FAILED, "minimum");
  votes.status = CGT_OK;
  votes.least = 0;
  EXPECT_FAILS(call(function, other, y), CGT_GROUP_FAILED, "rank 1: ");
}

}  // namespace
}  // namespace cgtree::testing
