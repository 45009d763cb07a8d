// Surroundings: what stands around the core of a context, made when the context is.
//
// The core declares these functions and does not define them: the library does
// (extensions/all/surroundings.cc), and so does the core alone
// (extensions/none/bare_surroundings.cc).
#pragma once

#include <memory>

#include "cgtree/memory/context_memory.h"
#include "cgtree/record/recording_pass.h"
#include "cgtree/tree/ballot.h"
#include "cgtree/tree/call_observer.h"
#include "cgtree/tree/verifier.h"
#include "cgtree/values/options.h"

namespace cgtree {

class Attempts;

// Returns the observer that the options ask for, never null. `memory`: is borrowed. Throws
// InvalidArgument for options that it cannot follow.
std::unique_ptr<CallObserver> make_observer(const ContextOptions& options,
                                            const ContextMemory& memory);

// Returns the pass that examines what is recorded, never null. `memory`: is borrowed. Throws
// InvalidArgument for options that it cannot follow.
std::unique_ptr<RecordingPass> make_pass(const ContextOptions& options, ContextMemory& memory);

// Returns what verifies replays as options say, or null. What it works with is borrowed. Throws
// InvalidArgument where nothing can.
std::unique_ptr<Verifier> make_verifier(const ContextOptions& options, Tree& tree,
                                        ContextMemory& memory, CallObserver& events,
                                        Attempts& attempts);

// Returns the ballot of options.group, or null without a group. Throws GroupError.
std::unique_ptr<Ballot> make_ballot(const ContextOptions& options);

}  // namespace cgtree
