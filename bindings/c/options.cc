// Reads options by extensions/watch/option_table.h. In C an axis names its inputs and outputs; in
// C++ the inputs and outputs name their axes.
#include "bindings/c/convert.h"

#include <chrono>
#include <span>

#include "base/format.h"
#include "bindings/c/handles.h"
#include "extensions/ranks/group.h"
#include "extensions/watch/option_table.h"

namespace cgtree::capi {
namespace {

#define CGTREE_SAME_NUMBER(Enum, value, python, c) \
  static_assert(c == static_cast<int>(Enum::value));
CGTREE_CHOICES(CGTREE_SAME_NUMBER)
#undef CGTREE_SAME_NUMBER

// An index above this is refused before memory is allocated for it.
constexpr std::size_t kMaxInputs = 1u << 16;

void read_time(std::uint64_t given, std::chrono::microseconds& option) {
  if (given != 0) option = microseconds_of_c(given);
}
void read_text(const char* given, std::string& option) {
  if (given != nullptr) option = given;
}
bool read_flag(std::uint32_t given, std::uint32_t flag, std::uint32_t& known) {
  known |= flag;
  return (given & flag) != 0;
}
template <typename Enum>
void read_choice(std::int32_t given, Enum& option, std::string_view name) {
  constexpr OptionChoice<Enum> kLast = kChoices<Enum>.back();
  option = choice_of_c(given, kLast.value, name, kLast.c);
}

// Read one row of the table: `given` is the struct of C, `options` that of C++, and `known` has the
// flags that were read.
#define CGTREE_READ(type, member, python, c) CGTREE_READ_##type(member, c)
#define CGTREE_READ_Count(member, c) read_count(given.c, options.member);
#define CGTREE_READ_Number(member, c) read_number(given.c, options.member);
#define CGTREE_READ_Time(member, c) read_time(given.c, options.member);
#define CGTREE_READ_Text(member, c) read_text(given.c, options.member);
#define CGTREE_READ_Choice(member, c) read_choice(given.c, options.member, #c);
#define CGTREE_READ_Flag(member, c) options.member = read_flag(given.flags, c, known);
#define CGTREE_READ_Inverse(member, c) options.member = !read_flag(given.flags, c, known);
#define CGTREE_READ_Nested(member, c)
#define CGTREE_READ_Other(member, c)

void read_inputs(const cgt_function_options& function, FunctionOptions& made) {
  constexpr std::string_view kWhat = "cgt_input_options";
  for_each_struct(function.inputs, function.input_count, kWhat,
                  [&](const cgt_input_options& given) {
                    std::uint32_t known = 0;
                    InputOptions& options = made.compile.inputs.emplace_back();
                    CGTREE_INPUT_OPTIONS(CGTREE_READ, CGTREE_READ)
                    made.copied.push_back(read_flag(given.flags, CGT_INPUT_COPIED, known));
                    made.per_session.push_back(read_flag(given.flags, CGT_INPUT_SESSION, known));
                    check_flags(given.flags, known, kWhat);
                    read_choice(given.padding, options.padding.kind, "padding");
                    if (options.padding.kind == Padding::Kind::kValue) {
                      options.padding.value = given.padding_value;
                    }
                    made.host_bytes.push_back(given.host_bytes);
                  });
}

void read_outputs(const cgt_function_options& function, std::vector<OutputOptions>& outputs) {
  for_each_struct(function.outputs, function.output_count, "cgt_output_options",
                  [&](const cgt_output_options& given) {
                    OutputOptions& options = outputs.emplace_back();
                    CGTREE_OUTPUT_OPTIONS(CGTREE_READ, CGTREE_READ)
                  });
}

// `what` is "input" or "output", and `most` their largest number.
template <typename Options>
void read_uses(const std::string& axis, std::string_view what, std::span<const cgt_axis_use> uses,
               std::size_t most, std::vector<Options>& options) {
  for (const cgt_axis_use& use : uses) {
    if (use.tensor >= most) {
      throw InvalidArgument(str_format("axis '{}' is one of {} {}: expected less than {}", axis,
                                       what, use.tensor, most));
    }
    if (options.size() <= use.tensor) options.resize(use.tensor + std::size_t{1});
    options[use.tensor].dynamic.push_back({use.axis, axis});
  }
}

AxisOptions axis_of_c(const cgt_axis_options& given) {
  required(given.name, "cgt_axis_options::name");
  AxisOptions options;
  CGTREE_AXIS_OPTIONS(CGTREE_READ, CGTREE_READ)
  const auto sizes = span_of_c(given.sizes, given.size_count, "cgt_axis_options::sizes");
  options.sizes.assign(sizes.begin(), sizes.end());
  return options;
}

void read_axes(const cgt_function_options& function, std::size_t outputs, CompileOptions& options) {
  for_each_struct(
      function.axes, function.axis_count, "cgt_axis_options", [&](const cgt_axis_options& given) {
        const std::string& axis = options.axes.emplace_back(axis_of_c(given)).name;
        read_uses(axis, "input",
                  span_of_c(given.inputs, given.input_count, "cgt_axis_options::inputs"),
                  kMaxInputs, options.inputs);
        read_uses(axis, "output",
                  span_of_c(given.outputs, given.output_count, "cgt_axis_options::outputs"),
                  outputs, options.outputs);
      });
}

void read_keys(const cgt_function_options& function, CompileOptions& options) {
  for_each_struct(
      function.keys, function.key_count, "cgt_axis_options", [&](const cgt_axis_options& given) {
        const std::string& name = options.keys.emplace_back(axis_of_c(given)).name;
        if (given.input_count + given.output_count == 0) return;
        throw InvalidArgument(
            str_format("'{}' of the key has {} inputs and {} outputs: list it among the axes, or "
                       "leave them out",
                       name, given.input_count, given.output_count));
      });
}

class GroupOfC final : public Group {
 public:
  explicit GroupOfC(const cgt_group* group) : group_(read_struct(group, "cgt_group")) {
    required(group_.minimum, "cgt_group::minimum");
    if (group_.size >= 1 && group_.rank >= 0 && group_.rank < group_.size) return;
    throw InvalidArgument(
        str_format("cgt_group: rank {} of {} does not exist", group_.rank, group_.size));
  }

  int rank() const noexcept override { return group_.rank; }
  int size() const noexcept override { return group_.size; }
  void minimum(std::span<std::uint64_t> words) override {
    const Callback callback("cgt_group::minimum");
    callback.call([&] { return group_.minimum(group_.user, words.data(), words.size()); });
  }

 private:
  const cgt_group group_;
};

template <typename Options>
Options read_of_context(const cgt_context_options& given, std::uint32_t& known);
#define CGTREE_DEFINE_READER(Options, LIST)                        \
  template <>                                                      \
  Options read_of_context(const cgt_context_options& given,        \
                          [[maybe_unused]] std::uint32_t& known) { \
    Options options;                                               \
    LIST(CGTREE_READ, CGTREE_READ)                                 \
    return options;                                                \
  }
CGTREE_DEFINE_READER(WatchOptions, CGTREE_WATCH_OPTIONS)
CGTREE_DEFINE_READER(VerifyOptions, CGTREE_VERIFY_OPTIONS)
CGTREE_DEFINE_READER(AuditOptions, CGTREE_AUDIT_OPTIONS)
#undef CGTREE_DEFINE_READER

}  // namespace

ContextOptions context_options(const cgt_context_options* context) {
  constexpr std::string_view kWhat = "cgt_context_options";
  const cgt_context_options given = read_struct(context, kWhat);
  ContextOptions options;
  // From here on, the owner is released in any case.
  options.owner = take_over(given.owner, given.release);
  std::uint32_t known = 0;
  CGTREE_CONTEXT_OPTIONS(CGTREE_READ, CGTREE_READ)
  options.extensions = {watch(read_of_context<WatchOptions>(given, known)),
                        verify(read_of_context<VerifyOptions>(given, known)),
                        audit(read_of_context<AuditOptions>(given, known))};
  check_flags(given.flags, known, kWhat);
  if (given.stream != nullptr) options.stream = stream_of_c(*given.stream);
  if (given.group != nullptr) options.group = std::make_shared<GroupOfC>(given.group);
  return options;
}

FunctionOptions function_options(const cgt_function_options* function, std::size_t outputs) {
  constexpr std::string_view kWhat = "cgt_function_options";
  const cgt_function_options given = read_struct(function, kWhat);
  FunctionOptions made;
  CompileOptions& options = made.compile;
  std::uint32_t known = 0;
  CGTREE_COMPILE_OPTIONS(CGTREE_READ, CGTREE_READ)
  check_flags(given.flags, known, kWhat);
  read_inputs(given, made);
  read_outputs(given, options.outputs);
  read_axes(given, outputs, options);
  read_keys(given, options);
  for (const AxisOptions& axis : options.axes)
    made.axes.push_back(axis.name);
  for (const AxisOptions& key : options.keys)
    made.axes.push_back(key.name);
  return made;
}

}  // namespace cgtree::capi
