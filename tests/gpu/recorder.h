/// \file  Streams and graphs of simulated GPUs. While a stream is recorded, its operators are kept, and what they wrote
/// to older memory is taken back at the end, because CUDA computes nothing during a recording. What CUDA refuses then
/// is an error: a wait, and a copy between the GPU and the processor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <vector>

namespace evenkeel::simulated_gpu {

/// Computes the values of one operator, on tensors of the processor that share the memory of the GPU
/// (on_processor()).
using Work = std::function<void()>;

/// Computes an operator, and records it if the stream of this thread is recorded.
void launch(const Work& work);
/// Computes an operator that makes new tensors. \return its results on `device`
std::vector<at::Tensor> launched(const std::function<std::vector<at::Tensor>()>& work, c10::Device device);
/// Adds to the recording of this thread's stream, if there is one.
void record(const Work& work);

/// Returns true if the stream of this thread is recorded.
bool is_recorded();
/// \throws c10::Error if the stream of this thread is recorded \param what  what is refused, e.g. "a wait"
void refuse_in_recording(const char* what);

/// Returns the device of this thread.
c10::DeviceIndex current_device();
/// Return the stream of this thread. exchange_stream() sets another one.
c10::StreamId current_stream();
c10::StreamId exchange_stream(c10::StreamId stream);

/// Returns memory of the pool of the recording. REQUIRES is_recorded()
void* allocate_for_recording(size_t bytes);
/// Gives a block back to its pool. \return false if it belongs to none
bool free_of_recording(void* address);

}  // namespace evenkeel::simulated_gpu
