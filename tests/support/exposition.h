// Reads the text exposition format of Prometheus, strictly: unknown lines are failures.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace cgtree::testing {

// An Exposition is a page of metrics: for each family its type, for each series its value. A series
// is its name and labels as written: `cgtree_live_outputs{context="decode"}`.
struct Exposition {
  std::map<std::string, std::string> types;
  std::map<std::string, double> series;

  // Returns the value; fails the test if the series does not exist.
  double operator[](const std::string& name) const;
  // Returns the family of a series: its name without labels, and without the suffix of a histogram.
  std::string family(const std::string& name) const;
  // Returns true if the series may only rise: that of a counter, or of a histogram.
  bool is_counter(const std::string& name) const;
};

// Fails the test for an unknown line, a family that appears twice or lacks HELP or TYPE, a series
// that appears twice, and a series outside its family.
Exposition parse_exposition(std::string_view text);

}  // namespace cgtree::testing
