// CAxisTest: C step functions with one dynamic axis, "n".
#pragma once

#include <vector>

#include "tests/c_api/step_fixture.h"

namespace cgtree::testing {

// Options of a function (x) -> (y) whose axis 0 is "n". Must not be copied: members point to other
// members.
struct OneAxis {
  explicit OneAxis(std::vector<std::int64_t> list, cgt_axis_policy policy = CGT_AXIS_BUCKETS)
      : sizes(std::move(list)) {
    axis.policy = policy;
    axis.sizes = sizes.data();
    axis.size_count = sizes.size();
  }
  OneAxis(const OneAxis&) = delete;

  std::vector<std::int64_t> sizes;
  cgt_axis_use use = {0, 0};
  cgt_axis_options axis = {.struct_size = sizeof(axis),
                           .name = "n",
                           .inputs = &use,
                           .input_count = 1,
                           .outputs = &use,
                           .output_count = 1};
  cgt_input_options input = {.struct_size = sizeof(input)};
  cgt_function_options function = {.struct_size = sizeof(function),
                                   .inputs = &input,
                                   .input_count = 1,
                                   .axes = &axis,
                                   .axis_count = 1};
};

class CAxisTest : public CStepTest {
 protected:
  OwnedFunction compile_affine(const OneAxis& options) {
    return compile(affine_step, 1, &options.function);
  }
  cgt_status try_compile(const cgt_function_options* options, std::uint32_t outputs = 1) {
    const cgt_step step = {sizeof(step), outputs, run_body, new Body(affine_step), drop_body};
    OwnedFunction none;
    return cgt_compile(context_, "decode", &step, options, none.out());
  }
  // Makes a call with `size` numbers, and checks the result.
  void expect_affine(cgt_function function, std::int64_t size) {
    std::vector<float> values, expected;
    for (std::int64_t i = 0; i < size; ++i) {
      values.push_back(static_cast<float>(size + 10 * i));
      expected.push_back(2 * values.back() + 1);
    }
    const OwnedTensor x = make_tensor_of(device(), values);
    OwnedTensor y;
    EXPECT_DONE(cgt_context_mark_step(context_));
    EXPECT_DONE(call(function, x, y));
    EXPECT_EQ(values_of(y), expected) << "size " << size;
  }
  std::uint64_t skips(cgt_function function, const char* reason) {
    return stats(function)["skips"].value(reason, std::uint64_t{0});
  }
};

}  // namespace cgtree::testing
