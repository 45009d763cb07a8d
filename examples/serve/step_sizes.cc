// A schedule does not depend on which tokens come, so a dry one has the same steps.
#include "examples/serve/step_sizes.h"

#include <algorithm>
#include <vector>

namespace cgtree::serve {

std::int64_t longest(std::span<const Prompt> prompts) {
  std::int64_t length = 0;
  for (const Prompt& prompt : prompts)
    length = std::max(length, prompt.length);
  return length;
}

StepSizes count_sizes(std::span<const Request> requests, const SchedulerOptions& options) {
  Scheduler scheduler(requests, options);
  const std::vector<std::int32_t> answers(static_cast<std::size_t>(options.max_batch));
  StepSizes sizes;
  while (scheduler.begin_step()) {
    const std::span<const Prompt> prompts = scheduler.prompts();
    if (!prompts.empty()) ++sizes.prefills[{std::ssize(prompts), longest(prompts)}];
    if (!scheduler.rows().empty()) ++sizes.decodes[std::ssize(scheduler.rows())];
    ++sizes.steps;
    scheduler.end_step(answers, answers);
  }
  return sizes;
}

}  // namespace cgtree::serve
