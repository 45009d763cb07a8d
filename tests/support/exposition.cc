// Reads metrics line by line, with a regular expression for each kind of line.
#include "tests/support/exposition.h"

#include <gtest/gtest.h>

#include <regex>
#include <sstream>

namespace cgtree::testing {

double Exposition::operator[](const std::string& name) const {
  const auto found = series.find(name);
  if (found == series.end()) {
    ADD_FAILURE() << "there is no series " << name;
    return -1;
  }
  return found->second;
}

std::string Exposition::family(const std::string& name) const {
  const std::string bare = name.substr(0, name.find('{'));
  for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
    if (!bare.ends_with(suffix)) continue;
    const std::string stem = bare.substr(0, bare.size() - suffix.size());
    const auto type = types.find(stem);
    if (type != types.end() && type->second == "histogram") return stem;
  }
  return bare;
}

bool Exposition::is_counter(const std::string& name) const {
  return types.at(family(name)) != "gauge";
}

Exposition parse_exposition(std::string_view text) {
  static const std::regex kHelp(R"(# HELP ([a-z_]+) [^\\]+)");
  static const std::regex kType(R"(# TYPE ([a-z_]+) (counter|gauge|histogram))");
  static const std::regex kSample(
      R"(([a-z_]+)\{([a-z]+="(?:[^"\\\n]|\\\\|\\"|\\n)*")(,[a-z]+="(?:[^"\\\n]|\\\\|\\"|\\n)*")*\} )"
      R"(([0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]+)?))");
  EXPECT_TRUE(text.empty() || text.back() == '\n');
  Exposition page;
  std::string family;
  std::string helped;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, kHelp)) {
      helped = match[1];
    } else if (std::regex_match(line, match, kType)) {
      family = match[1];
      EXPECT_EQ(helped, family) << "TYPE follows HELP";
      EXPECT_TRUE(page.types.emplace(family, match[2]).second) << "twice: " << family;
    } else if (std::regex_match(line, match, kSample)) {
      const std::string series = line.substr(0, line.rfind(' '));
      EXPECT_EQ(page.family(series), family) << line;
      EXPECT_TRUE(page.series.emplace(series, std::stod(match[4])).second) << "twice: " << line;
    } else {
      ADD_FAILURE() << "no line of the format: " << line;
    }
  }
  return page;
}

}  // namespace cgtree::testing
