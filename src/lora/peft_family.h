/// \file  Defines how transformers and PEFT hold the experts of a model family. Each family sets its value
/// (ModelSpec::peft in models/causal_lm.h); lora/peft_programs.h uses it.
#pragma once

#include <cstdint>

namespace evenkeel::lora {

enum class PeftFamily : uint8_t {
  kUntried,    ///< no test loads adapters of the family with PEFT
  kDense,      ///< no experts: each linear is a module in all versions
  kConverted,  ///< checkpoints have one module per expert. transformers 5 joins them; PEFT 0.21 converts adapters
  kConvertedRouters,  ///< as kConverted, and routers are parameters, not linear modules, in all versions
  kJoined,            ///< checkpoints have all experts of a layer in one tensor
};

/// Returns true if PEFT 0.21 converts adapters of the family from one module per expert.
constexpr bool is_converted(PeftFamily family) {
  return family == PeftFamily::kConverted || family == PeftFamily::kConvertedRouters;
}

}  // namespace evenkeel::lora
