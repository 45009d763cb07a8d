// The table of all options, from which the conversions from C and Python and Python's stubs are
// made.
//
// cgtree/values/options.h, cgtree/values/axes.h and the headers of three extensions define the
// options. This table has their names in Python and in C, where the options of extensions are those
// of the context. A new option is a member there and a row here, and a field of the C struct in
// bindings/c/c_api.h. A static check at the end of this file fails for a member without a row.
//
// A row is X(type, member, python, c). The lists have a separate macro FIRST for the first row,
// because a C++ list has no comma before its first element. The types:
//
//   Count    a std::size_t; 0 means the default in C
//   Number   a double; 0 means the default in C
//   Time     a duration; seconds in Python, microseconds in C, where 0 means the default
//   Text     a std::string; NULL means the default in C
//   Choice   an enumeration that is among the choices below; in Python one of their names
//   Flag     a bool that a flag sets in C
//   Inverse  a bool that a flag clears in C
//   Nested   a struct or a list, for which each language has its own reader; Python has an option
//            of this name
//   Other    a member that Python and C set without an option of this name, or not at all
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "cgtree/values/axes.h"
#include "cgtree/values/options.h"
#include "extensions/audit/audit_options.h"
#include "extensions/verify/verify.h"
#include "extensions/watch/watch.h"

// The next eight have a row for each member of a struct: ContextOptions, WatchOptions,
// VerifyOptions, AuditOptions, CompileOptions, InputOptions, OutputOptions and AxisOptions.
#define CGTREE_CONTEXT_OPTIONS(FIRST, X)                                             \
  FIRST(Text, name, name, name)                                                      \
  X(Other, stream, _, _)                                                             \
  X(Other, owner, _, _)                                                              \
  X(Count, max_bytes, max_bytes, max_bytes)                                          \
  X(Other, segments, _, _)                                                           \
  X(Flag, pools_grow_in_place, pools_grow_in_place, CGT_CONTEXT_POOLS_GROW_IN_PLACE) \
  X(Flag, outputs_lie_apart, outputs_lie_apart, CGT_CONTEXT_OUTPUTS_LIE_APART)       \
  X(Count, max_recordings, max_recordings, max_recordings)                           \
  X(Count, max_graph_bytes, max_graph_bytes, max_graph_bytes)                        \
  X(Time, max_recording_time, max_recording_time, max_recording_microseconds)        \
  X(Choice, at_limit, at_limit, at_limit)                                            \
  X(Flag, checked, checked, CGT_CONTEXT_CHECKED)                                     \
  X(Other, group, _, _)                                                              \
  X(Other, before_first_launch, _, _)                                                \
  X(Other, extensions, _, _)

#define CGTREE_WATCH_OPTIONS(FIRST, X)                                                   \
  FIRST(Text, event_file, event_file, event_file)                                        \
  X(Flag, event_file_has_replays, event_file_has_replays, CGT_CONTEXT_EVENTS_OF_REPLAYS) \
  X(Count, time_every_nth_replay, time_every_nth_replay, time_every_nth_replay)

#define CGTREE_VERIFY_OPTIONS(FIRST, X)           \
  FIRST(Count, every, verify_every, verify_every) \
  X(Count, first, verify_first, verify_first)

#define CGTREE_AUDIT_OPTIONS(FIRST, X) \
  FIRST(Choice, on_foreign_pointer, on_foreign_pointer, on_foreign_pointer)

#define CGTREE_COMPILE_OPTIONS(FIRST, X)                               \
  FIRST(Nested, inputs, inputs, inputs)                                \
  X(Nested, buckets, buckets, _)                                       \
  X(Nested, axes, axes, axes)                                          \
  X(Nested, keys, keys, keys)                                          \
  X(Number, max_waste, max_waste, max_waste)                           \
  X(Choice, while_missing, while_missing, while_missing)               \
  X(Nested, outputs, outputs, outputs)                                 \
  X(Inverse, enabled, enabled, CGT_FUNCTION_EAGER)                     \
  X(Flag, require_graph, require_graph, CGT_FUNCTION_REQUIRE_GRAPH)    \
  X(Choice, on_static_change, on_static_change, on_static_change)      \
  X(Count, max_static_changes, max_static_changes, max_static_changes) \
  X(Count, max_recordings, max_recordings, max_recordings)             \
  X(Choice, at_limit, at_limit, at_limit)                              \
  X(Count, verify_first, verify_first, verify_first)                   \
  X(Count, max_switch_nodes, max_switch_nodes, max_switch_nodes)       \
  X(Flag, keeps_allocations, keeps_allocations, CGT_FUNCTION_KEEPS_ALLOCATIONS)

#define CGTREE_INPUT_OPTIONS(FIRST, X)            \
  FIRST(Text, name, name, name)                   \
  X(Flag, is_static, static, CGT_INPUT_STATIC)    \
  X(Count, alignment, alignment, alignment)       \
  X(Flag, is_mutated, mutated, CGT_INPUT_MUTATED) \
  X(Number, tolerance, tolerance, tolerance)      \
  X(Choice, rebind, rebind, rebind)               \
  X(Nested, dynamic, dynamic, _)                  \
  X(Nested, padding, padding, padding)            \
  X(Flag, require_contiguous, contiguous, CGT_INPUT_CONTIGUOUS)

#define CGTREE_OUTPUT_OPTIONS(FIRST, X)      \
  FIRST(Text, name, name, name)              \
  X(Nested, dynamic, dynamic, _)             \
  X(Number, tolerance, tolerance, tolerance) \
  X(Choice, rebind, rebind, rebind)

#define CGTREE_AXIS_OPTIONS(FIRST, X)                 \
  FIRST(Text, name, name, name)                       \
  X(Choice, policy, policy, policy)                   \
  X(Nested, sizes, sizes, sizes)                      \
  X(Count, multiple_of, multiple_of, multiple_of)     \
  X(Count, largest, largest, largest)                 \
  X(Count, max_sizes, max_sizes, max_sizes)           \
  X(Choice, at_max_sizes, at_max_sizes, at_max_sizes) \
  X(Choice, above_largest, above_largest, above_largest)

// The next eight have a row X(enumeration, enumerator, python, c) for each choice of an option, in
// the order of the enumerators. The option has the name of the enumeration, in lower case: at_limit
// has the type AtLimit. The exception is policy, of type AxisPolicy.
#define CGTREE_AT_LIMIT(X)                              \
  X(AtLimit, kRunEagerly, run_eagerly, CGT_RUN_EAGERLY) \
  X(AtLimit, kEvict, evict, CGT_EVICT)                  \
  X(AtLimit, kThrow, throw, CGT_REFUSE)

#define CGTREE_ON_FOREIGN_POINTER(X)                               \
  X(OnForeignPointer, kRecord, record, CGT_FOREIGN_POINTER_RECORD) \
  X(OnForeignPointer, kWarn, warn, CGT_FOREIGN_POINTER_WARN)       \
  X(OnForeignPointer, kThrow, throw, CGT_FOREIGN_POINTER_REFUSE)

#define CGTREE_WHILE_MISSING(X)                                      \
  X(WhileMissing, kRecord, record, CGT_MISSING_RECORD)               \
  X(WhileMissing, kNextLarger, next_larger, CGT_MISSING_NEXT_LARGER) \
  X(WhileMissing, kRunEagerly, run_eagerly, CGT_MISSING_RUN_EAGERLY)

#define CGTREE_ON_STATIC_CHANGE(X)                             \
  X(OnStaticChange, kRecord, record, CGT_STATIC_CHANGE_RECORD) \
  X(OnStaticChange, kDemote, demote, CGT_STATIC_CHANGE_DEMOTE) \
  X(OnStaticChange, kThrow, throw, CGT_STATIC_CHANGE_REFUSE)

#define CGTREE_REBIND(X)                     \
  X(Rebind, kNever, never, CGT_REBIND_NEVER) \
  X(Rebind, kAuto, auto, CGT_REBIND_AUTO)    \
  X(Rebind, kAlways, always, CGT_REBIND_ALWAYS)

#define CGTREE_AXIS_POLICY(X)                                        \
  X(AxisPolicy, kExact, exact, CGT_AXIS_EXACT)                       \
  X(AxisPolicy, kAllowList, allow_list, CGT_AXIS_ALLOW_LIST)         \
  X(AxisPolicy, kSkip, skip, CGT_AXIS_SKIP)                          \
  X(AxisPolicy, kBuckets, buckets, CGT_AXIS_BUCKETS)                 \
  X(AxisPolicy, kMultiples, multiples, CGT_AXIS_MULTIPLES)           \
  X(AxisPolicy, kPowersOfTwo, powers_of_two, CGT_AXIS_POWERS_OF_TWO) \
  X(AxisPolicy, kLearned, learned, CGT_AXIS_LEARNED)

#define CGTREE_AT_MAX_SIZES(X)                                       \
  X(AtMaxSizes, kRunEagerly, run_eagerly, CGT_MAX_SIZES_RUN_EAGERLY) \
  X(AtMaxSizes, kNextLarger, next_larger, CGT_MAX_SIZES_NEXT_LARGER) \
  X(AtMaxSizes, kEvict, evict, CGT_MAX_SIZES_EVICT)

#define CGTREE_ABOVE_LARGEST(X)                                            \
  X(AboveLargest, kRunEagerly, run_eagerly, CGT_ABOVE_LARGEST_RUN_EAGERLY) \
  X(AboveLargest, kThrow, throw, CGT_ABOVE_LARGEST_REFUSE)

// The kinds of an input's padding, in the same form. Python passes a number instead of "value".
#define CGTREE_PADDING(X)                        \
  X(Padding::Kind, kUnset, unset, CGT_PAD_UNSET) \
  X(Padding::Kind, kZeros, zeros, CGT_PAD_ZEROS) \
  X(Padding::Kind, kValue, value, CGT_PAD_VALUE) \
  X(Padding::Kind, kLast, last, CGT_PAD_LAST)    \
  X(Padding::Kind, kAnything, anything, CGT_PAD_ANYTHING)

// The rows of all nine enumerations.
#define CGTREE_CHOICES(X)      \
  CGTREE_AT_LIMIT(X)           \
  CGTREE_ON_FOREIGN_POINTER(X) \
  CGTREE_WHILE_MISSING(X)      \
  CGTREE_ON_STATIC_CHANGE(X)   \
  CGTREE_REBIND(X)             \
  CGTREE_AXIS_POLICY(X)        \
  CGTREE_AT_MAX_SIZES(X)       \
  CGTREE_ABOVE_LARGEST(X)      \
  CGTREE_PADDING(X)

namespace cgtree {

// An enumerator with its names in Python and in C.
template <typename Enum>
struct OptionChoice {
  Enum value;
  std::string_view python;
  std::string_view c;
};

// The choices of an enumeration, in the order of their numbers.
template <typename Enum>
inline constexpr std::array<OptionChoice<Enum>, 0> kChoices = {};

#define CGTREE_CHOICE(Enum, value, python, c) OptionChoice<Enum>{Enum::value, #python, #c},
#define CGTREE_DEFINE_CHOICES(Enum, LIST) \
  template <>                             \
  inline constexpr std::array kChoices<Enum> = {LIST(CGTREE_CHOICE)};
CGTREE_DEFINE_CHOICES(AtLimit, CGTREE_AT_LIMIT)
CGTREE_DEFINE_CHOICES(OnForeignPointer, CGTREE_ON_FOREIGN_POINTER)
CGTREE_DEFINE_CHOICES(WhileMissing, CGTREE_WHILE_MISSING)
CGTREE_DEFINE_CHOICES(OnStaticChange, CGTREE_ON_STATIC_CHANGE)
CGTREE_DEFINE_CHOICES(Rebind, CGTREE_REBIND)
CGTREE_DEFINE_CHOICES(AxisPolicy, CGTREE_AXIS_POLICY)
CGTREE_DEFINE_CHOICES(AtMaxSizes, CGTREE_AT_MAX_SIZES)
CGTREE_DEFINE_CHOICES(AboveLargest, CGTREE_ABOVE_LARGEST)
CGTREE_DEFINE_CHOICES(Padding::Kind, CGTREE_PADDING)
#undef CGTREE_DEFINE_CHOICES
#undef CGTREE_CHOICE

// The static check: a structured binding names every member of a struct, or does not compile.
#define CGTREE_NAME(type, member, python, c) member
#define CGTREE_NEXT_NAME(type, member, python, c) , member
#define CGTREE_CHECK_TABLE(Options, LIST)                                         \
  inline void check_table_of(const Options& options) {                            \
    [[maybe_unused]] const auto& [LIST(CGTREE_NAME, CGTREE_NEXT_NAME)] = options; \
  }
CGTREE_CHECK_TABLE(ContextOptions, CGTREE_CONTEXT_OPTIONS)
CGTREE_CHECK_TABLE(WatchOptions, CGTREE_WATCH_OPTIONS)
CGTREE_CHECK_TABLE(VerifyOptions, CGTREE_VERIFY_OPTIONS)
CGTREE_CHECK_TABLE(AuditOptions, CGTREE_AUDIT_OPTIONS)
CGTREE_CHECK_TABLE(CompileOptions, CGTREE_COMPILE_OPTIONS)
CGTREE_CHECK_TABLE(InputOptions, CGTREE_INPUT_OPTIONS)
CGTREE_CHECK_TABLE(OutputOptions, CGTREE_OUTPUT_OPTIONS)
CGTREE_CHECK_TABLE(AxisOptions, CGTREE_AXIS_OPTIONS)
#undef CGTREE_CHECK_TABLE
#undef CGTREE_NEXT_NAME
#undef CGTREE_NAME

}  // namespace cgtree
