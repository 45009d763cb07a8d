// Report: on one screen, the reasons why calls of a context did not replay, the largest costs, and
// changes to the code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "extensions/watch/report_facts.h"

namespace cgtree {

// An Advice is something to change in the code, and the numbers that speak for it.
struct Advice {
  std::string text;          // "'f': keep 'weights' at one address, or ..."
  std::string numbers;       // "5 recordings took 12.0 ms: static input 0 'weights': ..."
  std::uint64_t weight = 0;  // how many calls it is about

  friend bool operator==(const Advice&, const Advice&) = default;
};

// Returns advice, the weightiest first. A pure function.
std::vector<Advice> advise(const ReportFacts& facts);

// Returns the report as text, of at most kReportLines lines of ASCII if names are. A pure function.
std::string report_text(const ReportFacts& facts);

// The lines of a report that fit on a screen.
inline constexpr std::size_t kReportLines = 40;

// Returns the report of a snapshot, or one after the other those of the contexts of an event file.
// Throws InvalidArgument for another text.
std::string report_of(std::string_view text);

}  // namespace cgtree
