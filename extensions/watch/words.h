// Words for what a call does and why, as explain(), events, snapshots and errors have them.
#pragma once

#include <string>
#include <vector>

#include "cgtree/tree/decide.h"

namespace cgtree {

// Adds to an explanation what it says in words: the names of inputs and both sides of each
// mismatch, the subject of the reason, and the sizes of axes.
void put_into_words(Explanation& why, const Situation& situation, const Call& call);

// Returns which copies are dear, what became of inputs that may be rebound, and which outputs keep
// a padded size.
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
