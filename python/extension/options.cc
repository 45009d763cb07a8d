// Reads options by extensions/watch/option_table.h. A key that is not in the table is refused.
#include "python/extension/context.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "extensions/watch/option_table.h"

namespace cgtree::python {
// ---- One value of each type ----

template <typename Enum>
requires(!kChoices<Enum>.empty()) struct Caster<Enum> {
  static Enum from(PyObject* object, const char* what) {
    std::array<std::string_view, kChoices<Enum>.size()> names;
    std::ranges::transform(kChoices<Enum>, names.begin(), &OptionChoice<Enum>::python);
    return kChoices<Enum>[to_choice(object, what, names)].value;
  }
};
template <>
struct Caster<Padding> {
  static Padding from(PyObject* value, const char* what) {
    if (!PyUnicode_Check(value)) return Padding::of(to_double(value, what));
    const auto kind = Caster<Padding::Kind>::from(value, what);
    if (kind != Padding::Kind::kValue) return {.kind = kind};
    throw InvalidArgument("padding is 'value': expected the number itself");
  }
};
template <>
struct Caster<std::vector<Buckets>> : ReadBy<to_buckets> {};
template <>
struct Caster<DynamicAxis> {
  static DynamicAxis from(PyObject* pair, const char* what) {
    auto [axis, name] = Caster<std::tuple<int, std::string>>::from(pair, what);
    return {axis, std::move(name)};
  }
};
template <typename Options>
struct CasterOfOptions {
  static Options from(PyObject* dict, const char* what);
};
template <>
struct Caster<InputOptions> : CasterOfOptions<InputOptions> {};
template <>
struct Caster<OutputOptions> : CasterOfOptions<OutputOptions> {};
template <>
struct Caster<AxisOptions> : CasterOfOptions<AxisOptions> {};

namespace {

// ---- One option of each struct; these return false for names that the struct does not have ----

#define CGTREE_READ(type, member, python, c) CGTREE_READ_##type(member, #python)
#define CGTREE_READ_Count CGTREE_READ_VALUE
#define CGTREE_READ_Number CGTREE_READ_VALUE
#define CGTREE_READ_Time CGTREE_READ_VALUE
#define CGTREE_READ_Text CGTREE_READ_VALUE
#define CGTREE_READ_Choice CGTREE_READ_VALUE
#define CGTREE_READ_Flag CGTREE_READ_VALUE
#define CGTREE_READ_Inverse CGTREE_READ_VALUE
#define CGTREE_READ_Nested CGTREE_READ_VALUE
#define CGTREE_READ_Other(member, python)
#define CGTREE_READ_VALUE(member, python)                                                         \
  if (name == python) {                                                                           \
    if (value != Py_None) options.member = Caster<decltype(options.member)>::from(value, python); \
    return true;                                                                                  \
  }

#define CGTREE_DEFINE_READER(Options, LIST)                                    \
  bool read_option(std::string_view name, PyObject* value, Options& options) { \
    LIST(CGTREE_READ, CGTREE_READ)                                             \
    return false;                                                              \
  }
CGTREE_DEFINE_READER(ContextOptions, CGTREE_CONTEXT_OPTIONS)
CGTREE_DEFINE_READER(WatchOptions, CGTREE_WATCH_OPTIONS)
CGTREE_DEFINE_READER(VerifyOptions, CGTREE_VERIFY_OPTIONS)
CGTREE_DEFINE_READER(AuditOptions, CGTREE_AUDIT_OPTIONS)
CGTREE_DEFINE_READER(CompileOptions, CGTREE_COMPILE_OPTIONS)
CGTREE_DEFINE_READER(InputOptions, CGTREE_INPUT_OPTIONS)
CGTREE_DEFINE_READER(OutputOptions, CGTREE_OUTPUT_OPTIONS)
CGTREE_DEFINE_READER(AxisOptions, CGTREE_AXIS_OPTIONS)

// Options of a context and its extensions.
template <typename... Options>
bool read_option(std::string_view name, PyObject* value, std::tuple<Options...>& options) {
  const auto read = [&](auto&... each) { return (read_option(name, value, each) || ...); };
  return std::apply(read, options);
}

// Reads all options of a dict; None means the default. `what` names the struct in messages.
template <typename Options>
Options read_all(PyObject* dict, const char* what) {
  Options options;
  if (dict == nullptr) return options;
  for_each_entry(dict, "options", [&](PyObject* key, PyObject* value) {
    const std::string name = to_text(key, "an option's name");
    if (!read_option(name, value, options))
      throw InvalidArgument(str_format("{} has no option '{}'", what, name));
  });
  return options;
}

}  // namespace

template <typename Options>
Options CasterOfOptions<Options>::from(PyObject* dict, const char* what) {
  auto options = read_all<Options>(dict, str_format("an item of {}", what).c_str());
  if constexpr (std::is_same_v<Options, AxisOptions>) {
    if (options.policy == AxisPolicy::kLearned) {
      throw InvalidArgument(str_format(
          "axis '{}' has the policy 'learned', and Python has no SizeLearner: take another one",
          options.name));
    }
  }
  return options;
}

std::vector<Buckets> to_buckets(PyObject* dict) {
  std::vector<Buckets> buckets;
  using Entries = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;
  for (auto& [axis, sizes] : Caster<Entries>::from(dict, "the sizes of axes"))
    buckets.push_back({std::move(axis), std::move(sizes)});
  return buckets;
}

Key to_key(PyObject* dict) {
  using Entries = std::vector<std::pair<std::string, std::variant<std::int64_t, std::string>>>;
  const auto entries = Caster<Entries>::from(dict, "key");
  std::vector<Key::Part> parts;
  for (const auto& [name, value] : entries)
    std::visit([&, &name = name](const auto& part) { parts.emplace_back(name, part); }, value);
  return Key(std::span<const Key::Part>(parts));
}

void add_key(PyObject* dict, const Key& key) {
  const Reference parts = Reference::borrow(dict);
  for (std::string_view rest = key.text(); !rest.empty();) {
    const Key::Part part = take_part(rest);
    if (part.is_text()) {
      put(parts, part.name(), part.text());
    } else if (part.is_large()) {
      put(parts, part.name(), static_cast<std::uint64_t>(part.number()));
    } else {
      put(parts, part.name(), part.number());
    }
  }
}

ContextOptions to_context_options(PyObject* dict) {
  using All = std::tuple<ContextOptions, WatchOptions, VerifyOptions, AuditOptions>;
  auto [options, watched, verified, audited] = read_all<All>(dict, "a context");
  options.extensions = {watch(std::move(watched)), verify(verified), audit(audited)};
  return options;
}

CompileOptions to_compile_options(PyObject* dict) {
  return read_all<CompileOptions>(dict, "compile()");
}

}  // namespace cgtree::python
