// Writes the answers after the program's tests.
#include "tests/support/answers.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "interop/device/graph_api.h"

namespace cgtree::testing {
namespace {

const char* name_of(CaptureStatus status) {
  switch (status) {
    case CaptureStatus::kNone:
      return "none";
    case CaptureStatus::kActive:
      return "active";
    case CaptureStatus::kInvalidated:
      return "invalidated";
  }
  return "unknown";
}

class AnswersFile final : public ::testing::Environment {
 public:
  void TearDown() override {
    std::ofstream file(std::getenv("CGTREE_ANSWERS"));
    const char* separator = "[\n";
    for (const CallAnswer& answer : answers) {
      file << separator << to_json(answer).dump();
      separator = ",\n";
    }
    file << (answers.empty() ? "[]\n" : "\n]\n");
    if (!file.flush()) ADD_FAILURE() << "the file that CGTREE_ANSWERS names cannot be written";
  }

  std::vector<CallAnswer> answers;

 private:
  static nlohmann::ordered_json to_json(const CallAnswer& answer) {
    return {{"device", answer.device},
            {"call", answer.call},
            {"mode", answer.mode},
            {"stream", answer.stream},
            {"code", static_cast<int>(answer.code)},
            {"last_error", static_cast<int>(answer.last_error)},
            {"status", name_of(answer.status)},
            {"end", static_cast<int>(answer.end)}};
  }
};

// GoogleTest owns it.
AnswersFile* const file = std::getenv("CGTREE_ANSWERS") == nullptr ? nullptr : [] {
  auto* const made = new AnswersFile;
  ::testing::AddGlobalTestEnvironment(made);
  return made;
}();

}  // namespace

void note_answer(const CallAnswer& answer) {
  if (file != nullptr) file->answers.push_back(answer);
}

}  // namespace cgtree::testing
