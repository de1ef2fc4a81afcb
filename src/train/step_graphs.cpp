#include "train/step_graphs.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/plain/error.h"
#include "nn/engines/engine_of.h"

namespace evenkeel::train {
namespace {

void add_sizes(const at::Tensor& tensor, std::vector<int64_t>& shape) {
  if (!tensor.defined()) return shape.push_back(-1);
  shape.push_back(static_cast<int64_t>(tensor.storage().nbytes()));
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
}

/// Returns the sizes of everything that a client computes with.
std::vector<int64_t> shape_of(const methods::LocalSetup& setup) {
  std::vector<int64_t> shape;
  for (const auto& [site, factors] : setup.adapters)
    for (const auto& factor : lora::kFactors) add_sizes(factors.*factor.tensor, shape);
  for (const auto* tensors : {&setup.router.modulation, &setup.extra_trainables, &setup.notes})
    for (const auto& [name, tensor] : *tensors) add_sizes(tensor, shape);
  add_sizes(setup.router.output_scale, shape);
  return shape;
}

}  // namespace

StepGraphs::StepGraphs(nn::EngineKind engine) : passes_(nn::engine_of(engine).graphs()) {
  EK_CHECK(passes_, kInternal, "engine ", config::name_of(engine), " records no passes");
}

StorageCopies StepGraphs::copies_of(const methods::LocalSetup& setup, const StorageCopies& known, c10::Device device) {
  auto shape = shape_of(setup);
  const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.shape == shape; });
  if (found == kept_.end())
    kept_.push_front({std::move(shape)});
  else
    kept_.splice(kept_.begin(), kept_, found);
  if (kept_.size() > kMostShapesOfClients) kept_.pop_back();
  return kept_.front().memory.copies(known, device);
}

}  // namespace evenkeel::train
