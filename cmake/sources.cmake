# The files of the library. //tests:cmake_lists_test finds files that are not listed.

# The headers included by cgtree/cgtree.h.
set(CGTREE_HEADERS
  base/check.h
  base/error.h
  base/frame.h
  base/log.h
  base/mutex.h
  base/spinning_mutex.h
  extensions/ranks/collectives.h
  extensions/ranks/group.h
  interop/device/code.h
  interop/device/device.h
  interop/device/device_api.h
  interop/device/graph_api.h
  interop/device/handles.h
  interop/device/kernel.h
  interop/device/kernel_function.h
  interop/device/stream.h
  interop/exchange/cuda_stream.h
  interop/exchange/from_memory.h
  interop/random/generator.h
  interop/random/philox.h
  interop/random/random.h
  interop/tensor/dtype.h
  interop/tensor/empty.h
  interop/tensor/shape.h
  interop/tensor/storage.h
  interop/tensor/tensor.h
  allocator/pool/segment_source.h
  cgtree/values/axes.h
  cgtree/cgtree.h
  extensions/ranks/communicator.h
  extensions/flow/control_flow.h
  cgtree/compile.h
  cgtree/context.h
  cgtree/function_handle.h
  cgtree/tree/backoff.h
  cgtree/values/eager_break.h
  cgtree/values/explanation.h
  cgtree/values/graph_scope.h
  cgtree/values/guard.h
  cgtree/values/group.h
  cgtree/values/input_list.h
  cgtree/values/key.h
  cgtree/values/options.h
  extensions/sizes/learned_demand.h
  extensions/flow/loop_stream.h
  extensions/sizes/precapture.h
  extensions/watch/recent_events.h
  extensions/guards/guard.h
  extensions/scopes/scope.h
  extensions/sizes/size_learner.h
  extensions/sizes/size_plan.h
  cgtree/values/stats.h
  cgtree/steps.h
  extensions/sizes/suggest_buckets.h)

# Further headers named by pages of docs/, with the headers that they include.
set(CGTREE_DOCUMENTED_HEADERS
  extensions/ranks/mpi_group.h
  extensions/ranks/nccl_collectives.h
  simulator/host_device.h
  interop/device/node_contents.h
  interop/exchange/cuda_array_interface.h
  interop/exchange/dlpack.h
  interop/exchange/dlpack_tensor.h
  interop/exchange/foreign_array.h
  interop/tensor/stream_synchronization.h
  interop/exchange/type_string.h
  targets/code_generator.h
  targets/module.h
  targets/option_schema.h
  targets/target.h
  targets/target_kind.h
  interop/tensor/copy.h
  interop/tensor/gather_row.h
  allocator/pool/block.h
  cgtree/tree/extension.h
  extensions/audit/audit.h
  extensions/audit/audit_options.h
  extensions/inspect/inspect.h
  extensions/verify/verify.h
  extensions/watch/watch.h
  extensions/scopes/node_scopes.h
  cgtree/record/attachment.h
  extensions/progress/progress_json.h
  extensions/progress/progress_watch.h
  extensions/progress/replay_times.h
  extensions/verify/verification.h
  extensions/watch/metrics.h
  extensions/watch/monitor.h)

# Further headers included by bindings/torch/torch.h. They are compiled where PyTorch's headers are.
set(CGTREE_TORCH_HEADERS
  bindings/torch/torch.h
  bindings/torch/allocator.h
  bindings/torch/draws.h
  bindings/torch/host_node.h
  bindings/torch/inputs.h
  bindings/torch/step.h
  bindings/torch/tensors.h
  interop/exchange/foreign_memory.h)

# Each list is compiled as one file, which takes a third of the time: no two of its files may use one name twice.
function(cgtree_sources list)
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${list})
  set(CGTREE_SOURCES ${CGTREE_SOURCES} ${ARGN} PARENT_SCOPE)
endfunction()

cgtree_sources(devices
  base/error.cc
  base/format.cc
  base/frame.cc
  base/log.cc
  base/mutex.cc
  interop/device/code.cc
  interop/device/device_api.cc
  interop/device/node_contents.cc
  interop/device/refusal.cc
  interop/device/device.cc
  interop/device/graph.cc
  interop/device/kernel.cc
  interop/device/profiler.cc
  simulator/capture.cc
  simulator/graph.cc
  simulator/host_device.cc
  simulator/host_graphs.cc
  simulator/memory.cc
  simulator/runtime.cc
  simulator/strict_memory.cc
  simulator/work.cc
  simulator/work_queue.cc
  interop/device/stream.cc
  interop/device/stream_identity.cc)

cgtree_sources(tensors
  interop/exchange/cuda_array_interface.cc
  interop/exchange/cuda_stream.cc
  interop/exchange/dlpack.cc
  interop/exchange/dlpack_exchange.cc
  interop/exchange/dlpack_tensor.cc
  interop/exchange/foreign_array.cc
  interop/exchange/foreign_memory.cc
  interop/exchange/from_memory.cc
  interop/exchange/lent_memory.cc
  interop/tensor/stream_synchronization.cc
  interop/exchange/type_string.cc
  interop/tensor/copy.cc
  interop/tensor/empty.cc
  interop/tensor/gather_row.cc
  interop/tensor/shape.cc
  interop/tensor/storage.cc
  interop/tensor/tensor.cc)

cgtree_sources(targets
  extensions/ranks/abortable.cc
  extensions/ranks/block_group.cc
  extensions/ranks/collective_call.cc
  extensions/ranks/collectives.cc
  extensions/ranks/collectives_group.cc
  extensions/ranks/group.cc
  extensions/ranks/host_collectives.cc
  extensions/ranks/mpi_group.cc
  extensions/ranks/nccl.cc
  extensions/ranks/nccl_collectives.cc
  extensions/ranks/rendezvous.cc
  interop/random/generator.cc
  interop/random/random.cc
  targets/code_generator.cc
  targets/module.cc
  targets/option_schema.cc
  targets/target.cc
  targets/target_kind.cc)

cgtree_sources(pools
  allocator/pool/block_table.cc
  allocator/pool/free_bins.cc
  allocator/pool/free_index.cc
  allocator/pool/layout.cc
  allocator/pool/live_index.cc
  allocator/pool/pool.cc
  allocator/pool/pool_caches.cc
  allocator/pool/pool_checkpoint.cc
  allocator/pool/pool_growth.cc
  allocator/pool/segment.cc
  allocator/pool/statistics.cc
  allocator/segments/budget.cc
  allocator/segments/device_sources.cc
  allocator/segments/driver_gate.cc
  allocator/segments/segment_cache.cc
  allocator/segments/stream_progress.cc)

cgtree_sources(allocators
  allocator/device/device_memory.cc
  allocator/device/device_streams.cc
  allocator/device/pinned_memory.cc
  allocator/device/pool_segments.cc
  allocator/device/stream_pool.cc
  caching/caching_allocator.cc
  caching/device_allocator.cc
  caching/segment_map.cc
  caching/reports/statistics_json.cc
  caching/threads/block_marks.cc
  caching/threads/thread_cache.cc
  caching/threads/thread_caches.cc)

cgtree_sources(memory
  cgtree/axes/axis_layout.cc
  cgtree/axes/axis_plan.cc
  cgtree/axes/axis_rule.cc
  cgtree/memory/context_memory.cc
  cgtree/memory/context_pools.cc
  cgtree/memory/context_stream.cc
  cgtree/memory/declared_memory.cc
  cgtree/memory/plain_memory.cc
  cgtree/memory/recorded_memory.cc
  cgtree/memory/releases.cc
  cgtree/memory/slots.cc)

cgtree_sources(record
  cgtree/record/apart.cc
  cgtree/record/breaks.cc
  cgtree/record/call.cc
  cgtree/record/draws.cc
  cgtree/record/gather.cc
  cgtree/record/gather_node.cc
  cgtree/record/graph_memory.cc
  cgtree/record/input_run.cc
  cgtree/record/open_recording.cc
  cgtree/record/open_run.cc
  cgtree/record/outputs.cc
  cgtree/record/prepare.cc
  cgtree/record/recorder.cc
  cgtree/record/recording.cc
  cgtree/record/step.cc)

cgtree_sources(tree
  cgtree/tree/attempt.cc
  cgtree/tree/ballot.cc
  cgtree/tree/decide.cc
  cgtree/tree/engine.cc
  cgtree/tree/evict.cc
  cgtree/tree/explain.cc
  cgtree/tree/extension.cc
  cgtree/tree/extensions.cc
  cgtree/tree/failures.cc
  cgtree/tree/gate.cc
  cgtree/tree/ordering.cc
  cgtree/tree/outcomes.cc
  cgtree/tree/outer_graph.cc
  cgtree/tree/replay.cc
  cgtree/tree/tree.cc
  cgtree/tree/votes.cc
  cgtree/tree/words.cc)

cgtree_sources(flow
  extensions/flow/control_flow.cc
  extensions/flow/loop_stream.cc
  extensions/flow/body.cc
  extensions/flow/body_run.cc
  extensions/flow/conditional.cc
  extensions/flow/flow_log.cc
  extensions/flow/loop.cc)

cgtree_sources(check
  extensions/rebind/address_words.cc
  extensions/audit/audit.cc
  extensions/verify/compare.cc
  extensions/audit/graph_estimate.cc
  extensions/audit/graph_examiner.cc
  extensions/audit/node_bytes.cc
  extensions/inspect/compare_captures.cc
  extensions/inspect/compare_runs.cc
  extensions/inspect/found_recording.cc
  extensions/inspect/inspect.cc
  extensions/inspect/inspect_text.cc
  extensions/inspect/recording_facts.cc
  extensions/progress/mark_plan.cc
  extensions/progress/mark_words.cc
  extensions/progress/marked_recording.cc
  extensions/rebind/node_rebinding.cc
  extensions/rebind/probe.cc
  extensions/audit/program_image.cc
  extensions/rebind/read_graph.cc
  extensions/rebind/rebind.cc
  extensions/rebind/rebind_choice.cc
  extensions/rebind/session_examiner.cc
  extensions/rebind/sessions.cc
  extensions/audit/recording_audit.cc
  extensions/verify/repeated_draws.cc
  extensions/verify/replay_comparison.cc
  extensions/verify/replay_verifier.cc
  extensions/scopes/scope_log.cc
  extensions/scopes/scope_stack.cc
  extensions/rebind/shared_exec.cc
  extensions/verify/verification.cc)

cgtree_sources(faces
  extensions/ranks/communicator.cc
  cgtree/compile.cc
  cgtree/context.cc
  extensions/watch/monitor.cc
  cgtree/function_handle.cc
  cgtree/values/explanation.cc
  cgtree/values/group.cc
  cgtree/values/graph_scope.cc
  cgtree/values/key.cc
  extensions/sizes/learned_demand.cc
  extensions/sizes/precapture.cc
  extensions/watch/recent_events.cc
  extensions/guards/guard.cc
  extensions/scopes/scope.cc
  extensions/sizes/size_learner.cc
  extensions/sizes/size_plan.cc
  cgtree/steps.cc
  extensions/sizes/suggest_buckets.cc
  extensions/all/all_extensions.cc
  extensions/all/log_writer.cc)

cgtree_sources(watch
  extensions/watch/call_causes.cc
  extensions/progress/context_progress.cc
  extensions/watch/event_log.cc
  extensions/watch/event_log_replays.cc
  extensions/watch/event_record.cc
  extensions/watch/flight_recorder.cc
  extensions/watch/metrics_text.cc
  extensions/scopes/nvtx_scopes.cc
  extensions/progress/progress_json.cc
  extensions/progress/progress_text.cc
  extensions/progress/progress_watch.cc
  extensions/progress/replay_timer.cc
  extensions/watch/spelling.cc
  extensions/watch/snapshot.cc
  extensions/watch/snapshot_functions.cc
  extensions/watch/snapshot_nodes.cc
  extensions/watch/stats_text.cc
)

# Compiled one by one.
set(CGTREE_HOST_SOURCES
  extensions/flow/condition_kernels_host.cc
  interop/random/random_kernels_host.cc)

set(CGTREE_CUDA_SOURCES
  caching/cuda/memory_resource.cc
  interop/device/cuda/architectures.cc
  interop/device/cuda/cuda_alike.cc
  interop/device/cuda/cuda_conditionals.cc
  interop/device/cuda/cuda_device.cc
  interop/device/cuda/cuda_graphs.cc
  interop/device/cuda/cuda_nodes.cc
  interop/device/cuda/cuda_patches.cc
  interop/device/cuda/cuda_progress.cc
  interop/device/cuda/driver.cc
  interop/device/cuda/cupti.cc
  interop/device/cuda/nvtx.cc
  targets/cuda/code_cache.cc
  targets/cuda/cuda_module.cc
  targets/cuda/nvrtc.cc)

# Compiled by nvcc.
set(CGTREE_CUDA_KERNELS
  extensions/verify/cuda/compare_kernel.cu
  extensions/progress/cuda/mark_kernel.cu
  extensions/flow/condition_kernels.cu
  cgtree/record/cuda/gather_kernel.cu
  interop/random/random_kernels.cu
  interop/tensor/cuda/row_kernel.cu)

# The C ABI.
set(CGTREE_C_HEADERS
  bindings/c/c_api.h
  bindings/c/cgtree.hpp)

set(CGTREE_C_SOURCES
  bindings/c/axes.cc
  bindings/c/cai.cc
  bindings/c/control_flow.cc
  bindings/c/device.cc
  bindings/c/dlpack.cc
  bindings/c/eager_break.cc
  bindings/c/function.cc
  bindings/c/generator.cc
  bindings/c/handles.cc
  bindings/c/json.cc
  bindings/c/progress.cc
  bindings/c/options.cc
  bindings/c/status.cc
  bindings/c/steps.cc
  bindings/c/tensor.cc)
set_source_files_properties(${CGTREE_C_SOURCES} PROPERTIES UNITY_GROUP c_api)

# Not built: tools/amalgamate makes from them the two files that engines vendor.
set(CGTREE_STEPS_SOURCES
  bindings/steps/cgtree_steps.cc)

# The core alone.
if(NOT CGTREE_EXTENSIONS)
  foreach(list CGTREE_SOURCES CGTREE_HOST_SOURCES CGTREE_CUDA_SOURCES CGTREE_CUDA_KERNELS CGTREE_HEADERS
          CGTREE_DOCUMENTED_HEADERS)
    list(FILTER ${list} EXCLUDE REGEX "^(extensions|targets|caching)/")
  endforeach()
  set(CGTREE_TORCH_HEADERS "")
  list(APPEND CGTREE_SOURCES
  extensions/none/no_extensions.cc)
endif()
