// Dynamic axes: sizes of inputs that vary from call to call, and what to do about them.
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
#include <vector>

namespace cgtree {

// Axis `axis` of a tensor has the size that the call gives `name`. All inputs that name it must
// agree.
struct DynamicAxis {
  int axis = 0;  // from the first, at least 0
  std::string name;
};

// What a step function finds beyond the true sizes of an input that was padded to a bucket.
struct Padding {
  enum class Kind : std::uint8_t {
    kZeros,
    kValue,
    kLast,      // the last valid slice of each axis; zeros where an axis has size 0
    kAnything,  // not written: what happens to be there
  };

  Kind kind = Kind::kZeros;
  double value = 0;  // kValue; must be one that the input's type can hold

  static Padding of(double value) { return {Kind::kValue, value}; }
  static Padding last() { return {Kind::kLast}; }
  static Padding anything() { return {Kind::kAnything}; }
};

enum class AxisPolicy : std::uint8_t {
  kExact,      // each size has recordings of its own, up to max_sizes of them
  kAllowList,  // as kExact for these sizes; calls with others run eagerly
  kSkip,       // calls run eagerly as soon as a second size was seen
  kBuckets,    // the next size of the list: inputs are padded to it, outputs sliced
};

// What happens to a call with a size more than AxisOptions::max_sizes.
enum class AtMaxSizes : std::uint8_t {
  kRunEagerly,
  kNextLarger,  // padded to the next larger size that is recorded; where none is: eagerly
  kEvict,       // the recordings of the size used longest ago go
};

enum class AboveLargest : std::uint8_t {
  kRunEagerly,
  kThrow,  // InvalidArgument
};

struct AxisOptions {
  std::string name;
  AxisPolicy policy = AxisPolicy::kExact;
  std::vector<std::int64_t> sizes;  // kAllowList, kBuckets: positive, ascending
  // Of kExact.
  std::size_t max_sizes = SIZE_MAX;
  AtMaxSizes at_max_sizes = AtMaxSizes::kRunEagerly;
  // Of kBuckets.
  AboveLargest above_largest = AboveLargest::kRunEagerly;
};

// The short form of an axis with buckets.
struct Buckets {
  std::string axis;
  std::vector<std::int64_t> sizes;  // positive, ascending
  AboveLargest above_largest = AboveLargest::kRunEagerly;
};

// What the caller says about one output.
struct OutputOptions {
  std::string name;  // for messages
  std::vector<DynamicAxis>
      dynamic;  // which the function gives the size it sees; sliced to the true
};

// What happens to a call whose sizes have no recording that fits, in a function with buckets.
enum class WhileMissing : std::uint8_t {
  kRecord,
  // These two record only in precapture(). Padded to the smallest recording that holds the call;
  // where there is none, eagerly.
  kNextLarger,
  kRunEagerly,
};

}  // namespace cgtree
