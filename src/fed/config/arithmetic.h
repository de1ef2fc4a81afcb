/// \file  Chooses the values that a config leaves to the machine and that affect results: number of threads, device,
/// CUDA graphs, and the kernels of matrix products with base weights.
#pragma once

#include <array>
#include <string_view>

#include "fed/config/experiment_config.h"

namespace evenkeel::fed {

/// The keys that select device, dtype and kernels. --resume may change them; results then differ in the last bits.
inline constexpr std::array<std::string_view, 6> kArithmeticKeys = {
    "model.device", "model.engine", "model.graphs", "model.cuda_kernels", "model.compute_dtype", "model.products"};
/// Copies the values of kArithmeticKeys.
void take_arithmetic(const ModelSection& from, ModelSection& to);

/// Returns this machine's values for keys that `config` leaves open: all cores, the GPU if there is one, and the
/// fastest kernels. Cost: measuring kernels takes seconds (nn/dense/matmul_probe.h). It is done only if the config asks
/// for it and the model has a large weight in 16 bits or int8. While it measures, the thread pool has the config's
/// number of threads. \throws as load_shape()
MachineChoices machine_choices(const ExperimentConfig& config);

/// Moves a settled `[model]` section to another device and its engine. Sets model.graphs to off and model.cuda_kernels
/// to none; on a GPU also drops kernels that were measured for the CPU.
/// \param device  value of the option --device; empty or equal to the present device: nothing changes
/// \throws kConfig when the device or its engine does not support the config
void compute_on(ModelSection& model, const std::string& device);

/// Returns why training with these settings cannot record CUDA graphs (model.graphs); empty if it can. REQUIRES a
/// device that is not "auto"
std::string why_no_graphs(const ModelSection& model);
/// Sets model.graphs to on if CUDA graphs can be recorded here, otherwise to off. If a GPU cannot, it logs why.
void choose_graphs(ModelSection& model);
/// Checks that a run with model.graphs = "on" can continue on this machine. \throws kConfig saying why it cannot
void require_graphs(const ModelSection& model);

}  // namespace evenkeel::fed
