// Options of contexts and functions through C: structs of other versions, and what is refused.
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
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.name = ""; }), HasSubstr("needs a name"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.sizes = nullptr; }), HasSubstr("sizes is NULL"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.inputs = nullptr; }), HasSubstr("inputs is NULL"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.outputs = nullptr; }), HasSubstr("outputs is NULL"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.input_count = 0; }), HasSubstr("no input does"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.size_count = 0; }), HasSubstr("empty list"));
  EXPECT_THAT(refused([](OneAxis& o) { o.sizes[0] = -2; }), HasSubstr("-2 is not positive"));
  EXPECT_THAT(refused([](OneAxis& o) { o.sizes[0] = 4; }), HasSubstr("4 is there twice"));
  EXPECT_THAT(refused([](OneAxis& o) { o.axis.max_sizes = 3; }), HasSubstr("max_sizes = 3"));
  EXPECT_THAT(refused([](OneAxis& o) { o.use.axis = -1; }), HasSubstr("is number -1"));
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

TEST_P(FunctionOptionsTest, MoreThanEightAxesAndTwoNamesOfOneAreRefused) {
  const OneAxis options({2});
  std::vector<cgt_axis_use> uses;
  const std::string names = "abcdefghi";
  std::vector<std::string> texts;
  for (std::uint32_t i = 0; i < 9; ++i) {
    uses.push_back({i, 0});
    texts.push_back(names.substr(i, 1));
  }
  std::vector<cgt_axis_options> axes(9, options.axis);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    axes[i].name = texts[i].c_str();
    axes[i].inputs = &uses[i];
    axes[i].output_count = 0;
  }
  cgt_function_options function = options.function;
  function.axes = axes.data();
  function.axis_count = 8;
  EXPECT_DONE(try_compile(&function));
  function.axis_count = 9;
  EXPECT_FAILS(try_compile(&function), CGT_INVALID_ARGUMENT, "more than 8 dynamic axes");

  function.axis_count = 2;
  const cgt_output_options logits = {.struct_size = sizeof(logits), .name = "logits"};
  function.outputs = &logits;
  function.output_count = 1;
  axes[0].output_count = axes[1].output_count = 1;
  EXPECT_FAILS(try_compile(&function), CGT_INVALID_ARGUMENT, "output 0 'logits' has two names");
}

TEST_P(FunctionOptionsTest, InputsThatMoveMayBeRefused) {
  cgt_input_options input = {.struct_size = sizeof(input), .flags = CGT_INPUT_STATIC};
  cgt_function_options options = {.struct_size = sizeof(options),
                                  .inputs = &input,
                                  .input_count = 1,
                                  .on_static_change = CGT_STATIC_CHANGE_REFUSE};
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  const OwnedTensor other = make_tensor_of(device(), {1, 2});
  OwnedTensor y;
  const OwnedFunction fixed = compile(affine_step, 1, &options);
  for (int i = 0; i < 3; ++i)
    EXPECT_DONE(call(fixed, x, y));
  EXPECT_FAILS(call(fixed, other, y), CGT_CAPTURE_FAILED, "input 0");
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
    value = 3.5F;  // within a quarter of it
    if (i < 2) value = 3;
  }
  EXPECT_THAT(values_of(y), ::testing::ElementsAre(3, 3));
  value = 5;
  EXPECT_FAILS(call(function, x, y), CGT_VERIFY_FAILED, "replayed 3, eager 5");
  EXPECT_STREQ(cgt_status_name(CGT_VERIFY_FAILED), "CGT_VERIFY_FAILED");
  EXPECT_EQ(stats(function)["verified"], 3);
  EXPECT_EQ(stats(function)["differed"], 1);
}

TEST_P(FunctionOptionsTest, TheFirstReplaysAreVerifiedAsContextOrFunctionSay) {
  for (const auto& [of_context, of_function] : {std::pair(2u, 0u), std::pair(0u, 2u)}) {
    const cgt_context_options options = {.struct_size = sizeof(options),
                                         .verify_first = of_context};
    context_.reset();
    EXPECT_DONE(cgt_context_create(c_device(device()), &options, context_.out()));
    const cgt_function_options more = {.struct_size = sizeof(more), .verify_first = of_function};
    const OwnedFunction function =
        compile([](const cgt_tensor* inputs, std::size_t, cgt_tensor* outputs,
                   std::size_t) { return cgt_tensor_share(inputs[0], &outputs[0]); },
                1, &more);
    const OwnedTensor x = make_tensor_of(device(), {1, 2});
    OwnedTensor y;
    for (int i = 0; i < 2 + 6; ++i)
      EXPECT_DONE(call(function, x, y));
    EXPECT_EQ(stats(function)["replays"], 6);
    EXPECT_EQ(stats(function)["verified"], 2);
  }
}

// The word that all ranks agree on is here that of a rank which does something else.
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

// A program that was built with a later version has a struct that ends later.
TEST_P(FunctionOptionsTest, AGroupOfALaterVersionIsReadIfWhatIsNewIsNotSet) {
  struct LaterGroup {
    cgt_group group;
    std::uint64_t further;
  } later = {{.struct_size = sizeof(LaterGroup),
              .rank = 0,
              .size = 1,
              .minimum = [](void*, uint64_t*, size_t) -> cgt_status { return CGT_OK; }},
             1};
  cgt_context_options options = {.struct_size = sizeof(options), .group = &later.group};
  context_.reset();
  EXPECT_FAILS(cgt_context_create(c_device(device()), &options, context_.out()),
               CGT_INVALID_ARGUMENT, "cgt_group: struct_size is");
  later.further = 0;
  EXPECT_DONE(cgt_context_create(c_device(device()), &options, context_.out()));
  const OwnedFunction function = compile(affine_step);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  for (int i = 0; i < 3; ++i) {
    OwnedTensor y;
    EXPECT_DONE(call(function, x, y));
  }
  EXPECT_EQ(stats(function)["replays"], 1);
}

TEST_P(FunctionOptionsTest, AnInputWithGapsIsRefusedWhereItHasToBeContiguous) {
  const cgt_input_options input = {.struct_size = sizeof(input), .flags = CGT_INPUT_CONTIGUOUS};
  const cgt_function_options options = {
      .struct_size = sizeof(options), .inputs = &input, .input_count = 1};
  const OwnedFunction function = compile(affine_step, 1, &options);
  const OwnedTensor x = make_tensor_of(device(), {1, 2, 3, 4, 5, 6});
  const std::int64_t shape[] = {3, 2};
  OwnedTensor rows, columns, y;
  EXPECT_DONE(cgt_tensor_reshape(x, 2, shape, rows.out()));
  EXPECT_DONE(cgt_tensor_transpose(rows, 0, 1, columns.out()));
  EXPECT_DONE(call(function, x, y));
  EXPECT_FAILS(call(function, columns, y), CGT_INVALID_ARGUMENT, "contiguous");
}

TEST_P(FunctionOptionsTest, PoolsMayGrowInPlace) {
  cgt_context_options options = {.struct_size = sizeof(options),
                                 .flags = CGT_CONTEXT_POOLS_GROW_IN_PLACE};
  context_.reset();
  EXPECT_DONE(cgt_context_create(c_device(device()), &options, context_.out()));
  const OwnedFunction function = compile(affine_step);
  const OwnedTensor x = make_tensor_of(device(), {1, 2});
  std::vector<OwnedTensor> held(8);
  for (OwnedTensor& y : held)
    EXPECT_DONE(call(function, x, y));
  EXPECT_EQ(skips(function, "context_limit"), 0u);
}

}  // namespace
}  // namespace cgtree::testing
