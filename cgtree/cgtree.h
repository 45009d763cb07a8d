// The public face of cgtree: include this.
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "cgtree/compile.h"
#include "cgtree/context.h"
#include "cgtree/options.h"
#include "cgtree/stats.h"
#include "interop/current_stream.h"
#include "interop/device.h"
#include "interop/empty.h"
#include "interop/generator.h"
#include "interop/kernel.h"
#include "interop/parallel_for.h"
#include "interop/philox.h"
#include "interop/random.h"
#include "interop/registry.h"
#include "interop/tensor.h"
