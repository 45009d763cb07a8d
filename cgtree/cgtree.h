// The public interface of cgtree for C++ programs, in one include. Groups of ranks over MPI, and
// collectives over NCCL, have headers of their own in interop/collectives/.
#pragma once

#if __cplusplus <= 201703L
#error "cgtree/cgtree.h needs C++20: compile with -std=c++20, or include cgtree/cgtree.hpp in C++17"
#else

#include "base/error.h"
#include "base/log.h"
#include "cgtree/axes.h"
#include "cgtree/communicator.h"
#include "cgtree/compile.h"
#include "cgtree/context.h"
#include "cgtree/control_flow.h"
#include "cgtree/eager_break.h"
#include "cgtree/explanation.h"
#include "cgtree/graph_scope.h"
#include "cgtree/key.h"
#include "cgtree/loop_stream.h"
#include "cgtree/metrics.h"
#include "cgtree/options.h"
#include "cgtree/precapture.h"
#include "cgtree/progress.h"
#include "cgtree/recent_events.h"
#include "cgtree/scope.h"
#include "cgtree/size_learner.h"
#include "cgtree/stats.h"
#include "cgtree/steps.h"
#include "cgtree/suggest_buckets.h"
#include "cgtree/verification.h"
#include "interop/collectives/collectives.h"
#include "interop/collectives/collectives_group.h"
#include "interop/collectives/group.h"
#include "interop/device/device.h"
#include "interop/device/kernel.h"
#include "interop/device/stream.h"
#include "interop/exchange/cuda_stream.h"
#include "interop/exchange/from_memory.h"
#include "interop/random/generator.h"
#include "interop/random/philox.h"
#include "interop/random/random.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/tensor.h"

#endif
