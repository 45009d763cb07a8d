// Measures the share of the addresses that libraries pass to their kernels that the audit of a
// recording attributes. Each step of library_steps.h is recorded, and the addresses in its graph
// are counted by the owner of the memory. Foreign addresses, and parts that the audit could not
// read, are listed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/error.h"
#include "benchmarks/libraries/library_steps.h"
#include "benchmarks/support/audit_share.h"
#include "cgtree/cgtree.h"
#include "extensions/ranks/collectives.h"
#include "extensions/ranks/communicator.h"
#include "extensions/ranks/nccl_collectives.h"
#include "extensions/watch/monitor.h"
#include "interop/device/device_api.h"
#include "interop/tensor/copy.h"

namespace cgtree::benchmarks {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kCalls = 3;  // a warm-up, a recording and a replay
constexpr std::int64_t kReducedFloats = 2048;

struct LibrariesOptions {
  std::string device = "auto";
  int ranks = 1;
  std::string json;
  std::string commit = "unknown";
};

Tensor make_input(Device device) {
  std::vector<float> values(static_cast<std::size_t>(kInputFloats));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 0.5F + static_cast<float>(i * 2654435761U % 1024) / 2048;
  return from_host<float>({kInputFloats}, values, device);
}

// Returns the row of a step. The input is static, so that cgtree adds no node.
Json measure(Context& context, const ScannedWords& scanned, const LibraryStep& step,
             const Tensor& x) {
  Json row = {{"library", step.library}, {"step", step.name}};
  try {
    const auto f = compile(context, step.name, [&](Tensor input) { return step.run(input); },
                           {.inputs = {{.is_static = true}}, .require_graph = true});
    for (int i = 0; i < kCalls; ++i) {
      context.mark_step();
      static_cast<void>(f(x));
    }
    context.synchronize();
    add_to(row, scanned);
    row.update(audit_share(snapshot_json(context)));
    if (!row["foreign"].empty()) row["foreign_is"] = step.foreign;
  } catch (const Error& error) {
    row["missing"] = error.message();
  }
  return row;
}

Json measure_step(Device device, const LibraryStep& step) {
  ScannedWords scanned;
  const auto count = [&](const NewRecording& recording) {
    scanned.add(*device_api(device).graphs(), recording.graphs);
  };
  Context context(device, {.before_first_launch = count});
  return measure(context, scanned, step, make_input(device));
}

// Returns the row of rank 0 of an all-reduce through a Communicator.
Json measure_all_reduce(Device device, int ranks) {
  std::vector<std::unique_ptr<Collectives>> ends;
  if (device.type == DeviceType::kCuda) {
    std::vector<Device> devices;
    for (int i = 0; i < ranks; ++i)
      devices.push_back(Device::cuda(i));
    ends = make_nccl_collectives(devices);
  } else {
    ends = make_host_collectives(ranks);
  }
  std::vector<Json> rows(ends.size());
  std::barrier<> all_ready(static_cast<std::ptrdiff_t>(ends.size()));
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const std::shared_ptr<Collectives> collectives = std::move(ends[rank]);
      const Device own = collectives->device();
      ScannedWords scanned;
      const auto count = [&](const NewRecording& recording) {
        scanned.add(*device_api(own).graphs(), recording.graphs);
      };
      const Stream stream(own);  // plain copies of other ranks do not wait for it
      Context context(own, {.stream = stream, .before_first_launch = count});
      Communicator communicator(context, collectives);
      const Tensor input = make_input(own);
      const auto reduce = [&](const Tensor& x) {
        Tensor y = empty({kReducedFloats}, DType::kFloat32);
        copy_elements(current_stream(), y, x.slice(0, 0, kReducedFloats));
        communicator.all_reduce(y);
        return y;
      };
      rows[rank] =
          measure(context, scanned,
                  {own.type == DeviceType::kCuda ? "NCCL" : "host collectives",
                   fmt::format("all-reduce on {} rank{}", ranks, ranks == 1 ? "" : "s"), reduce,
                   "the communicator's own buffers and flags, which live as long as it"},
                  make_input(own));
    });
  }
  threads.clear();
  return rows[0];
}

using MakeSteps = std::vector<LibraryStep> (*)();
struct Library {
  const char* name;
  MakeSteps steps;
};

std::vector<Library> libraries(Device device) {
  std::vector<Library> list = {{"cgtree", &own_steps}};
#ifdef CGTREE_WITH_CUDA
  if (device.type == DeviceType::kCuda) {
    list.insert(list.end(), {{"cuBLAS", &cublas_steps},
                             {"cuBLASLt", &cublaslt_steps},
                             {"CUB", &cub_steps},
                             {"cuDNN", &cudnn_steps}});
  }
#else
  static_cast<void>(device);
#endif
  return list;
}

void print_row(const Json& row) {
  const std::string name =
      fmt::format("{}, {}", row["library"].get<std::string>(), row["step"].get<std::string>());
  if (row.contains("missing")) {
    fmt::print("{:<56} {}\n", name, row["missing"].get<std::string>());
    return;
  }
  const Json& share = row["attributed"];
  fmt::print("{:<56}{:>8}{:>8}{:>10}{:>12}{:>9}{:>8}\n", name, row["kernels"].get<int>(),
             row["words"].get<int>(), row["addresses"].get<int>(),
             share.is_null() ? "-" : fmt::format("{:.1f} %", 100 * share.get<double>()),
             row["foreign"].size(), row["unseen"].size());
  for (const char* const list : {"foreign", "unseen"}) {
    for (const Json& entry : row[list])
      fmt::print("    {}: {} ({} nodes)\n", list, entry["what"].get<std::string>(),
                 entry["nodes"].get<int>());
  }
  if (row.contains("foreign_is") && !row["foreign_is"].get<std::string>().empty()) {
    fmt::print("    it is {}\n", row["foreign_is"].get<std::string>());
  }
}

// Throws InvalidArgument.
void write_file(const std::string& path, const Json& json) {
  std::ofstream file(path);
  file << json.dump(2) << '\n';
  file.close();
  if (!file) throw InvalidArgument(fmt::format("cannot write '{}'", path));
}

Json facts(Device device, const LibrariesOptions& options, const std::string& command) {
  const auto text = [&](DeviceAttribute attribute) {
    const AttributeValue value = device_api(device).attribute(device.id, attribute);
    const auto* const found = std::get_if<std::string>(&value);
    return found == nullptr ? std::string("none") : *found;
  };
  return {{"commit", options.commit},
          {"command", command},
          {"device", to_string(device)},
          {"device_name", text(DeviceAttribute::kName)},
          {"driver", text(DeviceAttribute::kDriverRelease)}};
}

void run(const LibrariesOptions& options, const std::string& command) {
  const Device device = parse_device(options.device);
  check(device_api(device).set_device(device.id), "choose the device");
  Json json = {{"context", facts(device, options, command)}, {"rows", Json::array()}};
  const auto add = [&](const Json& row) {
    print_row(row);
    json["rows"].push_back(row);
    // After each row, as a run may be cut short.
    if (!options.json.empty()) write_file(options.json, json);
  };
  fmt::print("{:<56}{:>8}{:>8}{:>10}{:>12}{:>9}{:>8}\n", "library, step", "kernels", "words",
             "addresses", "attributed", "foreign", "unseen");
  for (const Library& library : libraries(device)) {
    try {
      for (const LibraryStep& step : library.steps())
        add(measure_step(device, step));
    } catch (const Error& error) {
      add({{"library", library.name}, {"step", "all"}, {"missing", error.message()}});
    }
  }
  try {
    add(measure_all_reduce(device, options.ranks));
  } catch (const Error& error) {
    add({{"library", "NCCL"}, {"step", "all-reduce"}, {"missing", error.message()}});
  }
}

}  // namespace
}  // namespace cgtree::benchmarks

int main(int argc, char** argv) {
  cgtree::benchmarks::LibrariesOptions options;
  CLI::App app("How much of what libraries pass to their kernels does the audit attribute?");
  app.option_defaults()->always_capture_default();
  app.add_option("--device", options.device, "auto, host, cuda or cuda:N");
  app.add_option("--ranks", options.ranks, "devices of the all-reduce")->check(CLI::Range(1, 8));
  app.add_option("--json", options.json, "file to write the results to");
  app.add_option("--commit", options.commit, "of the source; noted in the results");
  CLI11_PARSE(app, argc, argv);
  try {
    cgtree::benchmarks::run(options, fmt::format("{}", fmt::join(argv, argv + argc, " ")));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "libraries: {}\n", error.what());
    return 1;
  }
}
