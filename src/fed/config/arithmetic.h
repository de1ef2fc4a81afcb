/// \file  Chooses the values that a config leaves to the machine and that affect results: number of threads, device,
/// and kernels of products with the base.
#pragma once

#include <array>
#include <string_view>

#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// The keys that decide how a process computes. A resumed run may be computed otherwise, with other bits.
inline constexpr std::array<std::string_view, 6> kArithmeticKeys = {
    "model.device", "model.engine", "model.graphs", "model.cuda_kernels", "model.compute_dtype", "model.products"};
/// Copies the values of kArithmeticKeys.
void take_arithmetic(const ModelSection& from, ModelSection& to);

/// Returns this machine's values for keys that `config` leaves open: all cores, the GPU if there is one, and the
/// fastest kernels. Cost: measuring kernels takes seconds (nn/dense/matmul_probe.h). It is done only if the config asks
/// for it and the model has a large weight in 16 bits or int8. Meanwhile the pool has the config's number of threads.
/// \throws as load_shape()
MachineChoices machine_choices(const ExperimentConfig& config);

/// Moves a settled `[model]` section to another device and its engine. Kernels that were measured for processors are
/// dropped on a GPU, nothing is recorded (model.graphs), and no CUDA kernels compute.
/// \param device  value of the option --device; empty or equal to the present device: nothing changes
/// \throws kConfig when the device or its engine does not support the config
void compute_on(ModelSection& model, const std::string& device);

/// Returns why the passes of a training cannot be recorded with these settings; empty if they can (model.graphs).
/// REQUIRES a device that is not "auto"
std::string why_no_graphs(const ModelSection& model);
/// Records passes in this process if that is possible, whatever `model` says, and logs why if it is not.
void choose_graphs(ModelSection& model);
/// Checks that a run that records passes can go on here. \throws kConfig
void require_graphs(const ModelSection& model);

}  // namespace evenkeel::fed
