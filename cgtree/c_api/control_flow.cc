// Branches and loops on the device, in C.
#include "cgtree/control_flow.h"

#include <fmt/format.h>

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cgtree/c_api/convert.h"
#include "cgtree/c_api/handles.h"

namespace cgtree::capi {
namespace {

using Enqueue = std::function<std::vector<Tensor>()>;

// Returns null for a body that is missing.
Enqueue body_of(const cgt_body* body, std::string name, std::size_t results) {
  if (body == nullptr || body->enqueue == nullptr) return nullptr;
  return [body, name = std::move(name), results] {
    const Callback callback(name, /*is_body=*/true);
    std::vector<cgt_tensor> made(results, nullptr);
    callback.call([&] { return body->enqueue(body->user, made.data(), made.size()); });
    return tensors_of(made, "result", name);
  };
}

std::function<void()> without_results(const Enqueue& body) {
  if (!body) return nullptr;
  return [&body] { (void)body(); };
}

std::vector<Tensor> branch_of(const Tensor& predicate, const Enqueue& then,
                              const Enqueue& otherwise, bool has_results) {
  if (has_results) return branch_results(predicate, then, otherwise);
  branch(predicate, without_results(then), without_results(otherwise));
  return {};
}

std::vector<Tensor> choose_of(const Tensor& index, std::span<const Enqueue> bodies,
                              bool has_results) {
  if (has_results) return choose_results(index, bodies);
  std::vector<std::function<void()>> plain;
  for (const Enqueue& body : bodies)
    plain.push_back(without_results(body));
  choose(index, plain);
  return {};
}

}  // namespace
}  // namespace cgtree::capi

using namespace cgtree;
using namespace cgtree::capi;

extern "C" {

// The next three keep the tensor that says which way to go: a body may destroy its handle.

cgt_status cgt_branch(cgt_tensor predicate, const cgt_body* then, const cgt_body* otherwise,
                      cgt_tensor* results, size_t result_count) {
  return guarded([&] {
    if (result_count > 0) required(results, "the array of results");
    const Tensor flag = tensor_of(predicate, "the predicate");
    std::vector<Tensor> made =
        branch_of(flag, body_of(then, "then() of branch()", result_count),
                  body_of(otherwise, "otherwise() of branch()", result_count), result_count > 0);
    give_out(made, results);
  });
}

cgt_status cgt_choose(cgt_tensor index, const cgt_body* bodies, size_t body_count,
                      cgt_tensor* results, size_t result_count) {
  return guarded([&] {
    if (body_count > 0) required(bodies, "the array of bodies");
    if (result_count > 0) required(results, "the array of results");
    const Tensor number = tensor_of(index, "the index");
    std::vector<Enqueue> all;
    for (std::size_t i = 0; i < body_count; ++i)
      all.push_back(body_of(&bodies[i], fmt::format("body {} of choose()", i), result_count));
    std::vector<Tensor> made = choose_of(number, all, result_count > 0);
    give_out(made, results);
  });
}

cgt_status cgt_loop(int64_t max_rounds, const cgt_body* body, cgt_tensor* rounds) {
  return guarded([&] {
    std::function<Tensor()> round;
    if (Enqueue enqueue = body_of(body, "the body of loop()", 1))
      round = [enqueue = std::move(enqueue)] { return enqueue()[0]; };
    Tensor made = loop(max_rounds, round);
    if (rounds != nullptr) *rounds = make_tensor(std::move(made));
  });
}

}  // extern "C"
