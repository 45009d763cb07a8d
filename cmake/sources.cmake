# What the library consists of. //tests:cmake_lists_test finds what is not listed.

# What cgtree/cgtree.h includes.
set(CGTREE_HEADERS
  base/check.h
  base/error.h
  base/log.h
  base/mutex.h
  base/spinning_mutex.h
  interop/collectives/collectives.h
  interop/collectives/collectives_group.h
  interop/collectives/group.h
  interop/device/code.h
  interop/device/device.h
  interop/device/device_api.h
  interop/device/graph_api.h
  interop/device/kernel.h
  interop/device/kernel_function.h
  interop/device/stream.h
  interop/device/virtual_memory_api.h
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
  cgtree/axes.h
  cgtree/cgtree.h
  cgtree/communicator.h
  cgtree/compile.h
  cgtree/context.h
  cgtree/function_handle.h
  cgtree/eager_break.h
  cgtree/explanation.h
  cgtree/graph_scope.h
  cgtree/input_list.h
  cgtree/key.h
  cgtree/metrics.h
  cgtree/options.h
  cgtree/learned_demand.h
  cgtree/precapture.h
  cgtree/recent_events.h
  cgtree/scope.h
  cgtree/size_learner.h
  cgtree/size_plan.h
  cgtree/stats.h
  cgtree/steps.h
  cgtree/suggest_buckets.h
  cgtree/verification.h)

# What pages of docs/ name beside those, with what it includes.
set(CGTREE_DOCUMENTED_HEADERS
  interop/collectives/mpi_group.h
  interop/collectives/nccl_collectives.h
  interop/device/host/host_device.h
  interop/device/node_contents.h
  interop/exchange/cuda_array_interface.h
  interop/exchange/cuda_array_tensor.h
  interop/exchange/dlpack.h
  interop/exchange/dlpack_tensor.h
  interop/tensor/stream_synchronization.h
  interop/exchange/type_string.h
  interop/target/code_generator.h
  interop/target/module.h
  interop/target/option_schema.h
  interop/target/target.h
  interop/target/target_kind.h
  interop/tensor/copy.h
  interop/tensor/gather_row.h
  allocator/pool/block.h
  cgtree/check/audit.h
  cgtree/check/node_scopes.h
  cgtree/record/graph_findings.h
  cgtree/watch/report.h
  cgtree/watch/report_facts.h)

# What cgtree/torch.h includes beside those. They are compiled where PyTorch's headers are.
set(CGTREE_TORCH_HEADERS
  cgtree/torch.h
  cgtree/torch/draws.h
  cgtree/torch/host_node.h
  cgtree/torch/inputs.h
  cgtree/torch/step.h
  interop/exchange/foreign_memory.h
  interop/exchange/torch_allocator.h
  interop/exchange/torch_tensor.h)

# Each list is compiled as one file, which takes a third of the time: no two of its files may give one name to
# two things.
function(cgtree_sources list)
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${list})
  set(CGTREE_SOURCES ${CGTREE_SOURCES} ${ARGN} PARENT_SCOPE)
endfunction()

cgtree_sources(devices
  base/error.cc
  base/log.cc
  base/mutex.cc
  interop/device/code.cc
  interop/device/node_contents.cc
  interop/device/device.cc
  interop/device/graph.cc
  interop/device/profiler.cc
  interop/device/host/capture.cc
  interop/device/host/graph.cc
  interop/device/host/host_device.cc
  interop/device/host/host_graphs.cc
  interop/device/host/host_progress.cc
  interop/device/host/memory.cc
  interop/device/host/runtime.cc
  interop/device/host/work.cc
  interop/device/host/work_queue.cc
  interop/device/stream.cc
  interop/device/stream_identity.cc)

cgtree_sources(tensors
  interop/exchange/cuda_array_interface.cc
  interop/exchange/cuda_array_tensor.cc
  interop/exchange/dlpack.cc
  interop/exchange/dlpack_exchange.cc
  interop/exchange/dlpack_tensor.cc
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
  interop/collectives/abortable.cc
  interop/collectives/block_group.cc
  interop/collectives/checked_collectives.cc
  interop/collectives/collective_call.cc
  interop/collectives/collectives_group.cc
  interop/collectives/group.cc
  interop/collectives/host_collectives.cc
  interop/collectives/mpi_group.cc
  interop/collectives/nccl.cc
  interop/collectives/nccl_collectives.cc
  interop/collectives/rendezvous.cc
  interop/random/generator.cc
  interop/random/random.cc
  interop/target/code_generator.cc
  interop/target/module.cc
  interop/target/option_schema.cc
  interop/target/target.cc
  interop/target/target_kind.cc)

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
  allocator/caching/caching_allocator.cc
  allocator/caching/device_allocator.cc
  allocator/caching/device_streams.cc
  allocator/caching/pinned_memory.cc
  allocator/caching/private_pool.cc
  allocator/caching/segment_map.cc
  allocator/caching/stream_pool.cc
  allocator/captures/capture_order.cc
  allocator/captures/capture_session.cc
  allocator/captures/device_capture_dag.cc
  allocator/reports/memory_trace.cc
  allocator/reports/pickle.cc
  allocator/reports/snapshot.cc
  allocator/reports/statistics_json.cc
  allocator/threads/block_marks.cc
  allocator/threads/thread_cache.cc
  allocator/threads/thread_caches.cc)

cgtree_sources(memory
  cgtree/axes/axis_layout.cc
  cgtree/axes/axis_plan.cc
  cgtree/axes/axis_rule.cc
  cgtree/memory/context_memory.cc
  cgtree/memory/context_pools.cc
  cgtree/memory/context_stream.cc
  cgtree/memory/declared_memory.cc
  cgtree/memory/releases.cc
  cgtree/memory/slots.cc)

cgtree_sources(record
  cgtree/record/apart.cc
  cgtree/record/breaks.cc
  cgtree/record/call.cc
  cgtree/record/draws.cc
  cgtree/record/gather.cc
  cgtree/record/gather_node.cc
  cgtree/record/input_run.cc
  cgtree/record/open_recording.cc
  cgtree/record/open_run.cc
  cgtree/record/outputs.cc
  cgtree/record/prepare.cc
  cgtree/record/recorder.cc
  cgtree/record/recording.cc
  cgtree/record/step.cc)

cgtree_sources(tree
  cgtree/tree/attempts.cc
  cgtree/tree/decide.cc
  cgtree/tree/door.cc
  cgtree/tree/evict.cc
  cgtree/tree/explain.cc
  cgtree/tree/open_call.cc
  cgtree/tree/outcomes.cc
  cgtree/tree/replay.cc
  cgtree/tree/workings.cc
  cgtree/tree/tree.cc
  cgtree/tree/tree_manager.cc)

cgtree_sources(check
  cgtree/check/address_words.cc
  cgtree/check/audit.cc
  cgtree/check/compare.cc
  cgtree/check/graph_estimate.cc
  cgtree/check/graph_pass.cc
  cgtree/check/node_rebinding.cc
  cgtree/check/probe.cc
  cgtree/check/rebind.cc
  cgtree/check/rebind_choice.cc
  cgtree/check/recording_audit.cc
  cgtree/check/repeated_draws.cc
  cgtree/check/replay_comparison.cc
  cgtree/check/replay_verifier.cc
  cgtree/check/scope_log.cc
  cgtree/check/scope_stack.cc
  cgtree/check/shared_exec.cc
  cgtree/check/verification.cc)

cgtree_sources(faces
  cgtree/communicator.cc
  cgtree/compile.cc
  cgtree/context.cc
  cgtree/context_pages.cc
  cgtree/function_handle.cc
  cgtree/explanation.cc
  cgtree/graph_scope.cc
  cgtree/key.cc
  cgtree/learned_demand.cc
  cgtree/precapture.cc
  cgtree/recent_events.cc
  cgtree/scope.cc
  cgtree/size_learner.cc
  cgtree/size_plan.cc
  cgtree/steps.cc
  cgtree/suggest_buckets.cc
  cgtree/pools/shared_pools.cc
  cgtree/surroundings.cc)

cgtree_sources(watch
  cgtree/ranks/agreement.cc
  cgtree/watch/advise.cc
  cgtree/watch/event_dump.cc
  cgtree/watch/event_log.cc
  cgtree/watch/flight_recorder.cc
  cgtree/watch/metrics_text.cc
  cgtree/watch/replay_timer.cc
  cgtree/watch/report.cc
  cgtree/watch/report_facts.cc
  cgtree/watch/snapshot.cc
  cgtree/watch/snapshot_functions.cc
  cgtree/watch/snapshot_nodes.cc
  cgtree/watch/context_metrics.cc
  cgtree/watch/explanation_text.cc
  cgtree/watch/stats_text.cc
  cgtree/watch/words.cc)

# Compiled one by one.
set(CGTREE_HOST_SOURCES
  interop/random/random_kernels_host.cc)

set(CGTREE_CUDA_SOURCES
  allocator/cuda/memory_resource.cc
  interop/device/cuda/architectures.cc
  interop/device/cuda/cuda_alike.cc
  interop/device/cuda/cuda_device.cc
  interop/device/cuda/cuda_graphs.cc
  interop/device/cuda/cuda_nodes.cc
  interop/device/cuda/cuda_patches.cc
  interop/device/cuda/cuda_progress.cc
  interop/device/cuda/driver.cc
  interop/device/cuda/cupti.cc
  interop/device/cuda/nvtx.cc
  interop/target/cuda/code_cache.cc
  interop/target/cuda/cuda_module.cc
  interop/target/cuda/nvrtc.cc)

# Compiled by nvcc.
set(CGTREE_CUDA_KERNELS
  cgtree/check/cuda/compare_kernel.cu
  cgtree/record/cuda/gather_kernel.cu
  interop/random/random_kernels.cu
  interop/tensor/cuda/row_kernel.cu)

# The C ABI.
set(CGTREE_C_HEADERS
  cgtree/c_api.h
  cgtree/cgtree.hpp)

set(CGTREE_C_SOURCES
  cgtree/c_api/axes.cc
  cgtree/c_api/cai.cc
  cgtree/c_api/device.cc
  cgtree/c_api/dlpack.cc
  cgtree/c_api/eager_break.cc
  cgtree/c_api/function.cc
  cgtree/c_api/generator.cc
  cgtree/c_api/handles.cc
  cgtree/c_api/json.cc
  cgtree/c_api/options.cc
  cgtree/c_api/status.cc
  cgtree/c_api/steps.cc
  cgtree/c_api/tensor.cc)
set_source_files_properties(${CGTREE_C_SOURCES} PROPERTIES UNITY_GROUP c_api)
