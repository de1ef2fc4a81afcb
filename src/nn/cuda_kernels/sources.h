/// \file  Returns the sources of the CUDA kernels as text compiled into the program. They are generated at configure
/// time from src/nn/cuda_kernels/source/ (src/CMakeLists.txt).
#pragma once

#include <string_view>

namespace evenkeel::nn::cuda::sources {

std::string_view all_cu();  ///< includes the others
std::string_view arguments_h();
std::string_view common_cuh();
std::string_view norm_cu();     ///< RMSNorm with rotation, residual with RMSNorm
std::string_view routing_cu();  ///< selection of experts, sorting of token-choices
std::string_view rows_cu();     ///< gathers and sums of rows
std::string_view swiglu_cu();

}  // namespace evenkeel::nn::cuda::sources
