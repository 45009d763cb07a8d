// Spelling: texts that name options, with the names of a language.
#pragma once

#include <string>
#include <string_view>

namespace cgtree {

// A Spelling is the origin of the names in a text.
enum class Spelling {
  kNames,  // only those of options and choices, which the log and Python use
  kC,
};

// Returns a text that names options, choices and functions as C++ does ("raise
// CompileOptions::max_recordings") with other names ("raise max_recordings of the function", "raise
// cgt_function_options.max_recordings"). extensions/watch/option_table.h has the names. Other text
// stays.
std::string spelled(std::string_view text, Spelling spelling);

}  // namespace cgtree
