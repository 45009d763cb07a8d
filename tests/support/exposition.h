// Reads the text exposition format of Prometheus, strictly: what it does not know is a failure.
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

  // Returns the value; fails the test if there is no such series.
  double operator[](const std::string& name) const;
  // Returns the family of a series: its name without labels, and without the suffix of a histogram.
  std::string family(const std::string& name) const;
  // Whether the series may only rise: a counter's, or one of a histogram.
  bool is_counter(const std::string& name) const;
};

// Fails the test for a line of another form, a family that is written twice or lacks HELP or TYPE,
// a series that is written twice, and one outside its family.
Exposition parse_exposition(std::string_view text);

}  // namespace cgtree::testing
