// Options may be given one by one, without a compiler warning about the other fields.
#include <gtest/gtest.h>

#include "cgtree/cgtree.h"
#include "extensions/sizes/precapture.h"

#pragma GCC diagnostic error "-Wmissing-field-initializers"

namespace cgtree {
namespace {

TEST(NamedOptionsTest, EachOptionHasADefault) {
  const ContextOptions context{.max_recordings = 1};
  const CompileOptions compile{.enabled = false};
  const InputOptions input{.is_static = true};
  const OutputOptions output{.dynamic = {{0, "batch"}}};
  const StepsOptions steps{.enabled = false};
  const BindingOptions binding{.is_copied = true};
  const AxisOptions axis{.policy = AxisPolicy::kPowersOfTwo};
  const PrecaptureOptions precapture{.held_outputs = 0};
  EXPECT_EQ(context.max_recordings, 1U);
  EXPECT_FALSE(context.stream);
  EXPECT_FALSE(compile.enabled);
  EXPECT_TRUE(input.is_static);
  EXPECT_EQ(output.dynamic.size(), 1U);
  EXPECT_FALSE(steps.enabled);
  EXPECT_TRUE(binding.is_copied);
  EXPECT_EQ(axis.policy, AxisPolicy::kPowersOfTwo);
  EXPECT_EQ(precapture.held_outputs, 0U);
}

}  // namespace
}  // namespace cgtree
