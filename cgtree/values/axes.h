// Dynamic axes: sizes of inputs that vary from call to call, and the policies for them.
//
//   compile(context, "decode", step, {.inputs = {{.dynamic = {{0, "batch"}}}},
//                                     .buckets = {{"batch", {1, 2, 4, 8}}},
//                                     .outputs = {{.dynamic = {{0, "batch"}}}}});
//
// docs/dynamic_shapes.md says which policy serves which function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "interop/tensor/tensor.h"

namespace cgtree {

// A Sizes holds either the sizes of a call, one for each axis, or sizes of one axis, ascending.
using Sizes = std::vector<std::int64_t>;

// A DynamicAxis says that axis `axis` of a tensor has the size that the call gives `name`. All
// inputs that name it must agree.
struct DynamicAxis {
  int axis = 0;  // from the first, at least 0
  std::string name;
};

// A Padding says which values a step function reads beyond the actual sizes of a padded input.
struct Padding {
  // The values that the padding holds.
  enum class Kind : std::uint8_t {
    // The default: zeros. A zero may be an index, a slot or a length, which points at data of the
    // caller's. By default, therefore, an input that is neither floating nor complex is not padded
    // if the function writes another input: such calls run eagerly (SkipReason::kUnsafePadding).
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
  // Padding that is not written, which saves the write: for functions that never read it.
  static Padding anything() { return {Kind::kAnything}; }
};

// The way that calls share recordings along an axis.
enum class AxisPolicy : std::uint8_t {
  kExact,      // each size has its recordings, up to max_sizes sizes
  kAllowList,  // as kExact for the listed sizes; calls with other sizes run eagerly
  kSkip,       // calls run eagerly once a second size has occurred
  // Inputs are padded to the next size of these, and outputs sliced:
  kBuckets,      // the list
  kMultiples,    // multiples of multiple_of
  kPowersOfTwo,  // 1, 2, 4, 8, ...
  kLearned,      // sizes that a SizeLearner found to pay; calls never record
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

// The policy of a dynamic axis, or of an integer of the key (CompileOptions::keys); the values of
// the integer are its sizes.
struct AxisOptions {
  std::string name = "";
  AxisPolicy policy = AxisPolicy::kExact;
  Sizes sizes = {};             // kAllowList, kBuckets: positive (in a key: or 0), ascending
  std::size_t multiple_of = 1;  // kMultiples
  // kMultiples, kPowersOfTwo: the largest size to pad to, itself a multiple or a power of two.
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
  // The next two record only in precapture().
  kNextLarger,  // padded to the smallest recording that holds the call; eagerly if there is none
  kRunEagerly,
};

// Returns the call's size of the axis as an int64 tensor of rank 0 on the device. Kernels on
// current_stream() may read it and must not write it. Replays see the size of the present call. In
// a function called by another step function it is the outer call's size.
//
// The tensor must not be returned as an output: a later replay would overwrite it. Requires: the
// calling thread is inside a step function with dynamic axes.
// Throws InvalidArgument outside of such a function, or if no input of the function has the axis;
// OutOfMemory, DeviceError.
Tensor axis_length(std::string_view axis);

// Sums of the sizes of calls along one dynamic axis.
struct SizeSums {
  std::uint64_t actual = 0;
  std::uint64_t padded = 0;  // the same sizes, rounded up by the policy of the axis

  // Adds both sums.
  SizeSums& operator+=(const SizeSums& more) noexcept {
    actual += more.actual;
    padded += more.padded;
    return *this;
  }
};

}  // namespace cgtree
