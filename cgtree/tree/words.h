// Words for what a call does and why, as explain(), events, snapshots and errors have them.
#pragma once

#include <string>
#include <vector>

#include "cgtree/tree/decide.h"
#include "cgtree/tree/extensions.h"

namespace cgtree {

// Returns why a call goes the way that was decided, in words: with the names of inputs and both
// sides of each mismatch, the subject of the reason, the sizes of axes, and facts of extensions
// about earlier calls.
Explanation explain(const Decision& decision, const DecisionInput& facts, const Call& call,
                    const Extensions& extensions);

// Returns which copies are dear, the fate of inputs that may be rebound, and which outputs keep a
// padded size.
std::vector<std::string> notes_on(const Decision& decision, const Call& call);

// Returns one line for each output of a recording that has the padded size of an axis where its
// inputs have the axis, and is not said to have it: it is handed out whole.
std::vector<std::string> notes_on_outputs(const Function& function, const CallAxes& axes,
                                          const Recording& recording);

// Returns one line for each tensor without a padded axis that may show rows of zeros, which the
// caller has not chosen for an input with that axis: inputs that are written and, of a recording
// that is not null, outputs.
std::vector<std::string> notes_on_padding(const Function& function, const CallAxes& axes,
                                          const Recording* recording);

}  // namespace cgtree
