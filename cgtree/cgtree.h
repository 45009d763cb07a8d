// The public interface of the core, in one include. Extensions have separate headers.
#pragma once

#if __cplusplus <= 201703L
#error \
    "cgtree/cgtree.h needs C++20: compile with -std=c++20, or include bindings/c/cgtree.hpp in C++17"
#else

#include "base/error.h"
#include "base/log.h"
#include "cgtree/compile.h"
#include "cgtree/context.h"
#include "cgtree/steps.h"
#include "cgtree/values/axes.h"
#include "cgtree/values/eager_break.h"
#include "cgtree/values/explanation.h"
#include "cgtree/values/graph_scope.h"
#include "cgtree/values/key.h"
#include "cgtree/values/options.h"
#include "cgtree/values/stats.h"
#include "interop/device/device.h"
#include "interop/device/kernel.h"
#include "interop/device/stream.h"
#include "interop/exchange/cuda_stream.h"
#include "interop/exchange/from_memory.h"
#include "interop/tensor/empty.h"
#include "interop/tensor/tensor.h"

#endif
