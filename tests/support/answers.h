// Answers: what a device answered, call by call, written down to be compared with another's.
#pragma once

#include <string>

#include "interop/device/graph_api.h"

namespace cgtree::testing {

struct CallAnswer {
  std::string device;
  std::string call;
  std::string mode;    // of the capture
  std::string stream;  // the kind of the stream that captures
  Code code;
  Code last_error;       // of the calling thread, after the call
  CaptureStatus status;  // of the capture, after the call
  Code end;              // what ending the capture answers then
};

// Kept until the program ends, and then written as JSON, a row a line, to the file that
// CGTREE_ANSWERS names; does nothing where it names none. tools/compare_answers.py reads it.
//
// Threads: one.
void note_answer(const CallAnswer& answer);

}  // namespace cgtree::testing
