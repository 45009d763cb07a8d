// A small server for the viewer's tests: it produces everything that the page shows.
#pragma once

#include <string>

namespace cgtree::testing {

// Writes earlier.json, later.json and events.jsonl to the folder.
void serve(const std::string& folder);

}  // namespace cgtree::testing
