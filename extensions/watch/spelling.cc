// Replaces the C++ names of options, choices and functions.
#include "extensions/watch/spelling.h"
#include "base/format.h"
#include "extensions/watch/option_table.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <string_view>

namespace cgtree {
namespace {

// A name in C++, and its replacements.
struct Spelled {
  std::string_view cpp;
  std::string_view names;
  std::string_view c;
};

// "_": an option with another form in C, or without one.
#define CGTREE_OPTION_OF(Struct, of, c_struct, member, c) \
  CGTREE_NAMED_OPTION_OF(Struct, of, c_struct, member, member, c)
#define CGTREE_NAMED_OPTION_OF(Struct, of, c_struct, member, python, c)       \
  Spelled{#Struct "::" #member, #python of,                                   \
          std::string_view(#c) == "_"             ? std::string_view(#member) \
          : std::string_view(#c).starts_with("C") ? std::string_view(#c)      \
                                                  : std::string_view(c_struct "." #c)},
#define CGTREE_CONTEXT(type, member, python, c) \
  CGTREE_OPTION_OF(ContextOptions, " of the context", "cgt_context_options", member, c)
#define CGTREE_WATCH(type, member, python, c) \
  CGTREE_NAMED_OPTION_OF(WatchOptions, " of the context", "cgt_context_options", member, python, c)
#define CGTREE_VERIFY(type, member, python, c) \
  CGTREE_NAMED_OPTION_OF(VerifyOptions, " of the context", "cgt_context_options", member, python, c)
#define CGTREE_AUDIT(type, member, python, c) \
  CGTREE_NAMED_OPTION_OF(AuditOptions, " of the context", "cgt_context_options", member, python, c)
#define CGTREE_COMPILE(type, member, python, c) \
  CGTREE_OPTION_OF(CompileOptions, " of the function", "cgt_function_options", member, c)
#define CGTREE_INPUT(type, member, python, c) \
  CGTREE_OPTION_OF(InputOptions, " of the input", "cgt_input_options", member, c)
#define CGTREE_OUTPUT(type, member, python, c) \
  CGTREE_OPTION_OF(OutputOptions, " of the output", "cgt_function_options", member, c)
#define CGTREE_AXIS(type, member, python, c) \
  CGTREE_OPTION_OF(AxisOptions, " of the axis", "cgt_axis_options", member, c)
#define CGTREE_CHOICE(Enum, value, python, c) Spelled{#Enum "::" #value, #python, #c},

// The first match is used.
constexpr Spelled kSpelled[] = {
    {"CompileOptions::enabled = true", "enabled = true", "no CGT_FUNCTION_EAGER"},
    {"InputOptions::dynamic", "the option dynamic", "cgt_axis_options.inputs"},
    {"OutputOptions::dynamic", "the option outputs_dynamic", "cgt_axis_options.outputs"},
    {"option `keys`", "option keys", "option cgt_function_options.keys"},
    CGTREE_CONTEXT_OPTIONS(CGTREE_CONTEXT, CGTREE_CONTEXT) CGTREE_WATCH_OPTIONS(
        CGTREE_WATCH, CGTREE_WATCH) CGTREE_VERIFY_OPTIONS(CGTREE_VERIFY, CGTREE_VERIFY)
        CGTREE_AUDIT_OPTIONS(CGTREE_AUDIT, CGTREE_AUDIT) CGTREE_COMPILE_OPTIONS(
            CGTREE_COMPILE, CGTREE_COMPILE) CGTREE_INPUT_OPTIONS(CGTREE_INPUT, CGTREE_INPUT)
            CGTREE_OUTPUT_OPTIONS(CGTREE_OUTPUT, CGTREE_OUTPUT)
                CGTREE_AXIS_OPTIONS(CGTREE_AXIS, CGTREE_AXIS) CGTREE_CHOICES(CGTREE_CHOICE){
                    "a SizeLearner", "a SizeLearner", "cgt_function_learn()"},
    {"is_per_session", "per_session", "CGT_INPUT_SESSION"},
    {"eager_break()", "eager_break()", "cgt_eager_break()"},
    {"empty()", "empty()", "cgt_tensor_empty()"},
    {"mark_step()", "mark_step()", "cgt_context_mark_step()"},
    {"precapture()", "precapture()", "cgt_function_precapture()"},
    {"unfreeze()", "unfreeze()", "cgt_function_unfreeze()"},
    {"freeze()", "freeze()", "cgt_function_freeze()"},
    {"keep()", "keep()", "cgt_tensor_keep()"},
    {"undeclare()", "undeclare()", "cgt_context_undeclare()"},
    {"declare()", "declare()", "cgt_context_declare()"},
    {"begin()", "begin()", "cgt_step_begin()"},
    {"end()", "end()", "cgt_step_end()"},
};

#undef CGTREE_CHOICE
#undef CGTREE_AXIS
#undef CGTREE_OUTPUT
#undef CGTREE_INPUT
#undef CGTREE_COMPILE
#undef CGTREE_AUDIT
#undef CGTREE_VERIFY
#undef CGTREE_WATCH
#undef CGTREE_CONTEXT
#undef CGTREE_OPTION_OF
#undef CGTREE_NAMED_OPTION_OF

bool is_of_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':';
}

// Returns the entry with which the text begins, as a whole name, or null.
const Spelled* find(std::string_view text) {
  const auto found = std::ranges::find_if(kSpelled, [&](const Spelled& one) {
    const bool ends = text.size() <= one.cpp.size() || !is_of_name(text[one.cpp.size()]);
    return text.starts_with(one.cpp) && (ends || one.cpp.back() == ')');
  });
  return found == std::end(kSpelled) ? nullptr : &*found;
}

// Returns "at_limit" of "AtLimit": the option that has these choices.
std::string option_of(std::string_view enumeration) {
  if (enumeration == "AxisPolicy") return "policy";
  std::string option;
  for (const char c : enumeration) {
    const bool is_upper = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (is_upper && !option.empty()) option += '_';
    option += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return option;
}

}  // namespace

std::string spelled(std::string_view text, Spelling spelling) {
  std::string result;
  std::string_view enumeration;  // of the last choice: "OnStaticChange::kRecord or kDemote"
  bool is_inside = false;        // inside a name
  while (!text.empty()) {
    const Spelled* found = is_inside ? nullptr : find(text);
    std::size_t taken = found == nullptr ? 0 : found->cpp.size();
    std::string choice;
    if (found == nullptr && !is_inside && !enumeration.empty() && text.starts_with('k')) {
      const auto end = std::ranges::find_if_not(text, is_of_name);
      taken = static_cast<std::size_t>(end - text.begin());
      choice = str_format("{}::{}", enumeration, text.substr(0, taken));
      found = find(choice);
    }
    if (found == nullptr) {
      is_inside = is_of_name(text.front());
      result += text.front();
      text.remove_prefix(1);
      continue;
    }
    const std::size_t colons = found->cpp.find("::k");
    if (colons != std::string_view::npos) enumeration = found->cpp.substr(0, colons);
    if (spelling == Spelling::kC) {
      result += found->c;
    } else if (colons != std::string_view::npos) {
      result += str_format("{}=\"{}\"", option_of(enumeration), found->names);
    } else {
      result += found->names;
    }
    text.remove_prefix(taken);
  }
  return result;
}

}  // namespace cgtree
