// Reads options by cgtree/values/option_table.h. A key that is not in the table is refused.
#include "python/extension/context.h"

#include <fmt/format.h>

#include <chrono>
#include <deque>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "cgtree/values/option_table.h"
#include "python/extension/values.h"

namespace cgtree::python {
namespace {

// ---- One value of each type; `what` is the option's name ----

void read(PyObject* value, const char*, bool& option) {
  option = to_bool(value);
}
void read(PyObject* value, const char* what, std::size_t& option) {
  option = to_size(value, what);
}
void read(PyObject* value, const char*, double& option) {
  option = to_double(value);
}
void read(PyObject* value, const char* what, std::string& option) {
  option = to_text(value, what);
}
void read(PyObject* value, const char* what, std::chrono::microseconds& option) {
  option = to_microseconds(value, what);
}
void read(PyObject* value, const char*, std::vector<std::int64_t>& option) {
  option = to_integers(value, "a size");
}
void read(PyObject* value, const char*, std::vector<Buckets>& option) {
  option = to_buckets(value);
}

template <typename Enum>
Enum to_choice(PyObject* object, const char* what) {
  const std::string given = to_text(object, what);
  std::string names;
  for (const OptionChoice<Enum>& choice : kChoices<Enum>) {
    if (choice.python == given) return choice.value;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", choice.python);
  }
  throw InvalidArgument(fmt::format("{} is '{}': expected one of {}", what, given, names));
}
template <typename Enum>
requires std::is_enum_v<Enum>
void read(PyObject* value, const char* what, Enum& option) {
  option = to_choice<Enum>(value, what);
}

void read(PyObject* value, const char* what, Padding& option) {
  if (PyUnicode_Check(value)) {
    option.kind = to_choice<Padding::Kind>(value, what);
    if (option.kind != Padding::Kind::kValue) return;
    throw InvalidArgument("padding is 'value': expected the number itself");
  }
  option = Padding::of(to_double(value));
}

// Reads pairs (axis, name).
void read(PyObject* value, const char* what, std::vector<DynamicAxis>& option) {
  for_each_item(value, [&](PyObject* pair) {
    const Reference items = items_of(pair);
    if (PyTuple_Size(items.get()) != 2) {
      throw InvalidArgument(fmt::format("{}: expected pairs of an axis and its name", what));
    }
    option.push_back({static_cast<int>(to_int64(PyTuple_GetItem(items.get(), 0), "an axis")),
                      to_text(PyTuple_GetItem(items.get(), 1), "an axis' name")});
  });
}

// Reads all options of a dict; None means the default. `what` names the struct in messages.
template <typename Options>
void read_all(PyObject* dict, Options& options, const char* what);

// Reads a sequence of dicts.
void read(PyObject* value, const char*, std::vector<InputOptions>& option) {
  for_each_item(value, [&](PyObject* item) { read_all(item, option.emplace_back(), "an input"); });
}
void read(PyObject* value, const char*, std::vector<OutputOptions>& option) {
  for_each_item(value, [&](PyObject* item) { read_all(item, option.emplace_back(), "an output"); });
}
void read(PyObject* value, const char*, std::vector<AxisOptions>& option) {
  for_each_item(value, [&](PyObject* item) {
    read_all(item, option.emplace_back(), "an axis");
    if (option.back().policy != AxisPolicy::kLearned) return;
    throw InvalidArgument(fmt::format(
        "axis '{}' has the policy 'learned', and Python has no SizeLearner: take another one",
        option.back().name));
  });
}

// ---- One option of each struct; these return false for a name that the struct does not have ----

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
#define CGTREE_READ_VALUE(member, python)                      \
  if (name == python) {                                        \
    if (value != Py_None) read(value, python, options.member); \
    return true;                                               \
  }

#define CGTREE_DEFINE_READER(Options, LIST)                                    \
  bool read_option(std::string_view name, PyObject* value, Options& options) { \
    LIST(CGTREE_READ, CGTREE_READ)                                             \
    return false;                                                              \
  }
CGTREE_DEFINE_READER(ContextOptions, CGTREE_CONTEXT_OPTIONS)
CGTREE_DEFINE_READER(CompileOptions, CGTREE_COMPILE_OPTIONS)
CGTREE_DEFINE_READER(InputOptions, CGTREE_INPUT_OPTIONS)
CGTREE_DEFINE_READER(OutputOptions, CGTREE_OUTPUT_OPTIONS)
CGTREE_DEFINE_READER(AxisOptions, CGTREE_AXIS_OPTIONS)

template <typename Options>
void read_all(PyObject* dict, Options& options, const char* what) {
  for_each_entry(dict, "options: expected a dict", [&](PyObject* key, PyObject* value) {
    const std::string name = to_text(key, "an option's name");
    if (!read_option(name, value, options))
      throw InvalidArgument(fmt::format("{} has no option '{}'", what, name));
  });
}

}  // namespace

std::vector<Buckets> to_buckets(PyObject* dict) {
  std::vector<Buckets> buckets;
  for_each_entry(
      dict, "sizes of axes: expected a dict {axis: sizes in ascending order}",
      [&](PyObject* key, PyObject* value) {
        buckets.push_back({to_text(key, "an axis' name"), to_integers(value, "a bucket")});
      });
  return buckets;
}

Key to_key(PyObject* dict) {
  std::deque<std::string> texts;  // whose addresses stay
  std::vector<Key::Part> parts;
  for_each_entry(dict, "key: expected a dict {name: an int or a str}",
                 [&](PyObject* key, PyObject* value) {
                   const std::string& name = texts.emplace_back(to_text(key, "a name in the key"));
                   if (PyUnicode_Check(value)) {
                     parts.emplace_back(
                         name, std::string_view(texts.emplace_back(to_text(value, name.c_str()))));
                   } else {
                     parts.emplace_back(name, to_int64(value, name.c_str()));
                   }
                 });
  return Key(std::span<const Key::Part>(parts));
}

void add_key(PyObject* dict, const Key& key) {
  for (std::string_view rest = key.text(); !rest.empty();) {
    const Key::Part part = take_part(rest);
    const Reference name = from_text(part.name());
    const auto number = static_cast<std::uint64_t>(part.number());
    const Reference value = part.is_text()    ? from_text(part.text())
                            : part.is_large() ? checked(PyLong_FromUnsignedLongLong(number))
                                              : checked(PyLong_FromLongLong(part.number()));
    check_status(PyDict_SetItem(dict, name.get(), value.get()));
  }
}

ContextOptions to_context_options(PyObject* keywords) {
  ContextOptions options;
  if (keywords == nullptr) return options;
  const Reference others = checked(PyDict_Copy(keywords));
  for (const char* name : {"device", "stream", "group"}) {
    if (PyDict_DelItemString(others.get(), name) != 0) PyErr_Clear();  // it is not there
  }
  read_all(others.get(), options, "a context");
  return options;
}

CompileOptions to_compile_options(PyObject* dict) {
  CompileOptions options;
  if (dict != nullptr) read_all(dict, options, "compile()");
  return options;
}

}  // namespace cgtree::python
