// Flags: tensors of one element that say which way to go.
#pragma once

#include <cstdint>
#include <string_view>

#include "extensions/flow/condition_kernels.h"
#include "interop/device/stream.h"
#include "interop/tensor/tensor.h"

namespace cgtree {

// Throws InvalidArgument, which says what the flag is, unless it is one element of int32, or of
// bool where that may be, on the device of the stream.
void expect_flag(std::string_view what, const Tensor& flag, StreamRef stream,
                 bool may_be_bool = true);

// Returns where kernels read it. Requires: expect_flag() has passed it.
FlagInMemory flag_of(const Tensor& flag);

// Returns the value that it has when the work of the stream is done. Waits for the stream.
std::int32_t read_flag(const Tensor& flag, StreamRef stream);

}  // namespace cgtree
