// Treatments of a call's inputs, and which of them share memory in a way a replay would tear apart.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "cgtree/tree/node.h"

namespace cgtree {

class ContextMemory;

// How input `i` (buffers are inputs, too) would be brought to a recording made now. Pure.
Treatment treat(const FunctionState& function, const ContextMemory& memory, InputList inputs,
                std::size_t i);

// "static", "copied_back", ...: for JSON.
std::string_view name(Treatment treatment) noexcept;

// The first input that the function writes into although CompileOptions::on_mutated_input is
// against it. Pure.
std::optional<std::uint32_t> find_unwanted_write(const FunctionState& function,
                                                 const ContextMemory& memory, InputList inputs);

// Two inputs that share memory, of which one is written and at least one would be copied: the copy
// would not see the write, or the other way round. False if there are none. Pure.
Overlap find_overlap(const FunctionState& function, const ContextMemory& memory, InputList inputs);

// The pairs that must not share memory when a recording with these inputs is replayed: as
// find_overlap() has them, and each buffer with all other inputs. Pure.
std::vector<Apart> pairs_apart(const FunctionState& function,
                               const std::vector<InputRecord>& inputs);

// Throw InvalidArgument, StaleTensor for inputs and buffers that no call of the function may have:
// undefined, stale, a static one that was not given, a scalar or a read-only one that the function
// writes into; a read-only buffer, a
// buffer on another device, or one that shares memory with itself, an input or another buffer.
void check_inputs(const FunctionState& function, const ContextMemory& memory, InputList inputs);

// Throws InvalidArgument for an alignment that is no power of two.
void check_alignments(const std::string& function, const CompileOptions& options);

// What copies cost more than patching an address would, one line each.
std::vector<std::string> notes_on_copies(const FunctionState& function, const ContextMemory& memory,
                                         InputList inputs);

// "input 1 'cache'", "the buffer of output 0".
std::string describe_input(const FunctionState& function, InputList inputs, std::size_t i);

}  // namespace cgtree
