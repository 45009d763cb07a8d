// Function: what the user has compiled, as recording it and running it need to know it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cgtree/axes/axis_plan.h"
#include "cgtree/input_list.h"
#include "cgtree/options.h"

namespace cgtree {

// A Function is a step function with its name, its options and its dynamic axes. What a context
// knows of it beside that (keys, recordings, counters) is the tree's.
struct Function {
  std::uint32_t id = 0;
  std::string name;
  StepFunction step;
  CompileOptions options;
  std::unique_ptr<AxisPlan> axes;  // null if the function has no dynamic axes
  // Static inputs that are copied from now on, because they have moved too often
  // (OnStaticChange::kDemote). Inputs beyond the end are not.
  std::vector<bool> demoted;

  const InputOptions& input_options(std::size_t i) const {
    static const InputOptions none;
    return i < options.inputs.size() ? options.inputs[i] : none;
  }
  bool is_demoted(std::size_t i) const noexcept { return i < demoted.size() && demoted[i]; }
};

// Throws InvalidArgument for an alignment that is no power of two.
void check_alignments(const std::string& function, const CompileOptions& options);

}  // namespace cgtree
