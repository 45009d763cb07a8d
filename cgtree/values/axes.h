// Dynamic axes: sizes of inputs that vary from call to call, and the policies for them.
//
//   compile(context, "decode", step, {.inputs = {{.dynamic = {{0, "batch"}}}},
//                                     .buckets = {{"batch", {1, 2, 4, 8}}},
//                                     .outputs = {{.dynamic = {{0, "batch"}}}}});
//
// Which policy serves which function: docs/dynamic_shapes.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "interop/tensor/tensor.h"

namespace cgtree {

// A Sizes holds the sizes of a call, one of each axis, or sizes of one axis, ascending.
using Sizes = std::vector<std::int64_t>;

// A DynamicAxis says that axis `axis` of a tensor has the size that the call gives `name`. All
// inputs that name it must agree.
struct DynamicAxis {
  int axis = 0;  // from the first, at least 0
  std::string name;
};

// A Padding says what a step function reads beyond the actual sizes of an input that was padded.
struct Padding {
  // The values that the padding holds.
  enum class Kind : std::uint8_t {
    // The default: zeros. But a zero may be an index, a slot or a length, which points at data of
    // the caller's. So an input that is neither floating nor complex is not padded by default where
    // the function writes another input: such calls run eagerly (SkipReason::kUnsafePadding).
    kUnset,
    kZeros,
    kValue,
    kLast,      // the last valid slice of each axis; zeros where an axis has size 0
    kAnything,  // not written
  };

  Kind kind = Kind::kUnset;
  double value = 0;  // kValue; the input's type must be able to hold it

  // Padding that holds zeros, for functions whose rows of zeros do nothing.
  static Padding zeros() { return {Kind::kZeros}; }
  // Padding that holds one value, such as -inf in front of a maximum.
  static Padding of(double value) { return {Kind::kValue, value}; }
  // Padding that repeats the last valid slice, for indices that must stay valid.
  static Padding last() { return {Kind::kLast}; }
  // Padding that is left as it is, which saves the write: for functions that never read it.
  static Padding anything() { return {Kind::kAnything}; }
};

// The way that calls share recordings along an axis.
enum class AxisPolicy : std::uint8_t {
  kExact,      // each size has recordings of its own, up to max_sizes sizes
  kAllowList,  // as kExact for these sizes; calls with others run eagerly
  kSkip,       // calls run eagerly as soon as a second size was seen
  // Inputs are padded to the next size of these, and outputs sliced:
  kBuckets,      // the list
  kMultiples,    // multiples of multiple_of
  kPowersOfTwo,  // 1, 2, 4, 8, ...
  kLearned,      // sizes that a SizeLearner has found to pay; calls never record
};

// The treatment of a call with one more size than AxisOptions::max_sizes.
enum class AtMaxSizes : std::uint8_t {
  kRunEagerly,
  kNextLarger,  // padded to the next larger size that is recorded; eagerly if there is none
  kEvict,       // the recordings of the least recently used size are evicted
};

// The treatment of a call with a size above the largest bucket.
enum class AboveLargest : std::uint8_t {
  kRunEagerly,
  kThrow,  // InvalidArgument
};

// The policy of a dynamic axis, or of an integer of the key (CompileOptions::keys), whose values
// are its sizes.
struct AxisOptions {
  std::string name = "";
  AxisPolicy policy = AxisPolicy::kExact;
  Sizes sizes = {};             // kAllowList, kBuckets: positive (in a key: or 0), ascending
  std::size_t multiple_of = 1;  // kMultiples
  // kMultiples, kPowersOfTwo: the largest size that inputs are padded to, which is one of those.
  std::size_t largest = SIZE_MAX;
  // For kExact.
  std::size_t max_sizes = SIZE_MAX;
  AtMaxSizes at_max_sizes = AtMaxSizes::kRunEagerly;
  // For kBuckets, kMultiples and kPowersOfTwo.
  AboveLargest above_largest = AboveLargest::kRunEagerly;
};

// A Buckets is the short form of an AxisOptions with kBuckets.
struct Buckets {
  std::string axis;
  Sizes sizes;  // positive, ascending
  AboveLargest above_largest = AboveLargest::kRunEagerly;
};

// The treatment of a call of a function with buckets if no recording fits its sizes.
enum class WhileMissing : std::uint8_t {
  kRecord,
  // These two record only in precapture().
  kNextLarger,  // padded to the smallest recording that holds the call; eagerly if there is none
  kRunEagerly,
};

// Returns the size that the call gives the axis, as an int64 tensor of rank 0 on the device, to be
// read by kernels on current_stream() and not to be written. Replays see the size of their own
// call. In a function called by another step function it is the outer call's size.
//
// The tensor may not be returned as an output: a later replay would overwrite it.
// Requires: the calling thread is inside a step function with dynamic axes.
// Throws InvalidArgument if it is not, or if no input of the function has the axis; OutOfMemory,
// DeviceError.
Tensor axis_length(std::string_view axis);

// The sums of the sizes that calls had along one dynamic axis.
struct SizeSums {
  std::uint64_t actual = 0;
  std::uint64_t padded = 0;  // the same sizes as the policy of the axis rounds them up

  // Adds both sums.
  SizeSums& operator+=(const SizeSums& more) noexcept {
    actual += more.actual;
    padded += more.padded;
    return *this;
  }
};

}  // namespace cgtree
