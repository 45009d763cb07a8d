// Words for the outcome of a call and its reason, as in explain(), events, snapshots and errors.
#pragma once

#include <string>
#include <vector>

#include "cgtree/tree/decide.h"
#include "cgtree/tree/extensions.h"

namespace cgtree {

// Returns the reasons of a decision in words: the names of inputs and both sides of each mismatch,
// the subject of the reason, the sizes of axes, and facts of extensions about earlier calls.
Explanation explain(const Decision& decision, const DecisionInput& facts, const Call& call,
                    const Extensions& extensions);

// Returns notes on expensive copies, on inputs that may be rebound, and on outputs of padded size.
std::vector<std::string> notes_on(const Decision& decision, const Call& call);

// Returns one line for each output of a recording that has the padded size of an axis where the
// inputs have the axis, but is not declared to have it: it is handed out whole.
std::vector<std::string> notes_on_outputs(const Function& function, const CallAxes& axes,
                                          const Recording& recording);

// Returns one line for each tensor without a padded axis that may show effects of rows of zeros,
// which the caller did not choose, in an input with it: written inputs and, if the recording is not
// null, outputs.
std::vector<std::string> notes_on_padding(const Function& function, const CallAxes& axes,
                                          const Recording* recording);

}  // namespace cgtree
