// A Group over MPI: the ranks are those of MPI_COMM_WORLD.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "extensions/ranks/group.h"

namespace cgtree {

// The options of make_mpi_group(), which should be the same on all ranks.
struct MpiOptions {
  std::chrono::milliseconds time_limit = kGroupTimeLimit;  // of each vote
  // The file of MPI if the process has not loaded it yet; empty: libmpi.so.40.
  std::string library = {};
};

// Returns this process's end. Returns when all ranks have called it. If MPI is not initialized,
// this function initializes it (MPI_THREAD_FUNNELED), and the group's destructor then waits for the
// others and finalizes it; after a failure it does neither.
//
// MPI is loaded at run time, so that neither building nor running the rest needs it. It must be
// Open MPI 4 or 5, whose handles are known addresses; for another MPI implement Group yourself.
//
// Throws InvalidArgument if MPI cannot be loaded, is not Open MPI, or is finalized; GroupError.
std::unique_ptr<Group> make_mpi_group(const MpiOptions& options = {});

}  // namespace cgtree
